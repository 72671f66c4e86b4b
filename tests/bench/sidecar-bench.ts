/**
 * What the sidecar adds to an engine that answers at once: for each combination of stages and each size, the engine alone, the sidecar in front of it, Envoy with the
 * filter in front of both, and another sidecar where one is named; one behind the other in every round, the order turned round from round to round.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { send } from "../fleet/http.js";
import { endpointEntry } from "../fleet/picker.js";
import { freePort } from "../fleet/ports.js";
import { Child } from "../fleet/processes.js";
import { built } from "../fleet/root.js";
import { startBed, type Bed } from "./bed.js";
import type { BodyKind } from "./bodies.js";
import type { EngineAsk, EnginePorts } from "./engine.js";
import type { Lateness, Pace } from "./events.js";
import { Helper } from "./helper.js";
import type { LoadAnswer, LoadAsk, LoadJob } from "./load.js";
import { type Figure, figure, rounded } from "./numbers.js";
import { machineBusyMs, processCpuMs, residentBytes } from "./proc.js";
import { runFolder } from "./run-folder.js";
import { epdPicker } from "./scenario.js";
import type { StreamJob } from "./stream-client.js";

export type Stages = "decode-only" | "prefill-decode" | "encode-prefill-decode";
export type Size = "1k" | "32k" | "1m" | "4m";
export type Through = "sidecar" | "filter+sidecar" | "reference";

export const STAGES: readonly Stages[] = ["decode-only", "prefill-decode", "encode-prefill-decode"];
export const SIZES: Readonly<Record<Size, number>> = { "1k": 1 << 10, "32k": 32 << 10, "1m": 1 << 20, "4m": 4 << 20 };

export interface SidecarBenchOptions {
  rounds: number;
  /** Length of one measurement. */
  seconds: number;
  stages: readonly Stages[];
  sizes: readonly Size[];
  /** Another sidecar's program; null: none. */
  reference: string | null;
  streams: number;
  eventsPerSecond: number;
  /** How long each stream lasts; 0: no streams are measured. */
  streamSeconds: number;
  say: (line: string) => void;
}

export interface SidecarRow {
  stages: Stages;
  body: Size;
  through: Through;
  rounds: number;
  /** To the first byte of the answer's body, median of the requests, median of the rounds. */
  engineFirstByteMs: number | null;
  firstByteMs: number | null;
  addedFirstByteMs: number | null;
  /** To the last byte. */
  engineTotalMs: number | null;
  totalMs: number | null;
  addedTotalMs: number | null;
  /** CPU time per request: of the sidecar, and of Envoy where it is in front. */
  sidecarCpuMs: number | null;
  envoyCpuMs: number | null;
  /** The same from the best rounds. */
  best: { addedFirstByteMs: number | null; addedTotalMs: number | null; sidecarCpuMs: number | null; envoyCpuMs: number | null };
  spread: { engineTotalMs: { min: number | null; max: number | null }; totalMs: { min: number | null; max: number | null } };
  othersCpus: number | null;
  requests: number;
  errors: number;
}

export interface StreamRow {
  through: "engine" | Through;
  streams: number;
  eventsPerSecond: number;
  seconds: number;
  events: number;
  lost: number;
  /** Streams that ended before their last event. */
  cut: number;
  outOfOrder: number;
  /** From an event's being written by the engine to its being read. */
  p50Ms: number | null;
  p99Ms: number | null;
  maxMs: number | null;
  /** Against the engine alone. */
  addedP50Ms: number | null;
  addedP99Ms: number | null;
  /** Resident memory of the sidecar: before, the most while the streams were open, 2 s after; bytes. */
  memoryBefore: number | null;
  memoryOpen: number | null;
  memoryAfter: number | null;
  cpuMsPerSecond: number | null;
  othersCpus: number | null;
}

export interface SidecarBenchResult {
  rows: SidecarRow[];
  streams: StreamRow[];
  /** Resident memory at the start, bytes, by program. */
  memoryAtStart: Record<string, number>;
  warnings: string[];
}

const REQUEST_TIMEOUT_MS = 20_000;
const START_TIMEOUT_MS = 20_000;
const SETTLING = 3;
const WARM_UP_SECONDS = 0.3;
/** Prompts that take turns where they are to be known to the filter. */
const WARM_PROMPTS = 4;
const MS_DIGITS = 4;
const MEMORY_EVERY_MS = 100;
const AFTER_MS = 2_000;

interface Sample {
  firstByteMs: number;
  totalMs: number;
  sidecarCpuMs: number;
  envoyCpuMs: number;
  requests: number;
  othersCpus: number;
}

interface Target {
  name: "engine" | Through;
  host: string;
  port: number;
  sidecar: number | null;
  envoy: number | null;
}

/** A sidecar as its users start it. */
async function startSidecar(name: string, command: string, args: readonly string[], enginePort: number): Promise<{ child: Child; port: number }> {
  const port = await freePort();
  const flags = [`--port=${port.toString()}`, `--model-server-port=${enginePort.toString()}`, "--kv-connector=nixlv2", "--ec-connector=ec-example", "--secure-proxy=false"];
  const child = new Child({ name, command, args: [...args, ...flags] });
  try {
    // Either program answers something on its port as soon as it serves.
    await child.until("an answer", async () => (await send({ host: "127.0.0.1", port, method: "GET", path: "/health", timeoutMs: 2_000 })).status !== null, START_TIMEOUT_MS);
  } catch (error) {
    await child.stop(0);
    throw error;
  }
  return { child, port };
}

class SidecarBench {
  private readonly samples = new Map<string, Sample[]>();
  readonly streamRows: StreamRow[] = [];
  private rounds = 0;

  constructor(
    private readonly options: SidecarBenchOptions,
    private readonly targets: readonly Target[],
    private readonly ports: EnginePorts,
    private readonly client: Helper<LoadAsk, LoadAnswer>,
    private readonly streamClient: Helper<StreamJob, Lateness>,
    private readonly engine: Helper<EngineAsk, EnginePorts | null>,
  ) {}

  private headers(target: Target, stages: Stages): string[] {
    // The filter says by itself which stages run; to the engine alone they are all the same.
    if (target.name === "engine" || target.name === "filter+sidecar") return [];
    const prefill = `x-prefiller-host-port: 127.0.0.1:${this.ports.prefill.toString()}`;
    if (stages === "decode-only") return [];
    return stages === "prefill-decode" ? [prefill] : [prefill, `x-encoder-hosts-ports: 127.0.0.1:${this.ports.encode.toString()}`];
  }

  private async load(target: Target, stages: Stages, size: Size, seconds: number): Promise<Sample> {
    const kind: BodyKind = stages === "encode-prefill-decode" ? "image" : "text";
    const job: LoadJob = {
      host: target.host,
      port: target.port,
      body: { kind, bytes: SIZES[size], stream: true, headers: this.headers(target, stages) },
      connections: 1,
      durationMs: seconds * 1000,
      warmup: SETTLING,
      // Behind the filter a known prompt is decoded where it is, a new one is prefilled elsewhere.
      prompts: stages === "decode-only" ? WARM_PROMPTS : 0,
      timeoutMs: REQUEST_TIMEOUT_MS,
    };
    await this.client.ask({ prepare: job });
    const pids = [target.sidecar, target.envoy, this.client.pid, this.engine.pid];
    const read = (): number[] => pids.map((pid) => (pid === null ? 0 : processCpuMs(pid)));
    const before = { cpu: read(), busy: machineBusyMs(), at: performance.now() };
    const result = await this.client.ask("go");
    const after = { cpu: read(), busy: machineBusyMs(), at: performance.now() };
    const what = `${target.name}, ${stages}, ${size}`;
    if (result === null) throw new Error("the load generator gave no result");
    if (result.errors > 0) throw new Error(`${what}: ${result.errors.toString()} requests failed: ${result.complaints.join("; ")}`);
    if (result.requests === 0) throw new Error(`${what}: no request was answered within ${seconds.toString()} s: measure longer (--seconds)`);
    const spent = after.cpu.map((ms, at) => ms - (before.cpu[at] ?? 0));
    return {
      firstByteMs: result.firstByte.p50,
      totalMs: result.latency.p50,
      sidecarCpuMs: (spent[0] ?? 0) / result.requests,
      envoyCpuMs: (spent[1] ?? 0) / result.requests,
      requests: result.requests,
      othersCpus: Math.max(0, (after.busy - before.busy - spent.reduce((sum, ms) => sum + ms, 0)) / (after.at - before.at)),
    };
  }

  async warmUp(): Promise<void> {
    for (const stages of this.options.stages) for (const size of this.options.sizes) for (const target of this.targets) await this.load(target, stages, size, WARM_UP_SECONDS);
  }

  async round(): Promise<void> {
    for (const stages of this.options.stages) {
      for (const size of this.options.sizes) {
        const targets = this.rounds % 2 === 0 ? this.targets : [...this.targets].reverse();
        for (const target of targets) {
          const key = `${stages} ${size} ${target.name}`;
          const list = this.samples.get(key) ?? [];
          list.push(await this.load(target, stages, size, this.options.seconds));
          this.samples.set(key, list);
        }
      }
    }
    this.rounds++;
  }

  rows(): SidecarRow[] {
    return this.options.stages.flatMap((stages) =>
      this.options.sizes.flatMap((body) => {
        const of = (name: string): readonly Sample[] => this.samples.get(`${stages} ${body} ${name}`) ?? [];
        return this.targets.flatMap(({ name }) => (name === "engine" ? [] : [sidecarRow(stages, body, name, of("engine"), of(name))]));
      }),
    );
  }

  /** Streams through one target. */
  async streams(target: Target): Promise<void> {
    const { streams, eventsPerSecond, streamSeconds } = this.options;
    const pace: Pace = { perSecond: eventsPerSecond, events: Math.round(eventsPerSecond * streamSeconds) };
    await this.engine.ask({ pace });
    const memory = (): number | null => (target.sidecar === null ? null : residentBytes(target.sidecar));
    const cpu = (): number => (target.sidecar === null ? 0 : processCpuMs(target.sidecar));
    const pids = [target.sidecar, target.envoy, this.streamClient.pid, this.engine.pid];
    const own = (): number => pids.reduce<number>((sum, pid) => sum + (pid === null ? 0 : processCpuMs(pid)), 0);
    const before = { memory: memory(), cpu: cpu(), own: own(), busy: machineBusyMs(), at: performance.now() };
    let open = before.memory;
    const timer = setInterval(() => {
      const now = memory();
      if (now !== null) open = Math.max(open ?? 0, now);
    }, MEMORY_EVERY_MS);
    const result = await this.streamClient
      .ask({ host: target.host, port: target.port, streams, events: pace.events, headers: [], timeoutMs: streamSeconds * 1000 + REQUEST_TIMEOUT_MS })
      .finally(() => {
        clearInterval(timer);
      });
    const tookMs = performance.now() - before.at;
    const spent = cpu() - before.cpu;
    const others = Math.max(0, (machineBusyMs() - before.busy - (own() - before.own)) / tookMs);
    await this.engine.ask({ pace: null });
    await sleep(AFTER_MS);
    const alone = this.streamRows.find(({ through }) => through === "engine");
    this.streamRows.push({
      through: target.name,
      streams,
      eventsPerSecond,
      seconds: streamSeconds,
      events: result.events,
      lost: result.lost,
      cut: result.cut,
      outOfOrder: result.outOfOrder,
      p50Ms: rounded(result.late.p50, 3),
      p99Ms: rounded(result.late.p99, 3),
      maxMs: rounded(result.late.max, 3),
      addedP50Ms: alone === undefined ? null : rounded(result.late.p50 - (alone.p50Ms ?? Number.NaN), 3),
      addedP99Ms: alone === undefined ? null : rounded(result.late.p99 - (alone.p99Ms ?? Number.NaN), 3),
      memoryBefore: before.memory,
      memoryOpen: open,
      memoryAfter: memory(),
      cpuMsPerSecond: target.sidecar === null ? null : rounded((spent / tookMs) * 1000, 1),
      othersCpus: rounded(others, 2),
    });
  }
}

export function sidecarRow(stages: Stages, body: Size, through: Through, engine: readonly Sample[], measured: readonly Sample[]): SidecarRow {
  const of = (samples: readonly Sample[], name: keyof Sample): Figure => figure(samples.map((sample) => sample[name]));
  const first = { engine: of(engine, "firstByteMs"), ours: of(measured, "firstByteMs") };
  const total = { engine: of(engine, "totalMs"), ours: of(measured, "totalMs") };
  const sidecar = of(measured, "sidecarCpuMs");
  const envoy = of(measured, "envoyCpuMs");
  const ms = (value: number): number | null => rounded(value, MS_DIGITS);
  const envoyMs = (value: number): number | null => (through === "filter+sidecar" ? ms(value) : null);
  return {
    stages,
    body,
    through,
    rounds: measured.length,
    engineFirstByteMs: ms(first.engine.median),
    firstByteMs: ms(first.ours.median),
    addedFirstByteMs: ms(first.ours.median - first.engine.median),
    engineTotalMs: ms(total.engine.median),
    totalMs: ms(total.ours.median),
    addedTotalMs: ms(total.ours.median - total.engine.median),
    sidecarCpuMs: ms(sidecar.median),
    envoyCpuMs: envoyMs(envoy.median),
    best: {
      addedFirstByteMs: ms(first.ours.min - first.engine.min),
      addedTotalMs: ms(total.ours.min - total.engine.min),
      sidecarCpuMs: ms(sidecar.min),
      envoyCpuMs: envoyMs(envoy.min),
    },
    spread: {
      engineTotalMs: { min: ms(total.engine.min), max: ms(total.engine.max) },
      totalMs: { min: ms(total.ours.min), max: ms(total.ours.max) },
    },
    othersCpus: rounded(of([...engine, ...measured], "othersCpus").median, 2),
    requests: measured.reduce((sum, { requests }) => sum + requests, 0),
    errors: 0,
  };
}

/** Runs the whole bench. Throws an Error when a request failed or a program did not come up; everything that was started has ended then. */
export async function benchSidecar(options: SidecarBenchOptions): Promise<SidecarBenchResult> {
  const { folder, remove } = runFolder();
  const engine = new Helper<EngineAsk, EnginePorts | null>("engine");
  const client = new Helper<LoadAsk, LoadAnswer>("load-client");
  const streamClient = new Helper<StreamJob, Lateness>("stream-client");
  const children: Child[] = [];
  let bed: Bed | null = null;
  try {
    const ports = await engine.ask("listen");
    if (ports === null) throw new Error("the engines did not start");
    const ours = await startSidecar("sidecar", process.execPath, [built("js", "sidecar", "main.js")], ports.decode);
    children.push(ours.child);
    bed = await startBed({
      name: "filter",
      folder,
      module: built("filter.wasm"),
      picker: epdPicker(),
      endpoints: [endpointEntry("d0", "decode", "127.0.0.1", ours.port), endpointEntry("p0", "prefill", "127.0.0.1", ports.prefill), endpointEntry("e0", "encode", "127.0.0.1", ports.encode)],
      concurrency: 2,
    });
    const host = "127.0.0.1";
    const targets: Target[] = [
      { name: "engine", host, port: ports.decode, sidecar: null, envoy: null },
      { name: "sidecar", host, port: ours.port, sidecar: ours.child.pid, envoy: null },
      { name: "filter+sidecar", ...bed.listen, sidecar: ours.child.pid, envoy: bed.envoy.child.pid },
    ];
    if (options.reference !== null) {
      const reference = await startSidecar("the other sidecar", options.reference, [], ports.decode);
      children.push(reference.child);
      targets.push({ name: "reference", host, port: reference.port, sidecar: reference.child.pid, envoy: null });
    }
    const memoryAtStart = Object.fromEntries(children.map(({ name, pid }) => [name, residentBytes(pid)]));
    const bench = new SidecarBench(options, targets, ports, client, streamClient, engine);
    // Streams come first: what large bodies leave of a heap says nothing about streams.
    if (options.streamSeconds > 0) {
      for (const target of targets) {
        options.say(`${options.streams.toString()} streams of ${options.eventsPerSecond.toString()} events a second for ${options.streamSeconds.toString()} s: ${target.name} ...`);
        await bench.streams(target);
      }
    }
    if (options.rounds > 0) {
      options.say("warming up ...");
      await bench.warmUp();
    }
    for (let round = 1; round <= options.rounds; round++) {
      const startedAt = performance.now();
      await bench.round();
      options.say(`round ${round.toString()} of ${options.rounds.toString()} took ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
    }
    const rows = options.rounds > 0 ? bench.rows() : [];
    return { rows, streams: bench.streamRows, memoryAtStart, warnings: warningsOf(rows, bench.streamRows) };
  } finally {
    await bed?.stop();
    await Promise.all(children.map((child) => child.stop()));
    await Promise.all([engine.stop(), client.stop(), streamClient.stop()]);
    remove();
  }
}

function warningsOf(rows: readonly SidecarRow[], streams: readonly StreamRow[]): string[] {
  const warnings: string[] = [];
  const others = Math.max(0, ...rows.map(({ othersCpus }) => othersCpus ?? 0), ...streams.map(({ othersCpus }) => othersCpus ?? 0));
  if (others > 0.2) warnings.push(`other programs kept up to ${others.toFixed(1)} CPUs busy: compare the best rounds, and measure again on a quiet machine`);
  for (const { through, lost, cut, outOfOrder } of streams) {
    if (lost > 0 || outOfOrder > 0) warnings.push(`${through}: ${lost.toString()} events were lost (${cut.toString()} streams ended early), ${outOfOrder.toString()} came out of order`);
  }
  return warnings;
}
