/**
 * The filter's own scanner, as a module with plain bindings (assembly/bindings.ts): sidecar and filter read a body with the same code. One instance serves all requests of
 * the process; a scan holds a few KiB of its memory between its first piece and its end.
 */
import { randomFillSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { ApiShape, BodyScanner, BodyView, MediaItem, MediaType, Member, MemberName, MemberParent, NeverSplit, ScanError, ValueKind } from "./types.js";

interface ScannerExports {
  readonly memory: WebAssembly.Memory;
  _initialize(): void;
  useSeed(high: number, low: number): void;
  scanStart(shape: number): number;
  scanRoom(): number;
  scanRoomSize(): number;
  scanFeed(handle: number, size: number): void;
  scanEnd(handle: number): number;
  scanFree(handle: number): void;
  nameCount(): number;
  nameOfIndex(index: number): number;
  textSize(): number;
}

// The order of the module's enumerations.
const SHAPES: readonly ApiShape[] = ["other", "chat", "completions", "messages", "responses", "generate"];
const ERRORS: readonly (ScanError | null)[] = [null, "empty", "invalid_json", "invalid_utf8", "truncated", "too_deep", "too_many_members"];
const KINDS: readonly ValueKind[] = ["null", "true", "false", "number", "string", "object", "array"];
const PARENTS: readonly MemberParent[] = ["", "vllm_xargs", "sampling_params", "sampling_params.extra_args"];
const WHOLE: readonly NeverSplit[] = ["", "multiple_prompts", "parallel_sampling", "prompt_logprobs", "stateful_response"];

interface Module {
  readonly exports: ScannerExports;
  readonly room: number;
  readonly roomSize: number;
  readonly names: readonly string[];
  /** Views on the memory, made anew when it has grown. */
  bytes: Uint8Array;
  words: Uint32Array;
  longs: BigUint64Array;
}

let loaded: Module | undefined;

/** build/scanner.wasm of this checkout or installation, looked for from this file upwards; CROSSPOINT_SCANNER names another. */
export function scannerPath(): string {
  const named = process.env["CROSSPOINT_SCANNER"];
  if (named !== undefined && named !== "") return named;
  for (let dir = dirname(fileURLToPath(import.meta.url)); ; dir = dirname(dir)) {
    for (const candidate of [join(dir, "build", "scanner.wasm"), join(dir, "scanner.wasm")]) if (existsSync(candidate)) return candidate;
    if (dirname(dir) === dir) throw new Error("build/scanner.wasm is missing: run ./scripts/build");
  }
}

function load(): Module {
  if (loaded !== undefined) return loaded;
  const instance = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(scannerPath())), {});
  const exports = instance.exports as unknown as ScannerExports;
  exports._initialize();
  const seed = randomFillSync(new Uint32Array(2));
  exports.useSeed(seed[0] ?? 0, seed[1] ?? 0);
  const decoder = new TextDecoder();
  const names: string[] = [];
  for (let i = 0; i < exports.nameCount(); i++) {
    const at = exports.nameOfIndex(i);
    names.push(decoder.decode(new Uint8Array(exports.memory.buffer, at, exports.textSize())).replace(/^bootstrap_$/, "bootstrap"));
  }
  loaded = {
    exports,
    room: exports.scanRoom(),
    roomSize: exports.scanRoomSize(),
    names,
    bytes: new Uint8Array(0),
    words: new Uint32Array(0),
    longs: new BigUint64Array(0),
  };
  view(loaded);
  return loaded;
}

/** Growing the memory detaches the views. */
function view(module: Module): void {
  const buffer = module.exports.memory.buffer;
  if (module.bytes.buffer === buffer) return;
  module.bytes = new Uint8Array(buffer);
  module.words = new Uint32Array(buffer);
  module.longs = new BigUint64Array(buffer);
}

class WasmScanner implements BodyScanner {
  private handle: number;

  constructor(
    private readonly module: Module,
    shape: ApiShape,
  ) {
    this.handle = module.exports.scanStart(SHAPES.indexOf(shape));
  }

  feed(piece: Uint8Array): void {
    const { module } = this;
    for (let from = 0; from < piece.length; from += module.roomSize) {
      const part = from === 0 && piece.length <= module.roomSize ? piece : piece.subarray(from, from + module.roomSize);
      view(module);
      module.bytes.set(part, module.room);
      module.exports.scanFeed(this.handle, part.length);
    }
  }

  end(): BodyView {
    const { module } = this;
    const at = module.exports.scanEnd(this.handle) >>> 2;
    view(module);
    const result = readResult(module, at);
    this.dispose();
    return result;
  }

  dispose(): void {
    if (this.handle !== 0) this.module.exports.scanFree(this.handle);
    this.handle = 0;
  }
}

function word(module: Module, at: number): number {
  return module.words[at] ?? 0;
}

/** `at`: word index of the module's `Result`. */
function readResult(module: Module, at: number): BodyView {
  const isObject = word(module, at + 2) !== 0;
  return {
    error: ERRORS[word(module, at)] ?? null,
    errorOffset: word(module, at + 1),
    isObject,
    objectStart: isObject ? word(module, at + 3) : -1,
    objectEnd: isObject ? word(module, at + 4) : -1,
    neverSplit: WHOLE[word(module, at + 5)] ?? "",
    stream: word(module, at + 6) !== 0,
    members: readMembers(module, word(module, at + 8), word(module, at + 9), word(module, at + 15)),
    media: readMedia(module, word(module, at + 10), word(module, at + 11), word(module, at + 16)),
  };
}

function readMembers(module: Module, from: number, count: number, size: number): Member[] {
  const members: Member[] = [];
  for (let i = 0; i < count; i++) {
    const at = from + i * size;
    const w = at >>> 2;
    members.push({
      name: (module.names[module.bytes[at] ?? 0] ?? "") as MemberName,
      parent: PARENTS[module.bytes[at + 1] ?? 0] ?? "",
      kind: KINDS[module.bytes[at + 2] ?? 0] ?? "null",
      parentIndex: word(module, w + 1) | 0,
      start: word(module, w + 2),
      valueStart: word(module, w + 3),
      valueEnd: word(module, w + 4),
    });
  }
  return members;
}

function readMedia(module: Module, from: number, count: number, size: number): MediaItem[] {
  const media: MediaItem[] = [];
  for (let i = 0; i < count; i++) {
    const at = from + i * size;
    const w = at >>> 2;
    media.push({
      type: (module.names[word(module, w)] ?? "") as MediaType,
      start: word(module, w + 1),
      end: word(module, w + 2),
      key: module.longs[(at >>> 3) + 2] ?? 0n,
    });
  }
  return media;
}

/** A scanner for one body of the given shape. */
export function createScanner(shape: ApiShape): BodyScanner {
  return new WasmScanner(load(), shape);
}
