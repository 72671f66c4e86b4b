/** The size of a picture from the beginning of its base64 text, the plain way: the text is decoded as a whole and its header is looked at. */

/** A header that comes later than this is not looked for. */
const LIMIT_BYTES = 1 << 20;
/** Longest text in front of a data URL's comma. */
const PREFIX = 128;
/** A header may claim anything: the area ends here. */
const MOST_PIXELS = 2 ** 28;

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const VALUES = new Map([...ALPHABET].map((letter, value) => [letter, value]));

/**
 * @param text a data URL, or (`bare`) base64 itself
 * @returns width times height; 0 when the text does not tell
 */
export function picturePixels(text: string, bare: boolean): number {
  let from = 0;
  if (!bare) {
    const comma = text.indexOf(",");
    if (comma < 0 || comma > PREFIX || !text.startsWith("data") || text.slice(comma - 4, comma) !== "se64") return 0;
    from = comma + 1;
  }
  const bytes = new Base64(text, from);
  if (bytes.at(0) === 0xff && bytes.at(1) === 0xd8) return jpegPixels(bytes);
  const magic = bytes.number([0, 1, 2, 3]);
  // All in front of the size has to be base64, too.
  if (magic === 0x89504e47 && bytes.number(upTo(24)) >= 0) return area(bytes.number([16, 17, 18, 19]), bytes.number([20, 21, 22, 23]));
  if (magic === 0x47494638 && bytes.number(upTo(10)) >= 0) return area(bytes.number([7, 6]), bytes.number([9, 8]));
  return 0;
}

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index);
}

function area(width: number, height: number): number {
  return Number.isNaN(width) || Number.isNaN(height) ? 0 : Math.min(width * height, MOST_PIXELS);
}

class Base64 {
  constructor(
    private readonly text: string,
    private readonly from: number,
  ) {}

  /** Byte `index`; NaN behind the end, and where a letter of it is none of the alphabet. `lenient`: its first letter may be one, and counts as nothing then. */
  at(index: number, lenient = false): number {
    if (index >= LIMIT_BYTES) return Number.NaN;
    const bit = index * 8;
    const first = Math.floor(bit / 6);
    const last = Math.floor((bit + 7) / 6);
    let value = 0;
    for (let letter = first; letter <= last; letter++) {
      const place = this.from + letter;
      if (place >= this.text.length) return Number.NaN;
      const bits = VALUES.get(this.text.charAt(place));
      if (bits === undefined && !(lenient && letter === first)) return Number.NaN;
      value = (value << 6) | (bits ?? 0);
    }
    return (value >> ((last + 1) * 6 - bit - 8)) & 255;
  }

  /** Bytes as one number, the first one on top; NaN when one of them is none. */
  number(indexes: readonly number[]): number {
    return indexes.reduce((sum, index) => sum * 256 + this.at(index), 0);
  }
}

/** Segment by segment to the frame. Segments are stepped over unread: what stands in them need not be base64. */
function jpegPixels(bytes: Base64): number {
  let at = 2;
  let behindSegment = false;
  for (;;) {
    // A letter that ends a segment's last byte belongs to the segment.
    const shared = behindSegment && (at * 8) % 6 !== 0;
    if (bytes.at(at, shared) !== 0xff) return 0;
    at += 1;
    while (bytes.at(at) === 0xff) at += 1;
    const kind = bytes.at(at);
    at += 1;
    behindSegment = false;
    if (kind === 0x01 || (kind >= 0xd0 && kind <= 0xd8)) continue;
    if (!(kind >= 0) || kind === 0xd9 || kind === 0xda) return 0;
    const length = bytes.number([at, at + 1]);
    if (!(length >= 2)) return 0;
    at += 2;
    const isFrame = kind >= 0xc0 && kind <= 0xcf && kind !== 0xc4 && kind !== 0xc8 && kind !== 0xcc;
    if (isFrame) return bytes.at(at) >= 0 ? area(bytes.number([at + 3, at + 4]), bytes.number([at + 1, at + 2])) : 0;
    at += length - 2;
    behindSegment = length > 2;
  }
}
