import { describe, expect, it } from "vitest";
import { Pieces } from "../body/pieces.js";
import type { BodyView, MediaItem } from "../body/types.js";
import { encodeBody } from "./encode-body.js";

/** The content of the one message that an encoder gets for `part`. */
function sent(type: MediaItem["type"], part: string): unknown {
  const view: BodyView = { error: null, errorOffset: -1, isObject: true, objectStart: 0, objectEnd: part.length, members: [], media: [], neverSplit: "", stream: false };
  const bytes = Buffer.from(part);
  // Cut in the middle, as a body is that came in two reads.
  const body = new Pieces([bytes.subarray(0, 20), bytes.subarray(20)]);
  const out = encodeBody({ shape: "chat", body, view }, { type, start: 0, end: bytes.length, key: 0n });
  if (out === null) return null;
  const json = JSON.parse(Buffer.concat(out).toString()) as { messages: { content: unknown[] }[] };
  return json.messages[0]?.content[0];
}

describe("encodeBody", () => {
  it("hands chat parts on as they are", () => {
    expect(sent("video_url", '{"type":"video_url", "video_url":{"url":"v"},"uuid":"u"}')).toEqual({ type: "video_url", video_url: { url: "v" }, uuid: "u" });
  });

  it("gives a Responses image the chat form", () => {
    expect(sent("input_image", '{"type":"input_image","image_url":"https://x/a","detail":"low"}')).toEqual({ type: "image_url", image_url: { url: "https://x/a", detail: "low" } });
    expect(sent("input_image", '{"type":"input_image","image_url":{"url":"u"},"uuid":"i"}')).toEqual({ type: "image_url", image_url: { url: "u" }, uuid: "i" });
    expect(sent("input_image", '{"type":"input_image","file_id":"f"}')).toBeNull();
  });

  it("gives an Anthropic image the chat form", () => {
    expect(sent("image", '{"type":"image","source":{"type":"base64","media_type":"image\\/png","data":"AA=="}}')).toEqual({ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } });
    expect(sent("image", '{"type":"image","source":{"type":"url","url":"https://x/\\u0061"}}')).toEqual({ type: "image_url", image_url: { url: "https://x/a" } });
    for (const source of ['{"type":"file","file_id":"f"}', "null", '{"type":"base64","data":"A"}']) expect(sent("image", `{"type":"image","source":${source}}`)).toBeNull();
  });
});
