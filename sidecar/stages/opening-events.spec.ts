import { describe, expect, it } from "vitest";
import { ContentWatch, isMiss, isOpening } from "./opening-events.js";

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

describe("isMiss", () => {
  it.each([
    ['{"choices":[{"finish_reason":"cache_threshold"}]}', true],
    ['{"choices":[{"finish_reason":"stop"},{"finish_reason":"cache_threshold"}]}', false],
    ['{"choices":[]}', false],
    ['{"type":"message","stop_reason":"cache_threshold"}', true],
    ['{"stop_reason":null}', false],
    ["null", false],
  ])("%s: %s", (answer, miss) => {
    expect(isMiss(JSON.parse(answer))).toBe(miss);
  });
});

describe("ContentWatch", () => {
  it("sees the first content event at any cut", () => {
    const text = 'data: {"choices":[{"delta":{"role":"assistant"}}]}\r\n\r\ndata: {"choices":[{"delta":{"content":"é"}}]}\n';
    const bytes = Buffer.from(text);
    for (let cut = 0; cut <= bytes.length; cut++) {
      const watch = new ContentWatch("chat");
      const early = watch.push(bytes.subarray(0, cut));
      expect(early).toBe(cut === bytes.length ? "content" : null);
      expect(watch.push(bytes.subarray(cut))).toBe("content");
    }
  });

  it.each([
    ["chat", '{"error":{"message":"m","code":500}}', "error"],
    ["messages", '{"type":"error","error":{"message":"m"}}', "error"],
    ["responses", '{"type":"response.failed","response":{}}', "error"],
    ["chat", '{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"cache_threshold"}]}', "missed"],
    ["completions", '{"choices":[{"text":"","finish_reason":"cache_threshold"}]}', "missed"],
    ["generate", '{"choices":[{"token_ids":[],"finish_reason":"cache_threshold"}]}', "missed"],
    ["messages", '{"type":"message_delta","delta":{"stop_reason":"cache_threshold"}}', "missed"],
    ["chat", '{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"error":null}', "content"],
    ["messages", '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}', "content"],
    ["responses", '{"type":"response.output_item.added"}', "content"],
    ["chat", "[DONE]", "content"],
    ["chat", "{broken", "content"],
  ] as const)("%s: the first event %s is %s", (shape, data, kind) => {
    const watch = new ContentWatch(shape);
    expect(watch.push(Buffer.from("event: x\n: comment\n\n"))).toBeNull();
    expect(watch.push(Buffer.from(`data: ${data}\n\n`))).toBe(kind);
    expect(watch.push(Buffer.from('data: {"error":{}}\n\n'))).toBe(kind);
  });
});
