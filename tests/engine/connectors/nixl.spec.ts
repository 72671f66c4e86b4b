import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { afterEach, describe, expect, it } from "vitest";

import type { JsonObject } from "../json.js";
import { at, chatBody, chatText, EngineHouse, metric, NIXL_PREFILL, PATIENT, prefillLeg, type Reply, send } from "../testing.js";
import type { Engine, EngineOptions } from "../types.js";
import { prefillParamsProblem, truthy } from "./nixl.js";

const house = new EngineHouse();
const servers: Server[] = [];
afterEach(async () => {
  await house.closeAll();
  for (const server of servers.splice(0)) server.close();
});

const CHAT = "/v1/chat/completions";

async function pair(prefill: Partial<EngineOptions> = {}, decode: Partial<EngineOptions> = {}): Promise<{ p: Engine; d: Engine }> {
  return { p: await house.start({ role: "prefill", handshakeTimeoutMs: 200, ...prefill }), d: await house.start({ role: "decode", handshakeTimeoutMs: 200, ...decode }) };
}

async function handoffOf(p: Engine, body: JsonObject, path = CHAT): Promise<JsonObject> {
  const reply = await send(p.url, path, { body: prefillLeg(body), headers: { "x-request-id": "req-1" } });
  expect(reply.status).toBe(200);
  return reply.json["kv_transfer_params"] as JsonObject;
}

async function aloneText(body: JsonObject): Promise<string> {
  const engine = await house.start({ role: "decode" });
  return chatText(await send(engine.url, CHAT, { body }));
}

const decode = (d: Engine, body: JsonObject, params: unknown): Promise<Reply> => send(d.url, CHAT, { body: { ...body, kv_transfer_params: params } });

async function died(engine: Engine): Promise<void> {
  await expect.poll(() => engine.state().dead, { timeout: 3_000 }).not.toBe(null);
  await expect.poll(() => send(engine.url, "/health").then(() => "answered", () => "refused"), { timeout: 3_000 }).toBe("refused");
}

describe("the prefill leg", () => {
  it("answers the real engine's parameters and pins the blocks", async () => {
    const { p } = await pair();
    const body = chatBody("shape", 100);
    const params = await handoffOf(p, body);
    const tokens = p.records()[0]?.promptTokens ?? 0;
    expect(params).toEqual({
      do_remote_prefill: true,
      do_remote_decode: false,
      remote_block_ids: [Array.from({ length: Math.ceil(tokens / 16) }, (_, index) => index + 1)],
      remote_engine_id: p.engineId,
      remote_request_id: expect.stringMatching(/^chatcmpl-req-1-[0-9a-f]{8}$/) as string,
      remote_host: "127.0.0.1",
      remote_port: p.controlPort,
      tp_size: 1,
      dcp_size: 1,
      pp_size: 1,
      remote_num_tokens: tokens,
      remote_blocks_expiry_time: null,
      transfer_mode: "pull",
      remote_prefill_cached_tokens: 0,
    });
    expect(p.state().heldTransfers).toMatchObject([{ requestId: params["remote_request_id"], tokens }]);
    expect(p.state().blocks.pinned).toBe(Math.ceil(tokens / 16));
    expect(await metric(p.url, "vllm:kv_cache_usage_perc")).toBeCloseTo(Math.ceil(tokens / 16) / 4095);
  });

  it("reports its cache hits in the parameters and in usage", async () => {
    const { p } = await pair();
    const body = chatBody("warm", 100);
    await handoffOf(p, body);
    const reply = await send(p.url, CHAT, { body: prefillLeg(body) });
    const cached = at(reply.json, "kv_transfer_params.remote_prefill_cached_tokens");
    expect(cached).toBeGreaterThan(80);
    expect(at(reply.json, "usage.prompt_tokens_details.cached_tokens")).toBe(cached);
    expect(p.records()[1]?.cachedTokens).toBe(cached);
  });

  it("makes two requests with one id different", async () => {
    const { p } = await pair();
    const [one, two] = [await handoffOf(p, chatBody("same id")), await handoffOf(p, chatBody("same id"))];
    expect(one["remote_request_id"]).not.toBe(two["remote_request_id"]);
  });

  it("accepts vLLM's minimum", async () => {
    const { p } = await pair();
    const reply = await send(p.url, CHAT, { body: { ...prefillLeg(chatBody("minimum")), kv_transfer_params: { do_remote_decode: true, do_remote_prefill: false } } });
    expect(reply.json["kv_transfer_params"]).toMatchObject({ do_remote_prefill: true });
  });

  it.each<[string, JsonObject, string]>([
    ["no parameters", { kv_transfer_params: null }, "kv_transfer_params"],
    ["do_remote_decode false", { kv_transfer_params: { ...NIXL_PREFILL, do_remote_decode: false } }, "do_remote_decode"],
    ["do_remote_decode as text", { kv_transfer_params: { ...NIXL_PREFILL, do_remote_decode: "true" } }, "do_remote_decode"],
    ["do_remote_prefill missing", { kv_transfer_params: { do_remote_decode: true } }, "do_remote_prefill"],
    ["a member that is not null", { kv_transfer_params: { ...NIXL_PREFILL, remote_host: "127.0.0.1" } }, "remote_host"],
    ["a missing member", { kv_transfer_params: { do_remote_decode: true, do_remote_prefill: false, remote_engine_id: null, remote_block_ids: null, remote_host: null } }, "remote_port"],
    ["a strange member", { kv_transfer_params: { ...NIXL_PREFILL, transfer_id: "x" } }, "transfer_id"],
    ["stream", { stream: true }, "stream"],
    ["stream_options", { stream_options: {} }, "stream_options"],
    ["no cap", { max_tokens: null, max_completion_tokens: null, min_tokens: null }, "max_tokens"],
    ["a cap that is not 1", { max_tokens: 64 }, "max_tokens"],
    ["only one of two caps", { max_completion_tokens: 256 }, "max_completion_tokens"],
  ])("refuses %s by name", async (_name, more, member) => {
    const { p } = await pair();
    const reply = await send(p.url, CHAT, { body: { ...prefillLeg(chatBody("strict")), ...more } });
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(member);
    expect(p.records()[0]?.error).toContain(member);
    expect(p.state().heldTransfers).toEqual([]);
  });

  it("knows the cap of every API shape", async () => {
    const { p } = await pair();
    const kv_transfer_params = NIXL_PREFILL;
    const text = "the ledger of every vessel";
    const legs: [string, JsonObject, JsonObject][] = [
      ["/v1/completions", { prompt: text, kv_transfer_params, max_tokens: 1 }, { max_tokens: 2 }],
      ["/v1/messages", { model: "m", messages: [{ role: "user", content: text }], kv_transfer_params, max_tokens: 1 }, { max_tokens: 2 }],
      ["/v1/responses", { input: text, kv_transfer_params, max_output_tokens: 1 }, { max_output_tokens: null }],
      ["/inference/v1/generate", { token_ids: [1, 2, 3], kv_transfer_params, sampling_params: { max_tokens: 1 } }, { sampling_params: { max_tokens: 2 } }],
    ];
    for (const [path, leg, wrong] of legs) {
      const right = await send(p.url, path, { body: leg });
      expect([path, right.status, at(right.json, "kv_transfer_params.do_remote_prefill")]).toEqual([path, 200, true]);
      expect([path, (await send(p.url, path, { body: { ...leg, ...wrong } })).status]).toEqual([path, 400]);
    }
  });

  it("is lenient where the real one is, when asked to be", async () => {
    const { p } = await pair({ strictness: "real" });
    const body = prefillLeg(chatBody("lenient"));
    expect((await send(p.url, CHAT, { body: { ...body, kv_transfer_params: { do_remote_decode: "true" } } })).json["kv_transfer_params"]).toMatchObject({ do_remote_prefill: true });
    const streamed = await send(p.url, CHAT, { body: { ...body, stream: true } });
    expect(streamed.status).toBe(200);
    expect(streamed.text).not.toContain("remote_block_ids");
    expect((await send(p.url, CHAT, { body: chatBody("plain") })).json["kv_transfer_params"]).toBe(null);
    // Parameters only come with an answer that ran into its limit.
    const whole = await send(p.url, CHAT, { body: chatBody("whole", 20, { max_tokens: 500, kv_transfer_params: NIXL_PREFILL }) });
    expect([at(whole.json, "choices.0.finish_reason"), whole.json["kv_transfer_params"]]).toEqual(["stop", null]);
  });

  it("gives the blocks back when the lease is over, and counts it", async () => {
    const { p } = await pair({ leaseMs: 80 });
    await handoffOf(p, chatBody("lease"));
    expect(p.state().heldTransfers.length).toBe(1);
    await expect.poll(() => p.state().heldTransfers.length, PATIENT).toBe(0);
    expect(p.state().blocks.pinned).toBe(0);
    expect(await metric(p.url, "vllm:nixl_num_kv_expired_reqs_total")).toBe(1);
  });

  it("pins nothing for a client that left before the answer", async () => {
    const { p } = await pair({ msPerPrefillToken: 10 });
    const abort = new AbortController();
    const gone = send(p.url, CHAT, { body: prefillLeg(chatBody("gone", 100)), signal: abort.signal }).catch(() => "gone");
    await expect.poll(() => p.state().running, PATIENT).toBe(1);
    abort.abort();
    expect(await gone).toBe("gone");
    await expect.poll(() => p.state().running, PATIENT).toBe(0);
    expect(p.records()[0]).toMatchObject({ aborted: true, status: 0 });
    expect(p.state().blocks.used).toBe(0);
  });
});

describe("the decode leg", () => {
  it("takes the blocks, says the same as an engine alone, and frees the prefiller", async () => {
    const { p, d } = await pair();
    const body = chatBody("pair", 100);
    const alone = await aloneText(body);
    const reply = await decode(d, body, await handoffOf(p, body));
    expect(chatText(reply)).toBe(alone);
    expect(reply.json["kv_transfer_params"]).toBe(null);
    const record = d.records()[0];
    expect(record).toMatchObject({ stage: "decode", error: null, handoff: { connector: "nixl", found: true, verbatim: true, correct: true, differs: [] } });
    expect(record?.handoff?.tokens).toBe(record?.promptTokens);
    expect(p.state().heldTransfers).toEqual([]);
    expect(p.state().blocks.used).toBe(0);
    expect(await metric(d.url, "vllm:prompt_tokens_by_source_total", 'source="external_kv_transfer"')).toBe(record?.promptTokens);
    expect(await metric(d.url, "vllm:prompt_tokens_by_source_total", 'source="local_compute"')).toBe(0);
    expect(await metric(d.url, "vllm:nixl_num_descriptors_count")).toBe(1);
  });

  it.each<[string, JsonObject, JsonObject]>([
    ["/v1/completions", { prompt: "the ledger of every vessel that enters the bay", temperature: 0, max_tokens: 6 }, { max_tokens: 1 }],
    ["/v1/messages", { model: "m", system: "Short.", messages: [{ role: "user", content: "the ledger of every vessel" }], temperature: 0, max_tokens: 6 }, { max_tokens: 1 }],
    ["/v1/responses", { input: "the ledger of every vessel that enters", temperature: 0, max_output_tokens: 6 }, { max_output_tokens: 1 }],
    ["/inference/v1/generate", { token_ids: Array.from({ length: 40 }, (_, index) => index + 500), sampling_params: { max_tokens: 6, temperature: 0 } }, { sampling_params: { max_tokens: 1, temperature: 0 } }],
  ])("works on %s, streamed and not", async (path, body, cap) => {
    const { p, d } = await pair();
    const alone = await house.start({ role: "decode" });
    const outputOf = (reply: Reply): unknown =>
      at(reply.json, "choices.0.text") ?? at(reply.json, "content.0.text") ?? at(reply.json, "output.0.content.0.text") ?? at(reply.json, "choices.0.token_ids");
    for (const stream of [false, true]) {
      const first = await send(p.url, path, { body: { ...body, ...cap, kv_transfer_params: NIXL_PREFILL } });
      const reply = await send(d.url, path, { body: { ...body, stream, kv_transfer_params: first.json["kv_transfer_params"] } });
      expect(d.records().at(-1)).toMatchObject({ error: null, handoff: { found: true, correct: true } });
      if (!stream) expect(outputOf(reply)).toEqual(outputOf(await send(alone.url, path, { body })));
      else expect(reply.data.length).toBeGreaterThan(5);
      await d.reset();
    }
  });

  it("works with tools, log-probabilities and n", async () => {
    const tools = [{ type: "function", function: { name: "tide", parameters: { type: "object", properties: { name: { type: "string" } } } } }];
    for (const more of [{ tools, tool_choice: "required", max_tokens: 40 }, { logprobs: true, top_logprobs: 1 }, { n: 2, temperature: 1, seed: 5 }] as JsonObject[]) {
      const { p, d } = await pair();
      const body = chatBody("more", 60, more);
      const alone = await house.start({ role: "decode" });
      const wanted = await send(alone.url, CHAT, { body });
      const reply = await decode(d, body, await handoffOf(p, body));
      expect(withoutIds(reply)).toEqual(withoutIds(wanted));
      expect(p.state().heldTransfers).toEqual([]);
    }
  });

  it("pulls only what it has not got, and still frees the prefiller", async () => {
    const { p, d } = await pair();
    const body = chatBody("partly", 100);
    await send(d.url, CHAT, { body });
    const reply = await decode(d, body, await handoffOf(p, body));
    const record = d.records()[1];
    expect(record?.cachedTokens).toBeGreaterThan(80);
    expect(record?.handoff).toMatchObject({ found: true, blocks: 1, correct: true });
    expect(at(reply.json, "usage.prompt_tokens_details.cached_tokens")).toBe(record?.cachedTokens);
    expect(p.state().heldTransfers).toEqual([]);
  });

  it("sends the role chunk before the KV is there", async () => {
    const { d } = await pair();
    const port = await closedPort();
    const params = { do_remote_prefill: true, do_remote_decode: false, remote_block_ids: [[1]], remote_engine_id: "e", remote_request_id: "r", remote_host: "127.0.0.1", remote_port: port };
    const reply = await decode(d, chatBody("early", 10, { stream: true }), params);
    expect(reply.status).toBe(200);
    expect(at(JSON.parse(reply.data[0] ?? "{}"), "choices.0.delta.role")).toBe("assistant");
    expect(at(JSON.parse(reply.data[1] ?? "{}"), "error")).toMatchObject({ code: 500, type: "InternalServerError" });
    expect(reply.data.slice(2)).toEqual(["[DONE]"]);
    expect(d.state().dead).toBe(null);
  });
});

/** Ids of tool calls are made from the request's id. */
function withoutIds(reply: Reply): unknown {
  return JSON.parse(JSON.stringify(reply.json["choices"], (name, value: unknown) => (name === "id" ? undefined : value)));
}

async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

describe("wrong KV that nobody is told of", () => {
  it("used twice", async () => {
    const { p, d } = await pair();
    const body = chatBody("twice", 100);
    const params = await handoffOf(p, body);
    const alone = await aloneText(body);
    expect(chatText(await decode(d, body, params))).toBe(alone);
    const second = await house.start({ role: "decode" });
    const reply = await decode(second, body, params);
    expect(reply.status).toBe(200);
    expect(chatText(reply)).not.toBe(alone);
    expect(second.records()[0]).toMatchObject({ error: expect.stringContaining("already taken") as string, handoff: { found: false, correct: false } });
  });

  it("used after the lease", async () => {
    const { p, d } = await pair({ leaseMs: 30 });
    const body = chatBody("late", 100);
    const params = await handoffOf(p, body);
    await expect.poll(() => p.state().heldTransfers.length, PATIENT).toBe(0);
    const reply = await decode(d, body, params);
    expect(reply.status).toBe(200);
    expect(chatText(reply)).not.toBe(await aloneText(body));
    expect(d.records()[0]?.error).toContain("lease");
  });

  it("of a request that the prefiller does not know", async () => {
    const { p, d } = await pair();
    const body = chatBody("unknown", 100);
    const reply = await decode(d, body, { ...(await handoffOf(p, body)), remote_request_id: "invented" });
    expect(chatText(reply)).not.toBe(await aloneText(body));
    expect(d.records()[0]?.error).toContain("does not know");
    expect(p.state().heldTransfers.length).toBe(1);
  });

  it("of other blocks than those handed out, or another prompt of the same length", async () => {
    const { p, d } = await pair();
    const body = chatBody("mine", 60);
    await handoffOf(p, chatBody("their", 60));
    const params = await handoffOf(p, body);
    const edited = await decode(d, body, { ...params, remote_block_ids: [[1, 2, 3, 4]] });
    expect(chatText(edited)).not.toBe(await aloneText(body));
    expect(d.records()[0]?.handoff).toMatchObject({ found: true, verbatim: false, differs: ["remote_block_ids"], correct: false });
    const second = await house.start({ role: "decode" });
    const other = chatBody("diff", 60);
    const swapped = await decode(second, other, await handoffOf(p, body));
    expect(chatText(swapped)).not.toBe(await aloneText(other));
    expect(second.records()[0]?.handoff).toMatchObject({ found: true, verbatim: true, correct: false });
  });

  it("of a list of prompts of equal length: only the first choice is right", async () => {
    const { p, d } = await pair();
    const prompts = ["the ledger of one vessel at the quay", "the ledger of two vessel at the quay"];
    const body: JsonObject = { prompt: prompts, temperature: 0, max_tokens: 6 };
    const first = await send(p.url, "/v1/completions", { body: { ...body, max_tokens: 1, kv_transfer_params: NIXL_PREFILL } });
    const together = await send(d.url, "/v1/completions", { body: { ...body, kv_transfer_params: first.json["kv_transfer_params"] } });
    const engine = await house.start({ role: "decode" });
    const alone = await send(engine.url, "/v1/completions", { body });
    expect(together.status).toBe(200);
    expect(at(together.json, "choices.0.text")).toBe(at(alone.json, "choices.0.text"));
    expect(at(together.json, "choices.1.text")).not.toBe(at(alone.json, "choices.1.text"));
    expect(d.records()[0]?.error).not.toBe(null);
  });

  it("notes edited parameters, also where the answer is right", async () => {
    const { p, d } = await pair();
    const body = chatBody("edited", 60);
    const params = await handoffOf(p, body);
    delete params["tp_size"];
    const reply = await decode(d, body, { ...params, remote_num_tokens: 1 });
    expect(chatText(reply)).toBe(await aloneText(body));
    expect(d.records()[0]?.handoff?.differs.sort()).toEqual(["remote_num_tokens", "tp_size"]);
    expect(d.records()[0]?.error).toContain("tp_size");
  });
});

describe("what kills the engine", () => {
  it("flat block ids: in flight gets 500, then the port refuses", async () => {
    const { p, d } = await pair({}, { msPerDecodeToken: 50 });
    const other = send(d.url, CHAT, { body: chatBody("bystander", 20, { max_tokens: 100, min_tokens: 100 }) });
    const streamed = send(d.url, CHAT, { body: chatBody("streamed", 20, { max_tokens: 100, min_tokens: 100, stream: true }) });
    await expect.poll(() => d.state().running, PATIENT).toBe(2);
    const params = { ...(await handoffOf(p, chatBody("flat"))), remote_block_ids: [1, 2] };
    const reply = await decode(d, chatBody("flat"), params);
    const message = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
    expect([reply.status, at(reply.json, "error.message")]).toEqual([500, message]);
    expect([(await other).status, at((await other).json, "error.message")]).toEqual([500, message]);
    const lines = (await streamed).data;
    expect(at(JSON.parse(lines.at(-2) ?? "{}"), "error.message")).toBe(message);
    expect(lines.at(-1)).toBe("[DONE]");
    await died(d);
    expect(d.state().dead).toContain("remote_block_ids");
    expect((await send(d.controlUrl, "/_sim/state")).json["dead"]).toBe(d.state().dead);
  });

  it("a prompt with more blocks than the hand-off", async () => {
    const { p, d } = await pair();
    const params = await handoffOf(p, chatBody("short", 40));
    expect((await decode(d, chatBody("short", 120), params)).status).toBe(500);
    await died(d);
    expect(d.state().dead).toContain("num_decode_blocks");
  });

  it("list prompts of unequal length", async () => {
    const { p, d } = await pair();
    const body: JsonObject = { prompt: ["short", "the ledger of every vessel that enters the bay ".repeat(5)], max_tokens: 4 };
    const first = await send(p.url, "/v1/completions", { body: { ...body, max_tokens: 1, kv_transfer_params: NIXL_PREFILL } });
    expect((await send(d.url, "/v1/completions", { body: { ...body, kv_transfer_params: first.json["kv_transfer_params"] } })).status).toBe(500);
    await died(d);
  });

  it("a missing remote_request_id: it hangs, and dies when the client leaves", async () => {
    const { p, d } = await pair();
    const body = chatBody("hang");
    const params = await handoffOf(p, body);
    delete params["remote_request_id"];
    const abort = new AbortController();
    const hanging = send(d.url, CHAT, { body: { ...body, kv_transfer_params: params }, signal: abort.signal }).catch(() => "gone");
    expect(await Promise.race([hanging, new Promise((resolve) => setTimeout(resolve, 400, "hangs"))])).toBe("hangs");
    expect(d.state().dead).toBe(null);
    expect(await metric(d.url, "vllm:num_requests_waiting_by_reason", 'reason="deferred"')).toBe(1);
    abort.abort();
    await hanging;
    await died(d);
    expect(d.state().dead).toContain("KeyError: 'remote_request_id'");
  });

  it("comes back by reset, cold", async () => {
    const { p, d } = await pair();
    const before = d.engineId;
    await decode(d, chatBody("flat"), { ...(await handoffOf(p, chatBody("flat"))), remote_block_ids: [1] });
    await died(d);
    await d.reset();
    expect(d.state().dead).toBe(null);
    expect(d.engineId).not.toBe(before);
    expect((await send(d.url, CHAT, { body: chatBody("again") })).status).toBe(200);
  });
});

describe("what fails with 500", () => {
  it("a wrong engine id, at once", async () => {
    const { p, d } = await pair({}, { handshakeTimeoutMs: 5_000 });
    const startedAt = performance.now();
    const reply = await decode(d, chatBody("id"), { ...(await handoffOf(p, chatBody("id"))), remote_engine_id: "another" });
    expect(reply.json["error"]).toEqual({ message: "Internal server error", type: "InternalServerError", param: null, code: 500 });
    expect(performance.now() - startedAt).toBeLessThan(2_000);
    expect(d.state().dead).toBe(null);
    expect(p.state().heldTransfers.length).toBe(1);
  });

  it("a prefiller that was restarted", async () => {
    const { p, d } = await pair();
    const params = await handoffOf(p, chatBody("restart"));
    await p.reset();
    expect((await decode(d, chatBody("restart"), params)).status).toBe(500);
  });

  it("an unreachable side channel, after the time-out", async () => {
    const { d } = await pair();
    const params = { do_remote_prefill: true, remote_block_ids: [[1]], remote_engine_id: "e", remote_request_id: "r", remote_host: "127.0.0.1", remote_port: await closedPort() };
    const startedAt = performance.now();
    expect((await decode(d, chatBody("dead port", 10), params)).status).toBe(500);
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(190);
    expect(d.records()[0]).toMatchObject({ outbound: [`127.0.0.1:${String(params.remote_port)}`], handoff: { found: false } });
  });

  it("something else that listens there: it sees the connection", async () => {
    const { d } = await pair();
    let connections = 0;
    const server = createServer();
    servers.push(server);
    server.on("connection", () => {
      connections += 1;
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const params = { do_remote_prefill: true, remote_block_ids: [[1]], remote_engine_id: "e", remote_request_id: "r", remote_host: "127.0.0.1", remote_port: String(port) };
    expect((await decode(d, chatBody("strange", 10), params)).status).toBe(500);
    expect(connections).toBe(1);
    server.closeAllConnections();
  });

  it("an address that is not loopback is never contacted", async () => {
    const { d } = await pair();
    const params = { do_remote_prefill: true, remote_block_ids: [[1]], remote_engine_id: "e", remote_request_id: "r", remote_host: "169.254.169.254", remote_port: 80 };
    expect((await decode(d, chatBody("meta", 10), params)).status).toBe(500);
    expect(d.records()[0]?.outbound).toEqual(["169.254.169.254:80"]);
    expect(d.records()[0]?.error).toContain("not a loopback address");
  });

  it("but recomputes when it is told to", async () => {
    const { d } = await pair({}, { kvLoadFailurePolicy: "recompute" });
    const body = chatBody("recompute", 60);
    const params = { do_remote_prefill: true, remote_block_ids: [[1, 2, 3, 4]], remote_engine_id: "e", remote_request_id: "r", remote_host: "127.0.0.1", remote_port: await closedPort() };
    const reply = await decode(d, body, params);
    expect(chatText(reply)).toBe(await aloneText(body));
    expect(d.records()[0]?.handoff).toMatchObject({ recomputed: true, correct: true, found: false });
    expect(await metric(d.url, "vllm:prompt_tokens_by_source_total", 'source="local_compute"')).toBe(d.records()[0]?.promptTokens);
  });
});

describe("parameters through other doors", () => {
  it.each<[string, string, JsonObject]>([
    ["vllm_xargs", CHAT, { vllm_xargs: { tag: "t", kv_transfer_params: { do_remote_prefill: true, remote_block_ids: [1] } } }],
    ["an escaped name", CHAT, { kv_transfer_params: { do_remote_prefill: true, remote_block_ids: [1] } }],
  ])("follows %s", async (_name, path, more) => {
    const { d } = await pair();
    const body = JSON.stringify({ ...chatBody("door"), ...more }).replaceAll("kv_transfer_params", "kv\\u005ftransfer_param\\u0073");
    expect((await send(d.url, path, { body })).status).toBe(500);
    expect(d.records()[0]?.controlMembers.length).toBe(1);
    await died(d);
  });

  it("follows sampling_params.extra_args of generate", async () => {
    const { d } = await pair();
    const kv_transfer_params = { do_remote_prefill: true, remote_block_ids: [[1]], remote_engine_id: "x", remote_request_id: "x-1", remote_host: "127.0.0.1", remote_port: await closedPort() };
    const reply = await send(d.url, "/inference/v1/generate", { body: { token_ids: [1, 2, 3], sampling_params: { max_tokens: 4, extra_args: { tag: "t", kv_transfer_params } } } });
    expect(reply.status).toBe(500);
    expect(d.records()[0]).toMatchObject({ controlMembers: ["sampling_params.extra_args.kv_transfer_params"], outbound: [`127.0.0.1:${String(kv_transfer_params.remote_port)}`] });
  });

  it("follows a UTF-16 body", async () => {
    const { d } = await pair();
    const body = Buffer.from(JSON.stringify({ ...chatBody("wide"), kv_transfer_params: { do_remote_prefill: true, remote_block_ids: [1] } }), "utf16le");
    expect((await send(d.url, CHAT, { body })).status).toBe(500);
    await died(d);
    expect(d.records()[0]).toMatchObject({ controlMembers: ["kv_transfer_params"], body });
  });

  it("holds blocks on a decode engine that is asked to prefill, as the real one does", async () => {
    const { d } = await pair();
    const reply = await decode(d, chatBody("trusted"), { do_remote_decode: true, do_remote_prefill: false });
    expect(reply.status).toBe(200);
    expect(d.records()[0]?.stage).toBe("decode");
    expect(d.state().heldTransfers.length).toBe(1);
  });
});

describe("over IPv6", () => {
  it("hands over between two engines on ::1", async () => {
    const { p, d } = await pair({ host: "::1" }, { host: "::1" });
    expect(p.url).toMatch(/^http:\/\/\[::1\]:\d+$/);
    const body = chatBody("six", 60);
    const params = await handoffOf(p, body);
    expect(params["remote_host"]).toBe("::1");
    expect(chatText(await decode(d, body, params))).toBe(await aloneText(body));
  });
});

describe("small rules", () => {
  it("truth is Python's", () => {
    expect(["false", 1, [0], { a: 1 }].map((value) => truthy(value))).toEqual([true, true, true, true]);
    expect([undefined, null, false, 0, "", [], {}].map((value) => truthy(value))).toEqual([false, false, false, false, false, false, false]);
  });

  it("a KV-source pull may stand beside the prefill leg's members", () => {
    expect(prefillParamsProblem({ ...NIXL_PREFILL, remote_kv_source: { kv_request_id: "x" } })).toBe(null);
  });
});
