// `concurrency-detector` (scheduler §2.8): saturation by what is in flight; as a filter it drops endpoints at their limits.
import { Build, INFLIGHT_LOAD_PRODUCER } from "../../config/build";
import { HUGE, MAX_SAFE, Node } from "../../config/node";
import { EndpointTable } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

const enum Mode {
  Requests,
  Tokens,
  Hybrid,
}

const MODES: StaticArray<string> = ["requests", "tokens", "hybrid"];

export class ConcurrencyDetector extends Plugin {
  constructor(
    private readonly mode: i32,
    private readonly maxRequests: f64,
    private readonly maxTokens: f64,
    private readonly headroom: f64,
  ) {
    super(PluginKind.Filter | PluginKind.SaturationDetector);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["maxConcurrency", "maxTokenConcurrency", "concurrencyMode", "headroom", "inFlightLoadProducerName"]);
    build.producer(parameters, "inFlightLoadProducerName", INFLIGHT_LOAD_PRODUCER);
    return new ConcurrencyDetector(
      MODES.indexOf(parameters.get("concurrencyMode").oneOf(MODES)),
      parameters.wholeOf("maxConcurrency", 100, 1, MAX_SAFE),
      parameters.wholeOf("maxTokenConcurrency", 1000000, 1, MAX_SAFE),
      parameters.floatOf("headroom", 0, 0, HUGE),
    );
  }

  /** Requests or tokens: all that is in flight over all that may be. Hybrid: the mean of each endpoint's worse ratio. */
  saturation(table: EndpointTable): f64 {
    const n = table.count;
    if (n == 0) return 1;
    let sum = 0.0;
    for (let i = 0; i < n; i++) {
      const requests = <f64>unchecked(table.inflightRequests[i]) / this.maxRequests;
      const tokens = <f64>unchecked(table.inflightTokens[i]) / this.maxTokens;
      sum += this.mode == Mode.Requests ? requests : this.mode == Mode.Tokens ? tokens : Math.max(requests, tokens);
    }
    return sum / <f64>n;
  }

  keep(pass: Pass): void {
    const table = pass.table;
    const requestLimit = Math.floor(this.maxRequests * (1 + this.headroom));
    const tokenLimit = Math.floor(this.maxTokens * (1 + this.headroom));
    let kept = 0;
    for (let i = 0, n = pass.count; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      const requests = <f64>unchecked(table.inflightRequests[endpoint]) < requestLimit;
      const tokens = <f64>unchecked(table.inflightTokens[endpoint]) < tokenLimit;
      if (this.mode == Mode.Requests ? requests : this.mode == Mode.Tokens ? tokens : requests && tokens) unchecked((pass.candidates[kept++] = endpoint));
    }
    pass.count = kept;
  }
}
