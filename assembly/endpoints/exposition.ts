// Prometheus text, read in pieces: the few series of an engine that steer a decision, out of answers of any size.
import { EngineNames, findLabel, SeriesSpec } from "./engine-names";
import { fnv1a32 } from "./fnv";

/** A line that is longer is skipped: it is none of ours. (Names of adapters can make one long.) */
const LINE: u32 = 16384;
/** Adapters of one endpoint that are told apart. */
export const MOST_ADAPTERS: u32 = 62;

const RUNNING = String.UTF8.encode('running_lora_adapters="');
const WAITING = String.UTF8.encode('waiting_lora_adapters="');
const MOST = String.UTF8.encode('max_lora="');

// One answer is read at a time, within one callback.
const line = memory.data(16384, 16);
/** Hashes of the adapters' names, u32 each: the active ones, then the waiting ones. */
export const adapters = memory.data(248, 8);

/** What one answer said; NaN: nothing. */
export class Exposition {
  waiting: f64 = NaN;
  running: f64 = NaN;
  kvUsage: f64 = NaN;
  blockTokens: f64 = NaN;
  blocks: f64 = NaN;
  startTime: f64 = NaN;
  counter: f64 = NaN;
  /** Value of the series that told of adapters: of several the newest counts, which has the largest. */
  adaptersAt: f64 = NaN;
  /** How many of {@link adapters} are active, and how many wait behind them. */
  activeAdapters: u32 = 0;
  waitingAdapters: u32 = 0;
  /** How many may be active. */
  mostAdapters: u32 = 0;
  private held: u32 = 0;
  private tooLong: bool = false;

  constructor(private names: EngineNames) {}

  start(names: EngineNames): void {
    this.names = names;
    this.waiting = NaN;
    this.running = NaN;
    this.kvUsage = NaN;
    this.blockTokens = NaN;
    this.blocks = NaN;
    this.startTime = NaN;
    this.counter = NaN;
    this.adaptersAt = NaN;
    this.held = 0;
    this.tooLong = false;
  }

  feed(at: usize, size: u32): void {
    const end = at + size;
    while (at < end) {
      let q = at;
      while (q < end && load<u8>(q) != 0x0a) q++;
      const n = <u32>(q - at);
      if (q == end) {
        this.hold(at, n);
        return;
      }
      if (this.held || this.tooLong) {
        this.hold(at, n);
        if (!this.tooLong) this.read(line, this.held);
        this.held = 0;
        this.tooLong = false;
      } else if (n <= LINE) this.read(at, n);
      at = q + 1;
    }
  }

  finish(): void {
    if (this.held && !this.tooLong) this.read(line, this.held);
    this.held = 0;
  }

  private hold(at: usize, n: u32): void {
    if (this.tooLong) return;
    if (this.held + n > LINE) {
      this.tooLong = true;
      return;
    }
    memory.copy(line + this.held, at, n);
    this.held += n;
  }

  private read(at: usize, size: u32): void {
    if (!size || load<u8>(at) == 0x23) return;
    let nameEnd: u32 = 0;
    while (nameEnd < size) {
      const c = <u32>load<u8>(at + nameEnd);
      if (c == 0x7b || c == 0x20 || c == 0x09) break;
      nameEnd++;
    }
    const names = this.names;
    if (!this.wanted(at, nameEnd)) return;
    let p = nameEnd;
    if (p < size && load<u8>(at + p) == 0x7b) {
      // Label values may hold any character but an unescaped quote.
      let quoted = false;
      p++;
      while (p < size) {
        const c = <u32>load<u8>(at + p);
        if (quoted && c == 0x5c) p++;
        else if (c == 0x22) quoted = !quoted;
        else if (!quoted && c == 0x7d) break;
        p++;
      }
      if (p >= size) return;
      p++;
    }
    const labels = at + nameEnd;
    const labelSize = p - nameEnd;
    if (names.cacheInfo.isNamed(at, nameEnd)) {
      this.blockTokens = labelNumber(labels, labelSize, names.blockTokensLabel);
      this.blocks = labelNumber(labels, labelSize, names.blocksLabel);
      return;
    }
    const value = decimal(at + p, size - p);
    if (value != value) return;
    // Several names may be one family told apart by labels. An engine with several ranks has a series for each: requests add up, a cache is as full as its fullest rank.
    if (matches(names.waiting, at, nameEnd, labels, labelSize)) this.waiting = plus(this.waiting, value);
    if (matches(names.running, at, nameEnd, labels, labelSize)) this.running = plus(this.running, value);
    if (matches(names.kvUsage, at, nameEnd, labels, labelSize)) this.kvUsage = this.kvUsage == this.kvUsage ? max(this.kvUsage, value) : value;
    if (matches(names.blockTokens, at, nameEnd, labels, labelSize)) this.blockTokens = value;
    if (matches(names.blocks, at, nameEnd, labels, labelSize)) this.blocks = value;
    if (names.startTime.isNamed(at, nameEnd)) this.startTime = value;
    if (names.lora.isNamed(at, nameEnd) && !(value < this.adaptersAt)) this.readAdapters(labels, labelSize, value);
    if (matches(names.counter, at, nameEnd, labels, labelSize)) this.counter = plus(this.counter, value);
  }

  private readAdapters(labels: usize, size: u32, value: f64): void {
    this.adaptersAt = value;
    this.mostAdapters = <u32>Math.max(0, Math.min(labelNumber(labels, size, MOST), 65535.0));
    this.activeAdapters = this.addAdapters(labels, size, RUNNING, 0);
    this.waitingAdapters = this.addAdapters(labels, size, WAITING, this.activeAdapters);
  }

  /** Notes the names, divided by commas, in the label's value from place `n` on. Returns how many there are. */
  private addAdapters(labels: usize, size: u32, label: ArrayBuffer, n: u32): u32 {
    const first = n;
    const from = findLabel(labels, size, label);
    if (from < 0) return 0;
    let p = labels + from;
    let start = p;
    for (const end = labels + size; p < end && n < MOST_ADAPTERS; p++) {
      const c = load<u8>(p);
      if (c != 0x22 && c != 0x2c) continue;
      const hash = nameHash(start, <u32>(p - start));
      if (hash) store<u32>(adapters + (n++ << 2), hash);
      if (c == 0x22) break;
      start = p + 1;
    }
    return n - first;
  }

  private wanted(at: usize, size: u32): bool {
    const names = this.names;
    return (
      names.waiting.isNamed(at, size) ||
      names.running.isNamed(at, size) ||
      names.kvUsage.isNamed(at, size) ||
      names.cacheInfo.isNamed(at, size) ||
      names.blockTokens.isNamed(at, size) ||
      names.blocks.isNamed(at, size) ||
      names.startTime.isNamed(at, size) ||
      names.lora.isNamed(at, size) ||
      names.counter.isNamed(at, size)
    );
  }
}

function matches(spec: SeriesSpec, at: usize, size: u32, labels: usize, labelSize: u32): bool {
  return spec.isNamed(at, size) && spec.hasLabels(labels, labelSize);
}

/** Hash of an adapter's name, FNV-1a; white space around it is no part of it; 0: there is none. */
export function nameHash(at: usize, size: u32): u32 {
  while (size && load<u8>(at) == 0x20) {
    at++;
    size--;
  }
  while (size && load<u8>(at + size - 1) == 0x20) size--;
  if (!size) return 0;
  const h = fnv1a32(at, size);
  return h ? h : 1;
}

function plus(sum: f64, value: f64): f64 {
  return sum == sum ? sum + value : value;
}

/** The first number in the text, white space in front of it skipped; NaN when there is none, or it is NaN or too large for one. */
export function decimal(at: usize, size: u32): f64 {
  let i: u32 = 0;
  while (i < size && (load<u8>(at + i) == 0x20 || load<u8>(at + i) == 0x09)) i++;
  let sign: f64 = 1;
  if (i < size && load<u8>(at + i) == 0x2d) {
    sign = -1;
    i++;
  } else if (i < size && load<u8>(at + i) == 0x2b) i++;
  let value: f64 = 0;
  let digits = false;
  let scale: i32 = 0;
  let fraction = false;
  while (i < size) {
    const c = <u32>load<u8>(at + i);
    if (c - 0x30 < 10) {
      value = value * 10 + <f64>(c - 0x30);
      if (fraction) scale--;
      digits = true;
    } else if (c == 0x2e && !fraction) fraction = true;
    else break;
    i++;
  }
  if (!digits) return NaN;
  if (i < size && (load<u8>(at + i) | 0x20) == 0x65) {
    i++;
    let negative = false;
    if (i < size && (load<u8>(at + i) == 0x2d || load<u8>(at + i) == 0x2b)) {
      negative = load<u8>(at + i) == 0x2d;
      i++;
    }
    let exponent: i32 = 0;
    while (i < size && <u32>load<u8>(at + i) - 0x30 < 10) {
      if (exponent < 1000) exponent = exponent * 10 + <i32>(load<u8>(at + i) - 0x30);
      i++;
    }
    scale += negative ? -exponent : exponent;
  }
  for (; scale > 0 && value != 0 && value < Infinity; scale--) value *= 10;
  for (; scale < 0 && value != 0 && value < Infinity; scale++) value /= 10;
  return value < Infinity ? sign * value : NaN;
}

/** The number behind `label="`; NaN when there is none. */
function labelNumber(at: usize, size: u32, label: ArrayBuffer): f64 {
  const from = findLabel(at, size, label);
  return from < 0 ? NaN : decimal(at + from, size - from);
}
