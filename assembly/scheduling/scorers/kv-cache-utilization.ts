// `kv-cache-utilization-scorer` (scheduler §2.2): 1 - usage.
import { Build, noParameters } from "../../config/build";
import { Node } from "../../config/node";
import { KNOWN_KV_USAGE } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";

export class KvCacheUtilizationScorer extends Plugin {
  constructor() {
    super(PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new KvCacheUtilizationScorer();
  }

  score(pass: Pass): void {
    const table = pass.table;
    for (let i = 0, n = pass.count; i < n; i++) {
      const endpoint = unchecked(pass.candidates[i]);
      unchecked((pass.raw[i] = table.known[endpoint] & KNOWN_KV_USAGE ? 1 - table.kvUsage[endpoint] : 0.5));
    }
  }
}
