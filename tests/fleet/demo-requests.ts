/** The requests of the demo: one of each kind that the fleet treats in its own way. */

export interface DemoRequest {
  name: string;
  path: string;
  body: Record<string, unknown>;
}

const SENTENCES = [
  "The night ferry leaves the northern pier when the last lamp on the mole is lit.",
  "Its crew counts the crates twice, once by weight and once by the marks on their lids.",
  "A pilot boat follows as far as the outer buoy and turns back against the tide.",
  "Between the islands the water runs faster than a man can row.",
  "By dawn the smoke of the southern works can be seen above the fog.",
];

/** About 600 tokens by the picker's estimate of four characters a token: well under the 256 blocks of 5 that it looks at. */
function longText(topic: string): string {
  return Array.from({ length: 30 }, (_none, at) => `${topic} ${(at + 1).toString()}: ${SENTENCES[at % SENTENCES.length] ?? ""}`).join(" ");
}

/** One-pixel pictures and a short silence: real files, small enough for a command line. */
const BLUE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGMQSFgAAAGUARH2qJfmAAAAAElFTkSuQmCC";
const RED = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNYYCAAAAJUAOFBSiulAAAAAElFTkSuQmCC";
const SILENCE = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";

function chat(content: unknown, more: Record<string, unknown> = {}): Record<string, unknown> {
  return { model: "demo", messages: [{ role: "user", content }], max_tokens: 16, ...more };
}

export const DEMO_REQUESTS: readonly DemoRequest[] = [
  { name: "short text", path: "/v1/chat/completions", body: chat("Which pier?") },
  { name: "long cold text", path: "/v1/chat/completions", body: chat(longText("Log")) },
  { name: "the same long text again", path: "/v1/chat/completions", body: chat(longText("Log")) },
  {
    name: "an image",
    path: "/v1/chat/completions",
    body: chat([
      { type: "image_url", image_url: { url: BLUE } },
      { type: "text", text: "What is it?" },
    ]),
  },
  {
    name: "long text, image and audio",
    path: "/v1/chat/completions",
    body: chat([
      { type: "text", text: longText("Chart") },
      { type: "image_url", image_url: { url: RED } },
      { type: "input_audio", input_audio: { data: SILENCE, format: "wav" } },
    ]),
  },
  { name: "streamed", path: "/v1/chat/completions", body: chat(longText("Diary"), { stream: true, stream_options: { include_usage: true } }) },
];
