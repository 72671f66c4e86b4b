/** The cases' topologies and the part that each address plays. */
import type { PodRole } from "../fleet/fleet.js";
import type { Topology } from "./format.js";
import type { HostPort } from "./addresses.js";

/** Address by pod name; the roles follow from the pods of a fleet (d0, p0, e0 …). */
export const TOPOLOGIES: Readonly<Record<Topology, { pods: Readonly<Record<PodRole, number>>; addresses: Readonly<Record<string, HostPort>>; host: string }>> = {
  default: {
    pods: { decode: 2, prefill: 2, encode: 2 },
    host: "127.0.0.1",
    addresses: {
      d0: { host: "10.0.0.10", port: 8000 },
      d1: { host: "10.0.0.11", port: 8000 },
      p0: { host: "10.0.1.20", port: 8000 },
      p1: { host: "10.0.1.21", port: 8000 },
      e0: { host: "10.0.2.30", port: 8000 },
      e1: { host: "10.0.2.31", port: 8000 },
    },
  },
  ipv6: {
    pods: { decode: 1, prefill: 1, encode: 0 },
    host: "::1",
    addresses: {
      d0: { host: "fd00::10", port: 8000 },
      p0: { host: "fd00:0:0:1::20", port: 8000 },
    },
  },
};
