/** Clients that leave: what becomes of the KV blocks that a real prefiller holds for them. */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, it } from "vitest";
import { type HeaderLine, send } from "../fleet/http.js";
import { CHAT } from "../wire/shapes.js";
import { MODEL, type RealEngine } from "./engine.js";
import { Middleman } from "./middleman.js";
import { PATIENCE_MS, type Stack } from "./stack.js";

/**
 * What docs/sidecar.md promises: blocks of requests whose clients have left are free again within this. It is a third of the lease after which the prefiller would free them by
 * itself, so that nothing but our telling the decoder can be why.
 */
export const FREED_WITHIN_MS = 10_000;
/** vLLM's own lease of a hand-off that nobody fetches. */
const LEASE_MS = 30_000;
const CLIENTS = 100;
const AT_ONCE = 4;

const MOMENTS = ["before the prefiller has the leg", "while the prefiller computes", "between the legs", "after the first words"] as const;
type Moment = (typeof MOMENTS)[number];

interface Held {
  readonly usage: number;
  readonly requests: number;
}

async function held(engine: RealEngine): Promise<Held> {
  const samples = await engine.metrics();
  const value = (name: string): number => samples.find((sample) => sample.name === name)?.value ?? Number.NaN;
  return { usage: value("vllm:kv_cache_usage_perc"), requests: value("vllm:num_requests_running") + value("vllm:num_requests_waiting") };
}

/** Waits until an engine holds nothing for anybody. @returns how long that took; null: not within `ms` */
export async function untilFree(engine: RealEngine, ms: number): Promise<number | null> {
  const startedAt = performance.now();
  for (;;) {
    const { usage, requests } = await held(engine);
    if (usage === 0 && requests === 0) return performance.now() - startedAt;
    if (performance.now() - startedAt > ms) return null;
    await sleep(50);
  }
}

export function leavingTests(stack: () => Stack): void {
  it(`${CLIENTS.toString()} clients leave before, between and after the legs: the prefiller's blocks are free within ${(FREED_WITHIN_MS / 1000).toString()} s, and none by its lease`, { timeout: 300_000 }, async () => {
    const { prefill, decode, envoy } = stack();
    const middleman = await Middleman.start(prefill.engine);
    try {
      const door = await stack().door("left", []);
      // What earlier tests have asked of the prefiller alone ends by its lease.
      for (const engine of [prefill.engine, decode.engine]) expect(await untilFree(engine, LEASE_MS + 10_000)).not.toBeNull();
      const expired = await prefill.engine.metric("vllm:nixl_num_kv_expired_reqs_total");
      const leavers = new Map<string, { readonly moment: Moment; readonly leave: AbortController }>();
      const counted = new Map<Moment | "whenever", number>();
      const go = (id: string, moment: Moment): boolean => {
        const leaver = leavers.get(id);
        if (leaver?.moment !== moment) return false;
        leaver.leave.abort();
        return true;
      };
      middleman.behave({
        onLeg: async (id) => {
          // The sidecar has to have heard of it.
          if (go(id, "before the prefiller has the leg")) await sleep(30);
          else setTimeout(() => go(id, "while the prefiller computes"), 8);
        },
        onAnswer: async (body, id) => {
          if (go(id, "between the legs")) await sleep(30);
          return body;
        },
      });

      const leaveAt = async (moment: Moment): Promise<void> => {
        const id = randomUUID();
        const leave = new AbortController();
        leavers.set(id, { moment, leave });
        const headers: HeaderLine[] = [["content-type", "application/json"], ["x-request-id", id], ["x-prefiller-host-port", middleman.address]];
        const { host, port } = door;
        const answer = await send({
          ...{ host, port, method: "POST", path: CHAT.path, headers, leave: leave.signal, timeoutMs: PATIENCE_MS },
          body: Buffer.from(CHAT.body(MODEL, { stream: true, limits: '"max_tokens":200,"ignore_eos":true,' })),
          onBody: (piece) => {
            if (/"content":"[^"]/.test(piece.toString("utf8"))) go(id, "after the first words");
          },
        });
        if (answer.end === "left") counted.set(moment, (counted.get(moment) ?? 0) + 1);
      };
      // Through Envoy, at whatever moment of a request's life.
      const leaveWhenever = async (): Promise<void> => {
        const body = Buffer.from(CHAT.body(MODEL, { stream: true, limits: '"max_tokens":200,"ignore_eos":true,' }));
        const answer = await send({ ...envoy.listen, method: "POST", path: CHAT.path, headers: [["content-type", "application/json"]], body, leaveAfterMs: Math.random() * 600, timeoutMs: PATIENCE_MS });
        if (answer.end === "left") counted.set("whenever", (counted.get("whenever") ?? 0) + 1);
      };

      const clients: (() => Promise<void>)[] = Array.from({ length: CLIENTS }, (_none, index) => {
        const moment = MOMENTS[index % (MOMENTS.length + 1)];
        return moment === undefined ? leaveWhenever : () => leaveAt(moment);
      });
      await Promise.all(
        Array.from({ length: AT_ONCE }, async () => {
          for (let next = clients.pop(); next !== undefined; next = clients.pop()) await next();
        }),
      );
      // Each of them did leave: an answer that had ended shows nothing.
      expect(Object.fromEntries(counted)).toEqual(Object.fromEntries([...MOMENTS, "whenever"].map((moment) => [moment, CLIENTS / 5])));

      const [freed, decoded] = await Promise.all([untilFree(prefill.engine, FREED_WITHIN_MS), untilFree(decode.engine, FREED_WITHIN_MS)]);
      console.log(`blocks free again after the last client had left: prefiller ${freed === null ? "never" : freed.toFixed(0)} ms, decoder ${decoded === null ? "never" : decoded.toFixed(0)} ms`);
      expect(freed).not.toBeNull();
      expect(decoded).not.toBeNull();
      expect(await prefill.engine.metric("vllm:nixl_num_kv_expired_reqs_total")).toBe(expired);
      const released = (await door.metrics())?.find(({ name }) => name === "crosspoint_sidecar_handoffs_released_total")?.value ?? 0;
      // Everyone who left between the legs; who left a moment before may have come to it too.
      expect(released).toBeGreaterThanOrEqual(CLIENTS / 5);
      expect(await stack().fallen()).toEqual([]);
      const after = await stack().ask(CHAT.path, CHAT.body(MODEL));
      expect(after.status).toBe(200);
    } finally {
      await middleman.close();
    }
  });
}
