// The size of a picture out of the beginning of its base64 text, while it streams by: PNG and GIF say it at once, JPEG behind whatever stands in front of its frame.

/** Decoded bytes that are looked at; a JPEG whose frame comes later has no known size. */
const LIMIT: u32 = 1 << 20;
/** Characters of a data URL in front of its comma. */
const PREFIX: u32 = 128;

const enum State {
  Off = 0,
  Prefix = 1,
  Head = 2,
  Png = 3,
  Gif = 4,
  /** JPEG, by what the next byte is. */
  Marker = 5,
  Kind = 6,
  LengthHigh = 7,
  LengthLow = 8,
  Segment = 9,
  Frame = 10,
}

function sextet(c: u32): u32 {
  if (c - 0x41 < 26) return c - 0x41;
  if (c - 0x61 < 26) return c - 0x47;
  if (c - 0x30 < 10) return c + 4;
  return c == 0x2b ? 62 : c == 0x2f ? 63 : 64;
}

function area(width: u32, height: u32): u32 {
  // A header may claim anything: the area is capped where it would no longer be a picture.
  const pixels = <u64>width * <u64>height;
  return pixels > 1 << 28 ? 1 << 28 : <u32>pixels;
}

@unmanaged
export class PictureProbe {
  private state: u32;
  /** Width times height, 0 as long as it is not known. */
  pixels: u32;
  private tail: u32;
  private seen: u32;
  private bits: u32;
  private held: u32;
  private count: u32;
  private length: u32;
  private kind: u32;
  private head0: u64;
  private head1: u64;
  private head2: u64;

  /** For a new text: a data URL, or (`bare`) base64 itself. */
  start(bare: bool): void {
    this.state = bare ? State.Head : State.Prefix;
    this.pixels = 0;
    this.tail = 0;
    this.seen = 0;
    this.bits = 0;
    this.held = 0;
    this.count = 0;
  }

  /** Nothing more of the text is of interest. */
  // @ts-ignore: decorator
  @inline
  get done(): bool {
    return this.state == State.Off;
  }

  feed(at: usize, size: u32): void {
    const end = at + size;
    while (at < end && this.state == State.Prefix) this.prefix(<u32>load<u8>(at++));
    while (at < end && this.state != State.Off) {
      // Over a segment in whole groups: four characters are three bytes.
      if (this.state == State.Segment && !this.held && this.length > 3) {
        const groups = min<u32>((this.length - 1) / 3, <u32>(end - at) >> 2);
        if (groups) {
          at += groups << 2;
          this.length -= groups * 3;
          this.count += groups * 3;
          if (this.count > LIMIT) this.state = State.Off;
          continue;
        }
      }
      let v = sextet(load<u8>(at++));
      if (v == 64) {
        // What stands in a segment is stepped over unread, in whole groups where the pieces allow: it must not matter in single letters either.
        if (this.state != State.Segment) {
          this.state = State.Off;
          return;
        }
        v = 0;
      }
      this.bits = (this.bits << 6) | v;
      this.held += 6;
      if (this.held >= 8) {
        this.held -= 8;
        this.byte((this.bits >> this.held) & 255);
      }
    }
  }

  private prefix(c: u32): void {
    if (c == 0x2c) {
      // `;base64` stands right in front of the comma.
      this.state = this.tail == 0x73653634 ? State.Head : State.Off;
      return;
    }
    // Only data URLs are read: their first four characters are "data".
    this.tail = (this.tail << 8) | c;
    if (++this.seen == 4 && this.tail != 0x64617461) this.state = State.Off;
    if (this.seen > PREFIX) this.state = State.Off;
  }

  private headAt(i: u32): u32 {
    return <u32>load<u8>(changetype<usize>(this) + offsetof<PictureProbe>("head0") + i);
  }

  private byte(b: u32): void {
    const i = this.count++;
    if (i < 24) store<u8>(changetype<usize>(this) + offsetof<PictureProbe>("head0") + i, <u8>b);
    if (this.count > LIMIT) {
      this.state = State.Off;
      return;
    }
    switch (this.state) {
      case State.Head: {
        if (i == 1 && this.headAt(0) == 0xff && b == 0xd8) this.state = State.Marker;
        else if (i == 3) {
          const word = <u32>this.head0;
          this.state = word == 0x474e5089 ? State.Png : word == 0x38464947 ? State.Gif : State.Off;
        }
        return;
      }
      case State.Png:
        if (i == 23) this.end(area(bswap<u32>(<u32>this.head2), bswap<u32>(<u32>(this.head2 >> 32))));
        return;
      case State.Gif:
        if (i == 9) this.end(area(<u32>(this.head0 >> 48), this.headAt(8) | (b << 8)));
        return;
      case State.Marker:
        if (b == 0xff) this.state = State.Kind;
        else this.state = State.Off;
        return;
      case State.Kind:
        if (b == 0xff) return; // fill bytes
        // Markers without a length are skipped; the image data itself, or its end, is too late.
        if (b == 0x01 || (b >= 0xd0 && b <= 0xd8)) this.state = State.Marker;
        else if (b == 0xd9 || b == 0xda) this.state = State.Off;
        else {
          this.kind = b;
          this.state = State.LengthHigh;
        }
        return;
      case State.LengthHigh:
        this.length = b << 8;
        this.state = State.LengthLow;
        return;
      case State.LengthLow: {
        this.length |= b;
        if (this.length < 2) {
          this.state = State.Off;
          return;
        }
        this.length -= 2;
        const kind = this.kind;
        // The start-of-frame markers, without the tables that share their range.
        const frame = kind >= 0xc0 && kind <= 0xcf && kind != 0xc4 && kind != 0xc8 && kind != 0xcc;
        this.seen = 0;
        this.state = frame ? State.Frame : this.length ? State.Segment : State.Marker;
        return;
      }
      case State.Segment:
        if (!--this.length) this.state = State.Marker;
        return;
      case State.Frame: {
        // Precision, height, width.
        this.tail = (this.tail << 8) | b;
        if (++this.seen == 5) this.end(area(this.tail & 0xffff, this.tail >> 16));
        return;
      }
    }
  }

  private end(pixels: u32): void {
    this.pixels = pixels;
    this.state = State.Off;
  }
}
