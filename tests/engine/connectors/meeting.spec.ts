import { afterEach, describe, expect, it } from "vitest";

import { EngineDirectory } from "../directory.js";
import type { JsonObject } from "../json.js";
import { at, chatBody, chatText, EngineHouse, metric, PATIENT, type Reply, send } from "../testing.js";
import type { Engine, EngineOptions, KvConnectorName } from "../types.js";

const house = new EngineHouse();
afterEach(() => house.closeAll());

const CHAT = "/v1/chat/completions";
const body = chatBody("meeting", 100);
const capped: JsonObject = { ...body, max_tokens: 1, stream: false };

async function pair(kvConnector: KvConnectorName, more: Partial<EngineOptions> = {}): Promise<{ p: Engine; d: Engine }> {
  const options = { kvConnector, rendezvousTimeoutMs: 400, ...more };
  return { p: await house.start({ role: "prefill", ...options }), d: await house.start({ role: "decode", ...options }) };
}

async function aloneText(): Promise<string> {
  const engine = await house.start({ role: "decode" });
  return chatText(await send(engine.url, CHAT, { body }));
}

const post = (engine: Engine, value: JsonObject, headers: Record<string, string> = {}): Promise<Reply> => send(engine.url, CHAT, { body: value, headers });
const pending = (promise: Promise<unknown>): Promise<unknown> => Promise.race([promise.then(() => "done"), new Promise((resolve) => setTimeout(resolve, 80, "pending"))]);

describe("sglang", () => {
  const room = (p: Engine, number: number | string, more: JsonObject = {}): JsonObject => ({ bootstrap_host: "127.0.0.1", bootstrap_port: p.bootstrapPort, bootstrap_room: number, ...more });

  it("hands over in the room; the prefiller answers when the decoder has read", async () => {
    const { p, d } = await pair("sglang");
    const prefill = post(p, { ...body, ...room(p, 7) });
    expect(await pending(prefill)).toBe("pending");
    const reply = await post(d, { ...body, ...room(p, 7) });
    expect(chatText(reply)).toBe(await aloneText());
    expect((await prefill).status).toBe(200);
    expect(d.records()[0]).toMatchObject({ error: null, handoff: { connector: "sglang", found: true, correct: true } });
    expect(await metric(d.url, "vllm:prompt_tokens_by_source_total", 'source="external_kv_transfer"')).toBe(d.records()[0]?.promptTokens);
  });

  it("lets the decoder come first, with a room that no double can hold", async () => {
    const { p, d } = await pair("sglang");
    const raw = JSON.stringify({ ...body, ...room(p, "ROOM") }).replace('"ROOM"', "1796045523089812023");
    const decode = send(d.url, CHAT, { body: raw });
    expect(await pending(decode)).toBe("pending");
    await send(p.url, CHAT, { body: raw });
    expect((await decode).status).toBe(200);
    expect(d.records()[0]?.handoff).toMatchObject({ found: true, correct: true });
    const off = await post(d, { ...body, ...room(p, 1796045523089812000) });
    expect(off.status).toBe(500);
  });

  it("fails a decoder whose prefiller does not come, and one whose room was used", async () => {
    const { p, d } = await pair("sglang");
    expect((await post(d, { ...body, ...room(p, 8) })).status).toBe(500);
    expect(d.records()[0]?.error).toContain("no prefiller came");
    const prefill = post(p, { ...body, ...room(p, 9) });
    await post(d, { ...body, ...room(p, 9) });
    await prefill;
    expect((await post(d, { ...body, ...room(p, 9) })).status).toBe(500);
    expect(d.records()[2]?.error).toContain("used before");
  });

  it("fails a prefiller to which nobody comes", async () => {
    const { p } = await pair("sglang", { leaseMs: 60 });
    expect((await post(p, { ...body, ...room(p, 10) })).status).toBe(500);
    expect(p.records()[0]?.error).toContain("no decoder came");
  });

  it.each<[string, JsonObject, string]>([
    ["no room", { bootstrap_room: null }, "bootstrap_room"],
    ["a room as text", { bootstrap_room: "7" }, "bootstrap_room"],
    ["a room that is a fraction", { bootstrap_room: 1.5 }, "bootstrap_room"],
    ["no host", { bootstrap_host: null }, "bootstrap_host"],
    ["a bracketed host", { bootstrap_host: "[::1]" }, "bootstrap_host"],
    ["no port", { bootstrap_port: null }, "bootstrap_port"],
  ])("refuses %s on both legs", async (_name, more, member) => {
    const { p, d } = await pair("sglang");
    for (const engine of [p, d]) {
      const reply = await post(engine, { ...body, ...room(p, 11), ...more });
      expect([reply.status, at(reply.json, "error.param")]).toEqual([400, member]);
    }
  });

  it("a prefiller refuses another one's address", async () => {
    const { p } = await pair("sglang");
    expect((await post(p, { ...body, ...room(p, 12, { bootstrap_port: 1 }) })).status).toBe(400);
  });

  it("gives two prefillers of one process one port", async () => {
    const { p } = await pair("sglang");
    const second = await house.start({ role: "prefill", kvConnector: "sglang", bootstrapPort: p.bootstrapPort });
    expect(second.bootstrapPort).toBe(p.bootstrapPort);
    await second.close();
    expect((await send(`http://127.0.0.1:${String(p.bootstrapPort)}`, "/query")).status).toBe(200);
  });
});

describe("mooncake", () => {
  async function setUp(more: Partial<EngineOptions> = {}): Promise<{ p: Engine; d: Engine; bootstrap: string; engineId: unknown }> {
    const { p, d } = await pair("mooncake", more);
    const bootstrap = `http://127.0.0.1:${String(p.bootstrapPort)}`;
    return { p, d, bootstrap, engineId: at((await send(bootstrap, "/query")).json, "0.engine_id") };
  }
  const prefillParams = { do_remote_prefill: false, do_remote_decode: true, transfer_id: "xfer-1" };
  const rank = { "x-data-parallel-rank": "0" };

  it("lists its ranks, hands over by transfer id, and holds the blocks until then", async () => {
    const { p, d, bootstrap, engineId } = await setUp({ dataParallelSize: 2 });
    expect(Object.keys((await send(bootstrap, "/query")).json)).toEqual(["0", "1"]);
    const first = await post(p, { ...capped, kv_transfer_params: prefillParams }, { "x-data-parallel-rank": "1" });
    expect([first.status, first.json["kv_transfer_params"]]).toEqual([200, null]);
    expect(p.state().heldTransfers.length).toBe(1);
    const reply = await post(d, { ...body, kv_transfer_params: { do_remote_prefill: true, do_remote_decode: false, transfer_id: "xfer-1", remote_bootstrap_addr: bootstrap, remote_engine_id: engineId as string } });
    expect(chatText(reply)).toBe(await aloneText());
    expect(d.records()[0]?.handoff).toMatchObject({ connector: "mooncake", found: true, correct: true });
    await expect.poll(() => p.state().heldTransfers.length, PATIENT).toBe(0);
  });

  it.each<[string, JsonObject, Record<string, string>]>([
    ["no transfer id", { kv_transfer_params: { ...prefillParams, transfer_id: "" } }, rank],
    ["no rank", { kv_transfer_params: prefillParams }, {}],
    ["a rank that is not there", { kv_transfer_params: prefillParams }, { "x-data-parallel-rank": "5" }],
    ["no cap", { kv_transfer_params: prefillParams, max_tokens: 9 }, rank],
    ["a stream", { kv_transfer_params: prefillParams, stream: true }, rank],
  ])("refuses a prefill leg with %s", async (_name, more, headers) => {
    const { p } = await setUp();
    expect((await post(p, { ...capped, ...more }, headers)).status).toBe(400);
    expect(p.records()[0]?.error).not.toBe(null);
  });

  it.each(["transfer_id", "remote_bootstrap_addr", "remote_engine_id"])("refuses a decode leg without %s", async (name) => {
    const { d, bootstrap, engineId } = await setUp();
    const whole: JsonObject = { do_remote_prefill: true, do_remote_decode: false, transfer_id: "x", remote_bootstrap_addr: bootstrap, remote_engine_id: engineId as string };
    const params = Object.fromEntries(Object.entries(whole).filter(([member]) => member !== name));
    const reply = await post(d, { ...body, kv_transfer_params: params });
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(name);
  });

  it("fails a decode leg whose prefiller never came", async () => {
    const { d, bootstrap, engineId } = await setUp();
    const params = { do_remote_prefill: true, do_remote_decode: false, transfer_id: "xfer-none", remote_bootstrap_addr: bootstrap, remote_engine_id: engineId as string };
    expect((await post(d, { ...body, kv_transfer_params: params })).status).toBe(500);
  });
});

describe("offloading", () => {
  const decodeParams = (p: Engine, key: string, id = "K"): JsonObject => ({ [key]: { kv_request_id: id, remote_host: "127.0.0.1", remote_port: p.bootstrapPort } });

  it.each<["seed" | "v2", string, string]>([
    ["seed", "decode", "prefill"],
    ["v2", "remote_decoder", "remote_prefiller"],
  ])("hands over by role keys of the dialect %s", async (kvParamsDialect, decoder, prefiller) => {
    const { p, d } = await pair("offloading", { kvParamsDialect });
    const first = await post(p, { ...capped, kv_transfer_params: { [decoder]: { kv_request_id: "K" } } });
    expect([first.status, first.json["kv_transfer_params"]]).toEqual([200, null]);
    const reply = await post(d, { ...body, kv_transfer_params: decodeParams(p, prefiller) });
    expect(chatText(reply)).toBe(await aloneText());
    expect(d.records()[0]?.handoff).toMatchObject({ found: true, correct: true, recomputed: false });
  });

  it("computes the prompt itself when the KV does not come, or is asked for in the other dialect", async () => {
    const { p, d } = await pair("offloading", { kvParamsDialect: "seed" });
    expect(chatText(await post(d, { ...body, kv_transfer_params: decodeParams(p, "prefill", "none") }))).toBe(await aloneText());
    expect(d.records()[0]?.handoff).toMatchObject({ found: false, recomputed: true });
    await post(d, { ...body, kv_transfer_params: decodeParams(p, "remote_prefiller") });
    expect(d.records()[1]?.handoff).toBe(null);
  });

  it("pulls a cached prefix from a source", async () => {
    const source = await house.start({ role: "decode", kvConnector: "offloading" });
    const d = await house.start({ role: "decode", kvConnector: "offloading", msPerPrefillToken: 5 });
    await post(source, body);
    const startedAt = performance.now();
    const reply = await post(d, { ...body, kv_transfer_params: decodeParams(source, "p2p") });
    expect(performance.now() - startedAt).toBeLessThan(400);
    expect(chatText(reply)).toBe(await aloneText());
    expect(d.records()[0]?.handoff).toMatchObject({ found: true, blocks: Math.floor(((d.records()[0]?.promptTokens ?? 0) - 1) / 16) });
  });

  it.each<[string, JsonObject]>([
    ["no decoder", {}],
    ["no request id", { decode: {} }],
    ["an address of the decoder", { decode: { kv_request_id: "K", remote_host: "127.0.0.1", remote_port: 1 } }],
    ["both dialects", { decode: { kv_request_id: "K" }, remote_decoder: { kv_request_id: "K" } }],
  ])("refuses a prefill leg with %s", async (_name, kv_transfer_params) => {
    const { p } = await pair("offloading");
    expect((await post(p, { ...capped, kv_transfer_params })).status).toBe(400);
  });

  it("refuses a decode leg that does not say where", async () => {
    const { d } = await pair("offloading");
    expect((await post(d, { ...body, kv_transfer_params: { prefill: { kv_request_id: "K" } } })).status).toBe(400);
  });
});

describe("shared-storage", () => {
  it("finds KV by content, null is success, and the answer is the same", async () => {
    const peers = new EngineDirectory();
    const { p, d } = await pair("shared-storage", { peers });
    const first = await post(p, { ...capped, max_completion_tokens: 1, cache_hit_threshold: 0 });
    expect([first.status, first.json["kv_transfer_params"]]).toEqual([200, null]);
    const reply = await post(d, { ...body, cache_hit_threshold: 0 });
    expect(chatText(reply)).toBe(await aloneText());
    const tokens = d.records()[0]?.promptTokens ?? 0;
    expect(d.records()[0]?.handoff).toMatchObject({ found: true, tokens: Math.floor((tokens - 1) / 16) * 16, recomputed: false });
    expect(await metric(d.url, "vllm:external_prefix_cache_hits_total")).toBe(Math.floor((tokens - 1) / 16) * 16);
  });

  it("finds it in another process", async () => {
    const p = await house.start({ role: "prefill", kvConnector: "shared-storage" });
    const d = await house.start({ role: "decode", kvConnector: "shared-storage", kvStores: [`127.0.0.1:${String(p.controlPort)}`] });
    await post(p, capped);
    await post(d, body);
    expect(d.records()[0]?.handoff).toMatchObject({ found: true, recomputed: false });
  });

  it("answers cache_threshold, streamed or not, when too little is there", async () => {
    const peers = new EngineDirectory();
    const { p, d } = await pair("shared-storage", { peers });
    const probe = { ...body, cache_hit_threshold: 0.8 };
    const cold = await post(d, probe);
    expect(at(cold.json, "choices.0")).toMatchObject({ finish_reason: "cache_threshold", message: { content: "" } });
    const streamed = await post(d, { ...probe, stream: true });
    expect(streamed.data.some((line) => line.includes('"finish_reason":"cache_threshold"'))).toBe(true);
    expect(chatText(streamed)).toBe("");
    await post(p, capped);
    expect(at((await post(d, probe)).json, "choices.0.finish_reason")).toBe("length");
  });

  it.each<[string, JsonObject]>([
    ["a stream", { stream: true }],
    ["no cap", { max_tokens: 50 }],
    ["a threshold", { cache_hit_threshold: 0.5 }],
    ["parameters", { kv_transfer_params: { do_remote_decode: true } }],
  ])("refuses a prefill leg with %s", async (_name, more) => {
    const { p } = await pair("shared-storage");
    expect((await post(p, { ...capped, ...more })).status).toBe(400);
  });
});

describe("none", () => {
  it("serves everything where it is, whatever the members say", async () => {
    const d = await house.start({ role: "decode", kvConnector: "none" });
    expect(chatText(await post(d, { ...body, kv_transfer_params: { do_remote_prefill: true, remote_block_ids: [1] } }))).toBe(await aloneText());
    expect(d.state().dead).toBe(null);
  });
});
