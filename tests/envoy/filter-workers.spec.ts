import { Agent, request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Bed, chat } from "./filter-bed.js";
import { until } from "./gateway.js";
import { pinned, postVia } from "./pinned.js";

describe("two workers, one state", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ concurrency: 2 });
    await bed.settled();
  });
  afterAll(() => bed.stop());

  it("credit given by one worker is a hit on the other", async () => {
    const first = await pinned(bed, 0);
    const second = await pinned(bed, 1);
    const cold = await postVia(bed, first, chat(400, "across workers "));
    expect(cold).toMatchObject({ prefill: { reason: "run_uncached" }, cachedTokens: 0 });
    const warm = await postVia(bed, second, chat(400, "across workers "));
    expect(warm).toMatchObject({ decode: { endpoint: cold.decode.endpoint }, prefill: { reason: "skip_cached" }, cachedTokens: 400 });
    const back = await postVia(bed, first, chat(400, "from the other "));
    expect(back.cachedTokens).toBe(0);
    expect((await postVia(bed, second, chat(400, "from the other "))).cachedTokens).toBe(400);
    first.destroy();
    second.destroy();
  });

  it("what is open is in flight, to the request; after 10,000 requests with aborts nothing is", { timeout: 120_000 }, async () => {
    const inFlight = async (): Promise<{ requests: number; tokens: number }> => {
      const { endpoints } = await bed.state();
      return { requests: endpoints.reduce((sum, each) => sum + each.inFlight.requests, 0), tokens: endpoints.reduce((sum, each) => sum + each.inFlight.tokens, 0) };
    };
    await until("nothing in flight", async () => (await inFlight()).requests === 0);
    // 20 that wait for their first byte: each counts on its decode pod, and those that are split on their prefill pod as well.
    const { host, port } = bed.gateway.settings.listen;
    const waiting = Array.from({ length: 20 }, (_none, i) => {
      const call = httpRequest({ host, port, method: "POST", path: "/v1/chat/completions", headers: { "content-type": "application/json", "x-pod-silent": "1" } });
      call.on("error", () => undefined);
      call.end(JSON.stringify(chat(i < 10 ? 3 : 200, `${i.toString()} is waiting `)));
      return call;
    });
    // Short ones put their 3 tokens on decode, split ones their 200 on both: nothing of them is cached. What came within milliseconds is written with the worker's next tick.
    await until("20 requests in flight", async () => {
      const { requests, tokens } = await inFlight();
      return requests === 30 && tokens === 10 * 3 + 10 * 2 * 200;
    });
    for (const call of waiting) call.destroy();
    await until("nothing in flight", async () => (await inFlight()).requests === 0);

    const agent = new Agent({ keepAlive: true, maxSockets: 32 });
    let ended = 0;
    let aborted = 0;
    const one = (i: number): Promise<void> =>
      new Promise((resolve) => {
        const done = (): void => {
          ended++;
          resolve();
        };
        const call = httpRequest({ agent, host, port, method: "POST", path: "/v1/chat/completions", headers: { "content-type": "application/json", ...(i % 7 === 0 ? { "x-pod-delay-ms": "5" } : {}), ...(i % 13 === 0 ? { "x-pod-reset": "1" } : {}) } }, (answer) => {
          answer.resume();
          answer.on("close", done);
        });
        call.on("error", done);
        call.end(JSON.stringify(chat(i % 3 === 0 ? 100 : 4, `${(i % 50).toString()} `)));
        // Left before the answer, in the middle of it, or never.
        if (i % 7 === 0) {
          setTimeout(() => {
            if (!call.destroyed) {
              aborted++;
              call.destroy();
            }
          }, i % 8);
        }
      });
    let next = 0;
    await Promise.all(
      Array.from({ length: 32 }, async () => {
        while (next < 10_000) await one(next++);
      }),
    );
    agent.destroy();
    expect(ended).toBe(10_000);
    expect(aborted).toBeGreaterThan(100);
    await until("nothing in flight", async () => {
      const { requests, tokens } = await inFlight();
      return requests === 0 && tokens === 0;
    });
    // It is right by its own doing: no healing had to mend it.
    expect(await bed.gateway.stat("wasmcustom.crosspoint.inflight_healed")).toBe(0);
    expect(await bed.gateway.stat("wasmcustom.crosspoint.inflight_lost_writes")).toBe(0);
  });
});
