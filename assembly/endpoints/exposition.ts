// Prometheus text, read in pieces: the few series of an engine that steer a decision, out of answers of any size.
import { EngineNames, findLabel, SeriesSpec } from "./engine-names";

/** A line that is longer is skipped: it is none of ours. */
const LINE: u32 = 2048;

/** What one answer said; NaN: nothing. */
export class Exposition {
  waiting: f64 = NaN;
  running: f64 = NaN;
  kvUsage: f64 = NaN;
  blockTokens: f64 = NaN;
  blocks: f64 = NaN;
  startTime: f64 = NaN;
  counter: f64 = NaN;
  private line: usize = heap.alloc(LINE);
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
        if (!this.tooLong) this.read(this.line, this.held);
        this.held = 0;
        this.tooLong = false;
      } else if (n <= LINE) this.read(at, n);
      at = q + 1;
    }
  }

  finish(): void {
    if (this.held && !this.tooLong) this.read(this.line, this.held);
    this.held = 0;
  }

  private hold(at: usize, n: u32): void {
    if (this.tooLong) return;
    if (this.held + n > LINE) {
      this.tooLong = true;
      return;
    }
    memory.copy(this.line + this.held, at, n);
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
    if (matches(names.counter, at, nameEnd, labels, labelSize)) this.counter = plus(this.counter, value);
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
      names.counter.isNamed(at, size)
    );
  }
}

function matches(spec: SeriesSpec, at: usize, size: u32, labels: usize, labelSize: u32): bool {
  return spec.isNamed(at, size) && spec.hasLabels(labels, labelSize);
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
