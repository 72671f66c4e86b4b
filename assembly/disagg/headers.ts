// Values of the routing headers (scheduler §3.5). "" stands for "remove the header".
import { joinHostPort } from "../endpoints/address";
import { EndpointTable } from "../endpoints/table";
import { Picks } from "../scheduling/pass";

/**
 * Per endpoint what the destination header names it by: its own `host:port`, or with a port for all, for the handlers that send to a pod's primary port (scheduler §3.7);
 * `primaryPort` 0 replaces none.
 */
export function destinationsOf(table: EndpointTable, primaryPort: i32): StaticArray<string> {
  if (primaryPort == 0) return table.hostPort;
  const out = new StaticArray<string>(table.count);
  for (let i = 0; i < table.count; i++) out[i] = joinHostPort(table.address[i], primaryPort);
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
