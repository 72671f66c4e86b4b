// `prefix-cache-affinity-filter` (scheduler §2.1): keeps the endpoints that hold most of the prompt, unless they are that much busier than the others.
import { APPROX_PREFIX_CACHE_PRODUCER, Build, INFLIGHT_LOAD_PRODUCER, NOT_IN_LINE } from "../../config/build";
import { HUGE, Node } from "../../config/node";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

export class PrefixCacheAffinityFilter extends Plugin {
  constructor(
    private readonly threshold: f64,
    private readonly exploration: f64,
    private readonly maxPenaltyMs: f64,
    private readonly tokensPerSecond: f64,
  ) {
    super(PluginKind.Filter);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields([
      "affinityThreshold",
      "explorationProbability",
      "maxTTFTPenaltyMs",
      "ttftSource",
      "peakPrefillThroughput",
      "prefixMatchInfoProducerName",
      "latencyPredictionInfoProducerName",
      "inFlightLoadProducerName",
    ]);
    const threshold = parameters.floatOf("affinityThreshold", 0.8, -HUGE, 1);
    const exploration = parameters.floatOf("explorationProbability", 0, 0, 1);
    const maxPenaltyMs = parameters.floatOf("maxTTFTPenaltyMs", 18000, 0, HUGE);
    const throughputNode = parameters.get("peakPrefillThroughput");
    const throughput = throughputNode.float(15928, 0, HUGE);
    if (throughput == 0 && maxPenaltyMs > 0) throughputNode.error("must be greater than 0 unless maxTTFTPenaltyMs is 0");
    const sourceNode = parameters.get("ttftSource");
    if (sourceNode.oneOf(["prefillThroughput", "latencyPredictor"]) == "latencyPredictor") {
      sourceNode.error(NOT_IN_LINE + "the latency predictor is an external service");
    }
    build.producer(parameters, "prefixMatchInfoProducerName", APPROX_PREFIX_CACHE_PRODUCER);
    build.producer(parameters, "inFlightLoadProducerName", INFLIGHT_LOAD_PRODUCER);
    return new PrefixCacheAffinityFilter(threshold, exploration, maxPenaltyMs, throughput);
  }

  keep(pass: Pass): void {
    const n = pass.count;
    if (n <= 1 || this.threshold <= 0 || pass.facts.totalBlocks <= 0) return;
    if (this.exploration > 0 && pass.random.unit() < this.exploration) return;

    const table = pass.table;
    const candidates = pass.candidates;
    const blocksNeeded = this.threshold * <f64>pass.facts.totalBlocks;
    let sticky = 0;
    let bestSticky = Infinity;
    let bestOther = Infinity;
    for (let i = 0; i < n; i++) {
      const endpoint = unchecked(candidates[i]);
      const tokens = <f64>unchecked(table.inflightTokens[endpoint]);
      if (<f64>unchecked(table.matchedBlocks[endpoint]) >= blocksNeeded) {
        sticky++;
        if (tokens < bestSticky) bestSticky = tokens;
      } else if (tokens < bestOther) bestOther = tokens;
    }
    if (sticky == 0 || sticky == n) return;
    // Time to the first token, taken as the tokens in flight over the peak prefill rate.
    if (this.maxPenaltyMs > 0 && ((bestSticky - bestOther) / this.tokensPerSecond) * 1000 > this.maxPenaltyMs) return;
    let kept = 0;
    for (let i = 0; i < n; i++) {
      const endpoint = unchecked(candidates[i]);
      if (<f64>unchecked(table.matchedBlocks[endpoint]) >= blocksNeeded) unchecked((candidates[kept++] = endpoint));
    }
    pass.count = kept;
  }
}
