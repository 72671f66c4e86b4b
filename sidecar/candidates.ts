import { isIPv6 } from "node:net";
import { type FlatHeaders, valuesOf } from "./headers.js";

/** A pod that a routing header names. */
export interface Candidate {
  /** `host:port` as it stands in a URL: IPv6 in brackets. */
  readonly authority: string;
  /** Without brackets. */
  readonly host: string;
  readonly port: number;
}

/**
 * The entries of a routing header over all its lines: each line is a comma list, entries are trimmed, empty ones skipped, repeats kept (HDR-01 … HDR-08).
 * The reference reads a list only where there is exactly one line (D13).
 */
export function listEntries(headers: FlatHeaders, name: string): string[] {
  return valuesOf(headers, name)
    .flatMap((line) => line.split(","))
    .map((entry) => entry.trim())
    // A quoted empty string is what some gateways send for "none" (HDR-01).
    .filter((entry) => entry !== "" && entry !== '""');
}

/** `host:port`, `[v6]:port`, either with `http://` before it for callers of old (HDR-07). Null for anything else: a value is never guessed at. */
export function parseCandidate(entry: string): Candidate | null {
  const text = entry.replace(/^http:\/\//i, "").replace(/\/$/, "");
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text);
  if (match === null) return null;
  const [, v6, name, digits] = match;
  const port = Number(digits);
  if (port < 1 || port > 65535) return null;
  if (v6 !== undefined) return isIPv6(v6) ? { authority: authorityOf(v6, port), host: v6, port } : null;
  const authority = `${name ?? ""}:${String(port)}`;
  // A name that ends in a number is an IPv4 address to URLs, and may be none: 10.0.0.256, 1.2.3.4.5.
  return URL.canParse(`http://${authority}`) ? { authority, host: name ?? "", port } : null;
}

/** The prefill candidate of a request: the first, or a uniformly random one (HDR-02 … HDR-05). */
export function pickPrefiller(entries: readonly string[], sampling: boolean, random: () => number = Math.random): string | undefined {
  return entries[sampling ? Math.floor(random() * entries.length) : 0];
}

/**
 * The candidates in the order in which they are asked: the picked one, then the others as they stand, each address once ("h:1" and "http://h:1" are one). Entries
 * that name none keep their place, so that one is told when its turn comes.
 */
export function failoverOrder(entries: readonly string[], picked: string): string[] {
  const seen = new Set<string>();
  return [picked, ...entries].filter((entry) => {
    const address = parseCandidate(entry)?.authority ?? entry;
    const isNew = !seen.has(address);
    seen.add(address);
    return isNew;
  });
}

/** `host:port` as it stands in a URL: IPv6, here without brackets, gets them. */
export function authorityOf(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${String(port)}`;
}

/** A host as URLs and flags write it, without the brackets of IPv6. */
export function unbracketed(host: string): string {
  return host.replace(/^\[(.*)\]$/, "$1");
}

/** Whether two hosts (without brackets) are one address, IPv6 in any spelling. */
export function isSameHost(a: string, b: string): boolean {
  return normalHost(a) === normalHost(b);
}

/** One spelling per host: names in lower case without the root's dot, IPv6 as URLs write it. */
export function normalHost(host: string): string {
  if (host.endsWith(".")) return normalHost(host.slice(0, -1));
  return isIPv6(host) && !host.includes("%") ? new URL(`http://[${host}]`).hostname : host.toLowerCase();
}
