/** From what was measured in each round to the rows of build/bench/filter.json. */
import { addedRatio, type Figure, figure, median, rounded } from "./numbers.js";
import type { BodyName, Prompt, Tuning } from "./scenario.js";

/** One target in one round. */
export interface Sample {
  /** One connection: median time of a request, CPU time of Envoy per request. */
  p50Ms: number;
  cpuMs: number;
  /** Many connections: requests per second, CPU time of Envoy per request. */
  rps: number;
  busyCpuMs: number;
  requests: number;
  errors: number;
  /** CPUs that others kept busy meanwhile. */
  othersCpus: number;
  /** Requests by decision, where a filter of ours decided. */
  decisions: Readonly<Record<string, number>>;
}

/** What belongs together in one row: the rounds of three targets, index by index. */
export interface RowInput {
  body: BodyName;
  endpoints: number;
  prompt: Prompt;
  tuning: Tuning;
  /** Name of the module, where more than one is measured. */
  filter: string;
  connections: number;
  plain: readonly Sample[];
  floor: readonly Sample[];
  ours: readonly Sample[];
}

type Metric = "p50Ms" | "cpuMs" | "busyCpuMs";

interface Spread {
  min: number | null;
  max: number | null;
}

export interface Row {
  body: BodyName;
  endpoints: number;
  prompt: Prompt;
  blockTokens: number;
  maxBlocks: number;
  filter: string;
  rounds: number;
  plainP50Ms: number | null;
  floorP50Ms: number | null;
  p50Ms: number | null;
  /** `(p50Ms - plainP50Ms) / (floorP50Ms - plainP50Ms)`; null when the floor added nothing. */
  p50RatioToFloor: number | null;
  plainCpuMs: number | null;
  floorCpuMs: number | null;
  cpuMs: number | null;
  cpuRatioToFloor: number | null;
  connections: number;
  plainRps: number | null;
  floorRps: number | null;
  rps: number | null;
  plainBusyCpuMs: number | null;
  floorBusyCpuMs: number | null;
  busyCpuMs: number | null;
  busyCpuRatioToFloor: number | null;
  /** The same from each figure's best round: what a busy machine disturbs least. */
  best: { p50RatioToFloor: number | null; cpuRatioToFloor: number | null; busyCpuRatioToFloor: number | null; addedP50Ms: number | null; addedCpuMs: number | null };
  /** Least and greatest of the rounds. */
  spread: Readonly<Record<"plainP50Ms" | "floorP50Ms" | "p50Ms" | "plainCpuMs" | "floorCpuMs" | "cpuMs" | "p50RatioToFloor" | "cpuRatioToFloor", Spread>>;
  /** Requests of ours by decision, share of all. */
  decisions: Readonly<Record<string, number>>;
  /** CPUs that other programs of the machine kept busy meanwhile, median of the rounds. */
  othersCpus: number | null;
  requests: number;
  errors: number;
}

const MS_DIGITS = 4;
const RATIO_DIGITS = 3;

function all(samples: readonly Sample[], metric: Metric | "rps" | "othersCpus"): number[] {
  return samples.map((sample) => sample[metric]);
}

function spreadOf({ min, max }: Figure, digits: number): Spread {
  return { min: rounded(min, digits), max: rounded(max, digits) };
}

/** The ratio of each round, where there is one. */
function ratios(input: RowInput, metric: Metric): number[] {
  return input.ours.flatMap((ours, round) => {
    const plain = input.plain[round];
    const floor = input.floor[round];
    if (plain === undefined || floor === undefined) return [];
    const ratio = addedRatio(plain[metric], floor[metric], ours[metric]);
    return ratio === null ? [] : [ratio];
  });
}

function shares(samples: readonly Sample[]): Record<string, number> {
  const sums = new Map<string, number>();
  let total = 0;
  for (const { decisions } of samples) {
    for (const [name, count] of Object.entries(decisions)) {
      sums.set(name, (sums.get(name) ?? 0) + count);
      total += count;
    }
  }
  return Object.fromEntries([...sums].filter(([, count]) => count > 0).map(([name, count]) => [name, Math.round((count / total) * 1000) / 1000]));
}

export function rowOf(input: RowInput): Row {
  const three = (metric: Metric): { plain: Figure; floor: Figure; ours: Figure } => ({
    plain: figure(all(input.plain, metric)),
    floor: figure(all(input.floor, metric)),
    ours: figure(all(input.ours, metric)),
  });
  const p50 = three("p50Ms");
  const cpu = three("cpuMs");
  const busy = three("busyCpuMs");
  const samples = [...input.plain, ...input.floor, ...input.ours];
  const ratioOf = ({ plain, floor, ours }: typeof p50, key: keyof Figure): number | null => rounded(addedRatio(plain[key], floor[key], ours[key]), RATIO_DIGITS);
  return {
    body: input.body,
    endpoints: input.endpoints,
    prompt: input.prompt,
    blockTokens: input.tuning.blockTokens,
    maxBlocks: input.tuning.maxBlocks,
    filter: input.filter,
    rounds: input.ours.length,
    plainP50Ms: rounded(p50.plain.median, MS_DIGITS),
    floorP50Ms: rounded(p50.floor.median, MS_DIGITS),
    p50Ms: rounded(p50.ours.median, MS_DIGITS),
    p50RatioToFloor: ratioOf(p50, "median"),
    plainCpuMs: rounded(cpu.plain.median, MS_DIGITS),
    floorCpuMs: rounded(cpu.floor.median, MS_DIGITS),
    cpuMs: rounded(cpu.ours.median, MS_DIGITS),
    cpuRatioToFloor: ratioOf(cpu, "median"),
    connections: input.connections,
    plainRps: rounded(median(all(input.plain, "rps")), 1),
    floorRps: rounded(median(all(input.floor, "rps")), 1),
    rps: rounded(median(all(input.ours, "rps")), 1),
    plainBusyCpuMs: rounded(busy.plain.median, MS_DIGITS),
    floorBusyCpuMs: rounded(busy.floor.median, MS_DIGITS),
    busyCpuMs: rounded(busy.ours.median, MS_DIGITS),
    busyCpuRatioToFloor: ratioOf(busy, "median"),
    best: {
      p50RatioToFloor: ratioOf(p50, "min"),
      cpuRatioToFloor: ratioOf(cpu, "min"),
      busyCpuRatioToFloor: ratioOf(busy, "min"),
      addedP50Ms: rounded(p50.ours.min - p50.plain.min, MS_DIGITS),
      addedCpuMs: rounded(cpu.ours.min - cpu.plain.min, MS_DIGITS),
    },
    spread: {
      plainP50Ms: spreadOf(p50.plain, MS_DIGITS),
      floorP50Ms: spreadOf(p50.floor, MS_DIGITS),
      p50Ms: spreadOf(p50.ours, MS_DIGITS),
      plainCpuMs: spreadOf(cpu.plain, MS_DIGITS),
      floorCpuMs: spreadOf(cpu.floor, MS_DIGITS),
      cpuMs: spreadOf(cpu.ours, MS_DIGITS),
      p50RatioToFloor: spreadOf(figure(ratios(input, "p50Ms")), RATIO_DIGITS),
      cpuRatioToFloor: spreadOf(figure(ratios(input, "cpuMs")), RATIO_DIGITS),
    },
    decisions: shares(input.ours),
    othersCpus: rounded(median(all(samples, "othersCpus")), 2),
    requests: samples.reduce((sum, sample) => sum + sample.requests, 0),
    errors: samples.reduce((sum, sample) => sum + sample.errors, 0),
  };
}

/** How much more the filter adds with the larger fleet than with the smaller one, for rows that are otherwise alike. */
export interface FleetCost {
  body: BodyName;
  prompt: Prompt;
  blockTokens: number;
  filter: string;
  from: number;
  to: number;
  /** Added p50 with `to` endpoints less that with `from`, ms: of the medians, and of the best rounds. */
  moreP50Ms: number | null;
  moreP50BestMs: number | null;
  moreCpuMs: number | null;
}

export function fleetCosts(rows: readonly Row[]): FleetCost[] {
  const sizes = [...new Set(rows.map(({ endpoints }) => endpoints))].sort((a, b) => a - b);
  const from = sizes[0];
  const to = sizes.at(-1);
  if (from === undefined || to === undefined || from === to) return [];
  const added = (ours: number | null, plain: number | null): number => (ours ?? Number.NaN) - (plain ?? Number.NaN);
  return rows
    .filter(({ endpoints }) => endpoints === to)
    .flatMap((large) => {
      const small = rows.find(
        (row) =>
          row.endpoints === from &&
          row.body === large.body &&
          row.prompt === large.prompt &&
          row.blockTokens === large.blockTokens &&
          row.maxBlocks === large.maxBlocks &&
          row.filter === large.filter,
      );
      if (small === undefined) return [];
      return [
        {
          body: large.body,
          prompt: large.prompt,
          blockTokens: large.blockTokens,
          filter: large.filter,
          from,
          to,
          moreP50Ms: rounded(added(large.p50Ms, large.plainP50Ms) - added(small.p50Ms, small.plainP50Ms), MS_DIGITS),
          moreP50BestMs: rounded((large.best.addedP50Ms ?? Number.NaN) - (small.best.addedP50Ms ?? Number.NaN), MS_DIGITS),
          moreCpuMs: rounded(added(large.cpuMs, large.plainCpuMs) - added(small.cpuMs, small.plainCpuMs), MS_DIGITS),
        },
      ];
    });
}
