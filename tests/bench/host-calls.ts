/** What each host call costs in a real Envoy, measured inside the VM, so that a busy machine disturbs it little. */
import { send } from "../fleet/http.js";
import type { BackendJob } from "./backend.js";
import { startBed } from "./bed.js";
import { chatBody } from "./bodies.js";
import { Helper } from "./helper.js";
import { hostCallsModule } from "./modules.js";
import { quantile } from "./numbers.js";
import { runFolder } from "./run-folder.js";
import { pdEndpoints, pdPicker } from "./scenario.js";

const LINE = /host calls, ns: (\{[^}]*\})/g;

/** The measurements in Envoy's log: one object of ns by call for each. */
export function readHostCalls(log: string): Record<string, number>[] {
  return [...log.matchAll(LINE)].map((match) => JSON.parse(match[1] ?? "{}") as Record<string, number>);
}

/** For each call the least of all measurements but the first, which ran before the compiler was through; in the order of the first. */
export function bestOf(measurements: readonly Record<string, number>[]): Record<string, number> {
  const names = Object.keys(measurements[0] ?? {});
  return Object.fromEntries(
    names.map((name) => {
      const values = measurements.slice(1).flatMap((one) => (one[name] === undefined ? [] : [one[name]]));
      return [name, Math.round(quantile(values.sort((a, b) => a - b), 0))];
    }),
  );
}

/** @returns ns by call. Throws an Error when Envoy does not answer or says nothing. */
export async function benchHostCalls(measurements: number): Promise<Record<string, number>> {
  const module = await hostCallsModule();
  const { folder, remove } = runFolder();
  const backend = new Helper<BackendJob, number[]>("backend");
  try {
    const ports = await backend.ask({ ports: 1, metricsBytes: 0 });
    const bed = await startBed({ name: "host-calls", folder, module, picker: pdPicker({ blockTokens: 64, maxBlocks: 256 }, false), endpoints: pdEndpoints(2, ports), concurrency: 1 });
    try {
      const { body } = chatBody({ kind: "text", bytes: 1 << 20, stream: false, headers: [] });
      for (let i = 0; i <= measurements; i++) {
        const answer = await send({ ...bed.listen, method: "POST", path: "/v1/chat/completions", headers: [["content-type", "application/json"]], body });
        if (answer.status !== 200) throw new Error(`Envoy answered ${String(answer.status)}`);
      }
      await bed.envoy.child.until("results", () => Promise.resolve(readHostCalls(bed.envoy.child.output).length > measurements), 10_000);
      return bestOf(readHostCalls(bed.envoy.child.output));
    } finally {
      await bed.stop();
    }
  } finally {
    await backend.stop();
    remove();
  }
}
