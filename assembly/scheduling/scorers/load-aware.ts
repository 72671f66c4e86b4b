// `load-aware-scorer` (scheduler §2.2): 0.5 for an empty queue, falling to 0 at the threshold.
import { Build, NOT_POSITIVE } from "../../config/build";
import { MAX_SAFE, Node } from "../../config/node";
import { KNOWN_WAITING } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

const DEFAULT_THRESHOLD: f64 = 128;

export class LoadAwareScorer extends Plugin {
  constructor(private readonly threshold: f64) {
    super(PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["threshold"]);
    const node = parameters.get("threshold");
    let threshold = node.whole(DEFAULT_THRESHOLD, -MAX_SAFE, MAX_SAFE);
    if (threshold <= 0) {
      node.warn(NOT_POSITIVE);
      threshold = DEFAULT_THRESHOLD;
    }
    return new LoadAwareScorer(threshold);
  }

  /** An unknown queue gets the middle of the range (scheduler L10); what was sent since the scrape counts as queued. */
  score(pass: Pass): void {
    const table = pass.table;
    const threshold = this.threshold;
    for (let i = 0, n = pass.count; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      let score = 0.25;
      if (unchecked(table.known[endpoint]) & KNOWN_WAITING) {
        score = 0.5 * (1 - Math.min(unchecked(table.waiting[endpoint]) + <f64>unchecked(table.sinceScrape[endpoint]), threshold) / threshold);
      }
      unchecked((pass.raw[i] = score));
    }
  }
}
