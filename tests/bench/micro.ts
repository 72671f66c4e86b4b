/**
 * The filter without Envoy, in this process, in seconds: what a request asks of the host and how long the filter itself is busy with it; scanner, index and scheduler by
 * themselves.
 */
import { readFileSync } from "node:fs";
import { Session, type Profiler } from "node:inspector";
import type { EndpointEntry } from "../fleet/picker.js";
import { chatBody, nonce } from "./bodies.js";
import { type Calls, EmulatedHost, type HostRequest, type Phases, sumCalls } from "./host.js";
import { microModule, namedFilter } from "./modules.js";
import { cell, table } from "./table.js";
import { BODIES, type BodyName, pdEndpoints, pdPicker, type Prompt, type Tuning, tuningsOf } from "./scenario.js";

export interface MicroOptions {
  bodies: readonly BodyName[];
  endpoints: readonly number[];
  prompts: readonly Prompt[];
  blocks: readonly number[];
  maxBlocks: number;
  /** The filter's module. */
  module: string;
  /** About how long each figure is measured. */
  ms: number;
}

const HEADERS: ReadonlyMap<string, string> = new Map([
  [":path", "/v1/chat/completions"],
  ["content-type", "application/json"],
  ["x-request-id", "5b6a9a5e-6d2f-4d0a-9a3e-0f1e2d3c4b5a"],
]);
/** What Envoy reads from a connection in one go. */
const PIECE_BYTES = 64 * 1024;
/** Requests that are counted. */
const COUNTED = 32;

/** The document that Envoy would give the filter. */
export function pluginDocument(tuning: Tuning, endpoints: number): Uint8Array {
  const ports = Array.from({ length: Math.floor(endpoints / 2) }, (_none, at) => 20_000 + at);
  const list = pdEndpoints(endpoints, ports).map((entry: EndpointEntry) => ({ ...entry, port: Number(entry.port) }));
  return Buffer.from(JSON.stringify({ revision: 1, picker: pdPicker(tuning, false), endpoints: list }));
}

function noTime(): Phases {
  return { headers: 0, body: 0, last: 0, response: 0, log: 0 };
}

/** Runs requests for about so long. */
class Runner {
  private number = 0;
  private readonly request: HostRequest;
  private readonly body: Buffer;
  private readonly nonceAt: number;
  private readonly prompts: number;

  constructor(
    private readonly host: EmulatedHost,
    body: BodyName,
    private readonly prompt: Prompt,
  ) {
    const plan = BODIES[body];
    const made = chatBody({ ...plan.spec, stream: false, headers: [] });
    this.body = made.body;
    this.nonceAt = made.nonceAt;
    this.request = { headers: HEADERS, body: made.body, pieceBytes: PIECE_BYTES };
    this.prompts = plan.prompts;
  }

  one(phases: Phases): void {
    const { number } = this;
    this.number++;
    // As on a busy worker: four ticks a second, and a quarter of a millisecond for a request.
    if (number % 4 === 0) this.host.nowMs++;
    if (number % 1000 === 0) this.host.tick();
    this.body.write(nonce(1, this.prompt === "warm" ? number % this.prompts : number), this.nonceAt, "latin1");
    this.host.run(this.request, phases);
  }

  /** @returns µs per request of each phase */
  for(ms: number): Phases {
    const phases = noTime();
    const endAt = performance.now() + ms;
    let count = 0;
    for (; count === 0 || performance.now() < endAt; count++) this.one(phases);
    return scaled(phases, 1000 / count);
  }
}

function scaled(phases: Phases, factor: number): Phases {
  return { headers: phases.headers * factor, body: phases.body * factor, last: phases.last * factor, response: phases.response * factor, log: phases.log * factor };
}

function total({ headers, body, response, log }: Phases): number {
  return headers + body + response + log;
}

export interface RequestFigures {
  body: BodyName;
  endpoints: number;
  prompt: Prompt;
  blockTokens: number;
  maxBlocks: number;
  /** µs in this process, the emulated host's work included: the best of several runs. */
  phasesUs: Phases;
  totalUs: number;
  /** Per request. */
  calls: Calls;
}

function perRequest(calls: Calls): Calls {
  return Object.fromEntries(Object.entries(calls).map(([name, { calls: count, bytes }]) => [name, { calls: count / COUNTED, bytes: bytes / COUNTED }]));
}

/** Every body with every fleet and tuning. */
export function benchRequests(options: MicroOptions): RequestFigures[] {
  const module = readFileSync(options.module);
  const figures: RequestFigures[] = [];
  for (const endpoints of options.endpoints) {
    for (const body of options.bodies) {
      for (const tuning of tuningsOf(body, options.blocks, options.maxBlocks)) {
        for (const prompt of options.prompts) {
          const host = new EmulatedHost(module, pluginDocument(tuning, endpoints));
          const runner = new Runner(host, body, prompt);
          runner.for(options.ms / 2);
          const runs = Array.from({ length: 5 }, () => runner.for(options.ms / 10)).sort((a, b) => total(a) - total(b));
          host.startCounting();
          const unused = noTime();
          for (let i = 0; i < COUNTED; i++) runner.one(unused);
          const phasesUs = runs[0] ?? noTime();
          figures.push({ body, endpoints, prompt, ...tuning, phasesUs, totalUs: total(phasesUs), calls: perRequest(host.stopCounting()) });
        }
      }
    }
  }
  return figures;
}

/** Functions of the filter by their own time, µs per request; the emulated host's are left out. */
export async function profileRequests(options: MicroOptions): Promise<{ name: string; us: number }[]> {
  const [endpoints = 8] = options.endpoints;
  const [body = "1k"] = options.bodies;
  const [prompt = "cold"] = options.prompts;
  const [tuning] = tuningsOf(body, options.blocks, options.maxBlocks);
  if (tuning === undefined) return [];
  const host = new EmulatedHost(readFileSync(await namedFilter()), pluginDocument(tuning, endpoints));
  const runner = new Runner(host, body, prompt);
  runner.for(options.ms * 2);
  const session = new Session();
  session.connect();
  const post = <T>(method: string, parameters?: object): Promise<T> =>
    new Promise((resolve, reject) => {
      session.post(method, parameters, (error, result) => {
        if (error === null) resolve(result as T);
        else reject(error);
      });
    });
  await post("Profiler.enable");
  await post("Profiler.setSamplingInterval", { interval: 100 });
  await post("Profiler.start");
  const endAt = performance.now() + options.ms * 8;
  let count = 0;
  for (; performance.now() < endAt; count++) runner.one(noTime());
  const { profile } = await post<Profiler.StopReturnType>("Profiler.stop");
  session.disconnect();
  return ownTimes(profile, count);
}

/** Own time of the profile's WebAssembly functions, µs per request, the largest first. */
export function ownTimes(profile: Profiler.Profile, requests: number): { name: string; us: number }[] {
  const names = new Map(profile.nodes.filter(({ callFrame }) => callFrame.url.startsWith("wasm:")).map(({ id, callFrame }) => [id, callFrame.functionName]));
  const sums = new Map<string, number>();
  for (const [at, id] of (profile.samples ?? []).entries()) {
    const name = names.get(id);
    if (name !== undefined) sums.set(name, (sums.get(name) ?? 0) + (profile.timeDeltas?.[at] ?? 0));
  }
  return [...sums].map(([name, us]) => ({ name, us: us / requests })).sort((a, b) => b.us - a.us);
}

interface MicroExports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  allocate(size: number): number;
  scan(at: number, size: number, piece: number, blockTokens: number, maxBlocks: number, repeat: number): number;
  useIndex(slots: number, endpoints: number, blocksPerEndpoint: number): void;
  makeKeys(at: number, count: number, owner: number, from: number): void;
  lookup(keys: number, count: number): number;
  credit(keys: number, count: number, endpoint: number, seconds: number): void;
  reads(): number;
  writes(): number;
  bytesRead(): number;
  bytesWritten(): number;
  configure(at: number, size: number): number;
  decide(tokens: number, repeat: number): number;
}

/** The best of several runs of `work(n)`, µs for one of n. */
function best(ms: number, work: (times: number) => void): number {
  let times = 1;
  for (;;) {
    const startedAt = performance.now();
    work(times);
    if (performance.now() - startedAt > ms / 20) break;
    times *= 2;
  }
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < 10; i++) {
    const startedAt = performance.now();
    work(times);
    least = Math.min(least, ((performance.now() - startedAt) * 1000) / times);
  }
  return least;
}

export interface ScanFigures {
  text: string;
  bytes: number;
  /** Tokens per block; 0: the text is counted and not hashed, as the sidecar reads it. */
  blockTokens: number;
  us: number;
  nsPerByte: number;
}

export interface IndexFigures {
  blocks: number;
  endpoints: number;
  what: string;
  us: number;
  reads: number;
  writes: number;
  readBytes: number;
  writtenBytes: number;
}

export interface DecideFigures {
  endpoints: number;
  us: number;
}

export interface PartFigures {
  scan: ScanFigures[];
  index: IndexFigures[];
  decide: DecideFigures[];
}

/** Bodies that differ in what their text is made of, beside those of {@link BODIES}. */
function texts(): { text: string; body: Buffer }[] {
  const chat = (content: string): Buffer => Buffer.from(JSON.stringify({ model: "bench-model", messages: [{ role: "user", content }] }));
  const words = (name: BodyName): Buffer => chatBody({ ...BODIES[name].spec, stream: false, headers: [] }).body;
  return [
    { text: "words, 1 KiB", body: words("1k") },
    { text: "words, 32 KiB", body: words("32k") },
    { text: "words, 1 MiB", body: words("1m") },
    { text: "lines of 80 and quotes, 1 MiB", body: chat('The "pier" on the left, said the harbour master, is the one that they mean.\n'.repeat(13_600)) },
    { text: "Chinese, 1 MiB", body: chat("预填充引擎把键值块交给解码引擎。".repeat(21_800)) },
    { text: "picture, 4 MiB", body: words("4m-image") },
  ];
}

const SLOTS = 16_384;
const BLOCKS_PER_ENDPOINT = 31_250;

/** Scanner, index and scheduler by themselves. */
export async function benchParts(ms: number): Promise<PartFigures> {
  const { instance } = await WebAssembly.instantiate(readFileSync(await microModule()), {});
  const exports = instance.exports as unknown as MicroExports;
  exports._initialize();
  const put = (bytes: Uint8Array): number => {
    const at = exports.allocate(bytes.length);
    new Uint8Array(exports.memory.buffer, at, bytes.length).set(bytes);
    return at;
  };

  const scan: ScanFigures[] = [];
  for (const { text, body } of texts()) {
    const at = put(body);
    for (const blockTokens of [0, 64, 5]) {
      // The whole prompt is hashed: with the seed's 256 blocks most of a long one is not.
      const read = (times: number): number => exports.scan(at, body.length, PIECE_BYTES, blockTokens, blockTokens === 0 ? 0 : 1 << 20, times);
      if (read(1) >>> 31 !== 0) throw new Error(`the scanner refuses ${text}`);
      const us = best(ms, read);
      scan.push({ text, bytes: body.length, blockTokens, us, nsPerByte: (us * 1000) / body.length });
    }
  }
  return { scan, index: benchIndex(exports, ms), decide: benchDecide(exports, put, ms) };
}

function benchIndex(exports: MicroExports, ms: number): IndexFigures[] {
  const figures: IndexFigures[] = [];
  for (const endpoints of [8, 1000]) {
    // Prompts of 1k, 8k and 128k tokens with blocks of 64.
    for (const blocks of [16, 128, 2048]) {
      exports.useIndex(SLOTS, endpoints, BLOCKS_PER_ENDPOINT);
      const keys = exports.allocate(blocks * 8);
      let owner = 1;
      const measure = (what: string, work: () => void): void => {
        const us = best(ms, (times) => {
          for (let i = 0; i < times; i++) work();
        });
        const before = [exports.reads(), exports.writes(), exports.bytesRead(), exports.bytesWritten()];
        const rounds = 16;
        for (let i = 0; i < rounds; i++) work();
        const after = [exports.reads(), exports.writes(), exports.bytesRead(), exports.bytesWritten()];
        const [reads = 0, writes = 0, readBytes = 0, writtenBytes = 0] = after.map((value, at) => (value - (before[at] ?? 0)) / rounds);
        figures.push({ blocks, endpoints, what, us, reads, writes, readBytes, writtenBytes });
      };
      measure("new prompt: look-up, credit to two", () => {
        exports.makeKeys(keys, blocks, owner++, 0);
        exports.lookup(keys, blocks);
        exports.credit(keys, blocks, owner % endpoints, owner >> 8);
        exports.credit(keys, blocks, (owner * 7) % endpoints, owner >> 8);
      });
      exports.makeKeys(keys, blocks, 0x7fffffff, 0);
      measure("known prompt: look-up, credit to its endpoint", () => {
        exports.lookup(keys, blocks);
        exports.credit(keys, blocks, 3, owner >> 8);
      });
      measure("known prompt: look-up", () => {
        exports.lookup(keys, blocks);
      });
    }
  }
  return figures;
}

function benchDecide(exports: MicroExports, put: (bytes: Uint8Array) => number, ms: number): DecideFigures[] {
  return [8, 100, 1000].map((endpoints) => {
    const document = pluginDocument({ blockTokens: 64, maxBlocks: 256 }, endpoints);
    const found = exports.configure(put(document), document.length);
    if (found !== endpoints) throw new Error(`the configuration was refused, or ${found.toString()} of ${endpoints.toString()} endpoints were taken`);
    return { endpoints, us: best(ms, (times) => exports.decide(8192, times)) };
  });
}

export function requestReport(figures: readonly RequestFigures[]): string[] {
  return [
    "A request in this process (µs, the best of several runs; the emulated host's work is within) and what it asks of the host. giving: calls that give a value back.",
    "host µs: what these calls cost in Envoy when they are warm (bench host).",
    "",
    ...table(
      ["body", "pods", "prompt", "block", "headers", "body", "response", "log", "calls", "giving", "reads", "bytes", "misses", "writes", "bytes", "host µs"],
      figures.map((one) => {
        const sums = sumCalls(one.calls);
        return [
          one.body,
          one.endpoints.toString(),
          one.prompt,
          `${one.blockTokens.toString()}×${one.maxBlocks.toString()}`,
          cell(one.phasesUs.headers, 1),
          cell(one.phasesUs.body, 1),
          cell(one.phasesUs.response, 1),
          cell(one.phasesUs.log, 1),
          cell(sums.calls, 1),
          cell(sums.giving, 1),
          cell(sums.reads, 1),
          cell(sums.readBytes, 0),
          cell(sums.misses, 1),
          cell(sums.writes, 1),
          cell(sums.writtenBytes, 0),
          cell(sums.hostUs, 1),
        ];
      }),
      4,
    ),
  ];
}

/** The calls of one request, by kind. */
export function callReport(figures: RequestFigures): string[] {
  return [
    `${figures.body}, ${figures.endpoints.toString()} endpoints, ${figures.prompt}: calls of one request`,
    "",
    ...table(
      ["call", "calls", "bytes each"],
      Object.entries(figures.calls)
        .sort(([, a], [, b]) => b.calls - a.calls)
        .map(([name, { calls, bytes }]) => [name, cell(calls, 1), cell(bytes / calls, 0)]),
      1,
    ),
  ];
}

export function partReport({ scan, index, decide }: PartFigures): string[] {
  return [
    "Scanner: block 0 counts only, as in the sidecar; the others hash the whole prompt",
    "",
    ...table(["text", "block", "µs", "ns/byte"], scan.map((one) => [one.text, one.blockTokens.toString(), cell(one.us, 1), cell(one.nsPerByte, 3)]), 1),
    "",
    "Prefix index, shared data in the module's own memory",
    "",
    ...table(
      ["what", "endpoints", "blocks", "µs", "reads", "bytes", "writes", "bytes"],
      index.map((one) => [one.what, one.endpoints.toString(), one.blocks.toString(), cell(one.us, 1), cell(one.reads, 1), cell(one.readBytes, 0), cell(one.writes, 1), cell(one.writtenBytes, 0)]),
      1,
    ),
    "",
    "Scheduler: a P/D decision",
    "",
    ...table(["endpoints", "µs"], decide.map((one) => [one.endpoints.toString(), cell(one.us, 2)]), 0),
  ];
}
