import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { header, open } from "../../../sidecar/testkit/harness.js";
import { until } from "../../../sidecar/testkit/upstream.js";
import type { EngineRecord } from "../../engine/index.js";
import { callsOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { at, CHAT, chatText, eventsOf, LONG, SHAPES } from "./bodies.js";

interface Message {
  readonly role: string;
  readonly content: string;
}

/** A scripted chunk. */
function said(content: string | null, finish: string, tokens = 5, message: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 7,
    model: "m",
    choices: [{ index: 0, message: { role: "assistant", content, ...message }, logprobs: null, finish_reason: finish, stop_reason: null }],
    usage: { prompt_tokens: 40, completion_tokens: tokens, total_tokens: 40 + tokens, prompt_tokens_details: { cached_tokens: 32 } },
  };
}

describe("chunked decode", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "nixlv2" });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  const start = (...flags: string[]): ReturnType<SidecarBed["sidecar"]> => bed.sidecar("--decode-chunk-size=5", ...flags);
  const script = (...chunks: Record<string, unknown>[]): void => {
    bed.decoder.setScript(chunks.map((json) => ({ json })));
  };
  const body = (more: Record<string, unknown>): string => CHAT.body({ max_tokens: undefined, ...more });
  const limits = (records: readonly EngineRecord[]): unknown[] => records.map((record) => [jsonOf(record)["max_tokens"], jsonOf(record)["max_completion_tokens"]]);
  const messages = (record: EngineRecord | undefined): Message[] => jsonOf(record)["messages"] as Message[];

  row("C-CH-01: a budget of one chunk is one call, as the client sent it", async () => {
    const door = await start();
    for (const more of [{ max_tokens: 5 }, { max_completion_tokens: 3, max_tokens: 50 }]) {
      const text = body({ ...more, stream: true });
      expect((await post(door, { body: text })).status).toBe(200);
      expect((await bed.calls(bed.decoder)).at(-1)?.body.toString()).toBe(text);
    }
    expect((await bed.calls(bed.decoder)).length).toBe(2);
  });

  row("C-CH-02: a budget of two chunks is two calls, whose text and usage are joined", async () => {
    script(said('Hi \\ "there"\n', "length"), said(" é\u{1F600}", "length"));
    const door = await start();
    const answered = await post(door, { body: body({ max_tokens: 10 }) });
    const calls = await bed.calls(bed.decoder);
    expect(limits(calls)).toEqual([
      [5, 5],
      [5, 5],
    ]);
    const answer = JSON.parse(answered.body) as Record<string, unknown>;
    expect(chatText(answered.body)).toBe('Hi \\ "there"\n é\u{1F600}');
    expect(answer["usage"]).toEqual({ prompt_tokens: 40, completion_tokens: 10, total_tokens: 50, prompt_tokens_details: { cached_tokens: 32 } });
    expect([at(answer, ["choices", "0", "finish_reason"]), header(answered, "content-length")]).toEqual(["length", [String(Buffer.byteLength(answered.body))]]);
  });

  row("C-CH-02: a last chunk takes what is left of the budget, and the completion limit goes before the other", async () => {
    script(said("a", "length"), said("b", "length"), said("c", "length", 2));
    const door = await start();
    await post(door, { body: body({ max_tokens: 100, max_completion_tokens: 12 }) });
    expect(limits(await bed.calls(bed.decoder))).toEqual([
      [5, 5],
      [5, 5],
      [2, 2],
    ]);
  });

  row("C-CH-03: it stops where the engine does, and after an empty chunk", async () => {
    const door = await start();
    script(said("a", "length"), said("b", "stop", 3));
    const stopped = JSON.parse((await post(door, { body: body({ max_tokens: 100 }) })).body) as Record<string, unknown>;
    expect([at(stopped, ["choices", "0", "finish_reason"]), at(stopped, ["usage", "completion_tokens"]), (await bed.calls(bed.decoder)).length]).toEqual(["stop", 8, 2]);
    script(said("a", "length"), said("", "length", 0));
    expect(chatText((await post(door, { body: body({}) })).body)).toBe("a");
    expect((await bed.calls(bed.decoder)).length).toBe(4);
  });

  row("C-CH-04: from the second chunk on the engine goes on with its own text, and without what was handed over", async () => {
    script(said("one ", "length"), said("two ", "length"), said("three", "stop"));
    const door = await start();
    const text = body({ max_tokens: 50, stream: true, stream_options: { include_usage: true } });
    expect((await post(door, { headers: bed.routed(), body: text })).status).toBe(200);
    const calls = await bed.calls(bed.decoder);
    expect(calls.map((call) => "kv_transfer_params" in jsonOf(call))).toEqual([true, false, false]);
    expect(calls.map((call) => [jsonOf(call)["stream"], jsonOf(call)["stream_options"], jsonOf(call)["continue_final_message"], jsonOf(call)["add_generation_prompt"]])).toEqual([
      [false, undefined, undefined, undefined],
      [false, undefined, true, false],
      [false, undefined, true, false],
    ]);
    expect(messages(calls[1]).at(-1)).toEqual({ role: "assistant", content: "one " });
    expect((await bed.calls(bed.prefiller)).length).toBe(1);
  });

  row(
    "C-CH-04: one turn of the assistant that grows, not one for each chunk",
    async () => {
      script(said("one ", "length"), said("two ", "length"), said("three", "stop"));
      const door = await start();
      await post(door, { body: body({ max_tokens: 50 }) });
      const calls = await bed.calls(bed.decoder);
      expect(calls.map((call) => messages(call).length)).toEqual([1, 2, 2]);
      expect(messages(calls[2]).at(-1)).toEqual({ role: "assistant", content: "one two " });
    },
    { fix: true },
  );

  row("C-CH-05: an error of the engine is the client's, at any chunk", async () => {
    const door = await start();
    for (const before of [[], [{ json: said("a", "length") }]]) {
      bed.decoder.setScript([...before, { status: 503, headers: { "x-why": "busy" }, json: { error: { message: "busy" } } }]);
      const answered = await post(door, { body: body({ max_tokens: 50 }) });
      expect([answered.status, answered.body, header(answered, "x-why")]).toEqual([503, '{"error":{"message":"busy"}}', ["busy"]]);
    }
    bed.decoder.setScript([{ json: said("a", "length") }, { status: 500, json: { error: { message: "lost", code: 500 } } }]);
    const streamed = await post(door, { body: body({ max_tokens: 50, stream: true }) });
    expect([streamed.status, streamed.body.includes('{"error":{"message":"lost","code":500}}'), streamed.body.includes("[DONE]")]).toEqual([200, true, false]);
  });

  row("C-CH-06: a stream is an event per chunk, the usage that was asked for, and its end", async () => {
    script(said("one ", "length"), said("two ", "length"), said("three", "stop", 2));
    const door = await start();
    const answered = await post(door, { body: body({ max_tokens: 50, stream: true, stream_options: { include_usage: true } }) });
    const events = eventsOf(answered.body);
    expect([events.length, answered.body.endsWith("data: [DONE]\n\n"), answered.whole, chatText(answered.body)]).toEqual([4, true, true, "one two three"]);
    expect(events[3]).toMatchObject({ choices: [], usage: { prompt_tokens: 40, completion_tokens: 12, total_tokens: 52 } });
    expect(header(answered, "content-type").join()).toMatch(/^text\/event-stream/);
  });

  row(
    "C-CH-06: events are chunks of a chat stream: one role, one end, usage only where it was asked for",
    async () => {
      script(said("one ", "length"), said("two", "stop"));
      const door = await start();
      const events = eventsOf((await post(door, { body: body({ max_tokens: 50, stream: true }) })).body);
      expect(events.map((event) => [event["object"], event["id"], "usage" in event])).toEqual([
        ["chat.completion.chunk", "chatcmpl-1", false],
        ["chat.completion.chunk", "chatcmpl-1", false],
      ]);
      expect(events.map((event) => [at(event, ["choices", "0", "delta", "role"]), at(event, ["choices", "0", "finish_reason"])])).toEqual([
        ["assistant", null],
        [undefined, "stop"],
      ]);
    },
    { fix: true },
  );

  row(
    "log-probabilities of all chunks are kept, whole and streamed",
    async () => {
      const door = await start();
      for (const stream of [false, true]) {
        const answered = await post(door, { body: body({ max_tokens: 12, min_tokens: 12, logprobs: true, top_logprobs: 1, stream }) });
        const tokens = stream ? eventsOf(answered.body).flatMap((event) => at(event, ["choices", "0", "logprobs", "content"]) as unknown[]) : (at(JSON.parse(answered.body), ["choices", "0", "logprobs", "content"]) as unknown[]);
        expect([stream, tokens.length]).toEqual([stream, 12]);
      }
      expect((await bed.calls(bed.decoder)).map(({ error }) => error)).toEqual([null, null, null, null, null, null]);
    },
    { fix: true },
  );

  row(
    "min_tokens is what is left of it, and never above the chunk's limit",
    async () => {
      const door = await start();
      expect((await post(door, { body: body({ max_tokens: 14, min_tokens: 7 }) })).status).toBe(200);
      const asked = (await bed.calls(bed.decoder)).map((call) => [jsonOf(call)["max_tokens"], jsonOf(call)["min_tokens"]]);
      expect(asked.slice(0, 2)).toEqual([
        [5, 5],
        [5, 2],
      ]);
    },
    { fix: true },
  );

  row(
    "without a limit the answer ends where the engine's context does, with all of its text",
    async () => {
      const full = { status: 400, json: { error: { message: "maximum context length" } } };
      const door = await start();
      for (const stream of [false, true]) {
        bed.decoder.setScript([{ json: said("one ", "length") }, full, { json: said("two", "length", 3) }]);
        const answered = await post(door, { body: body({ stream }) });
        expect([answered.status, answered.whole, chatText(answered.body)]).toEqual([200, true, "one two"]);
        bed.decoder.setScript([{ json: said("one", "length") }, full, full]);
        const short = await post(door, { body: body({ stream }) });
        expect([short.status, short.whole, chatText(short.body), short.body.includes('"finish_reason":"length"')]).toEqual([200, true, "one", true]);
      }
      // The second time the engine is asked for what it has room for.
      expect(limits((await bed.calls(bed.decoder)).slice(0, 3))).toEqual([
        [5, 5],
        [5, 5],
        [undefined, undefined],
      ]);
      // A limit of the client's that is too large is its error, as without chunks.
      bed.decoder.setScript([{ json: said("one ", "length") }, full]);
      expect((await post(door, { body: body({ max_tokens: 100_000 }) })).status).toBe(400);
    },
    { fix: true },
  );

  row(
    "what chunks would lose is decoded in one piece: choices, tools, grammars, stop texts, prompt log-probabilities",
    async () => {
      const door = await start();
      const tool = { type: "function", function: { name: "f", parameters: {} } };
      for (const more of [{ n: 2 }, { tools: [tool] }, { response_format: { type: "json_object" } }, { guided_json: {} }, { stop: ["x"] }, { stop: "x" }, { prompt_logprobs: 1 }, { echo: true }, { stream: true, stream_options: { continuous_usage_stats: true } }]) {
        const text = body({ max_tokens: 50, ...more });
        await post(door, { body: text });
        expect((await bed.calls(bed.decoder)).at(-1)?.body.toString()).toBe(text);
      }
      expect((await bed.calls(bed.decoder)).length).toBe(9);
      for (const more of [{ n: 1 }, { tools: [] }, { tools: [tool], tool_choice: "none" }, { response_format: { type: "text" } }, { stop: null }, { stop: [] }]) {
        await post(door, { body: body({ max_tokens: 50, ...more }) });
        expect([more, (await bed.calls(bed.decoder)).at(-1)?.json]).toMatchObject([more, { stream: false }]);
        bed.decoder.clearRecords();
      }
      for (const shape of SHAPES.slice(1)) {
        const text = shape.body();
        await post(door, { target: shape.target, body: text });
        expect((await bed.calls(bed.decoder)).at(-1)?.body.toString()).toBe(text);
      }
    },
    { fix: true },
  );

  row(
    "words that are no text, as a reasoning model's, are not lost: the request is run in one piece, without what was used",
    async () => {
      const reasoning = said("", "length", 5, { reasoning: "let me think" });
      const door = await start();
      for (const stream of [false, true]) {
        bed.decoder.setScript([{ json: reasoning }, {}]);
        const text = body({ max_tokens: 50, stream });
        const answered = await post(door, { headers: bed.routed(), body: text });
        expect([answered.status, answered.whole, chatText(answered.body) !== ""]).toEqual([200, true, true]);
        const calls = await bed.calls(bed.decoder);
        expect([calls.length, calls[1]?.body.toString()]).toEqual([2, text]);
        bed.decoder.clearRecords();
      }
      bed.decoder.setScript([{ json: said(null, "stop", 4, { reasoning: "all of it" }) }, {}]);
      const whole = await post(door, { body: body({ max_tokens: 50 }) });
      expect(at(JSON.parse(whole.body), ["choices", "0", "message", "reasoning"])).toBe("all of it");
    },
    { fix: true },
  );

  row(
    "behind a prefiller the client sees prefill's cached tokens, and who prefilled",
    async () => {
      const door = await start();
      const text = body({ max_tokens: 12, stream_options: { include_usage: true }, stream: true });
      await post(door, { headers: bed.routed(), body: text });
      const answered = await post(door, { headers: bed.routed(), body: text });
      const usage = eventsOf(answered.body).at(-1)?.["usage"];
      const prefill = (await bed.calls(bed.prefiller)).at(-1);
      expect(at(usage, ["prompt_tokens_details", "cached_tokens"])).toBe(prefill?.cachedTokens);
      expect(prefill?.cachedTokens).toBeGreaterThan(0);
      expect(header(answered, "x-crosspoint-prefilled-by")).toEqual([`127.0.0.1:${String(bed.prefiller.port)}`]);
      expect(bed.held()).toBe(0);
    },
    { ours: true },
  );

  row(
    "a first chunk that fails with the hand-off falls back under local",
    async () => {
      bed.decoder.setScript([{ status: 500, json: {} }, {}]);
      const door = await start("--on-stage-failure=local");
      const answered = await post(door, { headers: bed.routed(), body: body({ max_tokens: 12 }) });
      expect([answered.status, header(answered, "x-crosspoint-prefilled-by")]).toEqual([200, ["local"]]);
      const calls = await bed.calls(bed.decoder);
      expect(calls.map((call) => "kv_transfer_params" in jsonOf(call)).slice(0, 3)).toEqual([true, false, false]);
    },
    { ours: true },
  );

  row(
    "a client that leaves ends the chunk that runs, and no other is asked for",
    async () => {
      bed.decoder.setScript([{ json: said("a", "length") }, { delay_ms: 3000, json: said("b", "length") }]);
      const door = await start();
      const { request, head } = open(door.url, { body: body({ stream: true }) });
      (await head).resume();
      await until(() => callsOf(bed.decoder).length === 2);
      request.destroy();
      await until(() => callsOf(bed.decoder)[1]?.aborted === true, 1000);
      await sleep(50);
      expect(callsOf(bed.decoder).length).toBe(2);
    },
    { ours: true },
  );

  row(
    "a client that reads nothing has no further chunk made for it",
    async () => {
      script(said("x".repeat(4_000_000), "length"));
      const door = await start();
      const { request, head } = open(door.url, { body: body({ stream: true }) });
      (await head).pause();
      await sleep(1500);
      const before = callsOf(bed.decoder).length;
      await sleep(500);
      // What the sockets hold, and no more.
      expect([callsOf(bed.decoder).length - before, before < 8]).toEqual([0, true]);
      request.destroy();
      await bed.settled();
    },
    { ours: true },
  );

  row(
    "8 MiB of the client's messages go out byte for byte with every chunk",
    async () => {
      script(said("a", "length"), said("b", "stop"));
      const door = await start();
      const long = body({ max_tokens: 20, messages: [{ role: "user", content: LONG.repeat(12_000) }], seed: 7 });
      await post(door, { body: long.replace('"seed":7', '"seed":9007199254740993') });
      const [first, second] = await bed.calls(bed.decoder);
      const list = long.slice(long.indexOf('"messages":'), long.indexOf("}]") + 1);
      for (const call of [first, second]) {
        expect(call?.body.includes(list)).toBe(true);
        expect(call?.body.includes('"seed":9007199254740993')).toBe(true);
      }
    },
    { ours: true },
  );
});
