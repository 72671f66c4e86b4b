import { normalHost, parseCandidate } from "../candidates.js";

/** Ports of a host that may be called; `any`: all of them. */
export type AllowedPorts = "any" | ReadonlySet<number>;

/** Hosts (see normalHost) and what may be called there. */
export type AllowedHosts = ReadonlyMap<string, AllowedPorts>;

/** Where allowed endpoints come from. */
export interface AllowSource {
  /** What it says now; empty as long as it knows nothing. */
  readonly hosts: AllowedHosts;
  /** It has been heard once. */
  readonly ready: boolean;
  close(): void;
}

/** Which endpoints routing headers may name (sidecar §6, SR-01 … SR-03). */
export interface Allowlist {
  /** False: nothing is checked. */
  readonly on: boolean;
  /** Every source has been heard once. Until then what is not known is refused. */
  readonly ready: boolean;
  /** Hosts that are known, each counted under each of its names. */
  readonly size: number;
  /** Whether an entry of a routing header may be called: its host is known, and its port is one of that host's (the reference looks at the host only). */
  allows(entry: string): boolean;
  close(): void;
}

/** SR-01: without a source everything is allowed. */
export const ALLOW_ALL: Allowlist = { on: false, ready: true, size: 0, allows: () => true, close: () => undefined };

/**
 * What the sources allow together.
 *
 * @param extraPorts allowed on every known host (`--allow-port`)
 */
export function allowlistOf(sources: readonly AllowSource[], extraPorts: readonly number[]): Allowlist {
  const extra = new Set(extraPorts);
  return {
    on: true,
    get ready() {
      return sources.every(({ ready }) => ready);
    },
    get size() {
      return sources.reduce((sum, { hosts }) => sum + hosts.size, 0);
    },
    allows: (entry) => {
      const candidate = parseCandidate(entry);
      if (candidate === null) return false;
      const host = normalHost(candidate.host);
      return sources.some(({ hosts }) => {
        const ports = hosts.get(host);
        return ports !== undefined && (ports === "any" || ports.has(candidate.port) || extra.has(candidate.port));
      });
    },
    close: () => {
      for (const source of sources) source.close();
    },
  };
}

/** Adds ports of a host to a list that is being made. */
export function addHost(hosts: Map<string, AllowedPorts>, host: string, ports: AllowedPorts): void {
  const name = normalHost(host);
  const known = hosts.get(name);
  if (known === undefined) hosts.set(name, ports);
  else if (known === "any" || ports === "any") hosts.set(name, "any");
  else if (known !== ports) hosts.set(name, new Set([...known, ...ports]));
}
