import { describe, expect, it } from "vitest";
import { ContentWatch, isOpening } from "./opening-events.js";

describe("isOpening", () => {
  it.each([
    ["chat", '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}', true],
    ["chat", '{"choices":[{"delta":{"role":"assistant"}}]}', true],
    ["chat", '{"choices":[{"delta":{"role":"assistant","content":"a"}}]}', false],
    ["chat", '{"choices":[{"delta":{"reasoning_content":"a"}}]}', false],
    ["chat", '{"choices":[{"delta":{"tool_calls":[{"id":"t"}]}}]}', false],
    ["chat", '{"choices":[{"delta":{},"finish_reason":"length"}]}', false],
    ["chat", '{"choices":[],"usage":{}}', false],
    ["chat", '{"error":{"code":500}}', false],
    ["chat", "[DONE]", false],
    ["completions", '{"choices":[{"text":""}]}', false],
    ["responses", '{"type":"response.created"}', true],
    ["responses", '{"type":"response.output_text.delta"}', false],
    ["messages", '{"type":"message_start"}', true],
    ["messages", '{"type":"content_block_delta"}', false],
  ] as const)("%s %s: %s", (shape, data, opening) => {
    expect(isOpening(data, shape)).toBe(opening);
  });
});

describe("ContentWatch", () => {
  it("sees the first content event at any cut", () => {
    const text = 'data: {"choices":[{"delta":{"role":"assistant"}}]}\r\n\r\ndata: {"choices":[{"delta":{"content":"é"}}]}\n';
    const bytes = Buffer.from(text);
    for (let cut = 0; cut <= bytes.length; cut++) {
      const watch = new ContentWatch("chat");
      const early = watch.push(bytes.subarray(0, cut));
      expect(early).toBe(cut === bytes.length);
      expect(watch.push(bytes.subarray(cut))).toBe(true);
    }
  });
});
