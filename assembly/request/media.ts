// How many prompt tokens a media item takes (scheduler §4.1, the estimate backend of `token-producer`).
import { Name } from "./names";

/** The estimate's settings; one set per VM, those of the newest configuration. */
export class MediaEstimate {
  /** 0: by the picture's size; otherwise a fixed number for every picture. */
  imageStatic: u32 = 0;
  /** Pixels per token. */
  imageFactor: u32 = 1024;
  /** Pixels of a picture whose size the URL does not tell (640 x 360). */
  imagePixels: u32 = 640 * 360;
  /** Tokens of a video. */
  videoTokens: u32 = 4500;
}

export let estimate: MediaEstimate = new MediaEstimate();

export function useEstimate(e: MediaEstimate): void {
  estimate = e;
}

/** Place holders of one item, at least one. `urlSize`, `dataSize`: bytes of its URL or of its inline data and format; `pixels`: 0 when unknown. */
export function mediaTokens(type: Name, urlSize: u32, dataSize: u32, pixels: u32): u32 {
  switch (type) {
    case Name.ImageUrl:
    case Name.InputImage:
    case Name.Image: {
      const e = estimate;
      if (e.imageStatic) return e.imageStatic;
      return max<u32>(1, (pixels ? pixels : e.imagePixels) / e.imageFactor);
    }
    case Name.VideoUrl:
      return max<u32>(1, estimate.videoTokens);
    case Name.AudioUrl:
      return max<u32>(1, (urlSize + 3) >> 2);
  }
  return max<u32>(1, (dataSize + 3) >> 2);
}

function sextet(c: u32): u32 {
  if (c - 0x41 < 26) return c - 0x41;
  if (c - 0x61 < 26) return c - 0x47;
  if (c - 0x30 < 10) return c + 4;
  return c == 0x2b ? 62 : c == 0x2f ? 63 : 64;
}

const head = memory.data(192, 8);

/** Width times height of the picture in a base64 data URL of which `[at, at+size)` is the beginning; 0 when it does not tell. */
export function pixelsOf(at: usize, size: u32): u32 {
  if (size < 32 || load<u32>(at) != 0x61746164 /* data */) return 0;
  let i: u32 = 5;
  while (i < size && load<u8>(at + i) != 0x2c) i++;
  if (i + 1 >= size || i < 7 || load<u32>(at + i - 4) != 0x34366573 /* se64 */) return 0;
  i++;
  let bytes: u32 = 0;
  let bits: u32 = 0;
  let held: u32 = 0;
  for (; i < size && bytes < 190; i++) {
    const v = sextet(load<u8>(at + i));
    if (v == 64) break;
    bits = (bits << 6) | v;
    held += 6;
    if (held >= 8) {
      held -= 8;
      store<u8>(head + bytes++, <u8>(bits >> held));
    }
  }
  return headerPixels(head, bytes);
}

function area(width: u32, height: u32): u32 {
  // A header may claim anything: the area is capped where it would no longer be a picture.
  const pixels = <u64>width * <u64>height;
  return pixels > 1 << 28 ? 1 << 28 : <u32>pixels;
}

/** The same from the first decoded bytes of a PNG, GIF or JPEG. */
export function headerPixels(at: usize, size: u32): u32 {
  if (size >= 24 && load<u32>(at) == 0x474e5089) return area(bswap<u32>(load<u32>(at, 16)), bswap<u32>(load<u32>(at, 20)));
  if (size >= 10 && load<u32>(at) == 0x38464947) return area(load<u16>(at, 6), load<u16>(at, 8));
  if (size >= 4 && load<u16>(at) == 0xd8ff) {
    let i: u32 = 2;
    while (i + 9 <= size && load<u8>(at + i) == 0xff) {
      const marker = <u32>load<u8>(at + i + 1);
      // The start-of-frame markers, without the tables that share their range.
      if (marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc) {
        return area(<u32>bswap<u16>(load<u16>(at + i + 7)), <u32>bswap<u16>(load<u16>(at + i + 5)));
      }
      i += 2 + <u32>bswap<u16>(load<u16>(at + i + 2));
    }
  }
  return 0;
}
