// Tokens of videos, by the configuration and by the request's headers (scheduler §4.1).
import { mustLoad } from "../../../config/__tests__/support";
import { decimalOf } from "../../../request";
import { TokenParams } from "../token";
import { VideoHint, videoTokens } from "../video";

function params(video: string): TokenParams {
  return mustLoad('{"plugins":[{"type":"token-producer","parameters":{"estimate":{"video":' + video + "}}}]}").tokens;
}

function plain(video: string): u32 {
  return videoTokens(params(video), new VideoHint());
}

function decimal(text: string): f64 {
  const bytes = String.UTF8.encode(text);
  return decimalOf(changetype<usize>(bytes), bytes.byteLength);
}

/** Tokens with the three headers ("": not sent). */
function hinted(video: string, fps: string, duration: string, resolution: string): u32 {
  const hint = new VideoHint();
  hint.fps = decimal(fps);
  hint.durationSeconds = decimal(duration);
  const bytes = String.UTF8.encode(resolution);
  hint.readResolution(changetype<usize>(bytes), bytes.byteLength);
  return videoTokens(params(video), hint);
}

const STRIDED: string = '{"frames":{"mode":"strided"}}';

describe("a video", () => {
  it("S-PX-28 is 10 s at 2 frames a second, 225 tokens each, unless it is configured otherwise", () => {
    expect(plain("null")).toBe(4500);
    // As Qwen3-VL: 20 frames of 300 tokens. As Gemma: 16 frames of 256.
    expect(plain('{"tokensPerFrame":{"mode":"static","static":{"numTokensPerFrame":300}}}')).toBe(6000);
    expect(plain('{"tokensPerFrame":{"mode":"static","static":{"numTokensPerFrame":256}},"frames":{"maxFrames":16}}')).toBe(4096);
    expect(plain('{"maxVideoTokens":500}')).toBe(500);
    expect(plain('{"frames":{"minFrames":32}}')).toBe(32 * 225);
    expect(plain('{"frames":{"sampled":{"temporalPatchSize":2}}}')).toBe(10 * 225);
    expect(plain('{"frames":{"sampled":{"temporalPatchSize":3}}}')).toBe(7 * 225);
    expect(plain('{"frames":{"sampled":{"sampleFPS":0.5}}}')).toBe(5 * 225);
    expect(plain(STRIDED)).toBe(240 * 225);
    expect(plain('{"frames":{"mode":"strided","strided":{"defaultSourceFPS":30,"frameStride":10}}}')).toBe(30 * 225);
    expect(plain('{"defaultResolution":{"width":16,"height":16}}')).toBe(20);
  });

  it("S-PX-29 is what the request's headers say: rate, seconds, size; what is no number is ignored, and a sampled video has its own rate", () => {
    expect(hinted(STRIDED, "12", "", "")).toBe(120 * 225);
    expect(hinted(STRIDED, "29.97", "2", "")).toBe(59 * 225);
    expect(hinted("null", "12", "", "")).toBe(4500);
    expect(hinted("null", "", "30", "")).toBe(60 * 225);
    expect(hinted("null", "", "", "1280x720")).toBe(20 * 900);
    expect(hinted("null", "", "", "1280X720")).toBe(20 * 900);
    expect(hinted("null", " 12 ", " 30 ", " 1280 x 720 ")).toBe(60 * 900);
    const bad: StaticArray<string> = ["0", "-5", "abc", "1e9", "12abc", "NaN", "1.2.3", ".", "+4", "1_000"];
    for (let i = 0; i < bad.length; i++) {
      expect(hinted(STRIDED, bad[i], "", "")).toBe(240 * 225, bad[i]);
      expect(hinted("null", "", bad[i], "")).toBe(4500, bad[i]);
    }
    const sizes: StaticArray<string> = ["1280", "x720", "1280x", "0x720", "1280x0", "-1x5", "1280*720", "1280x720x3", "9999999x9999999", "axb", "12.5x30"];
    for (let i = 0; i < sizes.length; i++) expect(hinted("null", "", "", sizes[i])).toBe(4500, sizes[i]);
    // A fixed number of tokens per frame does not look at the size.
    expect(hinted('{"tokensPerFrame":{"mode":"static","static":{"numTokensPerFrame":300}}}', "", "", "1280x720")).toBe(6000);
  });

  it("is bounded whatever a client says", () => {
    expect(hinted(STRIDED, "99999999999999999999", "99999999999999999999", "999999x999999")).toBe(268435456);
    expect(hinted("null", "", "0.0001", "1x1")).toBe(1);
    expect(hinted('{"maxVideoTokens":500}', "", "99999999", "999999x999999")).toBe(500);
  });
});
