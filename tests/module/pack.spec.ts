/** The build's last step: a third of the module is text laid out as UTF-16, which is packed and laid out again when the module begins (assembly/unpack.ts). */
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { main } from "assemblyscript/asc";
import { describe, expect, it } from "vitest";
import { pack, packed, type Segment } from "../../assembly/pack.mjs";
import { built, inRoot } from "../fleet/root.js";

const UNPACK = readFileSync(inRoot("assembly", "unpack.ts"), "utf8");

async function compile(source: string, ...more: string[]): Promise<Buffer> {
  let binary: Uint8Array | null = null;
  const { error, stderr } = await main(["entry.ts", "--outFile", "out.wasm", "--runtime", "stub", "-O", "--exportStart", "_initialize", "--use", "abort=entry/stop", ...more], {
    readFile: (name, base) => {
      if (name === "entry.ts") return source;
      if (name === "unpack.ts") return UNPACK;
      const path = base !== undefined && base !== "" ? join(base, name) : name;
      return existsSync(path) ? readFileSync(path, "utf8") : null;
    },
    writeFile: (_name, contents) => {
      if (typeof contents !== "string") binary = contents;
    },
    listFiles: () => [],
  });
  if (error !== null || binary === null) throw new Error(stderr.toString());
  return Buffer.from(binary);
}

interface Unpacker {
  memory: WebAssembly.Memory;
  unpack(from: number): void;
}

/** Memory after the packed segments were laid out, from 0 to `size`. */
async function laidOut(segments: readonly Segment[], size: number): Promise<Buffer> {
  const { instance } = await WebAssembly.instantiate(await compile('export { unpack } from "./unpack";\nfunction stop(m: usize, f: usize, l: u32, c: u32): void {}\n', "--initialMemory", "16"));
  const { memory, unpack } = instance.exports as unknown as Unpacker;
  const bytes = Buffer.from(memory.buffer);
  const at = 9 * 65536;
  packed(segments).copy(bytes, at);
  unpack(at);
  return Buffer.from(bytes.subarray(0, size));
}

function plain(segments: readonly Segment[], size: number): Buffer {
  const out = Buffer.alloc(size);
  for (const { at, data } of segments) out.set(data, at);
  return out;
}

/** Small numbers that are the same in each run. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return (state >>> 16) % below;
  };
}

describe("packed data", () => {
  it("is laid out as it was: texts and bytes, neighbours, odd places and ends, gaps of any width", async () => {
    const next = random(7);
    const segments: Segment[] = [];
    let offset = 8;
    for (let i = 0; i < 400; i++) {
      // Two segments never share a word of two bytes: the compiler lays them out at multiples of more.
      offset = ((offset + 1) & ~1) + ([0, 1, 2, 3, 4, 5, 9, 40][next(8)] ?? 0);
      const length = 1 + next(60);
      const text = next(2) === 0;
      segments.push({ at: offset, data: Buffer.from(Array.from({ length }, (_, k) => (text && k % 2 === 1 ? 0 : next(256)))) });
      offset += length;
    }
    offset = (offset + 1) & ~1;
    // Further away than one record's gap reaches, and longer than one record holds.
    segments.push({ at: offset + 200_001, data: Buffer.from("far") });
    segments.push({ at: offset + 300_000, data: Buffer.alloc(150_001, "w\0") });
    segments.push({ at: offset + 460_000, data: Buffer.alloc(70_000, 0xab) });
    const size = offset + 540_000;
    expect((await laidOut(segments, size)).equals(plain(segments, size))).toBe(true);
    expect(packed(segments).length).toBeLessThan(segments.reduce((sum, { data }) => sum + data.length, 0));
  });

  it("without any is nothing but its end", async () => {
    expect(packed([])).toEqual(Buffer.alloc(4, 0xff));
    expect((await laidOut([], 1000)).equals(Buffer.alloc(1000))).toBe(true);
  });

  it("refuses segments that overlap or share a word", () => {
    expect(() => packed([{ at: 8, data: Buffer.alloc(8) }, { at: 10, data: Buffer.alloc(8) }])).toThrow("overlap");
    expect(() => packed([{ at: 8, data: Buffer.alloc(1) }, { at: 9, data: Buffer.alloc(1) }])).toThrow("share a word");
  });
});

interface Spoken {
  memory: WebAssembly.Memory;
  _initialize(): void;
  said(i: number): number;
  length(i: number): number;
}

const SPEAKER = `
export { unpack } from "./unpack";
const WORDS: StaticArray<string> = ["the first of a few texts", "ünïcödé \\u4e16\\u754c", "", "x", "the first of a few texts, and longer"];
const TABLE = memory.data<u32>([1, 0x80000000, 3, 0xffffffff, 5]);
let begun: i32 = WORDS.length;
export function said(i: i32): usize { return changetype<usize>(WORDS[i]); }
export function length(i: i32): i32 { return i < 0 ? load<u32>(TABLE + ((-i - 1) << 2)) + begun - 5 : WORDS[i].length; }
function stop(m: usize, f: usize, l: u32, c: u32): void { unreachable(); }
`;

describe("a packed module", () => {
  it("says what it said before, is smaller, and does not export how it begins", async () => {
    const before = await compile(SPEAKER);
    const after = pack(before);
    const words: string[][] = [];
    for (const module of [before, after]) {
      const { instance } = await WebAssembly.instantiate(module);
      const { memory, _initialize, said, length } = instance.exports as unknown as Spoken;
      _initialize();
      words.push([0, 1, 2, 3, 4].map((i) => Buffer.from(memory.buffer, said(i), length(i) * 2).toString("utf16le")));
      expect([-1, -2, -3, -4, -5].map((i) => length(i) >>> 0)).toEqual([1, 0x80000000, 3, 0xffffffff, 5]);
      expect(Object.keys(instance.exports).includes("unpack")).toBe(module === before);
    }
    expect(words[1]).toEqual(words[0]);
    expect(words[0]?.[1]).toBe("ünïcödé \u4e16\u754c");
    expect(after.length).toBeLessThan(before.length);
  });
});

describe("build/filter.wasm", () => {
  it("is below 200 KiB and begins by itself", () => {
    expect(statSync(built("filter.wasm")).size).toBeLessThan(200 * 1024);
    const module = new WebAssembly.Module(readFileSync(built("filter.wasm")));
    expect(module).toBeDefined();
    expect(readFileSync(built("filter.wasm")).includes("unpack")).toBe(false);
  });
});
