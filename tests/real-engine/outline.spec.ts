import { describe, expect, it } from "vitest";
import type { Answer, HeaderLine } from "../fleet/http.js";
import { difference, outline } from "./outline.js";

function answer(type: string, text: string, status = 200): Answer {
  const headers: HeaderLine[] = [["Content-Type", type]];
  return { status, headers, body: Buffer.from(text), trailers: [], end: "clean", error: null, startedAtMs: 0, sentAtMs: 0, firstByteAtMs: 0, endedAtMs: 0, leftAtMs: null };
}

describe("the outline of an answer", () => {
  it("tells kinds of members, the words of the protocol, and nothing that is said", () => {
    const said = (text: string): string[] => outline(answer("application/json", `{"object":"chat","usage":{"n":${text.length.toString()}},"choices":[{"text":"${text}","finish_reason":"stop"}],"x":null,"l":[]}`));
    expect(said("a")).toEqual(said("bcd"));
    expect(said("a")).toEqual(["choices[].finish_reason: \"stop\"", "choices[].text: text", "content-type application/json", "l: []", 'object: "chat"', "status 200, clean", "usage.n: number", "x: null"]);
  });

  it("tells the order of events, and what each holds", () => {
    const lines = outline(answer("text/event-stream; charset=utf-8", 'event: a\ndata: {"x":1}\n\nevent: a\ndata: {"x":2}\n\nevent: b\ndata: {"y":"z"}\n\ndata: [DONE]\n\n'));
    expect(lines).toEqual(["(a).x: number", "(b).y: text", "content-type text/event-stream;charset=utf-8", "events: a, b, [DONE]", "status 200, clean"]);
  });

  it("is compared line by line", () => {
    expect(difference(["a", "b"], ["b", "c"])).toEqual(["- a", "+ c"]);
    expect(difference(outline(answer("application/json", "{")), outline(answer("application/json", "{}", 400)))).toEqual(["- : no JSON", "- status 200, clean", "+ : {}", "+ status 400, clean"]);
  });
});
