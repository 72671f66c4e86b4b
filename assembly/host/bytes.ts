import { copy } from "../words";

/** A constant text as bytes, made once: names of headers, properties, clusters. */
export class Bytes {
  readonly buffer: ArrayBuffer;
  constructor(text: string) {
    this.buffer = String.UTF8.encode(text);
  }
  // @ts-ignore: decorator
  @inline
  get at(): usize {
    return changetype<usize>(this.buffer);
  }
  // @ts-ignore: decorator
  @inline
  get size(): u32 {
    return this.buffer.byteLength;
  }
}

/** Whether the bytes are that text, which is ASCII. */
export function isText(text: string, at: usize, size: u32): bool {
  if (<u32>text.length != size) return false;
  for (let i: u32 = 0; i < size; i++) if (text.charCodeAt(i) != load<u8>(at + i)) return false;
  return true;
}

function upperHex(d: u32): u8 {
  return <u8>(d < 10 ? 0x30 + d : 0x37 + d);
}

/** A text that is written piece by piece into one growing buffer: JSON documents, header values. Its memory is used again after `clear`. */
export class Writer {
  at: usize;
  size: u32 = 0;
  private room: u32;

  constructor(room: u32 = 1024) {
    this.room = max<u32>(room, 16);
    this.at = heap.alloc(this.room);
  }

  clear(): void {
    this.size = 0;
  }

  dispose(): void {
    heap.free(this.at);
    this.at = 0;
    this.room = 0;
  }

  private need(n: u32): void {
    if (this.size + n <= this.room) return;
    while (this.room < this.size + n) this.room <<= 1;
    this.at = heap.realloc(this.at, this.room);
  }

  byte(c: u32): void {
    this.need(1);
    store<u8>(this.at + this.size++, <u8>c);
  }

  bytes(from: usize, n: u32): void {
    this.need(n);
    copy(this.at + this.size, from, n);
    this.size += n;
  }

  text(s: string): void {
    let n = s.length;
    this.need(<u32>n * 3 + 8);
    let from = changetype<usize>(s);
    let to = this.at + this.size;
    // Nearly all that is written is ASCII: eight characters at a time, as long as they are.
    for (; n >= 8; n -= 8, from += 16, to += 8) {
      const units = v128.load(from);
      if (v128.any_true(v128.and(units, i16x8.splat(<i16>0xff80)))) break;
      store<u64>(to, i64x2.extract_lane(i8x16.narrow_i16x8_u(units, units), 0));
    }
    for (; n > 0; n--, from += 2) {
      const unit = <u32>load<u16>(from);
      if (unit >= 0x80) break;
      store<u8>(to++, <u8>unit);
    }
    if (n > 0) to += String.UTF8.encodeUnsafe(from, n, to);
    this.size = <u32>(to - this.at);
  }

  number(value: i64): void {
    let digits: u32 = 1;
    let v: u64 = value < 0 ? <u64>-value : <u64>value;
    for (let t = v / 10; t; t /= 10) digits++;
    if (value < 0) this.byte(0x2d);
    this.need(digits);
    for (let i = digits; i; i--) {
      store<u8>(this.at + this.size + i - 1, <u8>(0x30 + <u32>(v % 10)));
      v /= 10;
    }
    this.size += digits;
  }

  /** With at most three decimals; NaN and infinities, which JSON has not, as null. */
  decimal(value: f64): void {
    if (value != value || value == Infinity || value == -Infinity) {
      this.text("null");
      return;
    }
    const thousandths = <i64>Math.min(Math.abs(value) * 1000 + 0.5, 9.0e18);
    if (value < 0 && thousandths) this.byte(0x2d);
    this.number(thousandths / 1000);
    const rest = <u32>(thousandths % 1000);
    if (!rest) return;
    this.byte(0x2e);
    this.byte(0x30 + rest / 100);
    this.byte(0x30 + (rest / 10) % 10);
    this.byte(0x30 + (rest % 10));
  }

  /** Bytes as one word of printable ASCII without quotes and `\\`: they, `%`, spaces and all else as `%XX`. */
  percent(from: usize, n: u32): void {
    this.need(n * 3);
    let to = this.at + this.size;
    for (const end = from + n; from < end; from++) {
      const c = <u32>load<u8>(from);
      if (c > 0x20 && c < 0x7f && c != 0x22 && c != 0x25 && c != 0x5c) {
        store<u8>(to++, <u8>c);
        continue;
      }
      store<u8>(to, 0x25);
      store<u8>(to + 1, upperHex(c >> 4));
      store<u8>(to + 2, upperHex(c & 15));
      to += 3;
    }
    this.size = <u32>(to - this.at);
  }

  /**
   * UTF-8 bytes as a JSON string in ASCII, fit for a header value: everything but plain ASCII is escaped, bytes that are no UTF-8 become U+FFFD. Quotes included.
   */
  jsonString(from: usize, n: u32): void {
    this.byte(0x22);
    let i: u32 = 0;
    while (i < n) {
      const c = <u32>load<u8>(from + i);
      if (c == 0x22 || c == 0x5c) {
        this.byte(0x5c);
        this.byte(c);
        i++;
      } else if (c >= 0x20 && c < 0x7f) {
        this.byte(c);
        i++;
      } else if (c < 0x80) {
        this.unit(c);
        i++;
      } else {
        let size: u32 = c >= 0xf5 ? 0 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 0;
        let point = size == 4 ? c & 7 : size == 3 ? c & 15 : c & 31;
        if (i + size > n) size = 0;
        for (let k: u32 = 1; k < size; k++) {
          const d = <u32>load<u8>(from + i + k);
          if ((d & 0xc0) != 0x80) {
            size = 0;
            break;
          }
          point = (point << 6) | (d & 63);
        }
        // Written longer than it need be, half of a pair, or beyond the last character there is.
        if ((size == 3 && (point < 0x800 || point - 0xd800 < 0x800)) || (size == 4 && (point < 0x10000 || point > 0x10ffff))) size = 0;
        if (!size) {
          this.unit(0xfffd);
          i++;
          continue;
        }
        if (point >= 0x10000) {
          this.unit(0xd800 + (((point - 0x10000) >> 10) & 0x3ff));
          this.unit(0xdc00 + ((point - 0x10000) & 0x3ff));
        } else this.unit(point);
        i += size;
      }
    }
    this.byte(0x22);
  }

  /** The same for a string of the module. */
  json(s: string): void {
    const bytes = String.UTF8.encode(s);
    this.jsonString(changetype<usize>(bytes), bytes.byteLength);
  }

  private unit(u: u32): void {
    this.byte(0x5c);
    this.byte(0x75);
    for (let shift = 12; shift >= 0; shift -= 4) {
      const d = (u >> shift) & 15;
      this.byte(d < 10 ? 0x30 + d : 0x57 + d);
    }
  }
}
