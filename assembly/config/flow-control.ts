// The flowControl section (scheduler §1.2). Requests are not queued inside Envoy, so its settings are checked and then ignored; the saturation detector counts.
import { MAX_SAFE, Node } from "./node";
import { readDuration, readQuantity } from "./quantity";

export class FlowControl {
  /** 0: no limit. */
  maxBytes: f64 = 0;
  maxRequests: f64 = 0;
  /** 0: no deadline. */
  defaultRequestTtlMs: f64 = 60000;
  /** Follows the default when it is absent (scheduler CF-19). */
  noEndpointRequestTtlMs: f64 = 60000;
}

/** Reads the section into `out`, and returns its `saturationDetector`. */
export function readFlowControl(node: Node, out: FlowControl): Node {
  const detector = node.get("saturationDetector");
  const known = node.fields([
    "maxBytes",
    "maxRequests",
    "defaultRequestTTL",
    "noEndpointRequestTTL",
    "defaultPriorityBand",
    "defaultNegativePriorityBand",
    "priorityBands",
    "usageLimitPolicyPluginRef",
    "saturationDetector",
    "enableEviction",
  ]);
  if (!known) return detector;
  out.maxBytes = readQuantity(node.get("maxBytes"), 0);
  out.maxRequests = readQuantity(node.get("maxRequests"), 0);
  out.defaultRequestTtlMs = readDuration(node.get("defaultRequestTTL"), 60000);
  out.noEndpointRequestTtlMs = readDuration(node.get("noEndpointRequestTTL"), out.defaultRequestTtlMs);
  readBand(node.get("defaultPriorityBand"));
  readBand(node.get("defaultNegativePriorityBand"));
  const bands = node.get("priorityBands");
  const items = bands.elements();
  for (let i = 0; i < items.length; i++) readBand(items[i]);
  node.textOf("usageLimitPolicyPluginRef", "");
  node.boolOf("enableEviction", false);
  if (node.length > (detector.present ? 1 : 0)) {
    node.warn("ignored, except saturationDetector: its feature gate is off");
  }
  return detector;
}

function readBand(node: Node): void {
  if (!node.fields(["priority", "maxBytes", "maxRequests", "fairnessPolicyRef", "orderingPolicyRef"])) return;
  node.wholeOf("priority", 0, -MAX_SAFE, MAX_SAFE);
  readQuantity(node.get("maxBytes"), 0);
  readQuantity(node.get("maxRequests"), 0);
  node.textOf("fairnessPolicyRef", "");
  node.textOf("orderingPolicyRef", "");
}
