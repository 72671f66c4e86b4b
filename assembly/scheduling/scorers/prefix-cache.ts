// `prefix-cache-scorer` (scheduler §4.4), with the index parameters that the seed writes under it (scheduler §12.1).
import { APPROX_PREFIX_CACHE_PRODUCER, Build } from "../../config/build";
import { MAX_SAFE, Node } from "../../config/node";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";
import { PrefixParams, PREFIX_FIELDS } from "../producers/approx-prefix-cache";

export class PrefixCacheScorer extends Plugin {
  constructor(
    private readonly lengthWeight: f64,
    private readonly scaleTokens: f64,
    /** The index parameters given here, null when there are none. */
    public readonly index: PrefixParams | null,
    /** Where they stand, for messages. */
    public readonly indexNode: Node,
  ) {
    super(PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields([
      "prefixMatchInfoProducerName",
      "matchLengthWeight",
      "matchLengthScaleTokens",
      "autoTune",
      "blockSizeTokens",
      "blockSize",
      "maxPrefixTokensToMatch",
      "maxPrefixBlocksToMatch",
      "lruCapacityPerServer",
    ]);
    build.producer(parameters, "prefixMatchInfoProducerName", APPROX_PREFIX_CACHE_PRODUCER);
    const lengthWeight = parameters.floatOf("matchLengthWeight", 0, 0, 1);
    const scaleNode = parameters.get("matchLengthScaleTokens");
    let scale = scaleNode.whole(8192, -MAX_SAFE, MAX_SAFE);
    if (scale <= 0) {
      if (lengthWeight > 0) scaleNode.error("must be greater than 0 with a matchLengthWeight");
      scale = 8192;
    }
    let index: PrefixParams | null = null;
    for (let i = 0; i < PREFIX_FIELDS.length && index === null; i++) {
      if (parameters.has(PREFIX_FIELDS[i])) {
        index = PrefixParams.read(parameters);
        parameters.warn("the prefix index's parameters belong to approx-prefix-cache-producer (accepted here)");
      }
    }
    return new PrefixCacheScorer(lengthWeight, scale, index, parameters);
  }

  score(pass: Pass): void {
    const table = pass.table;
    const total = <f64>pass.facts.totalBlocks;
    const w = this.lengthWeight;
    for (let i = 0, n = pass.count; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      let score = 0.0;
      if (total > 0) {
        score = <f64>unchecked(table.matchedBlocks[endpoint]) / total;
        if (w > 0) {
          // Matched tokens rather than blocks times block size: the last partial block counts with its own tokens (scheduler L6).
          const length = Math.min(1, <f64>unchecked(table.matchedTokens[endpoint]) / this.scaleTokens);
          score = w * length * length + (1 - w) * score;
        }
      }
      unchecked((pass.raw[i] = score));
    }
  }
}
