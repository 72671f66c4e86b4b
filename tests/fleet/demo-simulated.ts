/** The demo's simulated engines: two decode pods (sidecar and engine), two prefill and two encode engines. */
import { setTimeout as sleep } from "node:timers/promises";
import { hostPortText } from "./address.js";
import type { DemoFleet } from "./demo-fleet.js";
import type { DemoLeg } from "./demo-report.js";
import { DEMO_REQUESTS } from "./demo-requests.js";
import { EngineProcess } from "./engine-process.js";
import { Fleet } from "./fleet.js";
import { pickerDocument } from "./picker.js";
import { freePort } from "./ports.js";
import type { Address } from "./render.js";

/** So that what disaggregation and prefix hits save can be seen in the times. */
const ENGINE_TIMES: readonly (readonly [string, string])[] = [
  ["ms-per-prefill-token", "0.2"],
  ["ms-per-decode-token", "4"],
  ["ms-per-media-item", "40"],
  ["model", "demo"],
];
const RECORD_TIMEOUT_MS = 5_000;

export const SIMULATED_PODS = "2 decode pods, 2 prefill and 2 encode engines, Envoy";

export async function startSimulatedDemo(listen: Address): Promise<DemoFleet> {
  // Prefill and decode engines read embeddings from the encoders, so these start first.
  const encoders: EngineProcess[] = [];
  let encodersUp: () => void = () => undefined;
  const up = new Promise<void>((resolve) => (encodersUp = resolve));
  const pods = { decode: 2, prefill: 2, encode: 2 };
  const fleet = await Fleet.start<EngineProcess>({
    pods,
    startEngine: async ({ name, role }) => {
      if (role === "encode") {
        try {
          const engine = await EngineProcess.start(name, role, ENGINE_TIMES);
          encoders.push(engine);
          return engine;
        } finally {
          if (encoders.length === pods.encode) encodersUp();
        }
      }
      await Promise.race([up, sleep(RECORD_TIMEOUT_MS)]);
      return EngineProcess.start(name, role, [...ENGINE_TIMES, ...encoders.map((encoder) => ["encoders", encoder.controlAddress] as const)]);
    },
    envoy: {
      picker: pickerDocument({ prefill: true, encode: true }),
      listen,
      admin: { host: listen.host, port: await freePort() },
      state: { host: listen.host, port: await freePort() },
    },
    sidecarFlags: [["ec-connector", "ec-example"]],
    taps: false,
  });
  const seen = new Map<string, number>();
  return { fleet, model: "demo", requests: DEMO_REQUESTS, legs: () => legsOf(fleet, seen) };
}

async function legsOf(fleet: Fleet<EngineProcess>, seen: Map<string, number>): Promise<DemoLeg[]> {
  const until = performance.now() + RECORD_TIMEOUT_MS;
  for (;;) {
    const all = await Promise.all(fleet.pods.map(async (pod) => ({ pod, records: await pod.engine.records() })));
    const fresh = all.flatMap(({ pod, records }) => records.filter((record) => record.modelCall && record.seq > (seen.get(pod.name) ?? 0)).map((record) => ({ pod, record })));
    if (fresh.length > 0 && fresh.every(({ record }) => !record.open)) {
      for (const { pod, record } of fresh) seen.set(pod.name, Math.max(seen.get(pod.name) ?? 0, record.seq));
      return fresh
        .sort((a, b) => a.record.startedAtMs - b.record.startedAtMs)
        .map(({ pod, record }) => ({
          stage: record.stage,
          endpoint: hostPortText(pod.address),
          status: record.status,
          ms: Math.round((record.endedAtMs ?? record.startedAtMs) - record.startedAtMs),
        }));
    }
    if (performance.now() > until) return [];
    await sleep(10);
  }
}
