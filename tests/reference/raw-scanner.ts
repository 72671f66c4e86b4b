/** The scanner's module without its wrapper, for a reader that compares a million bodies: whatever it says stays in its memory, and is read from there. */
import { readFileSync } from "node:fs";
import { scannerPath } from "../../sidecar/body/scanner.js";
import type { Estimate, ReadOptions, Shape } from "./request-view.js";

interface Exports {
  readonly memory: WebAssembly.Memory;
  _initialize(): void;
  useSeed(high: number, low: number): void;
  scanStartAs(shape: number, blockTokens: number, maxBlocks: number, flags: number): number;
  estimateWith(imageStatic: number, imageFactor: number, imagePixels: number, videoTokens: number): void;
  scanRoom(): number;
  scanFeed(handle: number, size: number): void;
  scanEnd(handle: number): number;
  scanFree(handle: number): void;
  nameCount(): number;
  nameOfIndex(index: number): number;
  textSize(): number;
}

/** The module's numbers for the shapes. */
const SHAPE_NUMBERS: Readonly<Record<Shape, number>> = { other: 0, chat: 1, completions: 2, messages: 3, responses: 4, generate: 5, embeddings: 6, "sglang-generate": 7, "chat-render": 8, "completions-render": 9 };
const SPANS = 1;
const STRICT = 2;

/** Words of the module's result (assembly/bindings.ts, Result), by their places. */
export const FIELDS = {
  error: 0,
  errorOffset: 1,
  isObject: 2,
  objectStart: 3,
  objectEnd: 4,
  whole: 5,
  stream: 6,
  duplicates: 7,
  members: 8,
  memberCount: 9,
  media: 10,
  mediaCount: 11,
  tokens: 12,
  hasTokens: 13,
  distinct: 14,
  memberSize: 15,
  mediaSize: 16,
  shape: 17,
  blockTokens: 18,
  model: 19,
  modelSize: 20,
  keys: 21,
  keyCount: 22,
  spans: 23,
  spanCount: 24,
  spanSize: 25,
  items: 26,
  mmItems: 27,
  keptForLow: 28,
  keptForHigh: 29,
  hasPrompt: 30,
} as const;
export type Field = keyof typeof FIELDS;

export class RawScanner {
  private readonly exports: Exports;
  private readonly room: number;
  readonly names: readonly string[];
  private bytes = new Uint8Array(0);
  private words = new Uint32Array(0);
  /** Word index of the last result. */
  private result = 0;
  /** The last scan's, whose memory is still looked at. */
  private handle = 0;

  constructor() {
    this.exports = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(scannerPath())), {}).exports as unknown as Exports;
    this.exports._initialize();
    // Any will do; always the same, so that a run can be repeated.
    this.exports.useSeed(0x1234_5678, 0x9abc_def1);
    this.room = this.exports.scanRoom();
    this.look();
    this.names = Array.from({ length: this.exports.nameCount() }, (_, index) => {
      const at = this.exports.nameOfIndex(index);
      this.look();
      return Buffer.from(this.bytes.subarray(at, at + this.exports.textSize())).toString("latin1");
    });
  }

  /** Growing the memory detaches what looks at it. */
  private look(): void {
    const { buffer } = this.exports.memory;
    if (this.bytes.buffer === buffer) return;
    this.bytes = new Uint8Array(buffer);
    this.words = new Uint32Array(buffer);
  }

  get memoryBytes(): number {
    return this.exports.memory.buffer.byteLength;
  }

  estimate({ imageStatic, imageFactor, imagePixels, videoTokens }: Estimate): void {
    this.exports.estimateWith(imageStatic, imageFactor, imagePixels, videoTokens);
  }

  private feed(handle: number, body: Uint8Array, from: number, to: number): void {
    this.look();
    // A call for a few bytes costs more than the bytes.
    if (to - from > 24) this.bytes.set(body.subarray(from, to), this.room);
    else for (let index = from; index < to; index++) this.bytes[this.room + index - from] = body[index] ?? 0;
    this.exports.scanFeed(handle, to - from);
  }

  /**
   * Reads `body` in pieces that end at `cuts`, which rise; between them pieces of `beside` are read by another scan, as happens in a process that serves many requests.
   * The results are good until the next call.
   *
   * @throws WebAssembly.RuntimeError when the module traps
   */
  scan(body: Uint8Array, cuts: readonly number[], options: ReadOptions, beside: Uint8Array | null): void {
    const { exports } = this;
    if (this.handle !== 0) exports.scanFree(this.handle);
    const start = (spans: boolean): number => exports.scanStartAs(SHAPE_NUMBERS[options.shape], options.blockTokens, options.maxBlocks, (spans ? SPANS : 0) | (options.strict ? STRICT : 0));
    this.handle = start(options.spans);
    const other = beside === null ? 0 : start(!options.spans);
    let at = 0;
    let otherAt = 0;
    for (let piece = 0; piece <= cuts.length; piece++) {
      const to = cuts[piece] ?? body.length;
      this.feed(this.handle, body, at, to);
      if (beside !== null) {
        const otherTo = Math.min(beside.length, otherAt + to - at);
        this.feed(other, beside, otherAt, otherTo);
        otherAt = otherTo;
      }
      at = to;
    }
    if (beside !== null) exports.scanFree(other);
    this.result = exports.scanEnd(this.handle) >>> 2;
    this.look();
  }

  field(name: Field): number {
    return this.words[this.result + FIELDS[name]] ?? 0;
  }

  /** Byte at an address, and the 32-bit word there, without its sign. */
  byte(at: number): number {
    return this.bytes[at] ?? 0;
  }

  word(at: number): number {
    return this.words[at >>> 2] ?? 0;
  }

  /** A 64-bit hash, as a number that tells it from all others that a run meets: its 53 lower bits. */
  hash(at: number): number {
    return ((this.word(at + 4) & 0x1f_ffff) * 0x1_0000_0000) + this.word(at);
  }

  latin1(at: number, size: number): string {
    return Buffer.from(this.bytes.buffer, at, size).toString("latin1");
  }
}
