import { formatHostPort, type HostPort, isLoopback } from "./address.js";

/**
 * What an operator of Envoy decides, as against what a scheduler's configuration says (EndpointPickerConfig, FilterOptions). All of it goes into the bootstrap, which
 * Envoy reads once, at its start.
 */
export interface Settings {
  /** Where clients connect. */
  readonly listen: HostPort;
  /** Envoy's admin interface; loopback only, since it can stop Envoy and shows everything. */
  readonly admin: HostPort;
  /** Where the filter shows its state; loopback only, since it names every pod. */
  readonly state: HostPort;
  /** File of the access log (JSON lines), as Envoy sees it. */
  readonly accessLog: string;
  /** The folder of the rendered files as Envoy sees it; empty: where they are written. */
  readonly mount: string;
  /** Heap at which Envoy refuses requests, bytes. A body that is being read is held whole. */
  readonly maxHeapBytes: number;
  /** Client connections at once. */
  readonly maxConnections: number;
  /** Longest silence on an open stream, in either direction. Longer than the sidecar's deadlines of all legs together (encode 60 s, prefill 300 s, first byte 300 s). */
  readonly streamIdleTimeoutMs: number;
  /** Longest time from a request's first byte to its last. */
  readonly requestTimeoutMs: number;
  /** Longest time from a request's first byte to the end of its headers. */
  readonly requestHeadersTimeoutMs: number;
  /** Longest time to a TCP (and TLS) connection with a pod. */
  readonly connectTimeoutMs: number;
  /** CA certificates for FilterOptions `tls.verify`, as Envoy sees the file. */
  readonly tlsCaFile: string;
}

export const DEFAULT_SETTINGS: Settings = {
  listen: { host: "0.0.0.0", port: 8080 },
  admin: { host: "127.0.0.1", port: 9901 },
  state: { host: "127.0.0.1", port: 9902 },
  accessLog: "/dev/stdout",
  mount: "",
  maxHeapBytes: 4 * 1024 ** 3,
  maxConnections: 20_000,
  streamIdleTimeoutMs: 900_000,
  requestTimeoutMs: 300_000,
  requestHeadersTimeoutMs: 15_000,
  connectTimeoutMs: 2_000,
  tlsCaFile: "/etc/ssl/certs/ca-certificates.crt",
};

/** @returns what is wrong with the settings, one line each, beginning with the setting's name */
export function checkSettings(settings: Settings): string[] {
  const wrong: string[] = [];
  for (const name of ["admin", "state"] as const) {
    if (!isLoopback(settings[name].host)) wrong.push(`${name}: ${formatHostPort(settings[name])} is not a loopback address; what it shows is not for clients`);
  }
  const all = [settings.listen, settings.admin, settings.state].map(({ port }) => port);
  if (new Set(all).size !== all.length) wrong.push("listen, admin, state: must have different ports");
  return wrong;
}
