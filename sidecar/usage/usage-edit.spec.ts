import { describe, expect, it } from "vitest";
import { lastMember, readValue } from "../body/json-spans.js";
import type { ApiShape } from "../body/types.js";
import { cachedTokensOf, withCachedTokens } from "./usage-edit.js";

function edited(text: string, shape: ApiShape = "chat", count = "7"): string | null {
  const out = withCachedTokens(Buffer.from(text), shape, count);
  return out === null ? null : Buffer.concat(out).toString();
}

describe("withCachedTokens", () => {
  it("C-NX-19: sets, adds and creates the count of chat and completions, touching nothing else", () => {
    expect(edited('{"seed":9007199254740993, "usage": {"prompt_tokens":56,"prompt_tokens_details": {"cached_tokens" : 49 ,"x":1.0}},"z":1e400}')).toBe(
      '{"seed":9007199254740993, "usage": {"prompt_tokens":56,"prompt_tokens_details": {"cached_tokens" : 7 ,"x":1.0}},"z":1e400}',
    );
    expect(edited('{"usage":{"prompt_tokens_details":{}}}', "completions")).toBe('{"usage":{"prompt_tokens_details":{"cached_tokens":7}}}');
    expect(edited('{"usage":{"prompt_tokens_details":{"audio_tokens":0}}}')).toBe('{"usage":{"prompt_tokens_details":{"audio_tokens":0,"cached_tokens":7}}}');
    expect(edited('{"usage":{"prompt_tokens":5}}')).toBe('{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":7}}}');
    expect(edited('{"usage":{"prompt_tokens":5,"prompt_tokens_details":null}}')).toBe('{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":7}}}');
    expect(edited('{"usage":{}}')).toBe('{"usage":{"prompt_tokens_details":{"cached_tokens":7}}}');
  });

  it("responses: whole answers and completed events, never the foreign member", () => {
    expect(edited('{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":3}}}', "responses")).toBe('{"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":7}}}');
    expect(edited('{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":3}}}}', "responses")).toBe(
      '{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":7}}}}',
    );
    expect(edited('{"type":"response.created","response":{"usage":null}}', "responses")).toBeNull();
  });

  it("messages: both events and whole answers carry Anthropic's member, and the sum with input_tokens stays as it was", () => {
    expect(edited('{"type":"message_start","message":{"usage":{"input_tokens":15,"cache_read_input_tokens":3,"output_tokens":0}}}', "messages")).toBe(
      '{"type":"message_start","message":{"usage":{"input_tokens":11,"cache_read_input_tokens":7,"output_tokens":0}}}',
    );
    expect(edited('{"usage":{"cache_read_input_tokens":9,"input_tokens":1}}', "messages")).toBe('{"usage":{"cache_read_input_tokens":7,"input_tokens":3}}');
    expect(edited('{"usage":{"input_tokens":18}}', "messages")).toBe('{"usage":{"input_tokens":11,"cache_read_input_tokens":7}}');
    expect(edited('{"usage":{"input_tokens":5}}', "messages")).toBe('{"usage":{"input_tokens":0,"cache_read_input_tokens":7}}');
    expect(edited('{"usage":{"input_tokens":"x"}}', "messages")).toBe('{"usage":{"input_tokens":"x","cache_read_input_tokens":7}}');
    expect(edited('{"type":"message_delta","delta":{},"usage":{"output_tokens":4}}', "messages")).toBe('{"type":"message_delta","delta":{},"usage":{"output_tokens":4,"cache_read_input_tokens":7}}');
    expect(edited('{"usage":{"cache_read_input_tokens":null}}', "messages")).toBe('{"usage":{"cache_read_input_tokens":7}}');
  });

  it("leaves alone what has no usage object or is no JSON object", () => {
    for (const text of ["", "[DONE]", '{"usage":null}', '{"usage":[1]}', '{"choices":[{"usage":{}}]}', '[{"usage":{}}]', '{"usage":{}', "null"]) expect(edited(text)).toBeNull();
  });
});

describe("cachedTokensOf", () => {
  function count(text: string, shape: ApiShape = "chat"): string {
    const bytes = Buffer.from(text);
    const root = readValue(bytes);
    if (root === null) throw new Error("invalid");
    return cachedTokensOf(bytes, root, lastMember(bytes, root, "kv_transfer_params"), shape);
  }

  it("reads the API's own member, digits kept", () => {
    expect(count('{"usage":{"prompt_tokens_details":{"cached_tokens":9007199254740993}}}')).toBe("9007199254740993");
    expect(count('{"usage":{"input_tokens_details":{"cached_tokens":4}}}', "responses")).toBe("4");
    expect(count('{"usage":{"cache_read_input_tokens":3}}', "messages")).toBe("3");
  });

  it("C-NX-20: takes the hand-off's own count where there are no details, and 0 where there is none", () => {
    expect(count('{"usage":{"prompt_tokens_details":null},"kv_transfer_params":{"remote_prefill_cached_tokens":12}}')).toBe("12");
    expect(count('{"usage":{"prompt_tokens_details":{"cached_tokens":0}},"kv_transfer_params":{"remote_prefill_cached_tokens":12}}')).toBe("0");
    for (const text of ["{}", '{"usage":null}', '{"usage":{"prompt_tokens_details":{"cached_tokens":"7"}}}', '{"usage":{"prompt_tokens_details":{"cached_tokens":-1}}}']) expect(count(text)).toBe("0");
  });
});
