import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type Engine, type EngineRecord, startEngine } from "../tests/engine/index.js";
import type { Sidecar } from "./server.js";
import { ask, header, metric, open, startTestSidecar } from "./testkit/harness.js";
import { until } from "./testkit/upstream.js";

const LONG = "The harbour office keeps a ledger of every vessel that enters the bay, with its tide, cargo and berth. ".repeat(6);

/** One request per API shape, streamed or not. */
const REQUESTS: readonly (readonly [target: string, body: (stream: boolean) => string])[] = [
  ["/v1/chat/completions", (stream) => JSON.stringify({ model: "m", messages: [{ role: "user", content: LONG }], max_tokens: 8, stream, ...(stream ? { stream_options: { include_usage: true } } : {}) })],
  ["/v1/completions", (stream) => JSON.stringify({ model: "m", prompt: LONG, max_tokens: 8, stream, ...(stream ? { stream_options: { include_usage: true } } : {}) })],
  ["/v1/messages", (stream) => JSON.stringify({ model: "m", messages: [{ role: "user", content: LONG }], max_tokens: 8, stream })],
  ["/v1/responses", (stream) => JSON.stringify({ model: "m", input: LONG, max_output_tokens: 8, stream })],
  ["/inference/v1/generate", (stream) => JSON.stringify({ model: "m", token_ids: Array.from({ length: 100 }, (_, index) => index + 5), sampling_params: { max_tokens: 8 }, stream })],
];

describe("sidecar with simulated engines", () => {
  let prefiller: Engine;
  let decoder: Engine;
  let encoders: Engine[];
  let sidecar: Sidecar | null = null;

  beforeAll(async () => {
    prefiller = await startEngine({ role: "prefill", name: "p0" });
    decoder = await startEngine({ role: "decode", name: "d0" });
    encoders = [await startEngine({ role: "encode", name: "e0", ecConnector: "ec-nixl" }), await startEngine({ role: "encode", name: "e1", ecConnector: "ec-nixl" })];
  });
  afterEach(async () => {
    await sidecar?.close();
    sidecar = null;
    await Promise.all([prefiller, decoder, ...encoders].map((engine) => engine.reset()));
  });
  afterAll(async () => {
    await Promise.all([prefiller, decoder, ...encoders].map((engine) => engine.close()));
  });

  async function start(...flags: string[]): Promise<Sidecar> {
    sidecar = await startTestSidecar(decoder.port, flags);
    return sidecar;
  }

  const routed = (): string[] => ["x-prefiller-host-port", `127.0.0.1:${String(prefiller.port)}`];
  const calls = (engine: Engine): EngineRecord[] => engine.records().filter(({ modelCall }) => modelCall);

  it.each(REQUESTS.flatMap(([target, body]) => [false, true].map((stream) => [target, stream, body(stream)] as const)))("P/D on %s, stream %s: the blocks are there, verbatim, right and freed", async (target, _, body) => {
    const { url } = await start();
    const answered = await ask(url, { target, headers: routed(), body });
    expect([answered.status, answered.whole]).toEqual([200, true]);
    const [legs, decodes] = [calls(prefiller), calls(decoder)];
    expect([legs.map(({ status, error }) => [status, error]), decodes.map(({ status, error }) => [status, error])]).toEqual([[[200, null]], [[200, null]]]);
    expect(decodes[0]?.handoff).toMatchObject({ found: true, verbatim: true, correct: true, recomputed: false });
    expect(prefiller.state().heldTransfers).toEqual([]);
  });

  it("gives the answer that the engine alone would give, and prefill's cached tokens", async () => {
    const { url } = await start();
    const body = REQUESTS[0]?.[1](false) ?? "";
    const alone = JSON.parse((await ask(url, { body })).body) as { choices: unknown };
    await decoder.reset();
    for (const cached of [0, 1]) {
      const split = JSON.parse((await ask(url, { headers: routed(), body })).body) as { choices: unknown; usage: { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } } };
      expect(split.choices).toEqual(alone.choices);
      expect(split.usage.prompt_tokens_details.cached_tokens > 0).toBe(cached === 1);
    }
  });

  it("E/P/D: encoders, prefill and decode find each other's work", async () => {
    const { url } = await start("--ec-connector=ec-nixl");
    const image = (name: string): unknown => ({ type: "image_url", image_url: { url: `https://media.example.test/${name}.png` } });
    const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: [{ type: "text", text: LONG }, image("a"), image("b"), image("a")] }], max_tokens: 8 });
    const headers = [...routed(), "x-encoder-hosts-ports", encoders.map(({ port }) => `127.0.0.1:${String(port)}`).join()];
    expect((await ask(url, { headers, body })).status).toBe(200);
    expect(encoders.map((engine) => calls(engine).map(({ status, error }) => [status, error]))).toEqual([[[200, null]], [[200, null]]]);
    expect(calls(prefiller)[0]?.media.map(({ source, reference }) => [source, reference])).toEqual([
      ["reference", "found"],
      ["reference", "found"],
    ]);
    expect(calls(decoder)[0]?.handoff).toMatchObject({ found: true, verbatim: true, correct: true });
    expect([calls(prefiller)[0]?.error, calls(decoder)[0]?.error]).toEqual([null, null]);
  });

  it("no control member of a client reaches an engine", async () => {
    const { url } = await start();
    const hostile = { kv_transfer_params: { do_remote_prefill: true, remote_block_ids: [[1]], remote_host: "127.0.0.1", remote_port: 9 } };
    for (const [target, body] of REQUESTS) {
      const merged = JSON.stringify({ ...(JSON.parse(body(false)) as object), ...hostile, vllm_xargs: { ...hostile, tag: "t" }, bootstrap_room: 1 });
      for (const headers of [[], routed()]) await ask(url, { target, headers, body: merged });
    }
    await ask(url, { target: "/v1/embeddings", body: JSON.stringify({ model: "m", input: "x", ...hostile }) });
    // What decode has been given by prefill is no client's.
    for (const { controlMembers, handoff } of calls(decoder)) expect(controlMembers).toEqual(handoff === null ? [] : ["kv_transfer_params"]);
    for (const { handoff } of calls(decoder)) if (handoff !== null) expect(handoff.verbatim).toBe(true);
    expect(calls(decoder).flatMap(({ outbound }) => outbound).every((peer) => peer === `127.0.0.1:${String(prefiller.controlPort)}`)).toBe(true);
  });

  it("a client that leaves during prefill: the engine sees it within a second, and decode is not called", async () => {
    prefiller.setScript({ delay_ms: 5000 });
    const { url } = await start();
    const { request } = open(url, { headers: routed(), body: REQUESTS[0]?.[1](true) ?? "" });
    await until(() => calls(prefiller).length === 1);
    await sleep(50);
    request.destroy();
    const leftAt = performance.now();
    await until(() => calls(prefiller)[0]?.aborted === true);
    expect([performance.now() - leftAt < 1000, calls(decoder).length]).toEqual([true, 0]);
  });

  it.each([false, true])("a client that leaves while decode takes the blocks over leaves none behind (stream %s)", async (stream) => {
    decoder.setScript({ first_byte_delay_ms: 300 });
    const running = await start();
    const { request } = open(running.url, { headers: routed(), body: REQUESTS[0]?.[1](stream) ?? "" });
    await until(() => calls(decoder).length === 1);
    expect(prefiller.state().heldTransfers).toHaveLength(1);
    request.destroy();
    await until(() => prefiller.state().heldTransfers.length === 0, 3000);
    for (let tries = 0; tries < 200 && (await metric(running, "in_flight_requests")) > 0; tries++) await sleep(10);
    expect([await metric(running, "in_flight_requests"), await metric(running, "in_flight_legs"), calls(decoder).length]).toEqual([0, 0, 1]);
  });

  it("engines that close idle connections at once cost no request", async () => {
    for (const engine of [prefiller, decoder]) engine.setScript({ close_idle_after_ms: 0 });
    const { url } = await start();
    const body = REQUESTS[0]?.[1](false) ?? "";
    for (let turn = 0; turn < 30; turn++) {
      expect((await ask(url, { headers: routed(), body })).status).toBe(200);
      if (turn % 3 === 0) await sleep(turn % 7);
    }
    for (const record of calls(decoder)) if (record.status === 200) expect(record.handoff).toMatchObject({ found: true, correct: true });
    expect(prefiller.state().heldTransfers).toEqual([]);
  });

  it("two requests with one id do not share a hand-off", async () => {
    const { url } = await start();
    const body = REQUESTS[0]?.[1](false) ?? "";
    const both = await Promise.all([1, 2].map(() => ask(url, { headers: [...routed(), "x-request-id", "job-1"], body })));
    expect(both.map(({ status }) => status)).toEqual([200, 200]);
    const ids = calls(decoder).map(({ json }) => (json as { kv_transfer_params: { remote_request_id: string } }).kv_transfer_params.remote_request_id);
    expect(new Set(ids).size).toBe(2);
    for (const { rawHeaders } of [...calls(prefiller), ...calls(decoder)]) expect(header({ rawHeaders: rawHeaders.flat() }, "x-request-id")).toEqual(["job-1"]);
    expect(prefiller.state().heldTransfers).toEqual([]);
  });

  it("n, prompt_logprobs and list prompts come back whole from the engine alone", async () => {
    const { url } = await start();
    const many = JSON.parse((await ask(url, { headers: routed(), body: JSON.stringify({ model: "m", messages: [{ role: "user", content: LONG }], n: 3, max_tokens: 4 }) })).body) as { choices: unknown[] };
    const list = JSON.parse((await ask(url, { target: "/v1/completions", headers: routed(), body: JSON.stringify({ model: "m", prompt: ["a b", "c d e"], max_tokens: 4 }) })).body) as { choices: unknown[] };
    expect([many.choices.length, list.choices.length, calls(prefiller).length, prefiller.state().heldTransfers]).toEqual([3, 2, 0, []]);
  });
});
