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
 * What docs/sidecar.md promises for clients that leave before the prefiller has answered, or after. It is a third of the lease after which the prefiller would free the blocks by
 * itself, so that nothing but our ending its call, or telling the decoder, can be why.
 */
export const FREED_WITHIN_MS = 10_000;
/** vLLM's own lease of a hand-off that nobody fetches: the promise where a client leaves while the prefiller's answer is on its way, and its call is closed under it. */
const LEASE_MS = 30_000;
const AT_ONCE = 4;

const MOMENTS = ["before the prefiller has the leg", "between the legs", "after the first words"] as const;
type Moment = (typeof MOMENTS)[number];
const OF_EACH = 25;
/** These leave at any moment of a request's life. */
const WHENEVER = 25;

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
  const body = (): Buffer => Buffer.from(CHAT.body(MODEL, { stream: true, limits: '"max_tokens":200,"ignore_eos":true,' }));
  const atOnce = async (count: number, client: (index: number) => Promise<void>): Promise<void> => {
    let next = 0;
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        while (next < count) await client(next++);
      }),
    );
  };
  const expired = (): Promise<number> => stack().prefill.engine.metric("vllm:nixl_num_kv_expired_reqs_total");
  const free = async (ms: number): Promise<void> => {
    const [freed, decoded] = await Promise.all([untilFree(stack().prefill.engine, ms), untilFree(stack().decode.engine, ms)]);
    const text = (took: number | null): string => (took === null ? "never" : `${took.toFixed(0)} ms`);
    console.log(`blocks free again after the last client had left: prefiller ${text(freed)}, decoder ${text(decoded)}`);
    expect(freed).not.toBeNull();
    expect(decoded).not.toBeNull();
  };

  it(`${(MOMENTS.length * OF_EACH).toString()} clients leave before, between and after the legs: the prefiller's blocks are free within ${(FREED_WITHIN_MS / 1000).toString()} s, and none by its lease`, { timeout: 300_000 }, async () => {
    const { prefill, decode } = stack();
    const middleman = await Middleman.start(prefill.engine);
    try {
      const door = await stack().door("left", []);
      // What earlier tests have asked of the prefiller alone ends by its lease.
      for (const engine of [prefill.engine, decode.engine]) expect(await untilFree(engine, LEASE_MS + 10_000)).not.toBeNull();
      const before = await expired();
      const leavers = new Map<string, { readonly moment: Moment; readonly leave: AbortController }>();
      const counted = new Map<Moment, number>();
      const go = (id: string, moment: Moment): boolean => {
        const leaver = leavers.get(id);
        if (leaver?.moment !== moment) return false;
        leaver.leave.abort();
        return true;
      };
      middleman.behave({
        onLeg: async (id) => {
          // The sidecar has to have heard of it.
          if (go(id, "before the prefiller has the leg")) await sleep(50);
        },
        onPassed: (id) => {
          go(id, "between the legs");
        },
      });
      await atOnce(MOMENTS.length * OF_EACH, async (index) => {
        const moment = MOMENTS[index % MOMENTS.length] ?? MOMENTS[0];
        const id = randomUUID();
        const leave = new AbortController();
        leavers.set(id, { moment, leave });
        const headers: HeaderLine[] = [["content-type", "application/json"], ["x-request-id", id], ["x-prefiller-host-port", middleman.address]];
        const onBody = (piece: Buffer): void => {
          if (/"content":"[^"]/.test(piece.toString("utf8"))) go(id, "after the first words");
        };
        const answer = await send({ host: door.host, port: door.port, method: "POST", path: CHAT.path, headers, body: body(), leave: leave.signal, timeoutMs: PATIENCE_MS, onBody });
        if (answer.end === "left") counted.set(moment, (counted.get(moment) ?? 0) + 1);
      });
      // Each of them did leave: an answer that had ended shows nothing.
      expect(Object.fromEntries(counted)).toEqual(Object.fromEntries(MOMENTS.map((moment) => [moment, OF_EACH])));
      await free(FREED_WITHIN_MS);
      expect(await expired()).toBe(before);
      expect(await stack().fallen()).toEqual([]);
    } finally {
      await middleman.close();
    }
  });

  it(`${WHENEVER.toString()} clients leave Envoy at any moment: the prefiller's blocks are free within its lease at the latest`, { timeout: 300_000 }, async () => {
    const before = await expired();
    let left = 0;
    await atOnce(WHENEVER, async () => {
      const answer = await send({ ...stack().envoy.listen, method: "POST", path: CHAT.path, headers: [["content-type", "application/json"]], body: body(), leaveAfterMs: Math.random() * 600, timeoutMs: PATIENCE_MS });
      if (answer.end === "left") left += 1;
    });
    expect(left).toBe(WHENEVER);
    await free(LEASE_MS + FREED_WITHIN_MS);
    console.log(`freed by the lease: ${((await expired()) - before).toString()} of ${WHENEVER.toString()}`);
    expect(await stack().fallen()).toEqual([]);
    expect((await stack().ask(CHAT.path, CHAT.body(MODEL))).status).toBe(200);
  });
}
