export { Pass, Picks } from "./pass";
export { Plugin, PluginKind } from "./plugin";
export { PrefixParams } from "./producers/approx-prefix-cache";
export { EngineMetrics, ExtractorParams } from "./producers/core-metrics-extractor";
export { InflightParams } from "./producers/inflight-load";
export { Resolution, TokenParams } from "./producers/token";
export { Profile } from "./profile";
export { Random } from "./random";
export { NeverSplit, RequestFacts } from "./request";
