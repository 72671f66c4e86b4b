import { isIPv4, isIPv6, SocketAddress } from "node:net";

export interface HostPort {
  /** An IPv4 or IPv6 address without brackets, in the spelling of {@link canonicalAddress}. */
  readonly host: string;
  readonly port: number;
}

/**
 * The one spelling of an IP address that Envoy itself prints (`inet_ntop`). Envoy's `override_host` finds a host by comparing the header's text with that
 * spelling, so an endpoint written `FD00::0010` would never be found under its own text.
 *
 * @returns the address without brackets, or null when the text is no IPv4 or IPv6 address (host names and zone ids included: Envoy's EDS and ORIGINAL_DST
 *   clusters take addresses only, scheduler §6.8)
 */
export function canonicalAddress(text: string): string | null {
  const bare = text.startsWith("[") && text.endsWith("]") ? text.slice(1, -1) : text;
  if (isIPv4(text)) return text;
  if (!isIPv6(bare) || bare.includes("%")) return null;
  return new SocketAddress({ address: bare, family: "ipv6", port: 0 }).address;
}

/** `host:port`, IPv6 in brackets. */
export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(":") ? `[${host}]:${String(port)}` : `${host}:${String(port)}`;
}

/**
 * Reads `127.0.0.1:8080`, `[::1]:8080`.
 *
 * @throws Error saying what is wrong with the text
 */
export function parseHostPort(text: string): HostPort {
  const at = text.lastIndexOf(":");
  const host = at < 0 ? null : canonicalAddress(text.slice(0, at));
  const digits = text.slice(at + 1);
  const port = Number(digits);
  if (host === null || (host.includes(":") && !text.startsWith("["))) {
    throw new Error(`'${text}' is not HOST:PORT with an IP address as HOST (IPv6 in brackets)`);
  }
  if (!/^\d{1,5}$/.test(digits) || port < 1 || port > 65535) throw new Error(`'${text}' has no port between 1 and 65535`);
  return { host, port };
}

export function isLoopback(host: string): boolean {
  return host === "::1" || (isIPv4(host) && host.startsWith("127."));
}
