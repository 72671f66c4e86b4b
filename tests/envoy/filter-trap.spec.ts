import { readFileSync } from "node:fs";
import { type Agent, request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { built } from "../fleet/root.js";
import { Bed, chat } from "./filter-bed.js";
import { until } from "./gateway.js";
import { pinned, postVia } from "./pinned.js";
import { TRAP_HEADERS, trapping } from "./trapping.js";

describe("a worker's VM traps", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ concurrency: 2, module: trapping(readFileSync(built("filter.wasm"))) });
    await bed.settled();
  });
  afterAll(() => bed.stop());

  /** Ends when Envoy has answered or dropped the request that trapped. */
  function trap(agent: Agent): Promise<void> {
    const { host, port } = bed.gateway.settings.listen;
    return new Promise((resolve) => {
      const many = Object.fromEntries(Array.from({ length: TRAP_HEADERS }, (_none, i) => [`x-many-${i.toString()}`, "1"]));
      const call = httpRequest({ agent, host, port, method: "POST", path: "/v1/chat/completions", headers: { "content-type": "application/json", ...many } }, (answer) => {
        answer.resume();
        answer.on("close", resolve);
      });
      call.on("error", () => {
        resolve();
      });
      call.end(JSON.stringify(chat(3)));
    });
  }

  async function inFlight(): Promise<number> {
    return (await bed.state()).endpoints.reduce((sum, each) => sum + each.inFlight.requests, 0);
  }

  it("of every worker in turn: what the fleet's prompts taught stays, what was in flight there is dropped, the next request is served", { timeout: 90_000 }, async () => {
    const cold = (await bed.post(chat(500, "kept over traps "))).decision;
    expect(cold.cachedTokens).toBe(0);
    const warm = { cachedTokens: 500, decode: { endpoint: cold.decode.endpoint }, prefill: { reason: "skip_cached" } };
    const { host, port } = bed.gateway.settings.listen;

    for (const worker of [0, 1]) {
      const agent = await pinned(bed, worker);
      await until("nothing in flight", async () => (await inFlight()) === 0);
      // Streams that are open on this worker die with its VM; nobody is left there to give back what they hold.
      const open = Array.from({ length: 12 }, (_none, i) => {
        const call = httpRequest({ host, port, method: "POST", path: "/v1/chat/completions", headers: { "content-type": "application/json", "x-pod-silent": "1" } });
        call.on("error", () => undefined);
        call.end(JSON.stringify(chat(3, `${i.toString()} waits `)));
        return call;
      });
      await until("12 requests in flight", async () => (await inFlight()) === 12);
      await trap(agent);
      await until("the trap to be told", () => Promise.resolve(bed.gateway.running.child.output.split("unreachable").length > worker + 1));
      // The VM is made anew for the next request of this worker (FAIL_RELOAD), a moment later.
      await until(`worker ${worker.toString()} to decide again`, async () => {
        const again = await pinned(bed, worker).catch(() => null);
        if (again === null) return false;
        const answer = await postVia(bed, again, chat(500, "kept over traps ")).catch(() => null);
        again.destroy();
        if (answer === null) return false;
        expect(answer).toMatchObject(warm);
        return true;
      });
      for (const call of open) call.destroy();
      agent.destroy();
      // The other worker's streams were let go as they ended; this one's share is dropped when its slot has gone stale.
      await until("nothing in flight", async () => (await inFlight()) === 0);
    }

    // And over a push of the same configuration with another block of the options.
    bed.gateway.writeOptions({ reasonHeader: true, strict: true });
    const before = (await bed.state()).revision;
    expect((await bed.gateway.renderAgain()).publication).not.toBeNull();
    await until("the pushed configuration", async () => (await bed.state()).revision > before);
    expect((await bed.post(chat(500, "kept over traps "))).decision).toMatchObject(warm);
  });
});
