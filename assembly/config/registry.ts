// Every plugin type that is known. A new plugin is one new file and one line here.
import { AlwaysPrefillDecider, MultimodalDecider } from "../disagg/deciders/always";
import { PrefixBasedDecider } from "../disagg/deciders/prefix-based";
import { DataParallelProfileHandler } from "../disagg/handlers/data-parallel";
import { DisaggProfileHandler } from "../disagg/handlers/disagg";
import { HeadersHandler } from "../disagg/handlers/headers";
import { PdProfileHandler } from "../disagg/handlers/pd";
import { SingleProfileHandler } from "../disagg/handlers/single";
import { ProbabilisticAdmitter } from "../scheduling/admitters/probabilistic";
import { ConcurrencyDetector } from "../scheduling/detectors/concurrency";
import { UtilizationDetector } from "../scheduling/detectors/utilization";
import { ByLabelFilter } from "../scheduling/filters/by-label";
import { ContextLengthAware } from "../scheduling/filters/context-length";
import { LabelSelectorFilter } from "../scheduling/filters/label-selector";
import { PrefixCacheAffinityFilter } from "../scheduling/filters/prefix-cache-affinity";
import { RoleFilter } from "../scheduling/filters/role";
import { SessionAffinityFilter } from "../scheduling/filters/session-affinity";
import { TopologyAffinityFilter } from "../scheduling/filters/topology-affinity";
import { UtilizationFilter } from "../scheduling/filters/utilization";
import { MaxScorePicker } from "../scheduling/pickers/max-score";
import { RandomPicker } from "../scheduling/pickers/random";
import { WeightedRandomPicker } from "../scheduling/pickers/weighted-random";
import { Plugin } from "../scheduling/plugin";
import { ApproxPrefixCacheProducer } from "../scheduling/producers/approx-prefix-cache";
import { CoreMetricsExtractor } from "../scheduling/producers/core-metrics-extractor";
import { FileDiscovery } from "../scheduling/producers/file-discovery";
import { InflightLoadProducer } from "../scheduling/producers/inflight-load";
import { MetricsDataSource } from "../scheduling/producers/metrics-data-source";
import { MmEmbeddingsCacheProducer } from "../scheduling/producers/mm-embeddings-cache";
import { P2pSourceProducer } from "../scheduling/producers/p2p-source";
import { Parser } from "../scheduling/producers/parser";
import { SessionIdProducer } from "../scheduling/producers/session-id";
import { TokenProducer } from "../scheduling/producers/token";
import { TopologyExtractor } from "../scheduling/producers/topology-extractor";
import { ActiveRequestScorer } from "../scheduling/scorers/active-request";
import { KvCacheUtilizationScorer } from "../scheduling/scorers/kv-cache-utilization";
import { LoadAwareScorer } from "../scheduling/scorers/load-aware";
import { LoraAffinityScorer } from "../scheduling/scorers/lora-affinity";
import { QueueScorer, RunningRequestsScorer } from "../scheduling/scorers/lowest-first";
import { MmEmbeddingsCacheScorer } from "../scheduling/scorers/mm-embeddings-cache";
import { NoHitLruScorer } from "../scheduling/scorers/no-hit-lru";
import { PrefixCacheScorer } from "../scheduling/scorers/prefix-cache";
import { SessionAffinityScorer } from "../scheduling/scorers/session-affinity";
import { TokenLoadScorer } from "../scheduling/scorers/token-load";
import { TopologyAffinityScorer } from "../scheduling/scorers/topology-affinity";
import { APPROX_PREFIX_CACHE_PRODUCER, Build, INFLIGHT_LOAD_PRODUCER, MM_EMBEDDINGS_CACHE_PRODUCER, SESSION_ID_PRODUCER, TOKEN_PRODUCER, TOPOLOGY_EXTRACTOR } from "./build";
import { Node } from "./node";

/** Makes a plugin of a supported type; null for any other. What is wrong with the parameters is reported at their node. */
export function createPlugin(type: string, parameters: Node, build: Build): Plugin | null {
  if (type == "label-selector-filter" || type == "by-label-selector") return LabelSelectorFilter.read(parameters, build);
  if (type == "by-label") return ByLabelFilter.read(parameters, build);
  if (type == "encode-filter") return RoleFilter.encode(parameters, build);
  if (type == "prefill-filter") return RoleFilter.prefill(parameters, build);
  if (type == "decode-filter") return RoleFilter.decode(parameters, build);
  if (type == "utilization-filter") return UtilizationFilter.read(parameters, build);
  if (type == "prefix-cache-affinity-filter") return PrefixCacheAffinityFilter.read(parameters, build);
  if (type == "topology-affinity-filter") return TopologyAffinityFilter.read(parameters, build);
  if (type == "context-length-aware") return ContextLengthAware.read(parameters, build);
  if (type == "session-affinity-filter") return SessionAffinityFilter.read(parameters, build);
  if (type == "queue-scorer") return QueueScorer.read(parameters, build);
  if (type == "running-requests-size-scorer") return RunningRequestsScorer.read(parameters, build);
  if (type == "kv-cache-utilization-scorer") return KvCacheUtilizationScorer.read(parameters, build);
  if (type == "load-aware-scorer") return LoadAwareScorer.read(parameters, build);
  if (type == "active-request-scorer") return ActiveRequestScorer.read(parameters, build);
  if (type == "token-load-scorer") return TokenLoadScorer.read(parameters, build);
  if (type == "prefix-cache-scorer") return PrefixCacheScorer.read(parameters, build);
  if (type == "no-hit-lru-scorer") return NoHitLruScorer.read(parameters, build);
  if (type == "lora-affinity-scorer") return LoraAffinityScorer.read(parameters, build);
  if (type == "session-affinity-scorer") return SessionAffinityScorer.read(parameters, build);
  if (type == "mm-embeddings-cache-scorer") return MmEmbeddingsCacheScorer.read(parameters, build);
  if (type == "topology-affinity-scorer") return TopologyAffinityScorer.read(parameters, build);
  if (type == "max-score-picker") return MaxScorePicker.read(parameters, build);
  if (type == "random-picker") return RandomPicker.read(parameters, build);
  if (type == "weighted-random-picker") return WeightedRandomPicker.read(parameters, build);
  if (type == "single-profile-handler") return SingleProfileHandler.read(parameters, build);
  if (type == "disagg-profile-handler") return DisaggProfileHandler.read(parameters, build);
  if (type == "pd-profile-handler") return PdProfileHandler.read(parameters, build);
  if (type == "data-parallel-profile-handler") return DataParallelProfileHandler.read(parameters, build);
  if (type == "disagg-headers-handler" || type == "prefill-header-handler") return HeadersHandler.read(parameters, build);
  if (type == "prefix-based-pd-decider") return PrefixBasedDecider.read(parameters, build);
  if (type == "always-disagg-pd-decider") return AlwaysPrefillDecider.read(parameters, build);
  if (type == "always-disagg-multimodal-decider") return MultimodalDecider.read(parameters, build);
  if (type == TOKEN_PRODUCER || type == "tokenizer") return TokenProducer.read(parameters, build);
  if (type == APPROX_PREFIX_CACHE_PRODUCER) return ApproxPrefixCacheProducer.read(parameters, build);
  if (type == INFLIGHT_LOAD_PRODUCER) return InflightLoadProducer.read(parameters, build);
  if (type == MM_EMBEDDINGS_CACHE_PRODUCER) return MmEmbeddingsCacheProducer.read(parameters, build);
  if (type == SESSION_ID_PRODUCER) return SessionIdProducer.read(parameters, build);
  if (type == "p2p-source-producer") return P2pSourceProducer.read(parameters, build);
  if (type == "utilization-detector") return UtilizationDetector.read(parameters, build);
  if (type == "concurrency-detector") return ConcurrencyDetector.read(parameters, build);
  if (type == "probabilistic-admitter") return ProbabilisticAdmitter.read(parameters, build);
  if (isParser(type)) return Parser.read(parameters, build);
  if (type == "metrics-data-source") return MetricsDataSource.read(parameters, build);
  if (type == "core-metrics-extractor") return CoreMetricsExtractor.read(parameters, build);
  if (type == TOPOLOGY_EXTRACTOR) return TopologyExtractor.read(parameters, build);
  if (type == "file-discovery") return FileDiscovery.read(parameters, build);
  return null;
}

/** Types that the reference runs only with a switch (scheduler CF-18). */
const ALPHA: string =
  " session-affinity-filter session-affinity-scorer utilization-filter topology-affinity-filter topology-affinity-scorer p2p-source-producer topology-extractor ";

export function isAlpha(type: string): bool {
  return listed(ALPHA, type);
}

const PARSERS: string = " openai-parser anthropic-parser vllmhttp-parser sglanghttp-parser passthrough-parser ";

/** Parsers may be referred to without being declared (scheduler §1.4, 6). */
export function isParser(type: string): bool {
  return listed(PARSERS, type);
}

function listed(names: string, name: string): bool {
  return !name.includes(" ") && names.includes(" " + name + " ");
}

/** What takes the place of a deprecated type, "" for one that is not (scheduler §1.5). */
export function replacementOf(type: string): string {
  if (type == "by-label-selector" || type == "by-label") return "label-selector-filter";
  if (type == "pd-profile-handler" || type == "disagg-headers-handler" || type == "prefill-header-handler") return "disagg-profile-handler";
  if (type == "data-parallel-profile-handler") return "one endpoint per rank";
  if (type == "tokenizer") return TOKEN_PRODUCER;
  return "";
}

/** The reference's types that have no in-line form: a reason, then the types (scheduler §2). */
const UNSUPPORTED: StaticArray<string> = [
  "FilterOptions revisionLabel keeps prefill and decode of a request on one revision",
  " disaggregatedset-rollout-screener ",
  "the filter does not read the response",
  " request-attribute-reporter ",
  "engine events arrive over ZMQ, which a filter cannot read",
  " precise-prefix-cache-scorer precise-prefix-cache-producer ",
  "it holds requests back to batch them",
  " burst-prefix-cache-producer ",
  "the latency predictor is an external service",
  " predicted-latency-producer latency-scorer latency-slo-admitter slo-headroom-tier-filter ",
  "of the engines only their load is read",
  " endpoint-attribute-filter endpoint-attribute-scorer dcgm-data-source dcgm-extractor models-data-source models-data-extractor ",
  "plugins see the request's body, not its headers",
  " header-label-affinity-scorer header-profile-handler ",
  "it exists for the reference's own tests",
  " header-based-testing-filter destination-endpoint-served-verifier ",
  "neither gRPC nor Vertex requests are read",
  " vllmgrpc-parser vertexai-parser ",
  "requests are not queued inside Envoy",
  " agent-identity fcfs-ordering-policy edf-ordering-policy slo-deadline-ordering-policy global-strict-fairness-policy round-robin-fairness-policy program-aware-fairness static-usage-limit-policy priority-holdback-policy soft-reflective-ceiling-policy sheddable-eviction-filter priority-then-time-eviction-order-policy ",
  "it watches Kubernetes objects",
  " k8s-notification-source endpoint-notification-source disaggregatedset-rollout-pod-extractor ",
  "an Envoy shares no state with another",
  " local-syncer ",
  "one Envoy schedules one cluster",
  " multicluster-session-affinity-filter multicluster-queue-scorer multicluster-kv-cache-utilization-scorer multicluster-prefix-cache-scorer multicluster-approx-prefix-cache-producer multicluster-metrics-data-source multicluster-metrics-extractor multicluster-file-discovery ",
];

/** Why a known type is not supported, "" when it is not known. */
export function unsupportedReason(type: string): string {
  for (let i = 0; i < UNSUPPORTED.length; i += 2) if (listed(UNSUPPORTED[i + 1], type)) return UNSUPPORTED[i];
  return "";
}
