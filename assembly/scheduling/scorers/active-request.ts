// `active-request-scorer` (scheduler §2.2): by the requests that this Envoy has in flight, which no scrape delays.
import { Build, INFLIGHT_LOAD_PRODUCER, unused } from "../../config/build";
import { HUGE, MAX_SAFE, Node } from "../../config/node";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

export class ActiveRequestScorer extends Plugin {
  constructor(
    private readonly idleThreshold: f64,
    private readonly maxBusyScore: f64,
  ) {
    super(PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["idleThreshold", "maxBusyScore", "inFlightLoadProducerName", "requestTimeout"]);
    unused(parameters.get("requestTimeout"));
    build.producer(parameters, "inFlightLoadProducerName", INFLIGHT_LOAD_PRODUCER);
    const idleNode = parameters.get("idleThreshold");
    let idle = idleNode.whole(0, -MAX_SAFE, MAX_SAFE);
    if (idle < 0) {
      idleNode.warn("must not be negative: 0 is used");
      idle = 0;
    }
    const busyNode = parameters.get("maxBusyScore");
    let busy = busyNode.float(1, -HUGE, HUGE);
    if (busy < 0 || busy > 1) {
      busyNode.warn("must be between 0 and 1: 1 is used");
      busy = 1;
    }
    return new ActiveRequestScorer(idle, busy);
  }

  score(pass: Pass): void {
    const requests = pass.table.inflightRequests;
    const n = pass.count;
    let max = 0.0;
    for (let i = 0; i < n; i++) {
      const count = <f64>unchecked(requests[pass.candidates[i]]);
      if (count > max) max = count;
    }
    for (let i = 0; i < n; i++) {
      const count = <f64>unchecked(requests[pass.candidates[i]]);
      unchecked((pass.raw[i] = count <= this.idleThreshold ? 1 : ((max - count) / max) * this.maxBusyScore));
    }
  }
}
