// `token-load-scorer` (scheduler §2.2): by the tokens in flight, with those that this request would add.
import { Build, INFLIGHT_LOAD_PRODUCER, NOT_POSITIVE } from "../../config/build";
import { MAX_SAFE, Node } from "../../config/node";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

const DEFAULT_THRESHOLD: f64 = 4194304;

export class TokenLoadScorer extends Plugin {
  constructor(private readonly threshold: f64) {
    super(PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["queueThresholdTokens", "inFlightLoadProducerName"]);
    build.producer(parameters, "inFlightLoadProducerName", INFLIGHT_LOAD_PRODUCER);
    const node = parameters.get("queueThresholdTokens");
    let threshold = node.whole(DEFAULT_THRESHOLD, -MAX_SAFE, MAX_SAFE);
    if (threshold <= 0) {
      node.warn(NOT_POSITIVE);
      threshold = DEFAULT_THRESHOLD;
    }
    return new TokenLoadScorer(threshold);
  }

  score(pass: Pass): void {
    const table = pass.table;
    const threshold = this.threshold;
    const tokens = <f64>pass.facts.tokens;
    for (let i = 0, n = pass.count; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      const uncached = Math.max(tokens - <f64>unchecked(table.matchedTokens[endpoint]), 0);
      const load = Math.min(<f64>unchecked(table.inflightTokens[endpoint]) + uncached, threshold);
      unchecked((pass.raw[i] = 1 - load / threshold));
    }
  }
}
