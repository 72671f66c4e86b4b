import { describe, expect, it } from "vitest";
import { type ChunkAnswer, chunkEvent, finishEvent, JoinedChunks, readChunk, usageEvent } from "./chunk-answer.js";

function chunk(content: string, { finish = "length", tokens = 5, more = "", logprobs = "null" } = {}): ChunkAnswer {
  const read = readChunk(
    Buffer.from(
      `{"id":"c","object":"chat.completion","created":1.0,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":${content}${more}},"logprobs":${logprobs},"finish_reason":"${finish}","stop_reason":null}], "usage":{"prompt_tokens":40,"total_tokens":45,"completion_tokens":${String(tokens)},"x":18446744073709551617}}`,
    ),
  );
  if (read === null) throw new Error(content);
  return read;
}

describe("readChunk", () => {
  it("reads text, end and counts", () => {
    expect(chunk('"a\\u00e9"', { finish: "stop" })).toMatchObject({ finish: "stop", promptTokens: 40, completionTokens: 5, plain: true });
    expect(chunk('"a\\u00e9"').text.toString()).toBe("a\\u00e9");
    expect(chunk("null").text.length).toBe(0);
  });

  it.each([',"tool_calls":[{}]', ',"reasoning":"x"', ',"reasoning_content":"x"', ',"refusal":"no"', ',"function_call":{}'])("sees words that are no text: %s", (more) => {
    expect(chunk('"a"', { more }).plain).toBe(false);
  });

  it("does not mind empty ones", () => {
    expect(chunk('"a"', { more: ',"tool_calls":[],"reasoning":null,"refusal":""' }).plain).toBe(true);
  });

  it.each(["", "[]", "{}", '{"choices":[]}', '{"choices":[{},{}]}', '{"choices":[{"message":7}]}', '{"choices":[{"message":{}},{"message":{}}]}'])("is none: %s", (text) => {
    expect(readChunk(Buffer.from(text))).toBeNull();
  });
});

describe("JoinedChunks", () => {
  it("C-CH-02: is the last answer with the text and counts of all, every other byte as it came", () => {
    const joined = new JoinedChunks();
    joined.add(chunk('"one "'));
    joined.add(chunk('"tw\\"o"', { finish: "stop", tokens: 3 }));
    const expected = chunk('"one tw\\"o"', { finish: "stop", tokens: 3 }).bytes.toString().replace('"total_tokens":45,"completion_tokens":3', '"total_tokens":48,"completion_tokens":8');
    expect(Buffer.concat(joined.whole() ?? []).toString()).toBe(expected);
  });

  it("joins log-probabilities, also where a chunk has none", () => {
    const joined = new JoinedChunks();
    for (const list of ['{"content":[{"t":1},{"t":2}]}', '{"content":[]}', '{"content":[{"t":3}]}']) joined.add(chunk('"a"', { logprobs: list }));
    expect(Buffer.concat(joined.whole() ?? []).toString()).toContain('"logprobs":{"content":[{"t":1},{"t":2},{"t":3}]}');
  });

  it("puts the text where the last chunk has none", () => {
    const joined = new JoinedChunks();
    joined.add(chunk('"a"'));
    joined.add(chunk("null", { tokens: 0 }));
    expect(JSON.parse(Buffer.concat(joined.whole() ?? []).toString())).toMatchObject({ choices: [{ message: { content: "a" } }] });
    const bare = readChunk(Buffer.from('{"choices":[{"message":{}}]}'));
    if (bare !== null) joined.add(bare);
    expect(Buffer.concat(joined.whole() ?? []).toString()).toBe('{"choices":[{"message":{"content":"a"}}]}');
  });

  it("has nothing before its first chunk", () => {
    expect([new JoinedChunks().whole(), Buffer.concat(new JoinedChunks().usage()).toString()]).toEqual([null, "null"]);
  });
});

describe("events", () => {
  const parse = (event: Buffer): unknown => {
    const text = event.toString();
    expect([text.startsWith("data: "), text.endsWith("\n\n")]).toEqual([true, true]);
    return JSON.parse(text.slice("data: ".length));
  };

  it("C-CH-06: a chunk as an event: the role once, no end before the end", () => {
    expect(parse(chunkEvent(chunk('"a\\n"'), true, null))).toEqual({ object: "chat.completion.chunk", id: "c", created: 1, model: "m", choices: [{ index: 0, delta: { role: "assistant", content: "a\n" }, logprobs: null, finish_reason: null }] });
    expect(parse(chunkEvent(chunk('"b"', { finish: "stop", logprobs: '{"content":[]}' }), false, "stop"))).toEqual({ object: "chat.completion.chunk", id: "c", created: 1, model: "m", choices: [{ index: 0, delta: { content: "b" }, logprobs: { content: [] }, finish_reason: "stop", stop_reason: null }] });
    expect(chunkEvent(chunk('"b"'), false, null).toString()).toContain('"created":1.0');
  });

  it("an end of its own, and usage", () => {
    expect(parse(finishEvent(chunk('"b"'), "length"))).toMatchObject({ choices: [{ delta: {}, finish_reason: "length" }] });
    expect(parse(usageEvent(chunk('"b"'), [Buffer.from('{"prompt_tokens":1}')]))).toMatchObject({ choices: [], usage: { prompt_tokens: 1 } });
  });
});
