// `prefix-based-pd-decider` (scheduler §3.8).
import { APPROX_PREFIX_CACHE_PRODUCER, Build } from "../../config/build";
import { Node } from "../../config/node";
import { EndpointTable } from "../../endpoints/table";
import { Plugin } from "../../scheduling/plugin";
import { RequestFacts } from "../../scheduling/request";
import { PrefillReason } from "../reasons";
import { PrefillDecider } from "./decider";

export class PrefixBasedDecider extends PrefillDecider {
  constructor(
    /** Uncached tokens from which on the prompt is prefilled elsewhere; 0: never. */
    private readonly nonCachedTokens: i32,
    /** Tokens that a prompt must have; 0: any number. */
    private readonly promptTokens: i32,
  ) {
    super();
  }

  static read(parameters: Node, build: Build): Plugin {
    // The producer's name is ours (scheduler L7): the reference's decider knows the default one only.
    parameters.fields(["nonCachedTokens", "promptTokens", "prefixMatchInfoProducerName"]);
    build.producer(parameters, "prefixMatchInfoProducerName", APPROX_PREFIX_CACHE_PRODUCER);
    return new PrefixBasedDecider(parameters.countOf("nonCachedTokens", 0, 0), parameters.countOf("promptTokens", 0, 0));
  }

  prefill(facts: RequestFacts, table: EndpointTable, decode: i32): PrefillReason {
    if (this.nonCachedTokens == 0) return PrefillReason.SkipThresholdZero;
    if (decode < 0 || !facts.hasTokens) return PrefillReason.SkipNoTokens;
    const tokens = facts.tokens;
    if (tokens < this.promptTokens || tokens < this.nonCachedTokens) return PrefillReason.SkipShortPrompt;
    // Without a block size the index was not asked, and what the endpoint holds is not known (scheduler DC-11).
    if (facts.blockTokens <= 0) return PrefillReason.SkipNoTokens;
    const suffix = tokens - table.matchedTokens[decode];
    if (suffix <= 0) return PrefillReason.SkipCached;
    return suffix < this.nonCachedTokens ? PrefillReason.SkipShortSuffix : PrefillReason.RunUncached;
  }
}
