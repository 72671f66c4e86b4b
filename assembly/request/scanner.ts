// The streaming JSON scanner: bytes in, in pieces of any size, each looked at once; spans, hashes and counts out. No tree, no copy of the body, no recursion: depth is a
// bit per level in a fixed array, and what the readers need to know of a level is one byte. It accepts RFC 8259 in UTF-8 (a BOM is skipped) and nothing else, because the
// sidecar forwards only what was read to its end here (DESIGN, decisions 1, 2 and 5).
//
// This file knows JSON; what a member means is decided in reader.ts, which it calls at the start and end of every value and for every run of decoded string bytes.
import { StreamHash } from "./hash";
import { Reader } from "./reader";
import { copy } from "../words";

export const enum ScanError {
  None = 0,
  Empty = 1,
  InvalidJson = 2,
  InvalidUtf8 = 3,
  Truncated = 4,
  TooDeep = 5,
  TooManyMembers = 6,
}

export const enum Kind {
  Null = 0,
  True = 1,
  False = 2,
  Number = 3,
  String = 4,
  Object = 5,
  Array = 6,
}

/** What becomes of a string's decoded bytes (bits). */
export const enum Mode {
  Skip = 0,
  /** A member's name: the first bytes are kept for `nameOf`. */
  Name = 1,
  /** The first bytes are kept. */
  Keep = 2,
  Hash = 4,
  Text = 8,
  /** A number that is one token id. */
  Id = 16,
}

/** Deepest nesting that is read. An engine's own parser gives up at about 1,000. */
export const MAX_DEPTH: u32 = 8192;
/** A long string is looked at and hashed in pieces that stay in the first-level cache. */
const RUN: usize = 4096;

const enum Phase {
  Start = 0,
  Bom1 = 1,
  Bom2 = 2,
  Value = 3,
  FirstElement = 4,
  FirstMember = 5,
  Member = 6,
  Colon = 7,
  After = 8,
  String = 9,
  Escape = 10,
  Unicode = 11,
  Number = 12,
  Literal = 13,
  Done = 14,
  Failed = 15,
}

/** Places in a number; those that may end one are Zero, Int, Fraction and Exponent. */
const enum Num {
  Minus = 0,
  Zero = 1,
  Int = 2,
  Dot = 3,
  Fraction = 4,
  E = 5,
  Sign = 6,
  Exponent = 7,
}

/** Decoded bytes of the string that is being read, gathered while runs are short: text full of escapes is handed on in large pieces all the same. Empty between feeds. */
const GATHER: u32 = 1024;
const gathered = memory.data(1024 + 64, 16);
let gatheredSize: u32 = 0;
/** A run that is longer is handed on where it stands. */
const SHORT: u32 = 96;

const WORDS = memory.data(24);
store<u32>(WORDS, 0x6c6c756e); // null
store<u32>(WORDS + 8, 0x65757274); // true
store<u64>(WORDS + 16, 0x65736c6166); // false

@unmanaged
export class Scanner {
  private phase: u32;
  error: ScanError;
  /** Bytes read so far. */
  offset: u32;
  depth: u32;
  /** Mode bits of the string that is being read. */
  private mode: u32;
  private inName: u32;
  private num: u32;
  private literal: u32;
  private matched: u32;
  private unit: u32;
  private unitDigits: u32;
  /** A high surrogate that waits for its other half. */
  private high: u32;
  // UTF-8 in progress: continuation bytes still due, and the range of the next one.
  private due: u32;
  private low: u32;
  private top: u32;
  reader: Reader;
  hash: StreamHash;
  scratch: u64;
  /** One bit per level: 1 is an object. */
  levels: usize;

  /** A scanner and its memory; give it back with `dispose`. */
  static make(): Scanner {
    const s = changetype<Scanner>(heap.alloc(offsetof<Scanner>()));
    memory.fill(changetype<usize>(s), 0, offsetof<Scanner>());
    s.levels = heap.alloc(MAX_DEPTH >> 3);
    s.hash = changetype<StreamHash>(heap.alloc(offsetof<StreamHash>()));
    s.reader = Reader.make();
    return s;
  }

  dispose(): void {
    this.reader.dispose();
    heap.free(changetype<usize>(this.hash));
    heap.free(this.levels);
    heap.free(changetype<usize>(this));
  }

  /** Before the first byte of a body; `reader` has been started by the caller. */
  start(): void {
    this.phase = Phase.Start;
    this.error = ScanError.None;
    this.offset = 0;
    this.depth = 0;
    this.high = 0;
    this.due = 0;
  }

  fail(error: ScanError): void {
    this.phase = Phase.Failed;
    this.error = error;
  }

  // @ts-ignore: decorator
  @inline
  get failed(): bool {
    return this.phase == Phase.Failed;
  }

  /** Whether the innermost open container is an object. Only with `depth` > 0. */
  // @ts-ignore: decorator
  @inline
  get inObject(): bool {
    const d = this.depth - 1;
    return <bool>((load<u32>(this.levels + ((d >> 5) << 2)) >> (d & 31)) & 1);
  }

  private open(object: u32): void {
    const d = this.depth;
    if (d == MAX_DEPTH) {
      this.fail(ScanError.TooDeep);
      return;
    }
    const at = this.levels + ((d >> 5) << 2);
    const bit = <u32>1 << (d & 31);
    store<u32>(at, object ? load<u32>(at) | bit : load<u32>(at) & ~bit);
    this.reader.begin(this, object ? Kind.Object : Kind.Array, this.offset);
    this.depth = d + 1;
    this.phase = object ? Phase.FirstMember : Phase.FirstElement;
    this.reader.opened(this, object);
  }

  /** `offset` is at the closing bracket. */
  private close(object: bool): void {
    if (!this.depth || this.inObject != object) {
      this.fail(ScanError.InvalidJson);
      return;
    }
    this.reader.closing(this);
    this.depth--;
    this.ended(object ? Kind.Object : Kind.Array, this.offset + 1);
  }

  private ended(kind: Kind, end: u32): void {
    this.phase = this.depth ? Phase.After : Phase.Done;
    this.reader.end(this, kind, end);
  }

  /** Hands on what was gathered. */
  private flush(): void {
    const size = gatheredSize;
    if (!size) return;
    gatheredSize = 0;
    this.reader.bytes(this, this.mode, gathered, size);
  }

  /** Adds `[p, p+size)` to what is gathered, or hands it on at once. */
  private gather(p: usize, size: u32): void {
    if (size > SHORT) {
      this.flush();
      this.reader.bytes(this, this.mode, p, size);
      return;
    }
    if (gatheredSize + size > GATHER) this.flush();
    copy(gathered + gatheredSize, p, size);
    gatheredSize += size;
  }

  /** Token ids of a list, as long as they stand whole in this piece and are plain numbers; what is not is left to the machine. Returns where to go on. */
  private ids(p: usize, end: usize): usize {
    const reader = this.reader;
    let done = p;
    let due = this.phase != Phase.After;
    while (p < end) {
      let c = <u32>load<u8>(p);
      if (c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09) {
        p++;
        continue;
      }
      if (!due) {
        if (c != 0x2c) break;
        due = true;
        done = ++p;
        this.phase = Phase.Value;
        continue;
      }
      let id: u64 = c - 0x30;
      if (id > 9) break;
      let q = p + 1;
      c = 10;
      while (q < end) {
        c = <u32>load<u8>(q) - 0x30;
        if (c > 9) break;
        id = id * 10 + c;
        q++;
      }
      c += 0x30;
      const size = q - p;
      if (q == end || size > 10 || (size > 1 && load<u8>(p) == 0x30) || id > 0xffffffff) break;
      if (c != 0x2c && c != 0x5d && c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) break;
      reader.tokenId(<u32>id);
      this.phase = Phase.After;
      due = false;
      done = p = q;
    }
    return done;
  }

  /** The next piece of the body. After an error the rest is not looked at: `offset` stays at the byte that was wrong. */
  feed(from: usize, size: u32): void {
    const start = from - this.offset;
    const end = from + size;
    let p = from;
    while (p < end) {
      const phase = this.phase;
      if (phase == Phase.String) {
        p = this.run(p, end, start);
        continue;
      }
      if (phase == Phase.Failed) break;
      if (this.reader.idList && (phase == Phase.After || phase == Phase.Value || phase == Phase.FirstElement)) {
        const q = this.ids(p, end);
        if (q != p) {
          p = q;
          continue;
        }
      }
      this.offset = <u32>(p - start);
      const c = <u32>load<u8>(p);
      switch (phase) {
        case Phase.Number: {
          if (!this.digit(c)) continue; // the byte behind the number is looked at again
          p++;
          continue;
        }
        case Phase.Escape: {
          this.escape(c);
          p++;
          continue;
        }
        case Phase.Unicode: {
          this.hex(c);
          p++;
          continue;
        }
        case Phase.Literal: {
          const words = WORDS + (this.literal << 3);
          if (c != <u32>load<u8>(words + this.matched)) {
            this.fail(ScanError.InvalidJson);
            continue;
          }
          this.matched++;
          p++;
          if (!load<u8>(words + this.matched)) {
            const kind: Kind = this.literal == 0 ? Kind.Null : this.literal == 1 ? Kind.True : Kind.False;
            this.ended(kind, <u32>(p - start));
          }
          continue;
        }
      }
      if (phase != Phase.Bom1 && phase != Phase.Bom2 && (c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09)) {
        p = spaces(p + 1, end);
        if (phase == Phase.Start) this.phase = Phase.Value;
        continue;
      }
      p++;
      switch (phase) {
        case Phase.Start: {
          if (c == 0xef) {
            this.phase = Phase.Bom1;
            continue;
          }
          break;
        }
        case Phase.Bom1: {
          if (c == 0xbb) this.phase = Phase.Bom2;
          else this.fail(ScanError.InvalidUtf8);
          continue;
        }
        case Phase.Bom2: {
          if (c == 0xbf) this.phase = Phase.Value;
          else this.fail(ScanError.InvalidUtf8);
          continue;
        }
        case Phase.FirstElement: {
          if (c == 0x5d) {
            this.close(false);
            continue;
          }
          break;
        }
        case Phase.FirstMember: {
          if (c == 0x7d) {
            this.close(true);
            continue;
          }
          this.member(c);
          continue;
        }
        case Phase.Member: {
          this.member(c);
          continue;
        }
        case Phase.Colon: {
          if (c == 0x3a) this.phase = Phase.Value;
          else this.fail(ScanError.InvalidJson);
          continue;
        }
        case Phase.After: {
          if (c == 0x2c) this.phase = this.inObject ? Phase.Member : Phase.Value;
          else if (c == 0x7d) this.close(true);
          else if (c == 0x5d) this.close(false);
          else this.fail(ScanError.InvalidJson);
          continue;
        }
        case Phase.Done: {
          this.fail(ScanError.InvalidJson);
          continue;
        }
      }
      this.value(c);
    }
    if (this.phase == Phase.Failed) gatheredSize = 0;
    else {
      this.flush();
      this.offset = <u32>(end - start);
    }
  }

  private member(c: u32): void {
    if (c != 0x22) {
      this.fail(ScanError.InvalidJson);
      return;
    }
    this.inName = 1;
    this.phase = Phase.String;
    this.mode = this.reader.name(this, this.offset);
    if (this.mode & Mode.Hash) this.hash.start(this.reader.seed);
  }

  /** A value begins with `c`. */
  private value(c: u32): void {
    if (c == 0x22) {
      this.inName = 0;
      this.phase = Phase.String;
      this.mode = this.reader.begin(this, Kind.String, this.offset);
      if (this.mode & Mode.Hash) this.hash.start(this.reader.seed);
    } else if (c == 0x7b) this.open(1);
    else if (c == 0x5b) this.open(0);
    else if (c == 0x2d || c - 0x30 < 10) {
      this.phase = Phase.Number;
      this.num = c == 0x2d ? Num.Minus : c == 0x30 ? Num.Zero : Num.Int;
      this.mode = this.reader.begin(this, Kind.Number, this.offset);
      if (this.mode & Mode.Hash) this.hash.start(this.reader.seed);
      if (this.mode) this.numberByte(c);
    } else {
      const literal: u32 = c == 0x6e ? 0 : c == 0x74 ? 1 : c == 0x66 ? 2 : 3;
      if (literal == 3) {
        this.fail(c >= 0x80 ? ScanError.InvalidUtf8 : ScanError.InvalidJson);
        return;
      }
      this.phase = Phase.Literal;
      this.literal = literal;
      this.matched = 1;
      this.reader.begin(this, literal == 0 ? Kind.Null : literal == 1 ? Kind.True : Kind.False, this.offset);
    }
  }

  private numberByte(c: u32): void {
    if (this.mode & Mode.Id) {
      const reader = this.reader;
      // Saturates instead of wrapping: 2^32 + 5 is not the token 5.
      if (c - 0x30 < 10 && reader.id < 0xffffffff) reader.id = reader.id * 10 + (c - 0x30);
      else reader.id = u64.MAX_VALUE;
      return;
    }
    this.reader.raw(1);
    store<u8>(changetype<usize>(this) + offsetof<Scanner>("scratch"), <u8>c);
    this.reader.bytes(this, this.mode, changetype<usize>(this) + offsetof<Scanner>("scratch"), 1);
  }

  /** One byte of a number; false when it stands behind it (the number has then ended). */
  private digit(c: u32): bool {
    const digit = c - 0x30 < 10;
    const num = this.num;
    let next: u32 = 8;
    if (digit) {
      if (num == Num.Minus) next = c == 0x30 ? Num.Zero : Num.Int;
      else if (num == Num.Int) next = Num.Int;
      else if (num == Num.Dot || num == Num.Fraction) next = Num.Fraction;
      else if (num >= <u32>Num.E) next = Num.Exponent;
    } else if (c == 0x2e) {
      if (num == Num.Zero || num == Num.Int) next = Num.Dot;
    } else if ((c | 0x20) == 0x65) {
      if (num == Num.Zero || num == Num.Int || num == Num.Fraction) next = Num.E;
    } else if (c == 0x2b || c == 0x2d) {
      if (num == Num.E) next = Num.Sign;
    } else {
      if (num == Num.Zero || num == Num.Int || num == Num.Fraction || num == Num.Exponent) this.ended(Kind.Number, this.offset);
      else this.fail(ScanError.InvalidJson);
      return false;
    }
    if (next == 8) {
      this.fail(ScanError.InvalidJson);
      return false;
    }
    this.num = next;
    if (this.mode) this.numberByte(c);
    return true;
  }

  /** Reads a run of a string's bytes from `p`; returns where to go on. */
  private run(p: usize, end: usize, start: usize): usize {
    const stop = min(end, p + RUN);
    const quote = i8x16.splat(0x22);
    const slash = i8x16.splat(0x5c);
    const space = i8x16.splat(0x20);
    let seen = i8x16.splat(0);
    let q = p;
    for (; q + 16 <= stop; q += 16) {
      const v = v128.load(q);
      const special = v128.or(v128.or(i8x16.eq(v, quote), i8x16.eq(v, slash)), i8x16.lt_u(v, space));
      const mask = i8x16.bitmask(special);
      if (mask) {
        q += ctz<u32>(mask);
        // Bytes behind the special one are not part of this run, and may set a high bit that is looked at again: harmless.
        seen = v128.or(seen, v);
        return this.ran(p, q, true, start, i8x16.bitmask(seen) != 0);
      }
      seen = v128.or(seen, v);
    }
    let wide: u32 = i8x16.bitmask(seen);
    for (; q < stop; q++) {
      const c = <u32>load<u8>(q);
      if (c == 0x22 || c == 0x5c || c < 0x20) return this.ran(p, q, true, start, wide != 0);
      wide |= c & 0x80;
    }
    return this.ran(p, q, false, start, wide != 0);
  }

  /** The run `[p, q)` was read; `special`: the byte at `q` is a quote, a backslash or a control character. */
  private ran(p: usize, q: usize, special: bool, start: usize, wide: bool): usize {
    const size = <u32>(q - p);
    if (size) {
      if (this.high) this.flushHigh();
      if (wide || this.due) {
        const good = this.utf8(p, size);
        if (good != size) {
          this.offset = <u32>(p - start) + good;
          this.fail(ScanError.InvalidUtf8);
          return q;
        }
      }
      this.reader.raw(size);
      if (this.mode) this.gather(p, size);
    }
    if (!special) return q;
    this.offset = <u32>(q - start);
    if (this.due) {
      this.fail(ScanError.InvalidUtf8);
      return q;
    }
    const c = <u32>load<u8>(q);
    if (c == 0x5c) {
      this.phase = Phase.Escape;
      this.reader.raw(1);
    } else if (c == 0x22) {
      if (this.high) this.flushHigh();
      this.flush();
      if (this.inName) {
        this.phase = Phase.Colon;
        this.reader.named(this);
      } else this.ended(Kind.String, this.offset + 1);
    } else {
      this.fail(ScanError.InvalidJson);
      return q;
    }
    return q + 1;
  }

  /** How many bytes of `[p, p+size)` go on with well-formed UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF): all, or the place of the first that does not. */
  private utf8(p: usize, size: u32): u32 {
    let due = this.due;
    const from = p;
    const end = p + size;
    let fast = size >= 64;
    while (p < end) {
      if (!due) {
        if (fast) {
          fast = false;
          p = wideRun(p, end);
        }
        while (p + 8 <= end && !(load<u64>(p) & 0x8080808080808080)) p += 8;
        if (p >= end) break;
      }
      const c = <u32>load<u8>(p++);
      if (due) {
        if (c < this.low || c > this.top) return <u32>(p - from) - 1;
        this.low = 0x80;
        this.top = 0xbf;
        due--;
      } else if (c >= 0x80) {
        this.low = 0x80;
        this.top = 0xbf;
        if (c < 0xc2) return <u32>(p - from) - 1;
        if (c < 0xe0) due = 1;
        else if (c < 0xf0) {
          due = 2;
          if (c == 0xe0) this.low = 0xa0;
          else if (c == 0xed) this.top = 0x9f;
        } else if (c < 0xf5) {
          due = 3;
          if (c == 0xf0) this.low = 0x90;
          else if (c == 0xf4) this.top = 0x8f;
        } else return <u32>(p - from) - 1;
      }
    }
    this.due = due;
    return size;
  }

  private escape(c: u32): void {
    this.reader.raw(1);
    let out: u32;
    switch (c) {
      case 0x22:
      case 0x5c:
      case 0x2f:
        out = c;
        break;
      case 0x62:
        out = 8;
        break;
      case 0x66:
        out = 12;
        break;
      case 0x6e:
        out = 10;
        break;
      case 0x72:
        out = 13;
        break;
      case 0x74:
        out = 9;
        break;
      case 0x75:
        this.phase = Phase.Unicode;
        this.unit = 0;
        this.unitDigits = 0;
        return;
      default:
        this.fail(ScanError.InvalidJson);
        return;
    }
    if (this.high) this.flushHigh();
    this.phase = Phase.String;
    this.put(out);
  }

  private hex(c: u32): void {
    this.reader.raw(1);
    const l = c | 0x20;
    const v: u32 = c - 0x30 < 10 ? c - 0x30 : l >= 0x61 && l <= 0x66 ? l - 0x57 : 16;
    if (v == 16) {
      this.fail(ScanError.InvalidJson);
      return;
    }
    this.unit = (this.unit << 4) | v;
    if (++this.unitDigits < 4) return;
    this.phase = Phase.String;
    const unit = this.unit;
    if (this.high) {
      if (unit - 0xdc00 < 0x400) {
        const point = 0x10000 + ((this.high - 0xd800) << 10) + (unit - 0xdc00);
        this.high = 0;
        this.put(point);
        return;
      }
      this.flushHigh();
    }
    if (unit - 0xd800 < 0x400) this.high = unit;
    else this.put(unit);
  }

  /** A high surrogate was not followed by its other half. */
  private flushHigh(): void {
    const high = this.high;
    this.high = 0;
    this.put(high);
  }

  /** Hands one code point on, as UTF-8 (an unpaired surrogate in three bytes, which no valid text contains). */
  private put(point: u32): void {
    if (!this.mode) return;
    if (gatheredSize + 4 > GATHER) this.flush();
    const at = gathered + gatheredSize;
    let size: u32 = 1;
    if (point < 0x80) store<u8>(at, <u8>point);
    else if (point < 0x800) {
      store<u8>(at, <u8>(0xc0 | (point >> 6)));
      store<u8>(at, <u8>(0x80 | (point & 63)), 1);
      size = 2;
    } else if (point < 0x10000) {
      store<u8>(at, <u8>(0xe0 | (point >> 12)));
      store<u8>(at, <u8>(0x80 | ((point >> 6) & 63)), 1);
      store<u8>(at, <u8>(0x80 | (point & 63)), 2);
      size = 3;
    } else {
      store<u8>(at, <u8>(0xf0 | (point >> 18)));
      store<u8>(at, <u8>(0x80 | ((point >> 12) & 63)), 1);
      store<u8>(at, <u8>(0x80 | ((point >> 6) & 63)), 2);
      store<u8>(at, <u8>(0x80 | (point & 63)), 3);
      size = 4;
    }
    gatheredSize += size;
  }

  /** The body has ended. Returns the error, if any. */
  finish(): ScanError {
    if (this.phase == Phase.Number && this.depth == 0) {
      const num = this.num;
      if (num == Num.Zero || num == Num.Int || num == Num.Fraction || num == Num.Exponent) this.ended(Kind.Number, this.offset);
    }
    if (this.phase != Phase.Done && this.phase != Phase.Failed) {
      this.fail(this.phase == Phase.Start || (this.phase == Phase.Value && !this.depth) ? ScanError.Empty : ScanError.Truncated);
    }
    return this.error;
  }
}

// @ts-ignore: decorator
@inline
function spaces(p: usize, end: usize): usize {
  while (p < end) {
    const c = <u32>load<u8>(p);
    if (c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) break;
    p++;
  }
  return p;
}

// What two neighbouring bytes of ill-formed UTF-8 can be, a bit each. A pair is ill-formed when the tables of its three half-bytes have a bit in common.
const TOO_SHORT: i8 = 1; // a lead that no continuation follows
const TOO_LONG: i8 = 2; // a continuation behind ASCII
const OVERLONG_3: i8 = 4;
const TOO_LARGE: i8 = 8;
const SURROGATE: i8 = 16;
const OVERLONG_2: i8 = 32;
const OVERLONG_4: i8 = 64; // and leads above F4
const TWO_CONTINUATIONS: i8 = -128; // ill-formed unless a longer lead stands in front
const CARRY: i8 = TOO_SHORT | TOO_LONG | TWO_CONTINUATIONS;

/**
 * How far `[p, end)`, which begins at a character, is well-formed UTF-8, 16 bytes at a time: returns the start of a character, at or in front of the first fault and at most
 * 19 bytes in front of the end; the rest is the byte machine's.
 */
function wideRun(p: usize, end: usize): usize {
  const firstHigh = i8x16(
    TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG,
    TWO_CONTINUATIONS, TWO_CONTINUATIONS, TWO_CONTINUATIONS, TWO_CONTINUATIONS,
    TOO_SHORT | OVERLONG_2, TOO_SHORT, TOO_SHORT | OVERLONG_3 | SURROGATE, TOO_SHORT | TOO_LARGE | OVERLONG_4,
  );
  const firstLow = i8x16(
    CARRY | OVERLONG_2 | OVERLONG_3 | OVERLONG_4, CARRY | OVERLONG_2, CARRY, CARRY, CARRY | TOO_LARGE,
    CARRY | TOO_LARGE | OVERLONG_4, CARRY | TOO_LARGE | OVERLONG_4, CARRY | TOO_LARGE | OVERLONG_4, CARRY | TOO_LARGE | OVERLONG_4,
    CARRY | TOO_LARGE | OVERLONG_4, CARRY | TOO_LARGE | OVERLONG_4, CARRY | TOO_LARGE | OVERLONG_4, CARRY | TOO_LARGE | OVERLONG_4,
    CARRY | TOO_LARGE | OVERLONG_4 | SURROGATE, CARRY | TOO_LARGE | OVERLONG_4, CARRY | TOO_LARGE | OVERLONG_4,
  );
  const secondHigh = i8x16(
    TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | OVERLONG_3 | OVERLONG_4,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | OVERLONG_3 | TOO_LARGE,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | SURROGATE | TOO_LARGE,
    TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS | SURROGATE | TOO_LARGE,
    TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT,
  );
  const low = i8x16.splat(15);
  const top = i8x16.splat(-128);
  // A lead of three or four bytes, two or three places back, wants a continuation here: its high bit stays after the subtraction.
  const three = i8x16.splat(<i8>(0xe0 - 0x80));
  const four = i8x16.splat(<i8>(0xf0 - 0x80));
  const from = p;
  let before = i8x16.splat(0);
  for (; p + 16 <= end; p += 16) {
    const v = v128.load(p);
    const prev1 = i8x16.shuffle(before, v, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30);
    const prev2 = i8x16.shuffle(before, v, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29);
    const prev3 = i8x16.shuffle(before, v, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28);
    const pairs = v128.and(
      v128.and(i8x16.swizzle(firstHigh, i8x16.shr_u(prev1, 4)), i8x16.swizzle(firstLow, v128.and(prev1, low))),
      i8x16.swizzle(secondHigh, i8x16.shr_u(v, 4)),
    );
    const wanted = v128.and(v128.or(i8x16.sub_sat_u(prev2, three), i8x16.sub_sat_u(prev3, four)), top);
    if (v128.any_true(v128.xor(pairs, wanted))) break;
    before = v;
  }
  // Back to the lead of a character that may be cut, or may be at fault.
  let q = p;
  for (let back = 0; back < 3 && q > from; back++) {
    q--;
    const c = <u32>load<u8>(q);
    if (c >= 0xc0) return q;
    if (c < 0x80) break;
  }
  return p;
}
