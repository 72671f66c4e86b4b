import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Bed, chat } from "./filter-bed.js";
import { until } from "./gateway.js";

function engineMetrics(values: { waiting?: number; running?: number; usage?: number; start?: number; tokens?: number; padding?: number }): string {
  return [
    ...(values.padding === undefined ? [] : ["# " + "x".repeat(1000)].flatMap((line) => Array<string>(Math.ceil((values.padding ?? 0) / 1000)).fill(line))),
    "# HELP vllm:num_requests_waiting Number of requests waiting.",
    `vllm:num_requests_waiting{engine="0",model_name="m"} ${(values.waiting ?? 0).toFixed(1)}`,
    `vllm:num_requests_running{engine="0",model_name="m"} ${(values.running ?? 0).toFixed(1)}`,
    `vllm:kv_cache_usage_perc{engine="0",model_name="m"} ${String(values.usage ?? 0)}`,
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="512",engine="0"} 1.0',
    `vllm:prompt_tokens_total{engine="0"} ${String(values.tokens ?? 0)}`,
    `process_start_time_seconds ${String(values.start ?? 1000)}`,
    "",
  ].join("\n");
}

describe("scraped load and health", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ pods: { decode: 2, prefill: 2, encode: 1 }, concurrency: 2 });
    for (const pod of bed.pods) pod.metrics = engineMetrics({});
    await bed.settled();
  });
  afterAll(() => bed.stop());
  afterEach(async () => {
    for (const pod of bed.pods) {
      pod.healthStatus = 200;
      pod.metricsStatus = 200;
    }
    await bed.settled();
  });

  it("reads what the engines say, once per endpoint and interval whatever the number of workers", async () => {
    bed.pod("d0").metrics = engineMetrics({ waiting: 3, running: 7, usage: 0.25 });
    await until("d0's load", async () => (await bed.endpoint("d0")).load.waiting === 3);
    expect((await bed.endpoint("d0")).load).toEqual({ waiting: 3, running: 7, kvUsage: 0.25 });
    const before = bed.pods.map((pod) => pod.scrapes);
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    for (const [at, pod] of bed.pods.entries()) {
      const scrapes = pod.scrapes - (before[at] ?? 0);
      expect(scrapes, pod.name).toBeGreaterThanOrEqual(4);
      expect(scrapes, pod.name).toBeLessThanOrEqual(6);
    }
    bed.pod("d0").metrics = engineMetrics({});
  });

  it("reads an answer of 3 MiB, and cuts a larger one at 4 MiB and counts it", async () => {
    bed.pod("p0").metrics = engineMetrics({ waiting: 11, padding: 3 << 20 });
    await until("p0's load", async () => (await bed.endpoint("p0")).load.waiting === 11);
    bed.pod("p0").metrics = engineMetrics({ waiting: 12, padding: 5 << 20 });
    await until("a cut answer", async () => (await bed.gateway.stat("wasmcustom.crosspoint.scrapes.result.truncated")) > 0);
    await until("unknown values", async () => (await bed.endpoint("p0")).load.waiting === null);
    // Reachable with values missing is neutral, and stays in.
    expect((await bed.endpoint("p0")).health).toBe("ok");
    bed.pod("p0").metrics = engineMetrics({});
  });

  it("leaves out who answers /health with 503, counts it by role, and takes it back", async () => {
    bed.pod("p1").healthStatus = 503;
    await until("p1 draining", async () => (await bed.endpoint("p1")).health === "draining");
    await until("the gauge", async () => (await bed.gateway.stat("wasmcustom.crosspoint.endpoints_out.role.prefill")) === 1);
    for (let i = 0; i < 20; i++) expect((await bed.post(chat(60, `drain ${i.toString()} `))).decision.prefill.endpoint).toBe(bed.pod("p0").address);
    bed.pod("p1").healthStatus = 200;
    await until("p1 back", async () => (await bed.endpoint("p1")).health === "ok");
    const seen = new Set<string>();
    for (let i = 0; i < 40; i++) seen.add((await bed.post(chat(60, `back ${i.toString()} `))).decision.prefill.endpoint);
    expect(seen.size).toBe(2);
  });

  it("keeps who is left when no other candidate is", async () => {
    for (const name of ["d0", "d1"]) bed.pod(name).healthStatus = 503;
    await until("both draining", async () => (await bed.state()).endpoints.filter((each) => each.health === "draining").length === 2);
    const { decision, answer } = await bed.post(chat(4));
    expect(answer.status).toBe(200);
    expect(decision.decode.reason).toBe("picked");
  });

  it("leaves out who fails two scrapes in a row, and gives it a new id when it is back: its credit is gone", async () => {
    const cold = await bed.post(chat(300, "restart "));
    const decode = bed.pods.find((pod) => pod.address === cold.decision.decode.endpoint);
    if (decode === undefined) throw new Error("no such pod");
    const before = await bed.endpoint(decode.name);
    expect(before.prefixBlocks).toBeGreaterThan(0);
    decode.metricsStatus = 503;
    await until("it is out", async () => (await bed.endpoint(decode.name)).health === "unreachable");
    expect((await bed.post(chat(300, "restart "))).decision.decode.endpoint).not.toBe(decode.address);
    decode.metricsStatus = 200;
    await until("it is back", async () => (await bed.endpoint(decode.name)).health === "ok");
    const after = await bed.endpoint(decode.name);
    expect(after.id).toBeGreaterThan(before.id);
    expect(after.prefixBlocks).toBe(0);
  });

  it("leaves out who does not answer in time, twice in a row", async () => {
    bed.pod("e0").metricsSilent = true;
    await until("e0 out", async () => (await bed.endpoint("e0")).health === "unreachable");
    expect((await bed.endpoint("e0")).failures).toBeGreaterThanOrEqual(2);
    bed.pod("e0").metricsSilent = false;
    await until("e0 back", async () => (await bed.endpoint("e0")).health === "ok");
  });

  it.each([
    ["its process's start time changed", { start: 2000 }, { start: 3000 }],
    ["its counters went back", { start: 5000, tokens: 900 }, { start: 5000, tokens: 3 }],
  ])("gives an engine a new id when %s", async (_what, was, is) => {
    const pod = bed.pod("d1");
    pod.metrics = engineMetrics(was);
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    const before = await bed.endpoint("d1");
    pod.metrics = engineMetrics(is);
    await until("a new id", async () => (await bed.endpoint("d1")).id > before.id);
    expect((await bed.endpoint("d1")).prefixBlocks).toBe(0);
  });
});

describe("a pod that is not there", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ pods: { decode: 2, prefill: 1, encode: 0 }, options: { scrape: { intervalMs: 60_000 } } });
  });
  afterAll(() => bed.stop());

  it("a connect failure that Envoy reports for the picked pod counts as a failed scrape; the request is served by another", async () => {
    await bed.settled();
    const cold = await bed.post(chat(200, "gone "));
    const gone = bed.pods.find((pod) => pod.address === cold.decision.decode.endpoint);
    if (gone === undefined) throw new Error("no such pod");
    await gone.close();
    // Scrapes are a minute apart: what is learned within seconds is learned from requests.
    for (let i = 0; i < 6; i++) expect((await bed.post(chat(200, "gone "))).answer.status).toBe(200);
    await until("it is out", async () => (await bed.endpoint(gone.name)).health === "unreachable");
    expect(await bed.gateway.stat("wasmcustom.crosspoint.decode_connect_failures")).toBeGreaterThanOrEqual(2);
    const { decision } = await bed.post(chat(200, "gone "));
    expect(decision.decode.endpoint).not.toBe(gone.address);
  });
});
