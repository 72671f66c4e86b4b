/** Runs scenarios on a bed, one after the other. */
import { setTimeout as sleep } from "node:timers/promises";
import { type Bed, lacks, type Scenario } from "./bed.js";

export interface Outcome {
  readonly scenario: string;
  readonly violations: readonly string[];
  readonly ms: number;
}

/** Times the bed's patience: a scenario sends a handful of requests at most that may all be lost. */
const SCENARIO_PATIENCE = 12;

/** Runs one scenario on a cleared bed. Never rejects. */
export async function runScenario(bed: Bed, scenario: Scenario): Promise<Outcome> {
  const startedAt = performance.now();
  const ended = new AbortController();
  const lost = sleep(bed.patienceMs * SCENARIO_PATIENCE, ["the scenario does not end"], { signal: ended.signal }).catch((): string[] => []);
  const run = async (): Promise<readonly string[]> => {
    await bed.clear();
    return scenario.run(bed);
  };
  const violations = await Promise.race([run().catch((error: unknown) => [`the scenario itself failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`]), lost]);
  ended.abort();
  return { scenario: scenario.name, violations, ms: performance.now() - startedAt };
}

/** The scenarios that the bed can run, and why not the others. */
export function choose(bed: Bed, scenarios: readonly Scenario[]): { readonly chosen: readonly Scenario[]; readonly left: readonly { readonly scenario: string; readonly why: string }[] } {
  const judged = scenarios.map((scenario) => ({ scenario, why: lacks(bed, scenario) }));
  return {
    chosen: judged.filter(({ why }) => why === null).map(({ scenario }) => scenario),
    left: judged.flatMap(({ scenario, why }) => (why === null ? [] : [{ scenario: scenario.name, why }])),
  };
}
