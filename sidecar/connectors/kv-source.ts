import { randomUUID } from "node:crypto";
import { type Candidate, isSameHost, parseCandidate } from "../candidates.js";
import type { Exchange } from "../exchange.js";
import { valuesOf } from "../headers.js";
import type { KvParamsDialect, SidecarOptions } from "../options.js";

/** How parameters of the p2p tier are keyed by role (sidecar §4.5, §10.1). Keys of the other dialect mean nothing to an engine, which then pulls nothing and says nothing. */
export const ROLE_KEYS: Readonly<Record<KvParamsDialect, { readonly decoder: string; readonly prefiller: string; readonly source: string }>> = {
  seed: { decoder: "decode", prefiller: "prefill", source: "p2p" },
  v2: { decoder: "remote_decoder", prefiller: "remote_prefiller", source: "remote_kv_source" },
};

/** Whether engines behind this sidecar can pull a prefix from another pod. */
export function pullsFromSources({ kvConnector, enableP2pPull }: Pick<SidecarOptions, "kvConnector" | "enableP2pPull">): boolean {
  return kvConnector === "offloading" || (kvConnector === "nixlv2" && enableP2pPull);
}

/**
 * The pod that `x-kv-cache-source-host-port` names, where this sidecar's engines can pull from it (OF-07): connector `offloading`, or `nixlv2` with
 * `--enable-p2p-pull`. Anything that is not `host:port` is ignored, and so is a scheme before it: a source is only ever an improvement.
 */
export function kvSourceOf({ headers, services }: Exchange): Candidate | null {
  if (!pullsFromSources(services.options)) return null;
  const value = (valuesOf(headers, "x-kv-cache-source-host-port")[0] ?? "").trim();
  return value.includes("/") ? null : parseCandidate(value);
}

/**
 * The port of a pod's p2p tier: with ranks, each rank of that pod has its own, as its service port is above our base port (OF-09).
 *
 * @param servicePort the port that a routing header names
 */
export function p2pPortOf(servicePort: number, { p2pConnectorPort, dataParallelSize, port }: Pick<SidecarOptions, "p2pConnectorPort" | "dataParallelSize" | "port">): number {
  const rank = servicePort - port;
  return dataParallelSize > 1 && rank >= 0 && rank < dataParallelSize ? p2pConnectorPort + rank : p2pConnectorPort;
}

/** An address of the p2p tier with an id of its own, as JSON. */
export function p2pPeer(peer: Candidate, requestId: string, options: SidecarOptions): string {
  return JSON.stringify({ kv_request_id: requestId, remote_host: peer.host, remote_port: p2pPortOf(peer.port, options) });
}

/** The member that has a prefiller pull what the source holds; null where source and prefiller are one (OF-05). */
export function pullMember(source: Candidate | null, prefiller: Candidate, options: SidecarOptions): string | null {
  if (source === null || source.authority === prefiller.authority) return null;
  return `"${ROLE_KEYS[options.kvParamsDialect].source}":${p2pPeer(source, randomUUID(), options)}`;
}

/** The parameters of a request without prefiller that pulls from a source; null where the source is the very engine that decodes (OF-04, OF-06). */
export function pullAlone(exchange: Exchange, source: Candidate): string | null {
  const { options } = exchange.services;
  const own = exchange.ownAddress(exchange.engine);
  if (isSameHost(source.host, own.host) && source.port === own.port) return null;
  return `{"${ROLE_KEYS[options.kvParamsDialect].source}":${p2pPeer(source, randomUUID(), options)}}`;
}
