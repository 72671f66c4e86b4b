/** The filter's load table beside what a real engine says of itself. */
import { expect, it } from "vitest";
import { send } from "../fleet/http.js";
import { freshText } from "../wire/shapes.js";
import { MODEL } from "./engine.js";
import { untilFree } from "./leaving.js";
import { PATIENCE_MS, type Stack } from "./stack.js";

export interface EndpointState {
  readonly name: string;
  readonly health: string;
  readonly load: { readonly waiting: number; readonly running: number; readonly kvUsage: number };
  readonly inFlight: { readonly requests: number };
}

/** What the filter knows of an endpoint. */
export async function stateOf(stack: Stack, name: string): Promise<EndpointState> {
  const answer = await send({ ...stack.envoy.state, method: "GET", path: "/state", timeoutMs: 5000 });
  const { endpoints } = JSON.parse(answer.body.toString("utf8")) as { endpoints: EndpointState[] };
  const found = endpoints.find((endpoint) => endpoint.name === name);
  if (found === undefined) throw new Error(`the filter's state has no ${name}`);
  return found;
}

const STREAMS = 20;
/** The engine's own limit (--max-num-seqs): the others wait. */
const RUNNING = 16;

export function loadTests(stack: () => Stack): void {
  it("the filter's load table follows the decoder's /metrics: up with running and waiting requests, and down again", { timeout: 240_000 }, async () => {
    const { decode } = stack();
    expect(await untilFree(decode.engine, PATIENCE_MS)).not.toBeNull();
    const leave = new AbortController();
    const streams = Array.from({ length: STREAMS }, () =>
      stack().ask("/v1/chat/completions", { model: MODEL, max_tokens: 900, ignore_eos: true, stream: true, messages: [{ role: "user", content: freshText().slice(0, 12) }] }, { leave: leave.signal, timeoutMs: 200_000 }),
    );
    try {
      // The engine first: only then is there anything to follow.
      await expect.poll(async () => (await decode.engine.metric("vllm:num_requests_running")) + (await decode.engine.metric("vllm:num_requests_waiting")), { timeout: PATIENCE_MS, interval: 100 }).toBe(STREAMS);
      await expect
        .poll(async () => (await stateOf(stack(), "d0")).load, { timeout: 10_000, interval: 100 })
        .toMatchObject({ running: RUNNING, waiting: STREAMS - RUNNING });
      expect((await stateOf(stack(), "d0")).inFlight.requests).toBe(STREAMS);
      // It grows with every token, and the table is a scrape behind.
      await expect
        .poll(
          async () => {
            const engine = await decode.engine.metric("vllm:kv_cache_usage_perc");
            const { load } = await stateOf(stack(), "d0");
            return engine > 0.02 && load.kvUsage > 0 && Math.abs(engine - load.kvUsage) < 0.05;
          },
          { timeout: 10_000, interval: 100 },
        )
        .toBe(true);
    } finally {
      leave.abort();
      await Promise.all(streams);
    }
    expect(await untilFree(decode.engine, PATIENCE_MS)).not.toBeNull();
    await expect.poll(async () => stateOf(stack(), "d0"), { timeout: 10_000, interval: 100 }).toMatchObject({ load: { running: 0, waiting: 0, kvUsage: 0 }, inFlight: { requests: 0 } });
  });
}
