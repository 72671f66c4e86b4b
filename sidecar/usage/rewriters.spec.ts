import { describe, expect, it } from "vitest";
import type { ApiShape } from "../body/types.js";
import { EventStreamRewriter, JsonRewriter, type Rewriter } from "./rewriters.js";

const STREAM = [
  ": comment\n\n",
  'data: {"id":"c1","choices":[{"delta":{"role":"assistant"}}]}\r\n\r\n',
  'event: x\ndata: {"choices":[{"delta":{"content":"tïde \u{1F600}"}}],"usage":null}\n\n',
  "data: not json \"usage\" {\n\n",
  'data:{"choices":[],"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":120}}}\n\n',
  'data: {"usage":{"prompt_tokens":120}}\r\r',
  "data: [DONE]\n\n",
].join("");

const EXPECTED = STREAM.replace('{"cached_tokens":120}', '{"cached_tokens":7}').replace('"usage":{"prompt_tokens":120}', '"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":7}}');

function rewriterOf(shape: ApiShape, cachedTokens: string): EventStreamRewriter {
  return new EventStreamRewriter(shape, cachedTokens, 1_000_000, () => undefined);
}

function run(rewriter: Rewriter, chunks: readonly Buffer[]): string {
  return Buffer.concat([...chunks.flatMap((chunk) => [...rewriter.push(chunk)]), ...rewriter.end()]).toString();
}

describe("EventStreamRewriter", () => {
  it("C-NX-21: rewrites usage once and leaves every other byte, at every cut", () => {
    const bytes = Buffer.from(STREAM);
    for (let cut = 0; cut <= bytes.length; cut++) {
      expect(run(rewriterOf("chat", "7"), [bytes.subarray(0, cut), bytes.subarray(cut)])).toBe(EXPECTED);
    }
    expect(run(rewriterOf("chat", "7"), Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)))).toBe(EXPECTED);
  });

  it("C-NX-21: a last line without newline is rewritten too, a broken one kept", () => {
    expect(run(rewriterOf("chat", "7"), [Buffer.from('data: {"usage":{"prompt_tokens_details":{"cached_tokens":1}}}')])).toBe('data: {"usage":{"prompt_tokens_details":{"cached_tokens":7}}}');
    expect(run(rewriterOf("chat", "7"), [Buffer.from('data: {"usage":{"prompt_to')])).toBe('data: {"usage":{"prompt_to');
  });

  it("C-NX-22: lines that hold no JSON, and other fields, are untouched", () => {
    const text = 'event: usage\nid: "usage"\ndata: "usage"\nretry: 1\n\n: {"usage":{}}\n\n{"usage":{}}\n\n';
    expect(run(rewriterOf("chat", "7"), [Buffer.from(text)])).toBe(text);
  });

  it("keeps no line that does not end: it goes on unread, and so does the rest", () => {
    let told = 0;
    const rewriter = new EventStreamRewriter("chat", "7", 100, () => told++);
    const usage = 'data: {"usage":{"prompt_tokens_details":{"cached_tokens":1}}}\n';
    const text = `${usage}data: ${"x".repeat(300)}\n${usage}`;
    expect(run(rewriter, Array.from(Buffer.from(text), (byte) => Buffer.from([byte])))).toBe(text.replace('"cached_tokens":1', '"cached_tokens":7'));
    expect(told).toBe(1);
  });

  it("gives every complete line at once, as the bytes that came", () => {
    const rewriter = rewriterOf("chat", "7");
    const chunk = Buffer.from("data: 1\n\ndata: 2");
    const out = rewriter.push(chunk);
    expect(Buffer.concat(out).toString()).toBe("data: 1\n\n");
    expect(out[0]?.buffer).toBe(chunk.buffer);
    expect(Buffer.concat(rewriter.push(Buffer.from("3\n"))).toString()).toBe("data: 23\n");
    expect(rewriter.end()).toEqual([]);
  });

  it("Anthropic's two events", () => {
    const stream = 'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":15,"output_tokens":0}}}\n\nevent: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":4}}\n\n';
    expect(run(rewriterOf("messages", "7"), [Buffer.from(stream)])).toBe(
      'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":8,"output_tokens":0,"cache_read_input_tokens":7}}}\n\nevent: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":4,"cache_read_input_tokens":7}}\n\n',
    );
  });
});

describe("JsonRewriter", () => {
  const answer = `{"choices":[{"message":{"content":"${"x".repeat(200_000)}"}}],"usage":{"prompt_tokens_details":{"cached_tokens":49}}}`;

  it("C-NX-23: rewrites a large answer in many reads", () => {
    const bytes = Buffer.from(answer);
    const chunks = Array.from({ length: Math.ceil(bytes.length / 4096) }, (_, index) => bytes.subarray(index * 4096, (index + 1) * 4096));
    expect(run(new JsonRewriter("chat", "7", 1 << 20, () => undefined), chunks)).toBe(answer.replace('"cached_tokens":49', '"cached_tokens":7'));
  });

  it("hands on unread what is too large to keep, and says so", () => {
    let told = 0;
    expect(
      run(new JsonRewriter("chat", "7", 1000, () => told++), [Buffer.from(answer.slice(0, 600)), Buffer.from(answer.slice(600, 1200)), Buffer.from(answer.slice(1200))]),
    ).toBe(answer);
    expect(told).toBe(1);
  });

  it("keeps what is no JSON", () => {
    expect(run(new JsonRewriter("chat", "7", 1000, () => undefined), [Buffer.from("<html>")])).toBe("<html>");
    expect(run(new JsonRewriter("chat", "7", 1000, () => undefined), [])).toBe("");
  });
});
