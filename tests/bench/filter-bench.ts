/**
 * What the filter adds to Envoy: plain Envoy, the floor filter and ours, one behind the other in every round of one run, the order turned round from round to round.
 * All three have the same bootstrap, but for the filter.
 */
import { basename } from "node:path";
import { built } from "../fleet/root.js";
import type { BackendJob } from "./backend.js";
import { type Bed, startBed } from "./bed.js";
import { Helper } from "./helper.js";
import type { LoadAnswer, LoadAsk, LoadJob, LoadResult } from "./load.js";
import { floorModule } from "./modules.js";
import { machineBusyMs, processCpuMs } from "./proc.js";
import { runFolder } from "./run-folder.js";
import { fleetCosts, type FleetCost, type Row, rowOf, type Sample } from "./rows.js";
import { BODIES, type BodyName, pdEndpoints, pdPicker, type Prompt, type Tuning, tuningName, tuningsOf } from "./scenario.js";

export interface FilterBenchOptions {
  rounds: number;
  /** Length of one measurement. */
  seconds: number;
  bodies: readonly BodyName[];
  endpoints: readonly number[];
  prompts: readonly Prompt[];
  blocks: readonly number[];
  maxBlocks: number;
  /** Envoy's worker threads. */
  concurrency: number;
  /** Instead of each body's own number. */
  connections: number | null;
  /** Bytes of each pod's metrics page, scraped once a second; null: nothing is scraped. */
  scrapeBytes: number | null;
  /** Modules to measure, build/filter.wasm first. */
  modules: readonly string[];
  /** No new round begins that would not end in time. */
  budgetMs: number;
  say: (line: string) => void;
}

export interface FilterBenchResult {
  rows: Row[];
  fleetCosts: FleetCost[];
  /** What a reader should know before he believes a figure. */
  warnings: string[];
}

const REQUEST_TIMEOUT_MS = 20_000;
const WARM_UP_SECONDS = 0.15;
/** Requests on each connection before a measurement. */
const SETTLING = 2;
/** A share of decisions that is not what the row is about, above which a row says something else than its name. */
const STRAY_SHARE = 0.01;

type Client = Helper<LoadAsk, LoadAnswer>;
type Role = "plain" | "floor" | "ours";

interface Target {
  role: Role;
  bed: Bed;
  /** Of ours. */
  tuning: Tuning | null;
  filter: string;
}

interface Scenario {
  body: BodyName;
  prompt: Prompt;
}

interface Measured extends LoadResult {
  cpuMs: number;
  othersCpus: number;
}

class Fleet {
  readonly samples = new Map<string, Sample[]>();
  rounds = 0;

  constructor(
    readonly endpoints: number,
    readonly targets: readonly Target[],
    private readonly client: Client,
    private readonly backend: Helper<BackendJob, number[]>,
    private readonly options: FilterBenchOptions,
  ) {}

  /** Those that a scenario is about: plain, floor, and ours as the body wants them. */
  targetsOf({ body }: Scenario): Target[] {
    const names = new Set(tuningsOf(body, this.options.blocks, this.options.maxBlocks).map(tuningName));
    return this.targets.filter(({ tuning }) => tuning === null || names.has(tuningName(tuning)));
  }

  private async load(target: Target, scenario: Scenario, connections: number, seconds: number): Promise<Measured> {
    const plan = BODIES[scenario.body];
    const job: LoadJob = {
      ...target.bed.listen,
      body: { ...plan.spec, stream: false, headers: [] },
      connections,
      durationMs: seconds * 1000,
      warmup: SETTLING,
      prompts: scenario.prompt === "warm" ? plan.prompts : 0,
      timeoutMs: REQUEST_TIMEOUT_MS,
    };
    await this.client.ask({ prepare: job });
    const pids = [target.bed.envoy.child.pid, this.client.pid, this.backend.pid];
    const before = { cpu: pids.map(processCpuMs), busy: machineBusyMs(), at: performance.now() };
    const result = await this.client.ask("go");
    const after = { cpu: pids.map(processCpuMs), busy: machineBusyMs(), at: performance.now() };
    if (result === null) throw new Error("the load generator gave no result");
    if (result.errors > 0) throw new Error(`${target.bed.name}, ${scenario.body} ${scenario.prompt}: ${result.errors.toString()} of the requests failed: ${result.complaints.join("; ")}`);
    if (result.requests === 0) throw new Error(`${target.bed.name}, ${scenario.body} ${scenario.prompt}: no request was answered within ${seconds.toString()} s: measure longer (--seconds)`);
    const spent = after.cpu.map((ms, at) => ms - (before.cpu[at] ?? 0));
    const own = spent.reduce((sum, ms) => sum + ms, 0);
    return { ...result, cpuMs: (spent[0] ?? 0) / result.requests, othersCpus: Math.max(0, (after.busy - before.busy - own) / (after.at - before.at)) };
  }

  private busyConnections(body: BodyName): number {
    return this.options.connections ?? BODIES[body].connections;
  }

  /** Compiled code, connections and the index come into being before anything is measured. */
  async warmUp(scenarios: readonly Scenario[]): Promise<void> {
    for (const scenario of scenarios) {
      for (const target of this.targetsOf(scenario)) await this.load(target, scenario, this.busyConnections(scenario.body), WARM_UP_SECONDS);
    }
  }

  async round(scenarios: readonly Scenario[]): Promise<void> {
    for (const scenario of scenarios) {
      const targets = this.targetsOf(scenario);
      if (this.rounds % 2 === 1) targets.reverse();
      for (const target of targets) {
        const before = await decisionsOf(target);
        const one = await this.load(target, scenario, 1, this.options.seconds);
        const busy = await this.load(target, scenario, this.busyConnections(scenario.body), this.options.seconds);
        const after = await decisionsOf(target);
        this.add(target, scenario, {
          p50Ms: one.latency.p50,
          cpuMs: one.cpuMs,
          rps: (busy.requests / busy.elapsedMs) * 1000,
          busyCpuMs: busy.cpuMs,
          requests: one.requests + busy.requests,
          errors: one.errors + busy.errors,
          othersCpus: (one.othersCpus + busy.othersCpus) / 2,
          decisions: Object.fromEntries([...after].map(([name, count]) => [name, count - (before.get(name) ?? 0)])),
        });
      }
    }
    this.rounds++;
  }

  private add(target: Target, scenario: Scenario, sample: Sample): void {
    const key = keyOf(target, scenario);
    const list = this.samples.get(key) ?? [];
    list.push(sample);
    this.samples.set(key, list);
  }

  rows(scenarios: readonly Scenario[]): Row[] {
    return scenarios.flatMap((scenario) => {
      const targets = this.targetsOf(scenario);
      const of = (role: Role): readonly Sample[] => {
        const target = targets.find((candidate) => candidate.role === role);
        return target === undefined ? [] : (this.samples.get(keyOf(target, scenario)) ?? []);
      };
      return targets.flatMap((target) =>
        target.tuning === null
          ? []
          : [
              rowOf({
                ...scenario,
                endpoints: this.endpoints,
                tuning: target.tuning,
                filter: target.filter,
                connections: this.busyConnections(scenario.body),
                plain: of("plain"),
                floor: of("floor"),
                ours: this.samples.get(keyOf(target, scenario)) ?? [],
              }),
            ],
      );
    });
  }
}

function keyOf(target: Target, scenario: Scenario): string {
  return `${target.bed.name} ${scenario.body} ${scenario.prompt}`;
}

/** What the filter has counted so far, by kind of decision; empty for others than ours. */
async function decisionsOf(target: Target): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  if (target.role !== "ours") return counts;
  const { body } = await target.bed.envoy.admin.get("/stats?filter=crosspoint.decisions");
  for (const match of body.matchAll(/decision_type\.([a-z-]+): (\d+)/g)) counts.set(match[1] ?? "", Number(match[2]));
  return counts;
}

/** Runs the whole bench. Throws an Error when a request failed or a program did not come up; everything that was started has ended then. */
export async function benchFilter(options: FilterBenchOptions): Promise<FilterBenchResult> {
  const floor = await floorModule();
  const { folder, remove } = runFolder();
  const client: Client = new Helper("load-client");
  const scenarios = options.bodies.flatMap((body) => options.prompts.map((prompt): Scenario => ({ body, prompt })));
  const rows: Row[] = [];
  const warnings: string[] = [];
  const endAt = performance.now() + options.budgetMs;
  try {
    for (const [at, endpoints] of options.endpoints.entries()) {
      const fleetsLeft = options.endpoints.length - at;
      const fleetEndAt = performance.now() + (endAt - performance.now()) / fleetsLeft;
      const fleet = await measureFleet(options, { endpoints, scenarios, client, floor, folder, endAt: fleetEndAt });
      rows.push(...fleet.rows(scenarios));
      if (fleet.rounds < options.rounds) warnings.push(`${endpoints.toString()} endpoints: ${fleet.rounds.toString()} of ${options.rounds.toString()} rounds, for lack of time`);
    }
  } finally {
    await client.stop();
    remove();
  }
  warnings.push(...strayWarnings(rows));
  const others = Math.max(...rows.map((row) => row.othersCpus ?? 0));
  if (others > 0.2) warnings.push(`other programs kept up to ${others.toFixed(1)} CPUs busy: compare the ratios of the best rounds, and measure again on a quiet machine`);
  return { rows, fleetCosts: fleetCosts(rows), warnings };
}

/** A cold prompt is to be prefilled elsewhere; when it is not, the row measures something else. */
function strayWarnings(rows: readonly Row[]): string[] {
  return rows.flatMap((row) => {
    const split = row.decisions["prefill-decode"] ?? 0;
    if (row.prompt !== "cold" || split >= 1 - STRAY_SHARE) return [];
    return [`${row.body}, ${row.endpoints.toString()} endpoints, cold: only ${(split * 100).toFixed(1)}% of the prompts were sent to prefill`];
  });
}

interface FleetRun {
  endpoints: number;
  scenarios: readonly Scenario[];
  client: Client;
  floor: string;
  folder: string;
  endAt: number;
}

async function measureFleet(options: FilterBenchOptions, run: FleetRun): Promise<Fleet> {
  const { endpoints, scenarios, client } = run;
  const scrape = options.scrapeBytes !== null;
  const backend = new Helper<BackendJob, number[]>("backend");
  const targets: Target[] = [];
  try {
    const ports = await backend.ask({ ports: scrape ? endpoints : Math.floor(endpoints / 2), metricsBytes: options.scrapeBytes ?? 0 });
    const start = async (role: Role, module: string | null, tuning: Tuning | null, number: number): Promise<void> => {
      const name = tuning === null ? role : `${tuningName(tuning)}${number === 0 ? "" : `-${number.toString()}`}`;
      const bed = await startBed({
        name: `${name}-${endpoints.toString()}`,
        folder: run.folder,
        module,
        picker: pdPicker(tuning ?? { blockTokens: 64, maxBlocks: options.maxBlocks }, scrape),
        endpoints: pdEndpoints(endpoints, ports),
        concurrency: options.concurrency,
      });
      targets.push({ role, bed, tuning, filter: module === null ? "" : basename(module) });
    };
    const tunings = new Map(run.scenarios.flatMap(({ body }) => tuningsOf(body, options.blocks, options.maxBlocks)).map((tuning) => [tuningName(tuning), tuning]));
    await start("plain", null, null, 0);
    await start("floor", run.floor, null, 0);
    for (const tuning of tunings.values()) for (const [number, module] of options.modules.entries()) await start("ours", module, tuning, number);

    const fleet = new Fleet(endpoints, targets, client, backend, options);
    options.say(`${endpoints.toString()} endpoints: ${targets.length.toString()} Envoys are up, warming up ...`);
    await fleet.warmUp(scenarios);
    let longestMs = 0;
    for (let round = 1; round <= options.rounds; round++) {
      const startedAt = performance.now();
      if (round > 1 && startedAt + longestMs > run.endAt) break;
      await fleet.round(scenarios);
      const tookMs = performance.now() - startedAt;
      longestMs = Math.max(longestMs, tookMs);
      options.say(`${endpoints.toString()} endpoints: round ${round.toString()} of ${options.rounds.toString()} took ${(tookMs / 1000).toFixed(1)} s`);
    }
    return fleet;
  } finally {
    await Promise.all(targets.map(({ bed }) => bed.stop()));
    await backend.stop();
  }
}

/** build/filter.wasm, and whatever else is to be measured beside it. */
export function modulesOf(others: readonly string[]): string[] {
  return [built("filter.wasm"), ...others];
}
