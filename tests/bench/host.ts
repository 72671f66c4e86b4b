/**
 * The proxy-wasm host in this process: enough of it to run a filter's module through whole requests, and to count what it asks of the host. What a
 * call costs here says nothing about what it costs in Envoy; that is told by {@link sumCalls}.
 */
import { webcrypto } from "node:crypto";

const OK = 0;
const NOT_FOUND = 1;
const CAS_MISMATCH = 8;

const REQUEST_BODY = 0;
const PLUGIN_CONFIGURATION = 7;
const REQUEST_HEADERS = 0;
const RESPONSE_HEADERS = 2;
const RESPONSE: ReadonlyMap<string, string> = new Map([
  [":status", "200"],
  ["content-type", "application/json"],
]);
/** The response flag for a connection that could not be made. */
const CONNECTION_FAILURE = 0x20;

/** What a request's path does not wait for. */
const WITHOUT_EFFECT = ["set_tick_period_milliseconds", "http_call", "get_metric"];

/** Calls of one kind: how many, and the bytes that went in or out. */
export interface CallCount {
  calls: number;
  bytes: number;
}

export type Calls = Readonly<Record<string, CallCount>>;

/**
 * What calls cost in Envoy, µs, as `bench host` measures them one behind the other (in a request they come cold, and cost up to twice as much): whatever is given back goes
 * through the module's malloc, which costs more than the copy.
 */
const HOST_COSTS_US = { giving: 0.92, givingPerKiB: 0.065, set: 0.2, replaceHeader: 0.37, other: 0.15 } as const;

/** Calls that give a value back. */
const GIVING = /^get_(?:shared_data|header_map_value|buffer_bytes|property)/;

/** Sums over all calls. */
export interface CallSums {
  calls: number;
  /** Calls that gave a value back. */
  giving: number;
  reads: number;
  readBytes: number;
  misses: number;
  writes: number;
  writtenBytes: number;
  /** By {@link HOST_COSTS_US}; body bytes are left out, since every filter that reads them copies them. */
  hostUs: number;
}

export function sumCalls(calls: Calls): CallSums {
  const sums: CallSums = { calls: 0, giving: 0, reads: 0, readBytes: 0, misses: 0, writes: 0, writtenBytes: 0, hostUs: 0 };
  for (const [name, { calls: count, bytes }] of Object.entries(calls)) {
    sums.calls += count;
    if (name === "get_shared_data miss") sums.misses += count;
    else if (name.startsWith("get_shared_data")) {
      sums.reads += count;
      sums.readBytes += bytes;
    } else if (name.startsWith("set_shared_data")) {
      sums.writes += count;
      sums.writtenBytes += bytes;
    }
    if (GIVING.test(name) && !name.endsWith(" miss")) {
      sums.giving += count;
      sums.hostUs += count * HOST_COSTS_US.giving + (name === "get_buffer_bytes" ? 0 : (bytes / 1024) * HOST_COSTS_US.givingPerKiB);
    } else sums.hostUs += count * (name.startsWith("set_shared_data") ? HOST_COSTS_US.set : name === "replace_header_map_value" ? HOST_COSTS_US.replaceHeader : HOST_COSTS_US.other);
  }
  return sums;
}

interface Cell {
  value: Uint8Array;
  cas: number;
}

interface FilterExports {
  memory: WebAssembly.Memory;
  malloc(size: number): number;
  _initialize?(): void;
  _start?(): void;
  proxy_on_vm_start(root: number, size: number): number;
  proxy_on_context_create(id: number, parent: number): void;
  proxy_on_configure(root: number, size: number): number;
  proxy_on_tick?(root: number): void;
  proxy_on_request_headers(id: number, headers: number, end: number): number;
  proxy_on_request_body(id: number, size: number, end: number): number;
  proxy_on_response_headers(id: number, headers: number, end: number): number;
  proxy_on_delete(id: number): void;
}

/** How the spaces of assembly/store are called in a report; the number stands behind the eight bytes of a key. */
const SPACES = ["?", "secret", "ids", "in-flight table", "in-flight book", "VMs", "lease", "load", "prefix slot", "prefix holders", "prefix generations", "prefix floors", "marks"];

function spaceOf(key: Uint8Array): string {
  if (key.length !== 12) return Buffer.from(key).toString("latin1");
  return SPACES[new DataView(key.buffer, key.byteOffset, key.length).getUint32(8, true)] ?? "other";
}

/** A request as the filter sees it. */
export interface HostRequest {
  headers: ReadonlyMap<string, string>;
  body: Uint8Array;
  /** Bytes by which the body grows from callback to callback. */
  pieceBytes: number;
}

/** How a request ends. */
export interface Answer {
  /** With `:status`. */
  headers: ReadonlyMap<string, string>;
  /** `ip:port` of the pod that answered; empty: nobody knows. */
  upstream: string;
  /** Of Envoy's attempts. */
  attempts: number;
}

/** Where a request's time goes, ms. */
export interface Phases {
  headers: number;
  body: number;
  /** The last body callback beyond its own piece: the decision. In {@link body} as well where the body has one piece. */
  last: number;
  response: number;
  log: number;
}

const ROOT_CONTEXT = 1;

export class EmulatedHost {
  private readonly exports: FilterExports;
  private readonly cells = new Map<string, Cell>();
  private counts = new Map<string, CallCount>();
  private counting = false;
  private nextCas = 1;
  private nextContext = 2;
  private nextMetric = 1;
  private request: HostRequest | null = null;
  private buffered = 0;
  private responseStatus = 0;
  private answer: Answer | null = null;
  /** Headers that the filter has set on the current request. */
  readonly set = new Map<string, string>();
  readonly logs: string[] = [];
  /** A clock that stands still unless it is moved. */
  nowMs = Date.now();

  /**
   * @param module the filter's bytes
   * @param document the plugin configuration
   * @throws Error with the filter's own words when it refuses the configuration
   */
  constructor(
    module: Uint8Array,
    private readonly document: Uint8Array,
  ) {
    const env = Object.fromEntries([...Object.entries(this.functions), ...WITHOUT_EFFECT.map((name) => [name, () => OK] as const)].map(([name, call]) => [`proxy_${name}`, call]));
    const imports = { env, wasi_snapshot_preview1: { random_get: this.functions.random_get } };
    this.exports = new WebAssembly.Instance(new WebAssembly.Module(module), imports).exports as unknown as FilterExports;
    this.exports._initialize?.();
    this.exports._start?.();
    this.exports.proxy_on_context_create(ROOT_CONTEXT, 0);
    if (this.exports.proxy_on_vm_start(ROOT_CONTEXT, 0) === 0 || this.exports.proxy_on_configure(ROOT_CONTEXT, document.length) === 0) {
      throw new Error(`the filter refused its configuration: ${this.logs.join("; ")}`);
    }
  }

  private get bytes(): Uint8Array {
    return new Uint8Array(this.exports.memory.buffer);
  }

  private count(name: string, bytes: number): void {
    if (!this.counting) return;
    const found = this.counts.get(name);
    if (found === undefined) this.counts.set(name, { calls: 1, bytes });
    else {
      found.calls++;
      found.bytes += bytes;
    }
  }

  private text(at: number, size: number): string {
    return Buffer.from(this.exports.memory.buffer, at, size).toString("latin1");
  }

  /** Gives a value to the module, in memory of its own malloc. */
  private give(value: Uint8Array, from: number, size: number, pointerAt: number, sizeAt: number): void {
    const at = size === 0 ? 0 : this.exports.malloc(size);
    if (size > 0) this.bytes.set(value.subarray(from, from + size), at);
    const view = new DataView(this.exports.memory.buffer);
    view.setUint32(pointerAt, at, true);
    view.setUint32(sizeAt, size, true);
  }

  private readonly functions: Readonly<Record<string, (...numbers: number[]) => number>> = {
    get_shared_data: (keyAt = 0, keySize = 0, pointerAt = 0, sizeAt = 0, casAt = 0) => {
      const key = this.text(keyAt, keySize);
      const cell = this.cells.get(key);
      if (this.counting) this.count(cell === undefined ? "get_shared_data miss" : `get_shared_data ${spaceOf(this.bytes.subarray(keyAt, keyAt + keySize))}`, cell?.value.length ?? 0);
      if (cell === undefined) return NOT_FOUND;
      this.give(cell.value, 0, cell.value.length, pointerAt, sizeAt);
      new DataView(this.exports.memory.buffer).setUint32(casAt, cell.cas, true);
      return OK;
    },
    set_shared_data: (keyAt = 0, keySize = 0, at = 0, size = 0, cas = 0) => {
      const key = this.text(keyAt, keySize);
      if (this.counting) this.count(`set_shared_data ${spaceOf(this.bytes.subarray(keyAt, keyAt + keySize))}`, size);
      const cell = this.cells.get(key);
      const value = this.bytes.slice(at, at + size);
      if (cell === undefined) {
        this.cells.set(key, { value, cas: this.nextCas++ });
        return OK;
      }
      if (cas !== 0 && cas !== cell.cas) return CAS_MISMATCH;
      cell.value = value;
      cell.cas = this.nextCas++;
      return OK;
    },
    get_buffer_bytes: (kind = 0, start = 0, size = 0, pointerAt = 0, sizeAt = 0) => {
      const source = kind === PLUGIN_CONFIGURATION ? this.document : kind === REQUEST_BODY ? (this.request?.body ?? null) : null;
      if (source === null) return NOT_FOUND;
      const limit = kind === REQUEST_BODY ? this.buffered : source.length;
      const take = Math.max(0, Math.min(size, limit - start));
      this.count("get_buffer_bytes", take);
      this.give(source, start, take, pointerAt, sizeAt);
      return OK;
    },
    get_header_map_value: (map = 0, keyAt = 0, keySize = 0, pointerAt = 0, sizeAt = 0) => {
      const name = this.text(keyAt, keySize);
      const attempts = name === "x-envoy-attempt-count" ? this.answer?.attempts.toString() : undefined;
      const value = map === REQUEST_HEADERS ? (attempts ?? this.request?.headers.get(name)) : map === RESPONSE_HEADERS ? (this.answer?.headers ?? RESPONSE).get(name) : undefined;
      this.count(value === undefined ? "get_header_map_value miss" : "get_header_map_value", value?.length ?? 0);
      if (value === undefined) return NOT_FOUND;
      const bytes = Buffer.from(value, "latin1");
      this.give(bytes, 0, bytes.length, pointerAt, sizeAt);
      return OK;
    },
    get_header_map_pairs: (map = 0, pointerAt = 0, sizeAt = 0) => {
      const headers = map === REQUEST_HEADERS ? this.request?.headers : map === RESPONSE_HEADERS ? (this.answer?.headers ?? RESPONSE) : undefined;
      const texts = [...(headers ?? [])].flat().map((text) => Buffer.from(text, "latin1"));
      const sizes = Buffer.alloc(4 + 4 * texts.length);
      sizes.writeUInt32LE(texts.length / 2);
      for (const [at, text] of texts.entries()) sizes.writeUInt32LE(text.length, 4 + 4 * at);
      const bytes = Buffer.concat([sizes, ...texts.flatMap((text) => [text, Buffer.alloc(1)])]);
      this.count("get_header_map_pairs", bytes.length);
      this.give(bytes, 0, bytes.length, pointerAt, sizeAt);
      return OK;
    },
    replace_header_map_value: (map = 0, keyAt = 0, keySize = 0, at = 0, size = 0) => {
      this.count("replace_header_map_value", size);
      if (map === REQUEST_HEADERS) this.set.set(this.text(keyAt, keySize), this.text(at, size));
      return OK;
    },
    remove_header_map_value: () => {
      this.count("remove_header_map_value", 0);
      return OK;
    },
    get_property: (pathAt = 0, pathSize = 0, pointerAt = 0, sizeAt = 0) => {
      const path = this.text(pathAt, pathSize);
      this.count("get_property", 8);
      if (path.startsWith("upstream\0address") && this.answer !== null) {
        const address = Buffer.from(this.answer.upstream, "latin1");
        if (address.length === 0) return NOT_FOUND;
        this.give(address, 0, address.length, pointerAt, sizeAt);
        return OK;
      }
      const value = Buffer.alloc(8);
      if (path.endsWith("request_attempt_count")) value[0] = this.answer?.attempts ?? 1;
      else if (path.endsWith("flags") && this.answer?.headers.get(":status") === "503") value[0] = CONNECTION_FAILURE;
      this.give(value, 0, 8, pointerAt, sizeAt);
      return OK;
    },
    set_property: (...numbers) => {
      this.count("set_property", numbers[3] ?? 0);
      return OK;
    },
    get_current_time_nanoseconds: (at = 0) => {
      this.count("get_current_time_nanoseconds", 8);
      new DataView(this.exports.memory.buffer).setBigUint64(at, BigInt(this.nowMs) * 1_000_000n, true);
      return OK;
    },
    define_metric: (...numbers) => {
      new DataView(this.exports.memory.buffer).setUint32(numbers[3] ?? 0, this.nextMetric++, true);
      return OK;
    },
    increment_metric: () => {
      this.count("increment_metric", 8);
      return OK;
    },
    record_metric: () => {
      this.count("record_metric", 8);
      return OK;
    },
    log: (...numbers) => {
      this.logs.push(this.text(numbers[1] ?? 0, numbers[2] ?? 0));
      return OK;
    },
    send_local_response: (status = 0) => {
      this.count("send_local_response", 0);
      this.responseStatus = status;
      return OK;
    },
    random_get: (at = 0, size = 0) => {
      webcrypto.getRandomValues(this.bytes.subarray(at, at + size));
      return OK;
    },
  };

  /** From here on calls are counted; what was counted before is forgotten. */
  startCounting(): void {
    this.counts = new Map();
    this.counting = true;
  }

  stopCounting(): Calls {
    this.counting = false;
    return Object.fromEntries(this.counts);
  }

  tick(): void {
    this.exports.proxy_on_tick?.(ROOT_CONTEXT);
  }

  /** Bytes of the module's memory. */
  get memoryBytes(): number {
    return this.exports.memory.buffer.byteLength;
  }

  /** Keys of shared data, and the bytes that stand under them. */
  get shared(): { keys: number; bytes: number } {
    let bytes = 0;
    for (const { value } of this.cells.values()) bytes += value.length;
    return { keys: this.cells.size, bytes };
  }

  /** Requests and tokens that the fleet has in flight, by the table in shared data (assembly/endpoints/inflight.ts). */
  get inFlight(): { requests: number; tokens: number } {
    const sums = { requests: 0, tokens: 0 };
    for (const [key, { value }] of this.cells) {
      if (spaceOf(Buffer.from(key, "latin1")) !== "in-flight table") continue;
      const view = new DataView(value.buffer, value.byteOffset, value.length);
      for (let at = 8; at + 12 <= value.length; at += 12) {
        sums.requests += view.getUint32(at + 4, true);
        sums.tokens += view.getUint32(at + 8, true);
      }
    }
    return sums;
  }

  /**
   * A stream begins: headers, and the body in pieces. Any number may be open.
   *
   * @returns its number, for {@link answered} and {@link ended}; null when the filter answered by itself: then it has ended
   */
  begun(request: HostRequest): number | null {
    const { exports } = this;
    const id = this.nextContext++;
    this.use(request, null);
    exports.proxy_on_context_create(id, ROOT_CONTEXT);
    const { length } = request.body;
    exports.proxy_on_request_headers(id, request.headers.size, length === 0 ? 1 : 0);
    while (this.buffered < length && this.responseStatus === 0) {
      this.buffered = Math.min(length, this.buffered + request.pieceBytes);
      exports.proxy_on_request_body(id, this.buffered, this.buffered === length ? 1 : 0);
    }
    if (this.responseStatus === 0) return id;
    this.ended(id, request, null);
    return null;
  }

  private use(request: HostRequest, answer: Answer | null): void {
    this.request = request;
    this.answer = answer;
    this.buffered = 0;
    this.responseStatus = 0;
    this.set.clear();
  }

  /** The answer's headers have come. */
  answered(id: number, request: HostRequest, answer: Answer): void {
    this.use(request, answer);
    this.exports.proxy_on_response_headers(id, answer.headers.size, 0);
  }

  /** The stream is over; without an answer it was reset. */
  ended(id: number, request: HostRequest, answer: Answer | null): void {
    this.use(request, answer);
    this.exports.proxy_on_delete(id);
  }

  /**
   * One whole request, as Envoy runs it: headers, body in pieces, the answer's headers, the end. The time of each phase is added to `phases`.
   *
   * @throws Error when the filter answered by itself
   */
  run(request: HostRequest, phases: Phases): void {
    const { exports } = this;
    this.use(request, null);
    const id = this.nextContext++;
    const t0 = performance.now();
    exports.proxy_on_context_create(id, ROOT_CONTEXT);
    exports.proxy_on_request_headers(id, request.headers.size, 0);
    const t1 = performance.now();
    const { length } = request.body;
    let last = t1;
    while (this.buffered < length) {
      this.buffered = Math.min(length, this.buffered + request.pieceBytes);
      last = performance.now();
      exports.proxy_on_request_body(id, this.buffered, this.buffered === length ? 1 : 0);
    }
    const t2 = performance.now();
    this.answer = { headers: RESPONSE, upstream: this.set.get("x-gateway-destination-endpoint") ?? "", attempts: 1 };
    exports.proxy_on_response_headers(id, 3, 0);
    const t3 = performance.now();
    exports.proxy_on_delete(id);
    const t4 = performance.now();
    phases.headers += t1 - t0;
    phases.body += t2 - t1;
    phases.last += t2 - last;
    phases.response += t3 - t2;
    phases.log += t4 - t3;
    if (this.responseStatus !== 0) throw new Error(`the filter answered ${this.responseStatus.toString()}: ${this.logs.join("; ")}`);
  }
}
