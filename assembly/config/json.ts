// The configuration's JSON text as a flat table of values. One strict pass (RFC 8259, bounded depth and size) checks the text and writes the table; whatever it
// accepts can be read without a trap, whatever it refuses is described by an offset.
//
// json-as writes the report (report.ts) but does not read: its 1.6.0 leaves escapes in member names unresolved, decodes `\/` as NUL, keeps a name's length in
// 16 bits, and answers malformed text by throwing, which traps a VM.

export const enum Kind {
  Null,
  False,
  True,
  Number,
  String,
  Array,
  Object,
}

/** Containers inside containers; the deepest legal configuration has about ten. */
export const MAX_DEPTH: i32 = 64;
/** UTF-16 code units of one document: 1,000 endpoints with long labels take about half a million. */
export const MAX_TEXT: i32 = 8 * 1024 * 1024;
/** Values of one document; bounds the table at 28 bytes each. */
export const MAX_VALUES: i32 = 400_000;

// One row of the table.
const KIND = 0;
/** First code unit of the value; of a string, behind its opening quote. */
const START = 1;
/** Behind the last code unit; of a string, at its closing quote. */
const END = 2;
/** Row of the next value in the same container, -1 for the last. */
const NEXT = 3;
/** First code unit of the member's name behind its quote; -1 where the value is no member. */
const NAME_START = 4;
const NAME_END = 5;
/** Number of values directly inside a container. */
const COUNT = 6;
const WIDTH = 7;

const QUOTE: u16 = 0x22;
const BACKSLASH: u16 = 0x5c;

@inline
function isDigit(c: u16): bool {
  return c >= 0x30 && c <= 0x39;
}

function hexValue(c: u16): i32 {
  if (isDigit(c)) return c - 0x30;
  if (c >= 0x61 && c <= 0x66) return c - 0x57;
  if (c >= 0x41 && c <= 0x46) return c - 0x37;
  return -1;
}

/**
 * The number written at [from, to): digits, a point, an exponent, each of which may be missing. Exact up to 15 digits and powers of ten up to 22, which is all
 * that a configuration holds, and within a few units in the last place beyond; too large becomes infinite, too small 0. (parseFloat would bring two kilobytes.)
 */
export function decimal(text: string, from: i32, to: i32): f64 {
  let at = from;
  const negative = at < to && text.charCodeAt(at) == 0x2d;
  if (negative || (at < to && text.charCodeAt(at) == 0x2b)) at++;
  let digits: u64 = 0;
  let scale = 0;
  let point = false;
  for (; at < to; at++) {
    const c = <u16>text.charCodeAt(at);
    if (c == 0x2e) point = true;
    else if (isDigit(c)) {
      if (digits < 100_000_000_000_000_000) {
        digits = digits * 10 + (c - 0x30);
        if (point) scale--;
      } else if (!point) scale++;
    } else break;
  }
  if (at < to) {
    at++; // The `e`.
    const below = at < to && text.charCodeAt(at) == 0x2d;
    if (below || (at < to && text.charCodeAt(at) == 0x2b)) at++;
    let exponent = 0;
    for (; at < to; at++) if (exponent < 100_000) exponent = exponent * 10 + text.charCodeAt(at) - 0x30;
    scale += below ? -exponent : exponent;
  }
  let value = <f64>digits;
  while (scale != 0 && value != 0 && value != Infinity) {
    const step = min(abs(scale), 22);
    let power = 1.0;
    for (let i = 0; i < step; i++) power *= 10;
    value = scale > 0 ? value * power : value / power;
    scale += scale > 0 ? -step : step;
  }
  return negative ? -value : value;
}

export class JsonDoc {
  /** "" when the text was accepted. */
  error: string = "";
  /** Code unit at which {@link error} was seen. */
  errorAt: i32 = 0;

  private at: i32 = 0;
  private rows: StaticArray<i32> = new StaticArray<i32>(64 * WIDTH);
  private used: i32 = 0;

  private constructor(private readonly text: string) {}

  /** Reads the whole text; the root is row 0 when `error` is "". */
  static parse(text: string): JsonDoc {
    const doc = new JsonDoc(text);
    doc.read();
    return doc;
  }

  kind(row: i32): Kind {
    return this.rows[row * WIDTH + KIND];
  }

  /** Number of elements or members of a container, 0 for anything else. */
  count(row: i32): i32 {
    return this.rows[row * WIDTH + COUNT];
  }

  /** First value inside a container, -1 when it is empty. */
  first(row: i32): i32 {
    return this.rows[row * WIDTH + COUNT] > 0 ? row + 1 : -1;
  }

  next(row: i32): i32 {
    return this.rows[row * WIDTH + NEXT];
  }

  /** Name of a member, escapes resolved. */
  name(row: i32): string {
    const at = row * WIDTH;
    return this.decode(this.rows[at + NAME_START], this.rows[at + NAME_END]);
  }

  nameIs(row: i32, text: string): bool {
    const at = row * WIDTH;
    const start = this.rows[at + NAME_START];
    const length = this.rows[at + NAME_END] - start;
    if (length == text.length) {
      return memory.compare(changetype<usize>(this.text) + ((<usize>start) << 1), changetype<usize>(text), (<usize>length) << 1) == 0;
    }
    // Only escapes make the written name longer than the name.
    return length > text.length && this.name(row) == text;
  }

  /** Value of a string, escapes resolved. Lone surrogates stay as they are. */
  string(row: i32): string {
    const at = row * WIDTH;
    return this.decode(this.rows[at + START], this.rows[at + END]);
  }

  /** Value of a number; infinite when it is too large for a double. */
  number(row: i32): f64 {
    const at = row * WIDTH;
    return decimal(this.text, this.rows[at + START], this.rows[at + END]);
  }

  /** The text of a value as it stands, for messages. */
  source(row: i32): string {
    const at = row * WIDTH;
    const quote = this.rows[at + KIND] == Kind.String ? 1 : 0;
    return this.text.substring(this.rows[at + START] - quote, this.rows[at + END] + quote);
  }

  private unit(at: i32): u16 {
    return load<u16>(changetype<usize>(this.text) + ((<usize>at) << 1));
  }

  private decode(start: i32, end: i32): string {
    let plain = true;
    for (let i = start; i < end; i++) {
      if (this.unit(i) == BACKSLASH) {
        plain = false;
        break;
      }
    }
    if (plain) return this.text.substring(start, end);
    const out = new Array<string>();
    let from = start;
    let i = start;
    while (i < end) {
      if (this.unit(i) != BACKSLASH) {
        i++;
        continue;
      }
      if (i > from) out.push(this.text.substring(from, i));
      const c = this.unit(i + 1);
      i += 2;
      if (c == 0x75) {
        let unit = 0;
        for (let k = 0; k < 4; k++) unit = (unit << 4) | hexValue(this.unit(i + k));
        i += 4;
        out.push(String.fromCharCode(unit));
      } else if (c == 0x6e) out.push("\n");
      else if (c == 0x74) out.push("\t");
      else if (c == 0x72) out.push("\r");
      else if (c == 0x62) out.push("\b");
      else if (c == 0x66) out.push("\f");
      else out.push(String.fromCharCode(c)); // `"`, `\` and `/` stand for themselves.
      from = i;
    }
    if (end > from) out.push(this.text.substring(from, end));
    return out.join("");
  }

  private fail(message: string): bool {
    if (this.error.length == 0) {
      this.error = message;
      this.errorAt = this.at;
    }
    return false;
  }

  private addRow(kind: Kind, start: i32, nameStart: i32, nameEnd: i32): i32 {
    const at = this.used * WIDTH;
    if (at + WIDTH > this.rows.length) {
      const grown = new StaticArray<i32>(this.rows.length * 2);
      memory.copy(changetype<usize>(grown), changetype<usize>(this.rows), (<usize>at) << 2);
      this.rows = grown;
    }
    this.rows[at + KIND] = kind;
    this.rows[at + START] = start;
    this.rows[at + END] = start;
    this.rows[at + NEXT] = -1;
    this.rows[at + NAME_START] = nameStart;
    this.rows[at + NAME_END] = nameEnd;
    this.rows[at + COUNT] = 0;
    return this.used++;
  }

  private skipSpace(): void {
    const end = this.text.length;
    while (this.at < end) {
      const c = this.unit(this.at);
      if (c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) return;
      this.at++;
    }
  }

  private read(): void {
    const end = this.text.length;
    if (end > MAX_TEXT) {
      this.fail("longer than " + MAX_TEXT.toString() + " characters");
      return;
    }
    if (end > 0 && this.unit(0) == 0xfeff) this.at = 1; // A byte order mark.

    // Open containers, and the last value written in each. The depth lives here and not on the call stack, which an input could exhaust.
    const open = new StaticArray<i32>(MAX_DEPTH);
    const last = new StaticArray<i32>(MAX_DEPTH);
    let depth = 0;
    while (true) {
      this.skipSpace();
      let nameStart = -1;
      let nameEnd = -1;
      if (depth > 0 && this.rows[open[depth - 1] * WIDTH + KIND] == Kind.Object) {
        if (this.at >= end || this.unit(this.at) != QUOTE) {
          this.fail("expected a member name");
          return;
        }
        nameStart = this.at + 1;
        if (!this.readString()) return;
        nameEnd = this.at - 1;
        this.skipSpace();
        if (this.at >= end || this.unit(this.at) != 0x3a) {
          this.fail("expected ':'");
          return;
        }
        this.at++;
        this.skipSpace();
      }
      if (this.used >= MAX_VALUES) {
        this.fail("more than " + MAX_VALUES.toString() + " values");
        return;
      }
      const row = this.readValue(nameStart, nameEnd);
      if (row < 0) return;
      if (depth > 0) {
        const container = open[depth - 1];
        if (this.rows[container * WIDTH + COUNT]++ > 0) this.rows[last[depth - 1] * WIDTH + NEXT] = row;
        last[depth - 1] = row;
      }
      const kind = this.kind(row);
      if (kind == Kind.Array || kind == Kind.Object) {
        this.skipSpace();
        const close: u16 = kind == Kind.Array ? 0x5d : 0x7d;
        if (this.at < end && this.unit(this.at) == close) {
          this.at++;
          this.rows[row * WIDTH + END] = this.at;
        } else {
          if (depth == MAX_DEPTH) {
            this.fail("nested deeper than " + MAX_DEPTH.toString() + " levels");
            return;
          }
          open[depth++] = row;
          continue;
        }
      }
      // Behind a value: a comma, or the ends of one or more containers, or the end of the text.
      while (true) {
        this.skipSpace();
        if (depth == 0) {
          if (this.at < end) this.fail("unexpected text behind the value");
          return;
        }
        const c: u16 = this.at < end ? this.unit(this.at) : 0;
        if (c == 0x2c) {
          this.at++;
          break;
        }
        const container = open[depth - 1] * WIDTH;
        if (c != (this.rows[container + KIND] == Kind.Array ? <u16>0x5d : <u16>0x7d)) {
          this.fail(this.rows[container + KIND] == Kind.Array ? "expected ',' or ']'" : "expected ',' or '}'");
          return;
        }
        this.at++;
        this.rows[container + END] = this.at;
        depth--;
      }
    }
  }

  /** Reads a scalar, or the opening bracket of a container. Returns its row, -1 after a failure. */
  private readValue(nameStart: i32, nameEnd: i32): i32 {
    const c: u16 = this.at < this.text.length ? this.unit(this.at) : 0;
    const start = this.at;
    let kind = Kind.Number;
    if (c == QUOTE) {
      if (!this.readString()) return -1;
      const row = this.addRow(Kind.String, start + 1, nameStart, nameEnd);
      this.rows[row * WIDTH + END] = this.at - 1;
      return row;
    }
    if (c == 0x7b || c == 0x5b) {
      this.at++;
      return this.addRow(c == 0x7b ? Kind.Object : Kind.Array, start, nameStart, nameEnd);
    }
    if (c == 0x74) {
      kind = Kind.True;
      if (!this.readWord("true")) return -1;
    } else if (c == 0x66) {
      kind = Kind.False;
      if (!this.readWord("false")) return -1;
    } else if (c == 0x6e) {
      kind = Kind.Null;
      if (!this.readWord("null")) return -1;
    } else if (!this.readNumber()) return -1;
    const row = this.addRow(kind, start, nameStart, nameEnd);
    this.rows[row * WIDTH + END] = this.at;
    return row;
  }

  private readWord(word: string): bool {
    for (let i = 0; i < word.length; i++) {
      if (this.at >= this.text.length || this.unit(this.at) != word.charCodeAt(i)) return this.fail("expected a value");
      this.at++;
    }
    return true;
  }

  private readDigits(): bool {
    const from = this.at;
    while (this.at < this.text.length && isDigit(this.unit(this.at))) this.at++;
    return this.at > from ? true : this.fail("expected a digit");
  }

  private readNumber(): bool {
    const end = this.text.length;
    const from = this.at;
    if (this.at < end && this.unit(this.at) == 0x2d) this.at++;
    if (this.at >= end || !isDigit(this.unit(this.at))) {
      this.at = from;
      return this.fail("expected a value");
    }
    if (this.unit(this.at) == 0x30) this.at++;
    else if (!this.readDigits()) return false;
    if (this.at < end && this.unit(this.at) == 0x2e) {
      this.at++;
      if (!this.readDigits()) return false;
    }
    if (this.at < end && (this.unit(this.at) | 0x20) == 0x65) {
      this.at++;
      if (this.at < end && (this.unit(this.at) == 0x2b || this.unit(this.at) == 0x2d)) this.at++;
      if (!this.readDigits()) return false;
    }
    return true;
  }

  /** From the opening quote to behind the closing one. */
  private readString(): bool {
    const end = this.text.length;
    this.at++;
    while (this.at < end) {
      const c = this.unit(this.at);
      if (c == QUOTE) {
        this.at++;
        return true;
      }
      if (c < 0x20) return this.fail("a control character inside a string");
      if (c == BACKSLASH) {
        const e: u16 = this.at + 1 < end ? this.unit(this.at + 1) : 0;
        if (e == 0x75) {
          for (let k = 2; k < 6; k++) {
            if (this.at + k >= end || hexValue(this.unit(this.at + k)) < 0) return this.fail("a broken \\u escape");
          }
          this.at += 6;
          continue;
        }
        if (e != QUOTE && e != BACKSLASH && e != 0x2f && e != 0x62 && e != 0x66 && e != 0x6e && e != 0x72 && e != 0x74) return this.fail("an unknown escape");
        this.at += 2;
        continue;
      }
      this.at++;
    }
    return this.fail("a string without its end");
  }
}
