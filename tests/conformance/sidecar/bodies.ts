/** Requests that the rows send. */

export const LONG = "The harbour office keeps a ledger of every vessel that enters the bay, with its tide, cargo and berth. ".repeat(6);

export interface Shape {
  readonly name: string;
  readonly target: string;
  /** A prompt of several blocks that no other call has had: engines are to find nothing in their caches. */
  body(more?: Record<string, unknown>): string;
  /** Where the API's first token limit stands. */
  readonly limit: readonly string[];
}

let fresh = 0;
const text = (): string => `${String(fresh++)} ${LONG}`;

export const SHAPES: readonly Shape[] = [
  { name: "chat", target: "/v1/chat/completions", body: (more) => JSON.stringify({ model: "m", messages: [{ role: "user", content: text() }], max_tokens: 8, ...more }), limit: ["max_tokens"] },
  { name: "completions", target: "/v1/completions", body: (more) => JSON.stringify({ model: "m", prompt: text(), max_tokens: 8, ...more }), limit: ["max_tokens"] },
  { name: "messages", target: "/v1/messages", body: (more) => JSON.stringify({ model: "m", messages: [{ role: "user", content: text() }], max_tokens: 8, ...more }), limit: ["max_tokens"] },
  { name: "responses", target: "/v1/responses", body: (more) => JSON.stringify({ model: "m", input: text(), max_output_tokens: 8, ...more }), limit: ["max_output_tokens"] },
  {
    name: "generate",
    target: "/inference/v1/generate",
    body: (more) => {
      const first = 5 + 200 * fresh++;
      return JSON.stringify({ model: "m", token_ids: Array.from({ length: 150 }, (_, index) => index + first), sampling_params: { max_tokens: 8, min_tokens: 2 }, ...more });
    },
    limit: ["sampling_params", "max_tokens"],
  },
];

export const CHAT: Shape = SHAPES[0] as Shape;

/** The value at a path of members. */
export function at(value: unknown, path: readonly string[]): unknown {
  return path.reduce<unknown>((inner, name) => (typeof inner === "object" && inner !== null ? Reflect.get(inner, name) : undefined), value);
}

/** The data of every event of a stream, `[DONE]` left out. */
export function eventsOf(body: string): Record<string, unknown>[] {
  return body
    .split("\n")
    .filter((line) => line.startsWith("data: ") && line !== "data: [DONE]")
    .map((line) => JSON.parse(line.slice("data: ".length)) as Record<string, unknown>);
}

/** What a chat answer says, streamed or not. */
export function chatText(body: string): string {
  if (!body.startsWith("data:") && !body.startsWith("event:")) return String(at(JSON.parse(body), ["choices", "0", "message", "content"]));
  return eventsOf(body)
    .map((event) => at(event, ["choices", "0", "delta", "content"]))
    .filter((piece) => typeof piece === "string")
    .join("");
}
