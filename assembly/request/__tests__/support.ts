// What the specs of request/ share: bodies as bytes, a scanner that reads them in any cut, and what it found as short text or as one number.
import { MediaSpan, MemberSpan, RequestView, Scanner, ScanError, ShapeId, spelling } from "../index";

export type Octets = StaticArray<u8>;

/** The secret of these tests' process. */
export const SEED: u64 = 0x1234567890abcdef;

export const scanner = Scanner.make();
export const view = new RequestView();

/** UTF-8 bytes of a text. */
export function utf8(text: string): Octets {
  const encoded = String.UTF8.encode(text);
  const out = new StaticArray<u8>(encoded.byteLength);
  memory.copy(changetype<usize>(out), changetype<usize>(encoded), encoded.byteLength);
  return out;
}

/** One byte per character: for what is no UTF-8. */
export function octets(text: string): Octets {
  const out = new StaticArray<u8>(text.length);
  for (let i = 0; i < text.length; i++) {
    assert(text.charCodeAt(i) < 256, "octets: one byte per character");
    out[i] = <u8>text.charCodeAt(i);
  }
  return out;
}

/** `text`, `times` over, as bytes: larger than a string may comfortably be. */
export function repeated(text: string, times: i32): Octets {
  const unit = utf8(text);
  const out = new StaticArray<u8>(unit.length * times);
  for (let i = 0; i < times; i++) memory.copy(changetype<usize>(out) + <usize>(i * unit.length), changetype<usize>(unit), unit.length);
  return out;
}

export function joined(a: Octets, b: Octets, c: Octets = utf8("")): Octets {
  const out = new StaticArray<u8>(a.length + b.length + c.length);
  memory.copy(changetype<usize>(out), changetype<usize>(a), a.length);
  memory.copy(changetype<usize>(out) + a.length, changetype<usize>(b), b.length);
  memory.copy(changetype<usize>(out) + a.length + b.length, changetype<usize>(c), c.length);
  return out;
}

/** Tokens per block of the next bodies. Small, so that short texts have several blocks. */
export let blockTokens: u32 = 4;
export let maxBlocks: u32 = 1024;

export function useBlocks(tokens: u32, most: u32): void {
  blockTokens = tokens;
  maxBlocks = most;
}

export function begin(shape: u32, spans: bool = true): void {
  scanner.start();
  scanner.reader.start(shape, SEED, blockTokens, maxBlocks, spans);
}

// Pieces lie in memory of their own, which is overwritten behind them: a scanner that looked back would read something else.
const room: usize = memory.data(65536, 16);

export function feed(body: Octets, from: i32, to: i32): void {
  const n = to - from;
  if (n > 65536) {
    scanner.feed(changetype<usize>(body) + from, n);
    return;
  }
  memory.copy(room, changetype<usize>(body) + from, n);
  scanner.feed(room, n);
  memory.fill(room, 0x5d, n);
}

/** Reads a body in one piece, as the API shape `shape`; the result is in `view` and `scanner`. */
export function read(body: Octets, shape: u32 = ShapeId.Other, spans: bool = true): ScanError {
  begin(shape, spans);
  feed(body, 0, body.length);
  view.take(scanner);
  return view.error;
}

/** The same in pieces that end before `first` and before `second`. */
export function readCut(body: Octets, shape: u32, first: i32, second: i32): ScanError {
  begin(shape);
  feed(body, 0, first);
  feed(body, first, second);
  feed(body, second, body.length);
  view.take(scanner);
  return view.error;
}

/** The same, byte by byte. */
export function readBytes(body: Octets, shape: u32): ScanError {
  begin(shape);
  for (let i = 0; i < body.length; i++) feed(body, i, i + 1);
  view.take(scanner);
  return view.error;
}

let digest: u64 = 0;

function mixIn(value: u64): void {
  digest = (digest ^ value) * 0x9e3779b97f4a7c15;
  digest ^= digest >> 29;
}

/** Everything that the last body's reading said, as one number. */
export function everything(): u64 {
  const r = scanner.reader;
  digest = 0xcbf29ce484222325;
  mixIn(view.error);
  mixIn(scanner.offset);
  mixIn(<u64>view.hasTokens);
  mixIn(view.tokens);
  mixIn(<u64>view.whole);
  mixIn(<u64>view.duplicates);
  mixIn(<u64>view.stream);
  mixIn(view.mmItems);
  mixIn(view.mmDistinct);
  // What a broken body's members were is nobody's business.
  if (view.error != ScanError.None) return digest;
  mixIn(r.isObject);
  mixIn(r.objectStart);
  mixIn(r.objectEnd);
  mixIn(r.modelSize);
  for (let i: u32 = 0; i < r.modelSize; i++) mixIn(load<u8>(r.modelAt + i));
  mixIn(view.keyCount);
  for (let i: u32 = 0; i < view.keyCount; i++) mixIn(load<u64>(view.keys + (<usize>i << 3)));
  mixIn(view.spanCount);
  for (let i: u32 = 0; i < view.spanCount; i++) {
    const s = view.span(i);
    mixIn(s.first);
    mixIn(s.count);
    mixIn(s.tokens);
    mixIn(s.lead);
    mixIn(s.frontBlocks);
    mixIn(s.frontTail);
    mixIn(s.partial);
  }
  mixIn(r.memberCount);
  for (let i: u32 = 0; i < r.memberCount; i++) {
    const m = r.memberAt(i);
    mixIn(m.name);
    mixIn(m.parent);
    mixIn(m.kind);
    mixIn(m.parentIndex);
    mixIn(m.start);
    mixIn(m.valueStart);
    mixIn(m.valueEnd);
  }
  mixIn(r.mediaCount);
  for (let i: u32 = 0; i < r.mediaCount; i++) {
    const m = r.mediaAt(i);
    mixIn(m.type);
    mixIn(m.start);
    mixIn(m.end);
    mixIn(m.tokens);
    mixIn(m.key);
  }
  return digest;
}

/** Index of the first cut of `body` with which the reading differs from that in one piece; -1: none. `thorough`: every cut into three as well. */
export function firstBadCut(body: Octets, shape: u32, thorough: bool = false): i32 {
  read(body, shape);
  const whole = everything();
  readBytes(body, shape);
  if (everything() != whole) return body.length;
  for (let first = 0; first <= body.length; first++) {
    const last = thorough ? body.length : first;
    for (let second = first; second <= last; second++) {
      readCut(body, shape, first, second);
      if (everything() != whole) return first;
    }
  }
  return -1;
}

export function textOf(body: Octets, from: u32, to: u32): string {
  return String.UTF8.decodeUnsafe(changetype<usize>(body) + from, to - from);
}

const PARENTS: StaticArray<string> = ["", "vllm_xargs", "sampling_params", "sampling_params.extra_args"];

/** One reported member: `parent/name=value text`, with its parent's index where it has one. */
export function member(body: Octets, index: u32): string {
  const m: MemberSpan = scanner.reader.memberAt(index);
  const parent = m.parentIndex < 0 ? "" : m.parentIndex.toString() + ":" + PARENTS[m.parent] + "/";
  return parent + spelling(m.name) + "=" + textOf(body, m.valueStart, m.valueEnd);
}

export function members(body: Octets): string {
  let out = "";
  for (let i: u32 = 0; i < scanner.reader.memberCount; i++) out += (i ? "; " : "") + member(body, i);
  return out;
}

export function mediaAt(index: u32): MediaSpan {
  return scanner.reader.mediaAt(index);
}

/** Each media part's type and number of place holders. */
export function media(): string {
  let out = "";
  for (let i: u32 = 0; i < scanner.reader.mediaCount; i++) out += (i ? " " : "") + spelling(mediaAt(i).type) + ":" + mediaAt(i).tokens.toString();
  return out;
}

/** The keys of prompt `index` of the last body. */
export function keys(index: u32 = 0): StaticArray<u64> {
  if (index >= view.spanCount) return [];
  const span = view.span(index);
  const out = new StaticArray<u64>(span.count);
  for (let i: u32 = 0; i < span.count; i++) out[i] = load<u64>(view.keys + (<usize>(span.first + i) << 3));
  return out;
}

/** Reads the body, which must be fine, and returns the keys of its first prompt. */
export function keysOf(body: string, shape: u32): StaticArray<u64> {
  const error = read(utf8(body), shape);
  assert(error == ScanError.None, "must be readable: " + body);
  return keys();
}

export function same(a: StaticArray<u64>, b: StaticArray<u64>): bool {
  if (a.length != b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] != b[i]) return false;
  return true;
}

/** Equal keys from the first on. */
export function shared(a: StaticArray<u64>, b: StaticArray<u64>): i32 {
  let n = 0;
  while (n < a.length && n < b.length && a[n] == b[n]) n++;
  return n;
}

/** All orders of the texts `parts`, each joined by commas and put between `open` and `close`. */
export function orders(parts: string[], open: string, close: string): string[] {
  const out: string[] = [];
  permute(parts, 0, open, close, out);
  return out;
}

function permute(parts: string[], from: i32, open: string, close: string, out: string[]): void {
  if (from >= parts.length - 1) {
    out.push(open + parts.join(",") + close);
    return;
  }
  for (let i = from; i < parts.length; i++) {
    swap(parts, from, i);
    permute(parts, from + 1, open, close, out);
    swap(parts, from, i);
  }
}

function swap(parts: string[], a: i32, b: i32): void {
  const kept = parts[a];
  parts[a] = parts[b];
  parts[b] = kept;
}
