/** Engines that several copies of the sidecar are tried on, one after the other in each lane, lanes side by side. */
import { type Bed, type Scenario, SETTING_NAMES, SETTINGS } from "../wire/bed.js";
import { type Outcome, runScenario } from "../wire/run.js";
import { SimulatedEngines } from "../wire/simulated.js";
import { Child } from "../fleet/processes.js";
import { HOST } from "./patched.js";

const START_TIMEOUT_MS = 30_000;

export class Lanes {
  private readonly idle: SimulatedEngines[] = [];
  private readonly all: SimulatedEngines[] = [];
  private readonly waiting: ((engines: SimulatedEngines) => void)[] = [];

  static async start(count: number): Promise<Lanes> {
    const lanes = new Lanes();
    for (let index = 0; index < count; index++) {
      const engines = await SimulatedEngines.start();
      lanes.idle.push(engines);
      lanes.all.push(engines);
    }
    return lanes;
  }

  async close(): Promise<void> {
    await Promise.all(this.all.map((engines) => engines.close()));
  }

  /**
   * Starts the copy in that folder and runs scenarios on it, in order, until `enough` says so.
   *
   * @throws Error with the process's last words when it does not start, or does not live to the end
   */
  async run(name: string, folder: string, scenarios: readonly Scenario[], enough: (outcome: Outcome) => boolean = () => false): Promise<Outcome[]> {
    const engines = this.idle.pop() ?? (await new Promise<SimulatedEngines>((resolve) => this.waiting.push(resolve)));
    try {
      return await runCopy(name, folder, engines, scenarios, enough);
    } finally {
      const next = this.waiting.shift();
      if (next === undefined) this.idle.push(engines);
      else next(engines);
    }
  }
}

async function runCopy(name: string, folder: string, engines: SimulatedEngines, scenarios: readonly Scenario[], enough: (outcome: Outcome) => boolean): Promise<Outcome[]> {
  const flags = ["--secure-proxy=false", "--listen-address=127.0.0.1", "--decoder-host=127.0.0.1", `--model-server-port=${String(engines.decode.port)}`, "--log-level=error", "--ec-connector=ec-nixl"];
  const doors = SETTING_NAMES.map((setting) => [setting, ...flags, ...SETTINGS[setting]]);
  const child = new Child({ name: `sidecar ${name}`, command: process.execPath, args: [HOST, folder, JSON.stringify(doors)] });
  try {
    const ports = (): string | undefined => /^\{.*\}$/m.exec(child.output)?.[0];
    await child.until("its ports", () => Promise.resolve(ports() !== undefined), START_TIMEOUT_MS);
    const bed: Bed = engines.bed(Object.fromEntries(Object.entries(JSON.parse(ports() ?? "{}") as Record<string, number>).map(([setting, port]) => [setting, { host: "127.0.0.1", port }])));
    const outcomes: Outcome[] = [];
    for (const scenario of scenarios) {
      const outcome = await runScenario(bed, scenario);
      outcomes.push(outcome);
      if (enough(outcome)) break;
    }
    if (!child.alive) throw new Error(`${child.name} did not live to the end:\n${child.lastLines(8)}`);
    return outcomes;
  } finally {
    await child.stop(0);
  }
}
