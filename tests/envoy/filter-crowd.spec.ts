/** Scraping of many endpoints: how many calls are open at once, whether it keeps up, and what it does to requests. */
import { readFileSync } from "node:fs";
import { afterEach, describe, expect, it } from "vitest";
import { processCpuMs } from "../bench/proc.js";
import { send } from "../fleet/http.js";
import { pickerDocument } from "../fleet/picker.js";
import { built } from "../fleet/root.js";
import { addressOf, Crowd } from "./crowd.js";
import { chat, type FilterState } from "./filter-bed.js";
import { Gateway, json, until } from "./gateway.js";

let crowd: Crowd | null = null;
let gateway: Gateway | null = null;
afterEach(async () => {
  await gateway?.stop();
  await crowd?.stop();
  gateway = null;
  crowd = null;
});

async function start(count: number, page: { bytes: number; delayMs?: number }, scrape: Record<string, number>): Promise<{ crowd: Crowd; gateway: Gateway; state: () => Promise<FilterState> }> {
  crowd = await Crowd.start(page.bytes, page.delayMs);
  const made = await Gateway.start({
    module: readFileSync(built("filter.wasm")),
    picker: pickerDocument({ prefill: false, encode: false }),
    options: { scrape },
    endpoints: crowd.targets(count),
    concurrency: 2,
  });
  gateway = made;
  const { host, port } = made.settings.state;
  const state = async (): Promise<FilterState> => json(await send({ host, port, method: "GET", path: "/state" })) as FilterState;
  await until("the filter's VM", async () => ((await state()) as Partial<FilterState>).configured);
  return { crowd, gateway: made, state };
}

/** Milliseconds of each of `count` requests, one after the other. */
async function times(at: Gateway, count: number): Promise<number[]> {
  const out: number[] = [];
  for (let i = 0; i < count; i++) {
    const body = Buffer.from(JSON.stringify(chat(200, `crowd ${String(i)} `)));
    const from = performance.now();
    const answer = await at.send({ method: "POST", path: "/v1/chat/completions", headers: [["content-type", "application/json"]], body });
    expect(answer.status).toBe(200);
    out.push(performance.now() - from);
  }
  return out.sort((a, b) => a - b);
}

describe("scraping", () => {
  it("has at most 16 calls open over all endpoints and workers, and uses them", { timeout: 60_000 }, async () => {
    const bed = await start(120, { bytes: 2_000, delayMs: 60 }, { intervalMs: 50, timeoutMs: 5_000 });
    await until("every endpoint scraped twice", async () => Object.values((await bed.crowd.counts()).scrapes).filter((n) => n >= 2).length === 120, 30_000);
    const { mostInFlight, scrapes } = await bed.crowd.counts();
    expect(mostInFlight).toBeLessThanOrEqual(16);
    expect(mostInFlight).toBeGreaterThanOrEqual(12);
    // Nobody is starved: whoever is due longest comes first.
    const all = Object.values(scrapes);
    expect(Math.max(...all) - Math.min(...all)).toBeLessThanOrEqual(2);
  });

  it("keeps to another number that is configured", { timeout: 60_000 }, async () => {
    const bed = await start(30, { bytes: 2_000, delayMs: 30 }, { intervalMs: 50, timeoutMs: 5_000, concurrency: 3 });
    await until("every endpoint scraped", async () => Object.keys((await bed.crowd.counts()).scrapes).length === 30, 30_000);
    expect((await bed.crowd.counts()).mostInFlight).toBeLessThanOrEqual(3);
  });

  it("an endpoint that is removed is gone from the state and its metrics text at the next read, and the others stay", { timeout: 60_000 }, async () => {
    const bed = await start(5, { bytes: 2_000 }, { intervalMs: 100, timeoutMs: 5_000 });
    await until("every endpoint scraped", async () => (await bed.state()).endpoints.every((each) => each.ageMs !== null), 30_000);
    const { host, port } = bed.gateway.settings.state;
    const text = async (): Promise<string> => (await send({ host, port, method: "GET", path: "/metrics" })).body.toString();
    const before = await text();
    for (let i = 0; i < 5; i++) expect(before).toContain(`crosspoint_endpoint_waiting_requests{namespace="default",endpoint="c${String(i)}",address="${addressOf(i)}:${String(bed.crowd.port)}"} 0`);
    // Prometheus text: every line is a comment or a sample, every family is declared once.
    const lines = before.trimEnd().split("\n");
    for (const line of lines) expect(line).toMatch(/^(# TYPE crosspoint_endpoint_[a-z_]+ gauge|crosspoint_endpoint_[a-z_]+\{namespace="[^"]*",endpoint="[^"]*",address="[^"]*"\} -?[0-9.]+(e[+-]?[0-9]+)?)$/);
    const families = lines.filter((line) => line.startsWith("#"));
    expect(new Set(families).size).toBe(families.length);
    bed.gateway.writeEndpoints(bed.crowd.targets(5).filter(({ name }) => name !== "c2"));
    await bed.gateway.renderAgain();
    await until("the new fleet", async () => (await bed.state()).endpoints.length === 4);
    const after = await text();
    expect(after).not.toContain('"c2"');
    expect(after).toContain('"c3"');
    // And Envoy's own metrics never named any of them.
    expect((await bed.gateway.running.admin.get("/stats/prometheus")).body).not.toMatch(/"c[0-4]"|127\.0\.1\./);
  });

  it.skipIf(process.env["CROSSPOINT_FAST"] !== undefined)("of 1,000 endpoints with 200 KB each keeps up, and requests do not wait for it", { timeout: 180_000 }, async () => {
    const COUNT = 1_000;
    // First without: an interval of an hour, after the first round.
    const idle = await start(COUNT, { bytes: 200_000 }, { intervalMs: 3_600_000, timeoutMs: 10_000 });
    await until("the first round", async () => Object.keys((await idle.crowd.counts()).scrapes).length === COUNT, 60_000);
    await times(idle.gateway, 50);
    const without = await times(idle.gateway, 200);
    await idle.gateway.stop();
    await idle.crowd.stop();

    const bed = await start(COUNT, { bytes: 200_000 }, { intervalMs: 1_000, timeoutMs: 10_000 });
    await until("the first round", async () => Object.keys((await bed.crowd.counts()).scrapes).length === COUNT, 60_000);
    await times(bed.gateway, 50);
    const { pid } = bed.gateway.running.child;
    const total = async (): Promise<number> => Object.values((await bed.crowd.counts()).scrapes).reduce((sum, n) => sum + n, 0);
    const [scrapedBefore, cpuBefore, from] = [await total(), processCpuMs(pid) / 1000, performance.now()];
    const during = await times(bed.gateway, 200);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, 10_000 - (performance.now() - from))));
    const seconds = (performance.now() - from) / 1000;
    const [scraped, cpu] = [(await total()) - scrapedBefore, processCpuMs(pid) / 1000 - cpuBefore];
    const ages = (await bed.state()).endpoints.map((each) => each.ageMs ?? Infinity);
    const p50 = (list: number[]): string => (list[list.length >> 1] ?? 0).toFixed(2);
    process.stdout.write(
      `1,000 endpoints, 200 KB each: ${(scraped / seconds).toFixed(0)} scrapes/s, oldest ${(Math.max(...ages) / 1000).toFixed(1)} s, Envoy ${((100 * cpu) / seconds).toFixed(0)} % of a core; ` +
        `request p50 ${p50(during)} ms, without scraping ${p50(without)} ms\n`,
    );
    expect((await bed.crowd.counts()).mostInFlight).toBeLessThanOrEqual(16);
    expect(await bed.gateway.stat("wasmcustom.crosspoint.scrapes.result.failed")).toBe(0);
    // A quiet machine does a round a second; a busy one may be slower, but no endpoint is left behind for long.
    expect(Math.max(...ages)).toBeLessThan(20_000);
    // Whoever scrapes serves no streams, so a request waits for no page that is read.
    expect(during[during.length >> 1]).toBeLessThan(3 * (without[without.length >> 1] ?? 0) + 5);
  });
});
