// `p2p-source-producer` (scheduler §3.9): the endpoint whose cached prefix the computing pod may pull, for `x-kv-cache-source-host-port`.
import { APPROX_PREFIX_CACHE_PRODUCER, Build } from "../../config/build";
import { Node } from "../../config/node";
import { EndpointTable } from "../../endpoints/table";
import { Plugin, PluginKind } from "../plugin";

export class P2pSourceProducer extends Plugin {
  constructor(
    /** Tokens that the source must hold beyond those of the computing pod; at least 1. */
    public readonly minCachedTokenDelta: i32,
    /** Name of the profile whose pick computes the prefix. */
    public readonly prefillProfile: string,
  ) {
    super(PluginKind.Producer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["prefixMatchInfoProducerName", "minCachedTokenDelta", "prefillProfileName"]);
    build.producer(parameters, "prefixMatchInfoProducerName", APPROX_PREFIX_CACHE_PRODUCER);
    const delta = parameters.countOf("minCachedTokenDelta", 1, 1);
    const profile = parameters.textOf("prefillProfileName", "");
    return new P2pSourceProducer(delta, profile.length > 0 ? profile : "prefill");
  }

  /**
   * The source for `computing`, or -1. Of the endpoints within one block of the most cached tokens one is chosen by the request's hash, the idle ones more
   * often: the same request finds the same source. `allowed` has 0 for endpoints that may not be one (scheduler L16), `excluded` another number for those that may not be one
   * for this request.
   */
  source(table: EndpointTable, allowed: StaticArray<u8>, excluded: StaticArray<u8>, blockTokens: i32, requestHash: u32, computing: i32): i32 {
    const matched = table.matchedTokens;
    let most = 0;
    for (let i = 0; i < table.count; i++) {
      if (matched[i] > most && isIn(table, allowed, excluded, i, 0)) most = matched[i];
    }
    if (most == 0) return -1;
    const least = <i64>most - <i64>blockTokens;
    let sum = 0.0;
    for (let i = 0; i < table.count; i++) if (isIn(table, allowed, excluded, i, least)) sum += weight(table, i);
    let position = (<f64>requestHash / 4294967296.0) * sum;
    let chosen = -1;
    for (let i = 0; i < table.count; i++) {
      if (!isIn(table, allowed, excluded, i, least)) continue;
      chosen = i;
      position -= weight(table, i);
      if (position < 0) break;
    }
    if (chosen < 0 || chosen == computing || table.hostPort[chosen] == table.hostPort[computing]) return -1;
    return matched[chosen] - matched[computing] >= this.minCachedTokenDelta ? chosen : -1;
  }
}

function isIn(table: EndpointTable, allowed: StaticArray<u8>, excluded: StaticArray<u8>, endpoint: i32, least: i64): bool {
  const tokens = unchecked(table.matchedTokens[endpoint]);
  if (unchecked(table.hostPort[endpoint]).length == 0) return false; // Nothing could be written into the header (scheduler P2-04).
  return tokens > 0 && <i64>tokens >= least && unchecked(allowed[endpoint]) != 0 && unchecked(excluded[endpoint]) == 0 && unchecked(table.usable[endpoint]) != 0;
}

function weight(table: EndpointTable, endpoint: i32): f64 {
  return 1 / (1 + Math.max(unchecked(table.waiting[endpoint]), 0));
}
