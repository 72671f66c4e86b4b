// `token-producer` and its old name `tokenizer` (scheduler §2.5, §4.1): how media are sized when tokens are estimated. The estimate itself is request/.
import { Build, NOT_IN_LINE } from "../../config/build";
import { HUGE, Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

export class Resolution {
  width: i32 = 640;
  height: i32 = 360;
}

export class TokenParams {
  /** False: width x height / factor. True: {@link imageStaticTokens} for each image. */
  imageStatic: bool = false;
  imageStaticTokens: i32 = 1;
  /** Pixels per token. */
  imageFactor: i32 = 1024;
  /** Where an image's own size cannot be read. */
  readonly imageResolution: Resolution = new Resolution();

  /** False: width x height / factor. True: {@link videoStaticTokensPerFrame}. */
  videoFrameStatic: bool = false;
  videoStaticTokensPerFrame: i32 = 1;
  videoFactor: i32 = 1024;
  readonly videoResolution: Resolution = new Resolution();
  videoDurationSeconds: f64 = 10;
  /** False: duration x {@link videoSampleFps}. True: duration x source rate / {@link videoFrameStride}. */
  videoStrided: bool = false;
  videoSampleFps: f64 = 2;
  /** Sampled frames that make one group of tokens; 0 and 1: none are merged. */
  videoTemporalPatch: i32 = 0;
  videoSourceFps: f64 = 24;
  videoFrameStride: i32 = 1;
  /** 0: no floor. */
  videoMinFrames: i32 = 0;
  /** 0: no cap. */
  videoMaxFrames: i32 = 0;
  /** 0: no cap. */
  videoMaxTokens: i32 = 0;
}

/** A whole number above 0, or `fallback` for 0, as an unset field. */
function positive(node: Node, fallback: i32): i32 {
  const value = node.count(0, 0);
  return value > 0 ? value : fallback;
}

function positiveFloat(node: Node, fallback: f64): f64 {
  const value = node.float(0, 0, HUGE);
  return value > 0 ? value : fallback;
}

function readResolution(node: Node, out: Resolution): void {
  if (!node.fields(["width", "height"])) return;
  out.width = positive(node.get("width"), out.width);
  out.height = positive(node.get("height"), out.height);
}

function readImage(node: Node, params: TokenParams): void {
  if (!node.fields(["mode", "defaultResolution", "static", "dynamic"])) return;
  params.imageStatic = node.get("mode").oneOf(["dynamic", "static"]) == "static";
  readResolution(node.get("defaultResolution"), params.imageResolution);
  const fixed = node.get("static");
  fixed.fields(["staticToken"]);
  params.imageStaticTokens = positive(fixed.get("staticToken"), 1);
  const dynamic = node.get("dynamic");
  dynamic.fields(["factor"]);
  params.imageFactor = positive(dynamic.get("factor"), 1024);
}

function readVideo(node: Node, params: TokenParams): void {
  if (!node.fields(["defaultResolution", "defaultDuration", "tokensPerFrame", "frames", "maxVideoTokens"])) return;
  readResolution(node.get("defaultResolution"), params.videoResolution);
  params.videoDurationSeconds = positiveFloat(node.get("defaultDuration"), 10);
  params.videoMaxTokens = node.countOf("maxVideoTokens", 0, 0);

  const perFrame = node.get("tokensPerFrame");
  perFrame.fields(["mode", "static", "dynamic"]);
  params.videoFrameStatic = perFrame.get("mode").oneOf(["dynamic", "static"]) == "static";
  const fixed = perFrame.get("static");
  fixed.fields(["numTokensPerFrame"]);
  params.videoStaticTokensPerFrame = positive(fixed.get("numTokensPerFrame"), 1);
  const dynamic = perFrame.get("dynamic");
  dynamic.fields(["factor"]);
  params.videoFactor = positive(dynamic.get("factor"), 1024);

  const frames = node.get("frames");
  frames.fields(["mode", "minFrames", "maxFrames", "sampled", "strided"]);
  params.videoStrided = frames.get("mode").oneOf(["sampled", "strided"]) == "strided";
  params.videoMinFrames = frames.countOf("minFrames", 0, 0);
  const maxNode = frames.get("maxFrames");
  params.videoMaxFrames = maxNode.count(0, 0);
  if (params.videoMaxFrames > 0 && params.videoMaxFrames < params.videoMinFrames) maxNode.error("must not be less than minFrames");
  const sampled = frames.get("sampled");
  sampled.fields(["sampleFPS", "temporalPatchSize"]);
  params.videoSampleFps = positiveFloat(sampled.get("sampleFPS"), 2);
  params.videoTemporalPatch = sampled.countOf("temporalPatchSize", 0, 0);
  const strided = frames.get("strided");
  strided.fields(["defaultSourceFPS", "frameStride"]);
  params.videoSourceFps = positiveFloat(strided.get("defaultSourceFPS"), 24);
  params.videoFrameStride = positive(strided.get("frameStride"), 1);
}

export class TokenProducer extends Plugin {
  constructor(public readonly params: TokenParams) {
    super(PluginKind.Producer);
  }

  static read(parameters: Node, build: Build): Plugin {
    const params = new TokenParams();
    parameters.fields(["estimate", "vllm", "modelName", "udsTokenizerConfig"]);
    if (parameters.has("vllm")) {
      parameters.get("vllm").error(NOT_IN_LINE + "exact tokens take a call to an engine for each request; use estimate");
    } else if (parameters.has("modelName")) {
      // Without `estimate` the name alone chooses the vllm form; beside it the reference refuses both.
      parameters.get("modelName").error(NOT_IN_LINE + "it belongs to the vllm form; use estimate");
    }
    if (parameters.has("udsTokenizerConfig")) {
      parameters.get("udsTokenizerConfig").error(NOT_IN_LINE + "a filter cannot reach a tokenizer's socket; use estimate");
    }
    const estimate = parameters.get("estimate");
    if (estimate.fields(["image", "video"])) {
      readImage(estimate.get("image"), params);
      readVideo(estimate.get("video"), params);
    }
    return new TokenProducer(params);
  }
}
