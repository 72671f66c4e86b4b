import { readFileSync, writeFileSync } from "node:fs";
import { Agent, request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { clockMs } from "../fleet/http.js";
import { built } from "../fleet/root.js";
import { Bed, chat } from "./filter-bed.js";
import { until } from "./gateway.js";

/** The module with another name for itself: other bytes, the same code. */
function moduleVersion(label: string): Buffer {
  const module = Buffer.from(readFileSync(built("filter.wasm")));
  const at = module.indexOf(Buffer.from("0.1.0+"));
  if (at < 0) throw new Error("the module does not name its version");
  Buffer.from(label.padEnd(32)).copy(module, at);
  return module;
}

describe("hot swap", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ concurrency: 2 });
    await bed.settled();
  });
  afterAll(() => bed.stop());

  it("five modules under 50 requests a second and 10 s streams: no request fails, the prefix state stays", { timeout: 240_000 }, async () => {
    const { host, port } = bed.gateway.settings.listen;
    const failures: string[] = [];
    let served = 0;
    const agent = new Agent({ keepAlive: true, maxSockets: 16 });
    const short = (i: number): Promise<void> =>
      new Promise((resolve) => {
        const call = httpRequest({ agent, host, port, method: "POST", path: "/v1/chat/completions", headers: { "content-type": "application/json" } }, (answer) => {
          if (answer.statusCode !== 200 || answer.headers["x-crosspoint-decision"] === undefined) failures.push(`status ${String(answer.statusCode)}`);
          answer.resume();
          answer.on("error", (error) => failures.push(error.message));
          answer.on("end", () => {
            served++;
            resolve();
          });
        });
        call.on("error", (error) => {
          failures.push(error.message);
          resolve();
        });
        call.end(JSON.stringify(chat(40 + (i % 100), `swap ${(i % 20).toString()} `)));
      });
    // Streams that are open over the swaps, new ones all the time: a swap must not cut one.
    let streams = 0;
    const stream = (): Promise<void> =>
      new Promise((resolve) => {
        const from = clockMs();
        const call = httpRequest({ host, port, method: "POST", path: "/v1/chat/completions", headers: { "content-type": "application/json", "x-pod-stream": "0" } }, (answer) => {
          let bytes = 0;
          answer.on("data", (piece: Buffer) => (bytes += piece.length));
          answer.on("error", (error) => failures.push(`stream: ${error.message}`));
          answer.on("end", () => {
            if (bytes !== 8 + 3) failures.push(`stream: ${bytes.toString()} bytes`);
            if (clockMs() - from >= 5_000) streams++;
            resolve();
          });
        });
        call.on("error", (error) => {
          failures.push(`stream: ${error.message}`);
          resolve();
        });
        call.end(JSON.stringify(chat(30, "a long answer ")));
      });

    const cold = await bed.post(chat(500, "kept over swaps "));
    expect(cold.decision.cachedTokens).toBe(0);
    const work: Promise<void>[] = [];
    let i = 0;
    const load = setInterval(() => work.push(short(i++)), 20);
    const opener = setInterval(() => work.push(stream()), 1_000);
    const ender = setInterval(() => {
      for (const pod of bed.pods) pod.finish();
    }, 10_000);

    const versions: string[] = [];
    for (let swap = 1; swap <= 5; swap++) {
      const label = `0.1.0+swap-${swap.toString()}`;
      writeFileSync(bed.gateway.file("filter.wasm"), moduleVersion(label));
      const { publication } = await bed.gateway.renderAgain();
      expect(publication).not.toBeNull();
      await until(`version ${label}`, async () => (await bed.state()).version === label);
      versions.push((await bed.state()).version);
      // Each version sees what the first one learned.
      const warm = await bed.post(chat(500, "kept over swaps "));
      expect(warm.decision).toMatchObject({ cachedTokens: 500, decode: { endpoint: cold.decision.decode.endpoint }, prefill: { reason: "skip_cached" } });
      await new Promise((resolve) => setTimeout(resolve, 2_500));
    }
    clearInterval(load);
    clearInterval(opener);
    await new Promise((resolve) => setTimeout(resolve, 5_000));
    clearInterval(ender);
    for (const pod of bed.pods) pod.finish();
    await Promise.all(work);
    agent.destroy();

    expect(versions).toEqual([1, 2, 3, 4, 5].map((swap) => `0.1.0+swap-${swap.toString()}`));
    expect(failures).toEqual([]);
    expect(served).toBeGreaterThan(500);
    expect(streams).toBeGreaterThan(5);
    // Streams that began under one module and ended under another gave back what they held.
    await until("nothing in flight", async () => (await bed.state()).endpoints.every((each) => each.inFlight.requests === 0 && each.inFlight.tokens === 0));
  });
});
