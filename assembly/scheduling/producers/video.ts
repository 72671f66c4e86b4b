// How many tokens a video takes (scheduler §4.1): frames times tokens per frame, by the configuration and by what the request's headers say of its videos.
import { TokenParams } from "./token";

/** Bound of any estimate, so that sums of many items stay far from 32 bits. */
const MOST: f64 = 268435456;

/** What a request says of its videos; 0: nothing. */
export class VideoHint {
  fps: f64 = 0;
  durationSeconds: f64 = 0;
  width: i32 = 0;
  height: i32 = 0;

  clear(): void {
    this.fps = 0;
    this.durationSeconds = 0;
    this.width = 0;
    this.height = 0;
  }

  /** `WxH`, the x in either case; anything else, and a side that is not above 0, is ignored. */
  readResolution(at: usize, size: u32): void {
    let width: i32 = 0;
    let height: i32 = 0;
    let sides = 0;
    let digits = 0;
    for (let i: u32 = 0; i < size; i++) {
      const c = <u32>load<u8>(at + i);
      if (c - 0x30 < 10) {
        // Six digits are more pixels than any video has.
        if (++digits > 6) return;
        if (sides) height = height * 10 + <i32>(c - 0x30);
        else width = width * 10 + <i32>(c - 0x30);
      } else if ((c | 0x20) == 0x78 && !sides) {
        sides = 1;
        digits = 0;
      } else if (c > 0x20) return;
    }
    if (width <= 0 || height <= 0) return;
    this.width = width;
    this.height = height;
  }
}

/** Tokens of one video. The rate is that of the source, so a configuration that samples at a rate of its own does not look at it. */
export function videoTokens(p: TokenParams, hint: VideoHint): u32 {
  const width = hint.width > 0 ? hint.width : p.videoResolution.width;
  const height = hint.height > 0 ? hint.height : p.videoResolution.height;
  const perFrame = p.videoFrameStatic ? <f64>p.videoStaticTokensPerFrame : Math.max(1, Math.floor((<f64>width * <f64>height) / <f64>p.videoFactor));
  const duration = hint.durationSeconds > 0 ? hint.durationSeconds : p.videoDurationSeconds;
  const sourceFps = hint.fps > 0 ? hint.fps : p.videoSourceFps;
  let frames = duration * (p.videoStrided ? sourceFps / <f64>p.videoFrameStride : p.videoSampleFps);
  if (p.videoMinFrames > 0) frames = Math.max(frames, <f64>p.videoMinFrames);
  if (p.videoMaxFrames > 0) frames = Math.min(frames, <f64>p.videoMaxFrames);
  if (p.videoTemporalPatch > 1) frames = Math.ceil(frames / <f64>p.videoTemporalPatch);
  let total = Math.floor(frames) * perFrame;
  if (p.videoMaxTokens > 0) total = Math.min(total, <f64>p.videoMaxTokens);
  return <u32>Math.max(1, Math.min(total, MOST));
}
