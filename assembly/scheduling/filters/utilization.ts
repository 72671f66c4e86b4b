// `utilization-filter` (scheduler §2.1): caps on load signals, all of which must hold.
import { Build, INFLIGHT_LOAD_PRODUCER } from "../../config/build";
import { HUGE, Node } from "../../config/node";
import { EndpointTable, KNOWN_KV_USAGE, KNOWN_RUNNING, KNOWN_WAITING } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

const enum Metric {
  ActiveRequests,
  RunningRequests,
  WaitingQueue,
  KvCacheUtilization,
}

const METRICS: StaticArray<string> = ["active-requests", "running-requests", "waiting-queue", "kv-cache-utilization"];

export class UtilizationFilter extends Plugin {
  private readonly metrics: Array<i32> = [];
  private readonly maxima: Array<f64> = [];
  private fallbackOnEmpty: bool = false;

  constructor() {
    super(PluginKind.Filter);
  }

  static read(parameters: Node, build: Build): Plugin {
    const filter = new UtilizationFilter();
    parameters.fields(["conditions", "fallbackOnEmpty", "inFlightLoadProducerName"]);
    filter.fallbackOnEmpty = parameters.boolOf("fallbackOnEmpty", false);
    build.producer(parameters, "inFlightLoadProducerName", INFLIGHT_LOAD_PRODUCER);
    const conditions = parameters.get("conditions");
    if (conditions.length == 0 && (conditions.isArray || !conditions.present)) conditions.error("at least one condition is required");
    const items = conditions.elements();
    for (let i = 0; i < items.length; i++) {
      const item = items[i];
      if (!item.fields(["metric", "maxValue"])) continue;
      const metricNode = item.get("metric");
      if (!metricNode.present) metricNode.error("is required");
      const metric = METRICS.indexOf(metricNode.oneOf(METRICS));
      const maxNode = item.get("maxValue");
      if (!maxNode.present) maxNode.error("is required");
      filter.metrics.push(metric);
      filter.maxima.push(maxNode.float(0, 0, metric == Metric.KvCacheUtilization ? 1 : HUGE));
    }
    return filter;
  }

  keep(pass: Pass): void {
    const candidates = pass.candidates;
    const n = pass.count;
    // Whether any is left is counted first, so that the candidates need no copy for the fallback.
    if (this.fallbackOnEmpty) {
      let some = false;
      for (let i = 0; i < n && !some; i++) some = this.holds(pass.table, unchecked(candidates[i]));
      if (!some) return;
    }
    let kept = 0;
    for (let i = 0; i < n; i++) {
      const endpoint = unchecked(candidates[i]);
      if (this.holds(pass.table, endpoint)) unchecked((candidates[kept++] = endpoint));
    }
    pass.count = kept;
  }

  /** An unknown value passes: it is no reason to leave an endpoint out (scheduler L10). */
  private holds(table: EndpointTable, endpoint: i32): bool {
    for (let c = 0; c < this.metrics.length; c++) {
      const metric = unchecked(this.metrics[c]);
      const known = unchecked(table.known[endpoint]);
      let value = 0.0;
      if (metric == Metric.ActiveRequests) value = <f64>unchecked(table.inflightRequests[endpoint]);
      else if (metric == Metric.RunningRequests) value = known & KNOWN_RUNNING ? unchecked(table.running[endpoint]) : 0;
      else if (metric == Metric.WaitingQueue) value = known & KNOWN_WAITING ? unchecked(table.waiting[endpoint]) : 0;
      else value = known & KNOWN_KV_USAGE ? unchecked(table.kvUsage[endpoint]) : 0;
      if (value > unchecked(this.maxima[c])) return false;
    }
    return true;
  }
}
