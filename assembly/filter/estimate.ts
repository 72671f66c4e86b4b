// The sizes of media for the reader of bodies, from the configuration and, for videos, from the request's own headers (scheduler §4.1).
import { Bytes, getHeader, HeaderMap, valueAt, valueSize } from "../host";
import { decimalOf, MediaEstimate } from "../request";
import { TokenParams } from "../scheduling/producers/token";
import { VideoHint, videoTokens } from "../scheduling/producers/video";

const FPS = new Bytes("x-llm-d-video-fps");
const DURATION = new Bytes("x-llm-d-video-duration-seconds");
const RESOLUTION = new Bytes("x-llm-d-video-resolution");
const hint = new VideoHint();

export class EnvoyEstimate extends MediaEstimate {
  constructor(private readonly params: TokenParams) {
    super();
    this.imageStatic = params.imageStatic ? <u32>params.imageStaticTokens : 0;
    this.imageFactor = <u32>params.imageFactor;
    this.imagePixels = <u32>params.imageResolution.width * <u32>params.imageResolution.height;
  }

  /** Asked while the body of the current stream is read, so these are its headers; a request without a video costs nothing. */
  videoTokens(): u32 {
    hint.clear();
    if (getHeader(HeaderMap.Request, FPS)) hint.fps = decimalOf(valueAt, valueSize);
    if (getHeader(HeaderMap.Request, DURATION)) hint.durationSeconds = decimalOf(valueAt, valueSize);
    if (getHeader(HeaderMap.Request, RESOLUTION)) hint.readResolution(valueAt, valueSize);
    return videoTokens(this.params, hint);
  }
}
