// `inflight-load-producer` (scheduler §2.5, §5.3): how the tokens of a request in flight are counted. The counts themselves are endpoints/.
import { APPROX_PREFIX_CACHE_PRODUCER, Build } from "../../config/build";
import { HUGE, Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

export class InflightParams {
  /** Add an estimate of the answer's tokens to those of the prompt. */
  addEstimatedOutputTokens: bool = false;
  /** Tokens of the answer per token of the prompt. */
  outputRatio: f64 = 1.5;
  /** Cap of the estimate; -1: none. */
  maxEstimatedOutputTokens: i32 = -1;

  /**
   * Tokens that a request puts on an endpoint: those of the prompt that are not cached there, and the estimate of the answer when it is switched on
   * (scheduler §5.3). Never negative.
   */
  tokensFor(promptTokens: i32, matchedTokens: i32): i32 {
    let total = Math.max(<f64>promptTokens - <f64>matchedTokens, 0);
    if (this.addEstimatedOutputTokens) {
      let output = Math.floor(<f64>promptTokens * this.outputRatio);
      if (this.maxEstimatedOutputTokens >= 0) output = Math.min(output, <f64>this.maxEstimatedOutputTokens);
      total += output;
    }
    return <i32>Math.min(total, <f64>i32.MAX_VALUE);
  }
}

export class InflightLoadProducer extends Plugin {
  constructor(public readonly params: InflightParams) {
    super(PluginKind.Producer);
  }

  static read(parameters: Node, build: Build): Plugin {
    const params = new InflightParams();
    parameters.fields(["addEstimatedOutputTokens", "outputRatio", "maxEstimatedOutputTokens", "prefixMatchInfoProducerName", "syncCrossReplicaState"]);
    params.addEstimatedOutputTokens = parameters.boolOf("addEstimatedOutputTokens", false);
    params.outputRatio = parameters.floatOf("outputRatio", 1.5, 0, HUGE);
    params.maxEstimatedOutputTokens = parameters.countOf("maxEstimatedOutputTokens", -1, 0);
    build.producer(parameters, "prefixMatchInfoProducerName", APPROX_PREFIX_CACHE_PRODUCER);
    // The workers of one Envoy always share their counts, and nothing else can be shared with.
    parameters.boolOf("syncCrossReplicaState", true);
    return new InflightLoadProducer(params);
  }
}
