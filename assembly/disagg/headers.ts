// Values of the routing headers (scheduler §3.5). "" stands for "remove the header".
import { EndpointTable } from "../endpoints/table";
import { Picks } from "../scheduling/pass";

export const DESTINATION_HEADER: string = "x-gateway-destination-endpoint";
export const PREFILLER_HEADER: string = "x-prefiller-host-port";
export const ENCODERS_HEADER: string = "x-encoder-hosts-ports";
export const KV_SOURCE_HEADER: string = "x-kv-cache-source-host-port";
export const DATA_PARALLEL_HEADER: string = "x-data-parallel-host-port";

/** `host:port`, an IPv6 host in brackets (scheduler HD-05). */
export function joinHostPort(host: string, port: i32): string {
  return (host.includes(":") ? "[" + host + "]" : host) + ":" + port.toString();
}

/**
 * The endpoints as `host:port,host:port` in their order: the encoders, the prefillers (the sidecar uses the first and goes on to the next when it fails), and
 * the destinations, down which Envoy's retry goes.
 */
export function hostPorts(table: EndpointTable, picks: Picks): string {
  if (picks.count == 0) return "";
  let out = table.hostPort[picks.list[0]];
  for (let i = 1; i < picks.count; i++) out += "," + table.hostPort[picks.list[i]];
  return out;
}

/** As {@link hostPorts} with every port replaced, for the handlers that send to a pod's primary port (scheduler §3.7); `primaryPort` 0 replaces none. */
export function destinations(table: EndpointTable, picks: Picks, primaryPort: i32): string {
  if (primaryPort == 0) return hostPorts(table, picks);
  let out = "";
  for (let i = 0; i < picks.count; i++) out += (i > 0 ? "," : "") + joinHostPort(table.address[picks.list[i]], primaryPort);
  return out;
}

/** The picked rank's own address, which the primary port's server forwards to; "" without a primary port (scheduler DP-15, DP-16). */
export function dataParallelHostPort(table: EndpointTable, picks: Picks, primaryPort: i32): string {
  return primaryPort == 0 || picks.count == 0 ? "" : table.hostPort[picks.list[0]];
}

/** One endpoint's `host:port`, "" for -1. */
export function hostPortOf(table: EndpointTable, endpoint: i32): string {
  return endpoint < 0 ? "" : table.hostPort[endpoint];
}
