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

  /** Tokens of a video; asked at the end of each such part. */
  videoTokens(): u32 {
    return 4500;
  }
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
      return max<u32>(1, estimate.videoTokens());
    case Name.AudioUrl:
      return max<u32>(1, (urlSize + 3) >> 2);
  }
  return max<u32>(1, (dataSize + 3) >> 2);
}
