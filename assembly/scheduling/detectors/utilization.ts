// `utilization-detector` (scheduler §2.8): saturation by scraped load; as a filter it drops endpoints over their limits.
import { Build } from "../../config/build";
import { readDuration } from "../../config/quantity";
import { HUGE, MAX_SAFE, Node } from "../../config/node";
import { EndpointTable, KNOWN_KV_USAGE, KNOWN_WAITING } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

const KNOWN_BOTH: u8 = KNOWN_WAITING | KNOWN_KV_USAGE;

export class UtilizationDetector extends Plugin {
  constructor(
    private readonly queueDepth: f64,
    private readonly kvUsage: f64,
    private readonly headroom: f64,
  ) {
    super(PluginKind.Filter | PluginKind.SaturationDetector);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold", "headroom"]);
    const queueDepth = parameters.wholeOf("queueDepthThreshold", 5, 1, MAX_SAFE);
    const kvNode = parameters.get("kvCacheUtilThreshold");
    const kvUsage = kvNode.float(0.8, 0, 1);
    if (kvUsage == 0) kvNode.error("must be greater than 0");
    const staleNode = parameters.get("metricsStalenessThreshold");
    if (staleNode.present) {
      if (readDuration(staleNode, 1) == 0) staleNode.error("must be greater than 0");
      staleNode.warn("ignored: FilterOptions scrape.intervalMs decides");
    }
    const headroom = parameters.floatOf("headroom", 0, 0, HUGE);
    return new UtilizationDetector(queueDepth, kvUsage, headroom);
  }

  /** An endpoint without both values counts as saturated, as in the reference. */
  saturation(table: EndpointTable): f64 {
    return meanSaturation(table, this.queueDepth, this.kvUsage);
  }

  keep(pass: Pass): void {
    const candidates = pass.candidates;
    const n = pass.count;
    let good = 0;
    for (let i = 0; i < n; i++) if (this.holds(pass.table, unchecked(candidates[i]))) good++;
    if (good == 0) return; // It never leaves a request without an endpoint.
    let kept = 0;
    for (let i = 0; i < n; i++) {
      const endpoint = unchecked(candidates[i]);
      if (this.holds(pass.table, endpoint)) unchecked((candidates[kept++] = endpoint));
    }
    pass.count = kept;
  }

  private holds(table: EndpointTable, endpoint: i32): bool {
    if ((unchecked(table.known[endpoint]) & KNOWN_BOTH) != KNOWN_BOTH) return false;
    const factor = 1 + this.headroom;
    return unchecked(table.waiting[endpoint]) < this.queueDepth * factor && unchecked(table.kvUsage[endpoint]) < this.kvUsage * factor;
  }
}

/** Mean over the endpoints of max(queue / threshold, usage / threshold); unknown ones count 1, an empty fleet 1. */
export function meanSaturation(table: EndpointTable, queueDepth: f64, kvUsage: f64): f64 {
  const n = table.count;
  if (n == 0) return 1;
  let sum = 0.0;
  for (let i = 0; i < n; i++) {
    if ((unchecked(table.known[i]) & KNOWN_BOTH) != KNOWN_BOTH) sum += 1;
    else sum += Math.max(unchecked(table.waiting[i]) / queueDepth, unchecked(table.kvUsage[i]) / kvUsage);
  }
  return sum / <f64>n;
}
