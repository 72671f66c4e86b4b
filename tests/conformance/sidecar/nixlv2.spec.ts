/** nixlv2 (NX): prefill, then decode with what it handed over. */
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { header, open } from "../../../sidecar/testkit/harness.js";
import { until } from "../../../sidecar/testkit/upstream.js";
import type { Engine, ScriptEntry } from "../../engine/index.js";
import { callsOf, headerOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { at, CHAT, eventsOf, SHAPES, type Shape } from "./bodies.js";

const PARAMS = { do_remote_decode: true, do_remote_prefill: false, remote_engine_id: null, remote_block_ids: null, remote_host: null, remote_port: null };
const STREAM = { "content-type": "text/event-stream" };
const [, , MESSAGES, RESPONSES, GENERATE] = SHAPES as [Shape, Shape, Shape, Shape, Shape];
/** What a prefiller's answer holds, as far as these rows need it. */
const handoff = (cached?: unknown): ScriptEntry => ({
  json: {
    choices: [{ index: 0, message: { role: "assistant", content: "x" }, finish_reason: "length" }],
    usage: { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10, ...(cached === undefined ? {} : { prompt_tokens_details: cached }) },
    kv_transfer_params: { do_remote_prefill: true, do_remote_decode: false, remote_block_ids: [[1]], remote_engine_id: "e", remote_request_id: "r", remote_host: "127.0.0.1", remote_port: 5600 },
  },
});
const answer = (details: unknown, more: Record<string, unknown> = {}): ScriptEntry => ({
  json: { id: "x", choices: [], usage: { prompt_tokens: 9, completion_tokens: 1, total_tokens: 10, ...(details === undefined ? {} : { prompt_tokens_details: details }) }, ...more },
});

describe("nixlv2", () => {
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

  const legs = async (): Promise<[Record<string, unknown>, Record<string, unknown>]> => [jsonOf((await bed.calls(bed.prefiller))[0]), jsonOf((await bed.calls(bed.decoder))[0])];
  const counts = async (): Promise<[number, number]> => [(await bed.calls(bed.prefiller)).length, (await bed.calls(bed.decoder)).length];
  async function routed(shape: Shape, body: string, ...flags: string[]): ReturnType<typeof post> {
    return post(await bed.sidecar(...flags), { target: shape.target, headers: bed.routed(bed.prefiller), body });
  }
  const script = (engine: Engine, ...entries: ScriptEntry[]): void => {
    engine.setScript(entries);
  };

  row("C-NX-01: prefill, then decode, one call each", async () => {
    expect((await routed(CHAT, CHAT.body())).status).toBe(200);
    const [prefill, decode] = [(await bed.calls(bed.prefiller))[0], (await bed.calls(bed.decoder))[0]];
    expect(await counts()).toEqual([1, 1]);
    expect((prefill?.endedAtMs ?? Infinity) <= (decode?.startedAtMs ?? 0)).toBe(true);
    expect(decode?.handoff).toMatchObject({ found: true, verbatim: true, correct: true });
  });

  row("C-NX-02: prefill's parameters are the six, exactly", async () => {
    await routed(CHAT, CHAT.body());
    expect((await legs())[0]["kv_transfer_params"]).toEqual(PARAMS);
  });

  row("C-NX-03: prefill is capped to one token and not streamed", async () => {
    await routed(CHAT, CHAT.body({ stream: true, stream_options: { include_usage: true }, max_tokens: 50, max_completion_tokens: 40, min_tokens: 5 }));
    const [prefill] = await legs();
    expect(prefill).toMatchObject({ max_tokens: 1, max_completion_tokens: 1, min_tokens: 1, stream: false });
    expect(prefill).not.toHaveProperty("stream_options");
  });

  row("C-NX-04: decode has the client's own limits", async () => {
    await routed(CHAT, CHAT.body({ stream: true, stream_options: { include_usage: true }, max_tokens: 50, max_completion_tokens: 40, min_tokens: 5 }));
    expect((await legs())[1]).toMatchObject({ max_tokens: 50, max_completion_tokens: 40, min_tokens: 5, stream: true, stream_options: { include_usage: true } });
  });

  row("C-NX-05: decode has none where the client sent none", async () => {
    script(bed.decoder, answer(undefined));
    await routed(CHAT, CHAT.body({ max_tokens: undefined }));
    const [, decode] = await legs();
    for (const name of ["max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options"]) expect(decode).not.toHaveProperty(name);
  });

  row("C-NX-06: decode has what prefill answered, member for member", async () => {
    script(bed.prefiller, handoff());
    script(bed.decoder, answer(undefined));
    await routed(CHAT, CHAT.body());
    expect((await legs())[1]["kv_transfer_params"]).toEqual(at(handoff().json, ["kv_transfer_params"]));
  });

  row("C-NX-07: responses: its own limit is capped and comes back", async () => {
    await routed(RESPONSES, RESPONSES.body({ stream: true }));
    const [prefill, decode] = await legs();
    expect([prefill["max_output_tokens"], prefill["stream"], decode["max_output_tokens"], decode["stream"]]).toEqual([1, false, 8, true]);
    for (const name of ["max_tokens", "max_completion_tokens", "min_tokens"]) expect([prefill[name], decode[name]]).toEqual([undefined, undefined]);
    await bed.clear();
    script(bed.decoder, answer(undefined));
    await routed(RESPONSES, RESPONSES.body({ max_output_tokens: undefined }));
    const [capped, free] = await legs();
    expect([capped["max_output_tokens"], free["max_output_tokens"], free["stream"]]).toEqual([1, undefined, undefined]);
  });

  row("C-NX-08: messages as chat", async () => {
    expect((await routed(MESSAGES, MESSAGES.body({ stream: true }))).status).toBe(200);
    const [prefill, decode] = await legs();
    expect([prefill["max_tokens"], prefill["stream"], decode["max_tokens"], decode["stream"]]).toEqual([1, false, 8, true]);
  });

  row("C-NX-09: generate: limits inside sampling_params, and none made up for decode", async () => {
    await routed(GENERATE, GENERATE.body());
    const [prefill, decode] = await legs();
    expect([at(prefill, ["sampling_params", "max_tokens"]), at(prefill, ["sampling_params", "min_tokens"]), decode["sampling_params"]]).toEqual([1, 1, { max_tokens: 8, min_tokens: 2 }]);
    await bed.clear();
    script(bed.decoder, answer(undefined));
    await routed(GENERATE, GENERATE.body({ sampling_params: undefined }));
    const [capped, free] = await legs();
    expect([capped["sampling_params"], free["sampling_params"]]).toEqual([{ max_tokens: 1, min_tokens: 1 }, undefined]);
  });

  for (const status of [502, 503, 504]) {
    row(`C-NX-10: with retries a prefill that says ${String(status)} once is asked again`, async () => {
      script(bed.prefiller, { status, json: {} }, {});
      const answered = await routed(CHAT, CHAT.body(), "--prefill-max-retries=2", "--prefill-retry-backoff=10ms");
      expect([answered.status, await counts()]).toEqual([200, [2, 1]]);
      expect((await bed.calls(bed.decoder))[0]?.handoff?.correct).toBe(true);
    });
  }

  row("C-NX-11: without retries a 502 is the answer", async () => {
    script(bed.prefiller, { status: 502, json: {} });
    expect([(await routed(CHAT, CHAT.body())).status, await counts()]).toEqual([502, [1, 0]]);
  });

  row("C-NX-12: retries end", async () => {
    script(bed.prefiller, { status: 502, json: {} });
    expect([(await routed(CHAT, CHAT.body(), "--prefill-max-retries=2", "--prefill-retry-backoff=10ms")).status, await counts()]).toEqual([502, [3, 0]]);
  });

  for (const status of [500, 429, 404, 301]) {
    row(`C-NX-13: a ${String(status)} of prefill is final`, async () => {
      script(bed.prefiller, { status, json: { a: 1 } });
      expect([(await routed(CHAT, CHAT.body(), "--prefill-max-retries=2", "--prefill-retry-backoff=10ms")).status, await counts()]).toEqual([status, [1, 0]]);
    });
  }

  row("C-NX-14: prefill's failure is relayed with its headers and body", async () => {
    script(bed.prefiller, { status: 500, headers: { "x-why": "memory", "content-type": "text/plain" }, text: "out of memory" });
    const answered = await routed(CHAT, CHAT.body());
    expect([answered.status, header(answered, "x-why"), answered.body]).toEqual([500, ["memory"], "out of memory"]);
  });

  row(
    "C-NX-15: a prefiller that cannot be reached is a 502 with an error object",
    async () => {
      script(bed.prefiller, { tcp: "refused" });
      const answered = await routed(CHAT, CHAT.body());
      expect([answered.status, at(JSON.parse(answered.body), ["error", "type"]), (await bed.calls(bed.decoder)).length]).toEqual([502, "BadGateway", 0]);
    },
    { fix: true },
  );

  row(
    "C-NX-16: a prefill answer that is no JSON is a 502",
    async () => {
      script(bed.prefiller, { text: "fine" });
      expect([(await routed(CHAT, CHAT.body())).status, await counts()]).toEqual([502, [1, 0]]);
    },
    { fix: true },
  );

  row(
    "C-NX-17: a prefill answer without parameters is a typed 502, or under local decode alone, without a null member",
    async () => {
      script(bed.prefiller, { json: { choices: [] } });
      const failed = await routed(CHAT, CHAT.body());
      expect([failed.status, at(JSON.parse(failed.body), ["error", "type"]), await counts()]).toEqual([502, "BadGateway", [1, 0]]);
      const local = await routed(CHAT, CHAT.body(), "--on-stage-failure=local");
      expect([local.status, (await legs())[1]["kv_transfer_params"]]).toEqual([200, undefined]);
      expect(Object.keys((await legs())[1])).not.toContain("kv_transfer_params");
    },
    { ours: true },
  );

  row("C-NX-18: a client that leaves during prefill ends it, and decode is not called", async () => {
    script(bed.prefiller, { delay_ms: 10_000 });
    const door = await bed.sidecar();
    const { request } = open(door.url, { headers: bed.routed(bed.prefiller), body: CHAT.body() });
    await until(() => callsOf(bed.prefiller).length === 1);
    request.destroy();
    await until(() => callsOf(bed.prefiller)[0]?.aborted === true);
    expect((await bed.calls(bed.decoder)).length).toBe(0);
  });

  for (const details of [{ cached_tokens: 49 }, {}, undefined]) {
    row(`C-NX-19: the client sees prefill's cached tokens, whatever decode counted (${JSON.stringify(details)})`, async () => {
      script(bed.prefiller, handoff({ cached_tokens: 7 }));
      script(bed.decoder, answer(details));
      expect(at(JSON.parse((await routed(CHAT, CHAT.body())).body), ["usage", "prompt_tokens_details", "cached_tokens"])).toBe(7);
    });
  }

  const usageEvent = (cached: number): string => `data: {"id":"x","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":${String(cached)}}}}`;
  const content = 'data: {"id":"x","choices":[{"index":0,"delta":{"content":"q\\u00fcay"}}]}\n\n';

  for (const details of [{ cached_tokens: 0 }, undefined]) {
    row(`C-NX-20: or zero, where prefill had none (${JSON.stringify(details)})`, async () => {
      script(bed.prefiller, handoff(details));
      script(bed.decoder, answer({ cached_tokens: 49 }), { headers: STREAM, chunks: [content, `${usageEvent(49)}\n\n`, "data: [DONE]\n\n"] });
      const door = await bed.sidecar();
      const whole = await post(door, { headers: bed.routed(bed.prefiller), body: CHAT.body() });
      const streamed = await post(door, { headers: bed.routed(bed.prefiller), body: CHAT.body({ stream: true }) });
      expect(at(JSON.parse(whole.body), ["usage", "prompt_tokens_details", "cached_tokens"])).toBe(0);
      expect(eventsOf(streamed.body).map((event) => at(event, ["usage", "prompt_tokens_details", "cached_tokens"]))).toEqual([undefined, 0]);
    });
  }

  row("C-NX-21: the usage event is rewritten once, at any cut; every other byte and the end stay", async () => {
    const text = Buffer.from(`${content}${usageEvent(49)}\n\ndata: [DONE]\n\n`);
    const bare = Buffer.from(`${content}${usageEvent(49)}`);
    const door = await bed.sidecar();
    for (const [sent, pieces] of [[text, 1], [text, 7], [text, text.length], [bare, 3]] as const) {
      const size = Math.ceil(sent.length / pieces);
      script(bed.prefiller, handoff({ cached_tokens: 7 }));
      script(bed.decoder, { headers: STREAM, chunks: Array.from({ length: pieces }, (_, index) => sent.subarray(index * size, (index + 1) * size)).filter((piece) => piece.length > 0) });
      const answered = await post(door, { headers: bed.routed(bed.prefiller), body: CHAT.body({ stream: true }) });
      // Whoever writes it anew may order its members as they like.
      const events = eventsOf(answered.body);
      expect(events.map((event) => at(event, ["usage", "prompt_tokens_details", "cached_tokens"]))).toEqual([undefined, 7]);
      expect([answered.body.startsWith(content), answered.body.endsWith("data: [DONE]\n\n")]).toEqual([true, sent === text]);
      await bed.settled();
    }
  });

  row("C-NX-22: data that is no JSON, and other lines, are not touched", async () => {
    const text = `: ping\n\nevent: note\ndata: usage {"usage":{}}\n\ndata: {"a":"usage"}\n\n${content}data: [DONE]\n\n`;
    script(bed.prefiller, handoff({ cached_tokens: 7 }));
    script(bed.decoder, { headers: STREAM, chunks: [text] });
    expect((await routed(CHAT, CHAT.body({ stream: true }))).body).toBe(text);
  });

  row(
    "C-NX-23: an answer of 200 KB is rewritten too",
    async () => {
      script(bed.prefiller, handoff({ cached_tokens: 7 }));
      script(bed.decoder, answer({ cached_tokens: 49 }, { filler: "x".repeat(200_000) }));
      expect(at(JSON.parse((await routed(CHAT, CHAT.body())).body), ["usage", "prompt_tokens_details", "cached_tokens"])).toBe(7);
    },
    { fix: true },
  );

  row("C-NX-24: nothing of other modes is on the wire", async () => {
    await routed(CHAT, CHAT.body());
    for (const engine of [bed.prefiller, bed.decoder]) {
      const [call] = await bed.calls(engine);
      expect([/transfer_id|remote_dp_size/.test(call?.body.toString() ?? ""), headerOf(call, "x-data-parallel-rank")]).toEqual([false, []]);
    }
  });
});
