import { hasWarning, holds, loadPicker, mustLoad, pluginError, problemsText, table, tokens } from "../../../config/__tests__/support";
import { LoadedConfig } from "../../../config/document";
import { Outcome } from "../../../disagg/decision";
import { fnv1a32 } from "../../../endpoints/fnv";
import { EndpointTable } from "../../../endpoints/table";
import { Random } from "../../random";
import { InflightParams } from "../inflight-load";
import { P2pSourceProducer } from "../p2p-source";

function load(plugin: string, options: string = "null"): LoadedConfig {
  return mustLoad('{"plugins":[' + plugin + "]}", "decode", options);
}

function approx(parameters: string): LoadedConfig {
  return load('{"type":"approx-prefix-cache-producer","parameters":' + parameters + "}");
}

function approxError(parameters: string, field: string, fragment: string): string {
  return pluginError('{"type":"approx-prefix-cache-producer","parameters":' + parameters + "}", "plugins[0].parameters." + field, fragment);
}

const ALL: StaticArray<u8> = [1, 1, 1, 1];
const ALPHA: string = '{"allowExperimentalPlugins":true}';

function source(fleet: EndpointTable, computing: i32, delta: i32 = 1, hash: u32 = 0): i32 {
  return new P2pSourceProducer(delta, "prefill").source(fleet, ALL, new StaticArray<u8>(fleet.count), 16, hash, computing);
}

function hashOf(id: string): u32 {
  const bytes = String.UTF8.encode(id);
  return fnv1a32(changetype<usize>(bytes), bytes.byteLength);
}

/** Shares of 600 request ids over the endpoints. */
function sources(fleet: EndpointTable, computing: i32): StaticArray<i32> {
  const out = new StaticArray<i32>(fleet.count);
  const random = new Random(11);
  for (let i = 0; i < 600; i++) {
    const id = hashOf(random.next().toString(16) + "-" + random.next().toString(16));
    out[source(fleet, computing, 1, id)]++;
  }
  return out;
}

describe("approx-prefix-cache-producer", () => {
  it("has the reference's defaults, and no floor", () => {
    const prefix = approx("null").prefix;
    expect(prefix.autoTune).toBe(true);
    expect(prefix.blockTokens).toBe(16);
    expect(prefix.maxPrefixTokens).toBe(131072);
    expect(prefix.lruCapacityPerServer).toBe(31250);
    expect(prefix.maxBlocks(64)).toBe(2048);
    expect(load('{"type":"queue-scorer"}').prefix.blockTokens).toBe(16);
  });

  it("S-PX-08 without a token cap the block cap counts", () => {
    const prefix = approx('{"maxPrefixTokensToMatch":0,"maxPrefixBlocksToMatch":3}').prefix;
    expect(prefix.maxBlocks(1)).toBe(3);
  });

  it("S-PX-09 both caps 0: no limit", () => {
    expect(approx('{"maxPrefixTokensToMatch":0,"maxPrefixBlocksToMatch":0}').prefix.maxBlocks(1)).toBe(i32.MAX_VALUE);
  });

  it("S-PX-10 a block size is taken as it is given (ours: no floor)", () => {
    expect(approx('{"autoTune":false,"blockSizeTokens":5}').prefix.blockTokens).toBe(5);
    expect(approx('{"autoTune":false,"blockSizeTokens":32}').prefix.blockTokens).toBe(32);
    expect(approx('{"autoTune":false,"blockSizeTokens":128}').prefix.blockTokens).toBe(128);
  });

  it("S-PX-11 32 is accepted without a word (ours: no floor)", () => {
    const result = loadPicker('{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[{"type":"approx-prefix-cache-producer","parameters":{"autoTune":false,"blockSizeTokens":32}}]}');
    expect(problemsText(result.problems.warnings)).toBe("");
  });

  it("S-PX-12 an unknown parameter is named", () => {
    expect(approxError('{"blockSizeToken":5}', "blockSizeToken", "unknown field")).toBe("");
  });

  it("S-PX-13 blockSize 24 is the block size", () => {
    expect(approx('{"autoTune":false,"blockSize":24}').prefix.blockTokens).toBe(24);
    expect(approx('{"autoTune":false,"blockSize":24,"blockSizeTokens":16}').prefix.blockTokens).toBe(24);
    expect(approx('{"autoTune":false,"blockSize":24,"blockSizeTokens":48}').prefix.blockTokens).toBe(48);
  });

  it("S-PX-14 no block size without autoTune, a negative token cap", () => {
    expect(approxError('{"autoTune":false,"blockSizeTokens":0}', "blockSizeTokens", "must be greater than 0 when autoTune is false")).toBe("");
    expect(approxError('{"autoTune":false,"blockSize":-3}', "blockSize", "must be greater than 0")).toBe("");
    expect(approxError('{"maxPrefixTokensToMatch":-1}', "maxPrefixTokensToMatch", "at least 0")).toBe("");
    expect(approxError('{"blockSizeTokens":5000000}', "blockSizeTokens", "at most 1048576")).toBe("");
  });

  it("S-PX-07 a token cap of 2 and blocks of 1 are 2 blocks", () => {
    expect(approx('{"maxPrefixTokensToMatch":2}').prefix.maxBlocks(1)).toBe(2);
    expect(approx('{"maxPrefixTokensToMatch":15,"blockSizeTokens":16}').prefix.maxBlocks(16)).toBe(0);
  });

  it("only the block cap given: it is meant, whatever the token cap's default", () => {
    expect(approx('{"maxPrefixBlocksToMatch":256,"blockSizeTokens":5}').prefix.maxBlocks(5)).toBe(256);
    expect(approx('{"maxPrefixBlocksToMatch":256,"maxPrefixTokensToMatch":1280}').prefix.maxBlocks(5)).toBe(256);
    expect(approx('{"maxPrefixBlocksToMatch":256,"maxPrefixTokensToMatch":640}').prefix.maxBlocks(5)).toBe(128);
  });

  it("a second one is refused: there is one index", () => {
    expect(pluginError('{"type":"approx-prefix-cache-producer"},{"type":"approx-prefix-cache-producer","name":"b"}', "plugins[1].type", "a second approx-prefix-cache-producer")).toBe("");
  });
});

describe("the seed's form, under prefix-cache-scorer", () => {
  it("is the index's parameters, with a warning", () => {
    const text = '{"plugins":[{"type":"prefix-cache-scorer","parameters":{"autoTune":false,"blockSizeTokens":5,"maxPrefixBlocksToMatch":256,"lruCapacityPerServer":31250}}]}';
    const prefix = mustLoad(text).prefix;
    expect(prefix.autoTune).toBe(false);
    expect(prefix.blockTokens).toBe(5);
    expect(prefix.maxPrefixTokens).toBe(0);
    expect(prefix.maxBlocks(5)).toBe(256);
    expect(hasWarning(loadPicker(text), "plugins[0].parameters", "approx-prefix-cache-producer")).toBe("");
  });

  it("beside a producer, or with two scorers that differ, it is refused", () => {
    expect(pluginError('{"type":"approx-prefix-cache-producer"},{"type":"prefix-cache-scorer","parameters":{"blockSizeTokens":5}}', "plugins[1].parameters", "keep one place")).toBe("");
    expect(
      pluginError('{"type":"prefix-cache-scorer","parameters":{"blockSizeTokens":5}},{"type":"prefix-cache-scorer","name":"b","parameters":{"blockSizeTokens":6}}', "plugins[1].parameters", "there is one index"),
    ).toBe("");
    expect(load('{"type":"prefix-cache-scorer","parameters":{"blockSizeTokens":5}},{"type":"prefix-cache-scorer","name":"b","parameters":{"blockSizeTokens":5}},{"type":"prefix-cache-scorer","name":"c"}').prefix.blockTokens).toBe(5);
  });

  it("its values are checked where they stand", () => {
    expect(pluginError('{"type":"prefix-cache-scorer","parameters":{"autoTune":false,"blockSizeTokens":-5}}', "plugins[0].parameters.blockSizeTokens", "greater than 0")).toBe("");
    expect(pluginError('{"type":"prefix-cache-scorer","parameters":{"maxPrefixBlocksToMatch":"256"}}', "plugins[0].parameters.maxPrefixBlocksToMatch", "whole number")).toBe("");
  });
});

describe("token-producer", () => {
  it("estimates with defaults", () => {
    const params = load('{"type":"token-producer"}').tokens;
    expect(params.imageStatic).toBe(false);
    expect(params.imageFactor).toBe(1024);
    expect(params.imageResolution.width * params.imageResolution.height).toBe(230400);
    expect(params.videoSampleFps * params.videoDurationSeconds).toBe(20);
    expect(params.videoSourceFps).toBe(24);
  });

  it("reads every field of the estimate", () => {
    const params = load(
      '{"type":"tokenizer","parameters":{"estimate":{"image":{"mode":"static","static":{"staticToken":300},"dynamic":{"factor":784},"defaultResolution":{"width":1280,"height":720}},' +
        '"video":{"defaultResolution":{"width":320,"height":180},"defaultDuration":4.5,"maxVideoTokens":500,"tokensPerFrame":{"mode":"static","static":{"numTokensPerFrame":256},"dynamic":{"factor":512}},' +
        '"frames":{"mode":"strided","minFrames":2,"maxFrames":16,"sampled":{"sampleFPS":1,"temporalPatchSize":2},"strided":{"defaultSourceFPS":30,"frameStride":3}}}}}}',
    ).tokens;
    expect(params.imageStatic).toBe(true);
    expect(params.imageStaticTokens).toBe(300);
    expect(params.imageFactor).toBe(784);
    expect(params.imageResolution.width).toBe(1280);
    expect(params.videoResolution.height).toBe(180);
    expect(params.videoDurationSeconds).toBe(4.5);
    expect(params.videoMaxTokens).toBe(500);
    expect(params.videoFrameStatic).toBe(true);
    expect(params.videoStaticTokensPerFrame).toBe(256);
    expect(params.videoFactor).toBe(512);
    expect(params.videoStrided).toBe(true);
    expect(params.videoMinFrames).toBe(2);
    expect(params.videoMaxFrames).toBe(16);
    expect(params.videoSampleFps).toBe(1);
    expect(params.videoTemporalPatch).toBe(2);
    expect(params.videoSourceFps).toBe(30);
    expect(params.videoFrameStride).toBe(3);
  });

  it("refuses the other backends as not in-line, and bad values", () => {
    expect(pluginError('{"type":"token-producer","parameters":{"modelName":"m","vllm":{"url":"http://localhost:8000"}}}', "plugins[0].parameters.vllm", "known, not supported in-line")).toBe("");
    expect(pluginError('{"type":"token-producer","parameters":{"modelName":"m"}}', "plugins[0].parameters.modelName", "known, not supported in-line")).toBe("");
    expect(pluginError('{"type":"token-producer","parameters":{"udsTokenizerConfig":{"socketFile":"/x"}}}', "plugins[0].parameters.udsTokenizerConfig", "known, not supported in-line")).toBe("");
    expect(pluginError('{"type":"token-producer","parameters":{"estimate":{"image":{"mode":"fixed"}}}}', "plugins[0].parameters.estimate.image.mode", "dynamic or static")).toBe("");
    expect(pluginError('{"type":"token-producer","parameters":{"estimate":{"video":{"frames":{"mode":"all"}}}}}', "plugins[0].parameters.estimate.video.frames.mode", "sampled or strided")).toBe("");
    expect(pluginError('{"type":"token-producer","parameters":{"estimate":{"video":{"tokensPerFrame":{"dynamic":{"factor":-1}}}}}}', "plugins[0].parameters.estimate.video.tokensPerFrame.dynamic.factor", "at least 0")).toBe("");
    expect(pluginError('{"type":"token-producer","parameters":{"estimate":{"audio":{}}}}', "plugins[0].parameters.estimate.audio", "unknown field")).toBe("");
    expect(pluginError('{"type":"token-producer","parameters":{"estimate":{"video":{"frames":{"minFrames":9,"maxFrames":4}}}}}', "plugins[0].parameters.estimate.video.frames.maxFrames", "minFrames")).toBe("");
  });
});

describe("inflight-load-producer", () => {
  it("counts the uncached prompt, and the answer when it is told to", () => {
    const plain = new InflightParams();
    expect(plain.tokensFor(100, 60)).toBe(40);
    expect(plain.tokensFor(100, 160)).toBe(0);
    const params = load('{"type":"inflight-load-producer","parameters":{"addEstimatedOutputTokens":true,"outputRatio":2,"maxEstimatedOutputTokens":150,"syncCrossReplicaState":false}}').inflight;
    expect(params.tokensFor(50, 10)).toBe(140);
    expect(params.tokensFor(100, 100)).toBe(150);
    expect(params.tokensFor(i32.MAX_VALUE, 0)).toBe(i32.MAX_VALUE);
    expect(load('{"type":"inflight-load-producer","parameters":{"addEstimatedOutputTokens":true}}').inflight.tokensFor(100, 0)).toBe(250);
  });

  it("checks its parameters", () => {
    expect(pluginError('{"type":"inflight-load-producer","parameters":{"outputRatio":-1}}', "plugins[0].parameters.outputRatio", "at least 0")).toBe("");
    expect(pluginError('{"type":"inflight-load-producer","parameters":{"maxEstimatedOutputTokens":-1}}', "plugins[0].parameters.maxEstimatedOutputTokens", "at least 0")).toBe("");
    expect(pluginError('{"type":"inflight-load-producer","parameters":{"prefixMatchInfoProducerName":"nobody"}}', "plugins[0].parameters.prefixMatchInfoProducerName", "references undefined plugin 'nobody'")).toBe("");
    expect(pluginError('{"type":"queue-scorer"},{"type":"inflight-load-producer","parameters":{"prefixMatchInfoProducerName":"queue-scorer"}}', "plugins[1].parameters.prefixMatchInfoProducerName", "is not of type approx-prefix-cache-producer")).toBe("");
  });
});

describe("p2p-source-producer", () => {
  it("S-P2-01 delta 1 by default, 0 is refused", () => {
    const producer = <P2pSourceProducer>new P2pSourceProducer(1, "prefill");
    expect(producer.minCachedTokenDelta).toBe(1);
    expect(pluginError('{"type":"p2p-source-producer","parameters":{"minCachedTokenDelta":0}}', "plugins[0].parameters.minCachedTokenDelta", "at least 1", ALPHA)).toBe("");
    expect(load('{"type":"p2p-source-producer"}', ALPHA).scheduler.decide(tokens(10)).kvSource).toBe(-1);
  });

  it("S-P2-02 of 1 and 3 blocks the second is chosen", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 16);
    holds(fleet, 1, 48);
    for (let i = 0; i < 10; i++) expect(source(fleet, 2, 1, <u32>i * 400000000)).toBe(1);
  });

  it("S-P2-03 nobody holds anything: none", () => {
    expect(source(table("- -"), 0)).toBe(-1);
  });

  it("S-P2-05 best 48, computing 16, delta 1: the best", () => {
    const fleet = table("- -");
    holds(fleet, 0, 48);
    holds(fleet, 1, 16);
    expect(source(fleet, 1)).toBe(0);
  });

  it("S-P2-06 best 32, computing 16, delta 17: none", () => {
    const fleet = table("- -");
    holds(fleet, 0, 32);
    holds(fleet, 1, 16);
    expect(source(fleet, 1, 17, 0)).toBe(-1);
    expect(source(fleet, 1, 16, 0)).toBe(0);
  });

  it("S-P2-07 the best is the computing pod: none", () => {
    const fleet = table("- -");
    holds(fleet, 0, 48);
    expect(source(fleet, 0)).toBe(-1);
  });

  it("S-P2-13 equal caches, queues 12, 2, 7: the shorter the queue the more often, none never", () => {
    const fleet = table("- - - -");
    for (let i = 0; i < 3; i++) holds(fleet, i, 64);
    fleet.waiting[0] = 12;
    fleet.waiting[1] = 2;
    fleet.waiting[2] = 7;
    const shares = sources(fleet, 3);
    expect(shares[1]).toBeGreaterThan(shares[2]);
    expect(shares[2]).toBeGreaterThan(shares[0]);
    expect(shares[0]).toBeGreaterThan(20);
  });

  it("S-P2-14 queues 0 and 1: the idle one leads, the busy one is used", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 64);
    holds(fleet, 1, 64);
    fleet.waiting[1] = 1;
    const shares = sources(fleet, 2);
    expect(shares[0]).toBeGreaterThan(shares[1]);
    expect(shares[1]).toBeGreaterThan(100);
  });

  it("S-P2-15 five blocks and a queue of 20 before three blocks and none: outside the band", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 80);
    holds(fleet, 1, 48);
    fleet.waiting[0] = 20;
    expect(sources(fleet, 2)[0]).toBe(600);
  });

  it("S-P2-16 four blocks and a queue of 20, three blocks and none: mostly the idle one", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 64);
    holds(fleet, 1, 48);
    fleet.waiting[0] = 20;
    const shares = sources(fleet, 2);
    expect(shares[1]).toBeGreaterThan(500);
    expect(shares[0]).toBeGreaterThan(0);
  });

  it("S-P2-17 ties are spread by request, and the same request finds the same source", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 64);
    holds(fleet, 1, 64);
    const shares = sources(fleet, 2);
    expect(shares[0]).toBeGreaterThan(200);
    expect(shares[1]).toBeGreaterThan(200);
    for (let i = 0; i < 20; i++) expect(source(fleet, 2, 1, 123456789)).toBe(source(fleet, 2, 1, 123456789));
  });

  it("an unusable endpoint, and one that may not be a source, is none (scheduler L16)", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 64);
    holds(fleet, 1, 48);
    fleet.usable[0] = 0;
    expect(source(fleet, 2)).toBe(1);
    fleet.usable[0] = 1;
    const allowed: StaticArray<u8> = [0, 1, 1];
    expect(new P2pSourceProducer(1, "prefill").source(fleet, allowed, new StaticArray<u8>(3), 16, 0, 2)).toBe(1);
    const excluded: StaticArray<u8> = [2, 0, 0];
    expect(new P2pSourceProducer(1, "prefill").source(fleet, ALL, excluded, 16, 0, 2)).toBe(1);
  });

  it("hashes as FNV-1a does", () => {
    expect(hashOf("")).toBe(0x811c9dc5);
    expect(hashOf("a")).toBe(0xe40c292c);
    expect(hashOf("foobar")).toBe(0xbf9cf968);
  });
});

const P2P: string =
  '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"always-disagg-pd-decider"},{"type":"p2p-source-producer","parameters":{"prefillProfileName":"P"}},{"type":"disagg-profile-handler","parameters":{"profiles":{"prefill":"P"},"deciders":{"prefill":"always-disagg-pd-decider"}}}],' +
  '"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"P","plugins":[{"pluginRef":"prefill-filter"}]}]}';

describe("the KV source of a decision", () => {
  it("S-P2-08 P/D, the best is the prefill pod: none, even if decode has less", () => {
    const config = mustLoad(P2P, "decode prefill", ALPHA);
    holds(config.endpoints, 1, 64);
    expect(config.scheduler.decide(tokens(100)).kvSource).toBe(-1);
  });

  it("S-P2-09 P/D, a third pod has more than the prefill pod: the third", () => {
    const config = mustLoad(P2P, "decode prefill encode", ALPHA);
    holds(config.endpoints, 1, 16);
    holds(config.endpoints, 2, 64);
    expect(config.scheduler.decide(tokens(100)).kvSource).toBe(2);
  });

  it("S-P2-12 the prefill profile has another name: its pod computes", () => {
    const config = mustLoad(P2P, "decode prefill encode", ALPHA);
    holds(config.endpoints, 0, 64);
    expect(config.scheduler.decide(tokens(100)).kvSource).toBe(0);
    // With the default name the profile `P` is not the computing one: decode is.
    const other = mustLoad(P2P.replace(',"parameters":{"prefillProfileName":"P"}', ""), "decode prefill encode", ALPHA);
    holds(other.endpoints, 0, 64);
    expect(other.scheduler.decide(tokens(100)).kvSource).toBe(-1);
  });

  it("follows FilterOptions.kvSourceSelector", () => {
    const config = mustLoad(P2P, "decode prefill encode", '{"allowExperimentalPlugins":true,"kvSourceSelector":{"matchLabels":{"role":"decode"}}}');
    holds(config.endpoints, 2, 64);
    expect(config.scheduler.decide(tokens(100)).kvSource).toBe(-1);
  });
});

describe("metrics", () => {
  it("metrics-data-source: where to scrape", () => {
    const config = load('{"type":"metrics-data-source","parameters":{"path":"/m/x","port":9090,"scheme":"https","insecureSkipVerify":false,"interval":"2s"}}');
    expect(config.metrics.source.path).toBe("/m/x");
    expect(config.metrics.source.port).toBe(9090);
    expect(config.metrics.enabled).toBe(true);
    expect(pluginError('{"type":"metrics-data-source","parameters":{"port":0}}', "plugins[0].parameters.port", "between 1 and 65535")).toBe("");
    expect(pluginError('{"type":"metrics-data-source","parameters":{"path":"metrics"}}', "plugins[0].parameters.path", "must start with '/'")).toBe("");
    expect(pluginError('{"type":"metrics-data-source","parameters":{"scheme":"ftp"}}', "plugins[0].parameters.scheme", "http or https")).toBe("");
    expect(pluginError('{"type":"metrics-data-source","parameters":{"interval":"often"}}', "plugins[0].parameters.interval", "must be a duration")).toBe("");
  });

  it("core-metrics-extractor: the engines, and one's own", () => {
    const extractor = load(
      '{"type":"core-metrics-extractor","parameters":{"engineLabelKey":"engine","defaultEngine":"mine","engineConfigs":[{"name":"mine","queuedRequestsSpec":"q{a=b,c=d}","runningRequestsSpec":"r","cacheBlockSizeSpec":"s"},{"name":"vllm","queuedRequestsSpec":"w"}]}}',
    ).metrics.extractor;
    expect(extractor.engineLabelKey).toBe("engine");
    expect(extractor.defaultEngine).toBe("mine");
    expect(extractor.engines.length).toBe(6);
    expect(extractor.engines[0].waiting).toBe("q{a=b,c=d}");
    expect(extractor.engines[1].waiting).toBe("w");
    expect(extractor.engines[2].name).toBe("sglang");
    expect(extractor.engines[2].numBlocksLabel).toBe("num_pages");
  });

  it("core-metrics-extractor: what is wrong", () => {
    const engine = "plugins[0].parameters.engineConfigs[0].";
    expect(pluginError('{"type":"core-metrics-extractor","parameters":{"engineConfigs":[{"queuedRequestsSpec":"q"}]}}', engine + "name", "is required")).toBe("");
    expect(pluginError('{"type":"core-metrics-extractor","parameters":{"engineConfigs":[{"name":"default"}]}}', engine + "name", "is reserved")).toBe("");
    expect(pluginError('{"type":"core-metrics-extractor","parameters":{"engineConfigs":[{"name":"x","queuedRequestsSpec":"a b"}]}}', engine + "queuedRequestsSpec", "must be a metric name")).toBe("");
    expect(pluginError('{"type":"core-metrics-extractor","parameters":{"engineConfigs":[{"name":"x","kvUsageSpec":"a{b"}]}}', engine + "kvUsageSpec", "must be a metric name")).toBe("");
    expect(pluginError('{"type":"core-metrics-extractor","parameters":{"engineConfigs":[{"name":"x","customMetrics":[{"attributeKey":"a","metricSpec":"b"}]}]}}', engine + "customMetrics", "known, not supported in-line")).toBe("");
    expect(pluginError('{"type":"core-metrics-extractor","parameters":{"defaultEngine":"x"}}', "plugins[0].parameters.defaultEngine", "defaultEngine 'x' not found")).toBe("");
  });

  it("file-discovery: a path is required", () => {
    expect(pluginError('{"type":"file-discovery"}', "plugins[0].parameters.path", "is required")).toBe("");
    expect(problemsText(loadPicker('{"plugins":[{"type":"file-discovery","parameters":{"path":"/e.yaml","watchFile":true}}],"dataLayer":{"discovery":{"pluginRef":"file-discovery"}}}').problems.errors)).toBe("");
  });
});

function detector(type: string, parameters: string): LoadedConfig {
  return mustLoad(
    '{"plugins":[{"type":"' + type + '","parameters":' + parameters + '},{"type":"max-score-picker","parameters":{"maxNumOfEndpoints":9}}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"' + type + '"},{"pluginRef":"max-score-picker"}]}],"flowControl":{"saturationDetector":{"pluginRef":"' + type + '"}}}',
    "- - -",
  );
}

/** Whether a request of negative priority is refused. */
function sheds(config: LoadedConfig): bool {
  const facts = tokens(10);
  facts.priority = -1;
  return config.scheduler.decide(facts).outcome == Outcome.Saturated;
}

describe("utilization-detector", () => {
  it("as a filter drops what is over a limit or unknown, and never all", () => {
    const config = detector("utilization-detector", "null");
    const fleet = config.endpoints;
    for (let i = 0; i < 2; i++) fleet.known[i] = 7;
    fleet.waiting[0] = 4;
    fleet.waiting[1] = 5;
    expect(config.scheduler.decide(tokens(1)).decode.count).toBe(1);
    expect(config.scheduler.decide(tokens(1)).decode.first).toBe(0);
    fleet.kvUsage[0] = 0.8;
    expect(config.scheduler.decide(tokens(1)).decode.count).toBe(3);
  });

  it("headroom moves the limits", () => {
    const config = detector("utilization-detector", '{"headroom":0.5}');
    for (let i = 0; i < 3; i++) config.endpoints.known[i] = 7;
    config.endpoints.waiting[1] = 7;
    config.endpoints.waiting[2] = 8;
    expect(config.scheduler.decide(tokens(1)).decode.count).toBe(2);
  });

  it("saturation is the mean of the worse ratio, an unknown endpoint counts as full", () => {
    const config = detector("utilization-detector", "null");
    expect(sheds(config)).toBe(true);
    for (let i = 0; i < 3; i++) config.endpoints.known[i] = 7;
    expect(sheds(config)).toBe(false);
    config.endpoints.waiting[0] = 10;
    config.endpoints.kvUsage[1] = 0.4;
    expect(sheds(config)).toBe(false); // (2 + 0.5 + 0) / 3
    config.endpoints.kvUsage[2] = 0.4;
    expect(sheds(config)).toBe(true); // (2 + 0.5 + 0.5) / 3
  });

  it("checks its parameters", () => {
    expect(pluginError('{"type":"utilization-detector","parameters":{"queueDepthThreshold":0}}', "plugins[0].parameters.queueDepthThreshold", "at least 1")).toBe("");
    expect(pluginError('{"type":"utilization-detector","parameters":{"kvCacheUtilThreshold":0}}', "plugins[0].parameters.kvCacheUtilThreshold", "greater than 0")).toBe("");
    expect(pluginError('{"type":"utilization-detector","parameters":{"kvCacheUtilThreshold":1.1}}', "plugins[0].parameters.kvCacheUtilThreshold", "between 0 and 1")).toBe("");
    expect(pluginError('{"type":"utilization-detector","parameters":{"metricsStalenessThreshold":200}}', "plugins[0].parameters.metricsStalenessThreshold", "must be a duration")).toBe("");
    expect(pluginError('{"type":"utilization-detector","parameters":{"metricsStalenessThreshold":"0s"}}', "plugins[0].parameters.metricsStalenessThreshold", "greater than 0")).toBe("");
    expect(pluginError('{"type":"utilization-detector","parameters":{"headroom":-0.1}}', "plugins[0].parameters.headroom", "at least 0")).toBe("");
  });
});

describe("concurrency-detector", () => {
  it("as a filter keeps what is under the limit of its mode", () => {
    const requests = detector("concurrency-detector", '{"maxConcurrency":10,"headroom":0.2}');
    requests.endpoints.inflightRequests[0] = 11;
    requests.endpoints.inflightRequests[1] = 12;
    expect(requests.scheduler.decide(tokens(1)).decode.count).toBe(2);
    const byTokens = detector("concurrency-detector", '{"concurrencyMode":"tokens","maxTokenConcurrency":1000}');
    byTokens.endpoints.inflightRequests[0] = 1000;
    byTokens.endpoints.inflightTokens[1] = 1000;
    expect(byTokens.scheduler.decide(tokens(1)).decode.count).toBe(2);
    const hybrid = detector("concurrency-detector", '{"concurrencyMode":"hybrid","maxConcurrency":10,"maxTokenConcurrency":1000}');
    hybrid.endpoints.inflightRequests[0] = 10;
    hybrid.endpoints.inflightTokens[1] = 1000;
    expect(hybrid.scheduler.decide(tokens(1)).decode.first).toBe(2);
  });

  it("hybrid saturation is the mean of each endpoint's worse ratio", () => {
    const config = detector("concurrency-detector", '{"concurrencyMode":"hybrid","maxConcurrency":10,"maxTokenConcurrency":1000}');
    config.endpoints.inflightRequests[0] = 20;
    config.endpoints.inflightTokens[1] = 900;
    expect(sheds(config)).toBe(false);
    config.endpoints.inflightTokens[1] = 1000;
    expect(sheds(config)).toBe(true);
  });

  it("checks its parameters", () => {
    expect(pluginError('{"type":"concurrency-detector","parameters":{"maxConcurrency":0}}', "plugins[0].parameters.maxConcurrency", "at least 1")).toBe("");
    expect(pluginError('{"type":"concurrency-detector","parameters":{"concurrencyMode":"both"}}', "plugins[0].parameters.concurrencyMode", "requests, tokens or hybrid")).toBe("");
    expect(pluginError('{"type":"concurrency-detector","parameters":{"headroom":-1}}', "plugins[0].parameters.headroom", "at least 0")).toBe("");
  });
});

describe("probabilistic-admitter", () => {
  it("sheds more the more saturated the fleet is, and never a request of priority 0", () => {
    const config = mustLoad(
      '{"plugins":[{"type":"probabilistic-admitter"},{"type":"utilization-detector","parameters":{"queueDepthThreshold":999999999,"kvCacheUtilThreshold":1.0}}],"flowControl":{"saturationDetector":{"pluginRef":"utilization-detector"}},"schedulingProfiles":[{"name":"default"}]}',
      "-",
    );
    config.endpoints.known[0] = 7;
    // Saturation 0.2: 0.2^5 * 300 = 0.096.
    config.endpoints.waiting[0] = 1;
    let shed = 0;
    for (let i = 0; i < 2000; i++) if (sheds(config)) shed++;
    expect(shed).toBeGreaterThan(130);
    expect(shed).toBeLessThan(260);
    config.endpoints.waiting[0] = 5;
    expect(sheds(config)).toBe(true);
    expect(config.scheduler.decide(tokens(10)).outcome).toBe(Outcome.Ok);
  });

  it("checks its parameters", () => {
    expect(pluginError('{"type":"probabilistic-admitter","parameters":{"power":0}}', "plugins[0].parameters.power", "greater than 0")).toBe("");
    expect(pluginError('{"type":"probabilistic-admitter","parameters":{"queueDepthThreshold":0}}', "plugins[0].parameters.queueDepthThreshold", "at least 1")).toBe("");
  });
});
