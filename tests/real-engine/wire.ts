/** The scenarios of ../wire, one list for simulated and real engines, through the whole path and at the sidecar's own doors. */
import { expect, it } from "vitest";
import type { Bed } from "../wire/bed.js";
import { choose, runScenario } from "../wire/run.js";
import { SCENARIOS } from "../wire/scenarios.js";
import type { Stack } from "./stack.js";

/** What a scenario needs here, without which it cannot run on a real engine. */
function runs(via: Bed["via"], withEncoders: boolean): typeof SCENARIOS {
  return SCENARIOS.filter(({ needs, setting }) => !needs.includes("sim") && needs.includes("encoders") === withEncoders && (via === "sidecar" || (setting === "fail" && !needs.includes("sidecar"))));
}

export function wireTests(stack: () => Stack, withEncoders = false): void {
  for (const via of ["gateway", "sidecar"] as const) {
    let bed: Promise<Bed> | null = null;
    const scenarios = runs(via, withEncoders);
    it.each(scenarios.map((scenario) => [[...scenario.rows, scenario.name].join(" "), scenario] as const))(`${via === "gateway" ? "through Envoy" : "at the sidecar's door"}: %s`, async (_, scenario) => {
      bed ??= stack().bed(via, [...new Set(scenarios.map(({ setting }) => setting))]);
      expect(choose(await bed, [scenario]).left).toEqual([]);
      expect((await runScenario(await bed, scenario)).violations).toEqual([]);
      expect(await stack().fallen()).toEqual([]);
    });
  }
}
