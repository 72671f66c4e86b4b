import { afterEach, describe, expect, it } from "vitest";

import { at, chatBody, chatText, EngineHouse, metric, NIXL_PREFILL, PATIENT, prefillLeg, send } from "../testing.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
afterEach(() => house.closeAll());

const CHAT = "/v1/chat/completions";
const ask = (engine: Engine, topic: string, tokens: number, more = {}) => send(engine.url, CHAT, { body: chatBody(topic, tokens, more) });

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

describe("prefix cache", () => {
  it("finds whole blocks again, never the whole prompt", async () => {
    const d = await house.start({ role: "decode" });
    const cold = await ask(d, "cache", 160);
    expect(at(cold.json, "usage.prompt_tokens_details.cached_tokens")).toBe(0);
    expect(at(cold.json, "usage.prompt_tokens_details.created_cache_tokens")).toBe(Math.floor(Number(at(cold.json, "usage.prompt_tokens")) / 16) * 16);
    const warm = await ask(d, "cache", 160);
    const tokens = Number(at(warm.json, "usage.prompt_tokens"));
    const cached = Math.floor((tokens - 1) / 16) * 16;
    expect(at(warm.json, "usage.prompt_tokens_details.cached_tokens")).toBe(cached);
    expect(chatText(warm)).toBe(chatText(cold));
    expect(d.records().map(({ cachedTokens }) => cachedTokens)).toEqual([0, cached]);
    expect(await metric(d.url, "vllm:prefix_cache_queries_total")).toBe(2 * tokens);
    expect(await metric(d.url, "vllm:prefix_cache_hits_total")).toBe(cached);
    expect(await metric(d.url, "vllm:prompt_tokens_by_source_total", 'source="local_cache_hit"')).toBe(cached);
  });

  it("has the answer too, for the next turn", async () => {
    const d = await house.start({ role: "decode" });
    const messages = [{ role: "user", content: "the ledger of every vessel ".repeat(10) }];
    const first = await send(d.url, CHAT, { body: { messages, temperature: 0, max_tokens: 60, min_tokens: 60 } });
    const used = Number(at(first.json, "usage.total_tokens"));
    const second = await send(d.url, CHAT, { body: { messages: [...messages, { role: "assistant", content: chatText(first) }, { role: "user", content: "and now?" }], max_tokens: 1 } });
    expect(at(second.json, "usage.prompt_tokens_details.cached_tokens")).toBe(Math.floor((used - 1) / 16) * 16);
  });

  it("is apart per model and per cache_salt, and of no use for prompt_logprobs", async () => {
    const d = await house.start({ role: "decode" });
    await ask(d, "apart", 100);
    for (const more of [{ model: "other" }, { cache_salt: "s" }, { prompt_logprobs: 1 }]) expect(at((await ask(d, "apart", 100, more)).json, "usage.prompt_tokens_details.cached_tokens")).toBe(0);
    expect(chatText(await ask(d, "apart", 100, { cache_salt: "s" }))).toBe(chatText(await ask(d, "apart", 100)));
    expect(at((await ask(d, "apart", 100, { cache_salt: "s" })).json, "usage.prompt_tokens_details.cached_tokens")).toBeGreaterThan(0);
  });

  it("forgets the least recently used, and all of it on /reset_prefix_cache", async () => {
    const d = await house.start({ role: "decode", numBlocks: 24 });
    await ask(d, "first", 160);
    await ask(d, "second", 160);
    await ask(d, "third", 160);
    expect(at((await ask(d, "first", 160)).json, "usage.prompt_tokens_details.cached_tokens")).toBe(0);
    expect(at((await ask(d, "third", 160)).json, "usage.prompt_tokens_details.cached_tokens")).toBeGreaterThan(0);
    await send(d.url, "/reset_prefix_cache", { method: "POST" });
    expect(at((await ask(d, "third", 160)).json, "usage.prompt_tokens_details.cached_tokens")).toBe(0);
  });

  it("says nothing of it without --enable-prompt-tokens-details, but the record knows", async () => {
    const d = await house.start({ role: "decode", promptTokensDetails: false });
    await ask(d, "quiet", 100);
    expect(at((await ask(d, "quiet", 100)).json, "usage.prompt_tokens_details")).toBe(null);
    expect(d.records()[1]?.cachedTokens).toBeGreaterThan(0);
  });
});

describe("time", () => {
  it("per prompt token that is computed, less when cached", async () => {
    const d = await house.start({ role: "decode", msPerPrefillToken: 3 });
    expect(await timed(() => ask(d, "time", 200))).toBeGreaterThanOrEqual(595);
    expect(await timed(() => ask(d, "time", 200))).toBeLessThan(400);
  });

  it("per generated token, streamed evenly", async () => {
    const d = await house.start({ role: "decode", msPerDecodeToken: 20 });
    expect(await timed(() => ask(d, "decode", 20, { max_tokens: 11, min_tokens: 11 }))).toBeGreaterThanOrEqual(195);
    expect(await timed(() => ask(d, "decode", 20, { max_tokens: 11, min_tokens: 11, stream: true }))).toBeGreaterThanOrEqual(190);
    const record = d.records()[1];
    const untilFirstByte = (record?.firstByteAtMs ?? 0) - (record?.startedAtMs ?? 0);
    expect(untilFirstByte).toBeLessThan(((record?.endedAtMs ?? 0) - (record?.startedAtMs ?? 0)) / 2);
  });

  it("a decoder needs none for the prompt that a prefiller has computed", async () => {
    const [p, d] = [await house.start({ role: "prefill", msPerPrefillToken: 3 }), await house.start({ role: "decode", msPerPrefillToken: 3 })];
    const body = chatBody("pd", 200);
    let params: unknown = null;
    expect(await timed(async () => (params = (await send(p.url, CHAT, { body: prefillLeg(body) })).json["kv_transfer_params"]))).toBeGreaterThanOrEqual(595);
    expect(await timed(() => send(d.url, CHAT, { body: { ...body, kv_transfer_params: params } }))).toBeLessThan(400);
  });
});

describe("load", () => {
  it("waits beyond max_num_seqs, in order, and the gauges say so", async () => {
    const d = await house.start({ role: "decode", maxNumSeqs: 2, msPerDecodeToken: 10 });
    const replies = [1, 2, 3, 4].map((index) => ask(d, `load ${String(index)}`, 20, { max_tokens: 20, min_tokens: 20 }));
    await expect.poll(() => d.state().waiting, PATIENT).toBe(2);
    expect(await metric(d.url, "vllm:num_requests_running")).toBe(2);
    expect(await metric(d.url, "vllm:num_requests_waiting")).toBe(2);
    expect(await metric(d.url, "vllm:num_requests_waiting_by_reason", 'reason="capacity"')).toBe(2);
    expect(await metric(d.url, "vllm:kv_cache_usage_perc")).toBeGreaterThan(0);
    expect((await send(d.url, "/load")).json).toEqual({ server_load: 4 });
    expect(d.state().maxInFlight).toBe(4);
    await Promise.all(replies);
    const ends = d.records().filter(({ modelCall }) => modelCall).map(({ endedAtMs }) => Number(endedAtMs));
    expect(Math.min(ends[2] ?? 0, ends[3] ?? 0)).toBeGreaterThan(Math.max(ends[0] ?? 0, ends[1] ?? 0));
    expect(await metric(d.url, "vllm:num_requests_running")).toBe(0);
    expect(await metric(d.url, "vllm:kv_cache_usage_perc")).toBe(0);
  });

  it("gives a waiting place up when the client leaves", async () => {
    const d = await house.start({ role: "decode", maxNumSeqs: 1, msPerDecodeToken: 20 });
    const first = ask(d, "one", 20, { max_tokens: 60, min_tokens: 60 });
    await expect.poll(() => d.state().running, PATIENT).toBe(1);
    const abort = new AbortController();
    const second = send(d.url, CHAT, { body: chatBody("two"), signal: abort.signal }).catch(() => "gone");
    await expect.poll(() => d.state().waiting, PATIENT).toBe(1);
    abort.abort();
    await second;
    await expect.poll(() => [d.state().waiting, d.state().running], PATIENT).toEqual([0, 1]);
    expect((await first).status).toBe(200);
    expect(await d.idle()).toBe(true);
    expect(d.state()).toMatchObject({ running: 0, waiting: 0 });
  });

  it("waits for blocks that abandoned prefill legs pin, until their lease is over", async () => {
    const p = await house.start({ role: "prefill", numBlocks: 22, leaseMs: 300 });
    for (const topic of ["a", "b"]) await send(p.url, CHAT, { body: prefillLeg(chatBody(topic, 140)) });
    expect(p.state().blocks.pinned).toBe(18);
    const waited = await timed(() => send(p.url, CHAT, { body: prefillLeg(chatBody("c", 140)) }));
    expect(waited).toBeGreaterThan(150);
    expect(p.state().expiredTransfers).toBeGreaterThanOrEqual(1);
  });

  it("counts requests by how they ended, and times to the first token", async () => {
    const d = await house.start({ role: "decode", msPerDecodeToken: 5 });
    await ask(d, "length", 20);
    await ask(d, "stop", 20, { max_tokens: 500 });
    const abort = new AbortController();
    const gone = send(d.url, CHAT, { body: chatBody("abort", 20, { max_tokens: 400, min_tokens: 400 }), signal: abort.signal }).catch(() => "gone");
    await expect.poll(() => d.state().running, PATIENT).toBe(1);
    abort.abort();
    await gone;
    await expect.poll(() => d.state().running, PATIENT).toBe(0);
    for (const reason of ["length", "stop", "abort"]) expect([reason, await metric(d.url, "vllm:request_success_total", `finished_reason="${reason}"`)]).toEqual([reason, 1]);
    expect(await metric(d.url, "vllm:time_to_first_token_seconds_count")).toBe(3);
    expect(await metric(d.url, "vllm:time_to_first_token_seconds_bucket", 'le="+Inf"')).toBe(3);
  });

  it("carries 200 streams at once", async () => {
    const d = await house.start({ role: "decode", msPerDecodeToken: 10 });
    const replies = await Promise.all(Array.from({ length: 200 }, (_, index) => ask(d, `s${String(index)}`, 20, { stream: true, max_tokens: 20, min_tokens: 20 })));
    expect(replies.every(({ data, broken }) => data.length === 23 && !broken)).toBe(true);
    expect(new Set(replies.map(chatText)).size).toBe(200);
    expect(d.state()).toMatchObject({ running: 0, blocks: { used: 0 } });
  });
});

describe("metric families", () => {
  it("have vLLM's names and types", async () => {
    const d = await house.start({ role: "decode", loraAdapters: ["tides-lora-3"], numBlocks: 512, blockSize: 32, model: ["base"] });
    const { text, headers } = await send(d.url, "/metrics");
    expect(headers["content-type"]).toContain("text/plain");
    const types = new Map(text.split("\n").filter((line) => line.startsWith("# TYPE ")).map((line) => line.slice(7).split(" ") as [string, string]));
    const gauges = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason", "vllm:kv_cache_usage_perc", "vllm:cache_config_info", "vllm:lora_requests_info", "process_start_time_seconds"];
    const counters = [
      "vllm:prefix_cache_queries_total",
      "vllm:prefix_cache_hits_total",
      "vllm:external_prefix_cache_queries_total",
      "vllm:external_prefix_cache_hits_total",
      "vllm:prompt_tokens_by_source_total",
      "vllm:prompt_tokens_cached_by_source_total",
      "vllm:request_success_total",
      "vllm:nixl_num_failed_transfers_total",
      "vllm:nixl_num_kv_expired_reqs_total",
    ];
    const histograms = ["vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds", "vllm:nixl_xfer_time_seconds", "vllm:nixl_bytes_transferred"];
    for (const [names, type] of [[gauges, "gauge"], [counters, "counter"], [histograms, "histogram"]] as const) for (const name of names) expect([name, types.get(name)]).toEqual([name, type]);
    expect(text).toMatch(/vllm:cache_config_info\{block_size="32",num_gpu_blocks="512",[^}]*\} 1/);
    expect(text).toMatch(/vllm:num_requests_running\{engine="0",model_name="base"\} 0/);
    expect(Math.abs(Number(await metric(d.url, "process_start_time_seconds")) - Date.now() / 1000)).toBeLessThan(60);
  });

  it("show the adapters of running requests", async () => {
    const d = await house.start({ role: "decode", loraAdapters: ["tides-lora-3"], msPerDecodeToken: 30 });
    const reply = ask(d, "lora", 20, { model: "tides-lora-3", max_tokens: 20, min_tokens: 20 });
    await expect.poll(() => d.state().running, PATIENT).toBe(1);
    expect(await metric(d.url, "vllm:lora_requests_info", 'running_lora_adapters="tides-lora-3"')).toBeGreaterThan(1e9);
    await reply;
    expect(await metric(d.url, "vllm:lora_requests_info", 'running_lora_adapters=""')).toBeGreaterThan(1e9);
  });

  it("have sglang's names when asked for", async () => {
    const d = await house.start({ role: "decode", engineType: "sglang", numBlocks: 100 });
    const { text } = await send(d.url, "/metrics");
    for (const name of ["sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"]) expect(await metric(d.url, name)).toBe(0);
    expect(text).toContain('sglang:cache_config_info{page_size="16",num_pages="100"');
    expect(text).not.toContain("vllm:");
  });

  it("begin anew with a reset", async () => {
    const p = await house.start({ role: "prefill" });
    await send(p.url, CHAT, { body: { ...chatBody("x"), max_tokens: 1, stream: false, kv_transfer_params: NIXL_PREFILL } });
    const before = await metric(p.url, "process_start_time_seconds");
    await new Promise((resolve) => setTimeout(resolve, 5));
    await p.reset();
    expect(await metric(p.url, "vllm:prefix_cache_queries_total")).toBe(0);
    expect(await metric(p.url, "process_start_time_seconds")).toBeGreaterThan(before ?? 0);
  });
});
