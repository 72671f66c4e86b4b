/**
 * Cases speak of 10.0.0.10:8000, tests reach loopback only. The mapping is by text and in both directions: every address that stands anywhere in a header
 * value, a flag, a script or an expected value becomes the loopback address that plays its part.
 *
 * - an address of the topology (host and port) becomes its loopback address;
 * - a host of the topology alone (`remote_host`, `bootstrap_host`) becomes the loopback host;
 * - an address that the topology does not have becomes a loopback address of its own, whose listener counts connections. A URL without a port means
 *   port 80 or 443. A name (`p.example.test:80`) becomes `localhost` and such a port;
 * - a host alone that the topology does not have becomes a loopback host of its own (127.9.9.9 for 10.9.9.9), so that it is not taken for an engine's;
 * - a host keeps its spelling (hosts.ts).
 *
 * Bodies are not mapped: they are sent byte for byte.
 */
import { hostPortText } from "../fleet/address.js";
import { keyBytes, keyText, readIpv4, readIpv6, type Host } from "./hosts.js";

export interface HostPort {
  host: string;
  port: number;
}

/** Reads `host:port` as {@link hostPort} writes it. Throws an Error for anything else. */
export function readHostPort(text: string): HostPort {
  const match = /^(?:\[([^\]]+)\]|([^:]+)):([0-9]{1,5})$/.exec(text);
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host === undefined || !(port >= 1 && port <= 65535)) throw new Error(`"${text}" is not host:port`);
  return { host, port };
}

/** What a text names: a host, perhaps with a port, at a place in the text. */
interface Mention {
  start: number;
  end: number;
  key: string;
  port: number | null;
  /** The port does not stand in the text: a URL's default. */
  portImplied: boolean;
  write: (bytes: readonly number[] | null, port: number | null) => string;
}

const TOKEN = new RegExp(
  [
    // a URL scheme, then a host in brackets
    "(?<scheme>https?://)?(?:\\[(?<six>[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\\]",
    // IPv4 in dots, its parts in any radix; one number alone only in front of a port or after a scheme
    "|(?<four>(?:0[xX][0-9A-Fa-f]+|[0-9]+)(?:\\.(?:0[xX][0-9A-Fa-f]+|[0-9]+)){0,3}\\.?)",
    // a name under a top-level domain that is kept for tests (RFC 2606)
    "|(?<name>(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\\.)+(?:test|example|invalid)\\.?))",
    "(?::(?<port>[0-9]{1,5})(?![0-9]))?",
  ].join(""),
  "g",
);
const BARE_SIX = /[0-9A-Fa-f:.]*::?[0-9A-Fa-f:.]+/g;

/** What the text mentions; `known` says whether a host alone in an unusual spelling is one that the topology has. */
function mentions(text: string, known: (key: string) => boolean): Mention[] {
  const found: Mention[] = [];
  for (const match of text.matchAll(TOKEN)) {
    const groups = match.groups ?? {};
    const start = match.index;
    const end = start + match[0].length;
    const before = text[start - 1] ?? "";
    const after = text[end] ?? "";
    // Part of a longer word or of an unbracketed IPv6 address: no address.
    if (/[A-Za-z0-9_.:-]/.test(before) && groups.scheme === undefined) continue;
    if (/[A-Za-z0-9_:-]/.test(after) || (after === "." && /[0-9]/.test(text[end + 1] ?? ""))) continue;
    const scheme = groups.scheme ?? "";
    const portText = groups.port;
    let port = portText === undefined ? null : Number(portText);
    const portImplied = port === null && scheme !== "";
    if (portImplied) port = scheme === "https://" ? 443 : 80;
    const tail = (value: number | null): string => (value === null ? "" : `:${value.toString()}`);
    if (groups.name !== undefined) {
      if (portText === undefined) continue;
      const name = groups.name;
      found.push({ start, end, key: `name:${name.toLowerCase()}`, port, portImplied, write: (_bytes, mapped) => `${scheme}localhost${tail(mapped)}` });
      continue;
    }
    const host: Host | null = groups.six !== undefined ? readIpv6(groups.six) : readIpv4(groups.four ?? "");
    if (host === null) continue;
    const dots = (groups.four ?? "").replace(/\.$/, "").split(".").length - 1;
    const whole = start === 0 && end === text.length;
    // "1.5", "12:30" and "8000" are no addresses: fewer than three dots only where it can hardly be anything else.
    if (groups.four !== undefined && dots < 3) {
      const likely = known(host.key) && (whole || portText !== undefined || scheme !== "");
      const spelt = /0[xX]/.test(groups.four) && (portText !== undefined || scheme !== "");
      if (!likely && !spelt && scheme === "") continue;
    }
    const six = groups.six !== undefined;
    found.push({
      start,
      end,
      key: host.key,
      port,
      portImplied,
      write: (bytes, mapped) => {
        const spelt = bytes === null ? "" : host.respell(bytes);
        return `${scheme}${six ? `[${spelt}]` : spelt}${tail(mapped)}`;
      },
    });
  }
  for (const match of text.matchAll(BARE_SIX)) {
    const start = match.index;
    const end = start + match[0].length;
    if (found.some((mention) => start < mention.end && mention.start < end)) continue;
    if (/[A-Za-z0-9_.:[-]/.test(text[start - 1] ?? "") || /[A-Za-z0-9_\]:-]/.test(text[end] ?? "")) continue;
    const host = readIpv6(match[0]);
    if (host === null || (!known(host.key) && !(start === 0 && end === text.length))) continue;
    found.push({ start, end, key: host.key, port: null, portImplied: false, write: (bytes) => (bytes === null ? "" : host.respell(bytes)) });
  }
  return found.sort((a, b) => a.start - b.start);
}

/** `key|port`: one per address whatever its spelling. */
function addressKey(key: string, port: number): string {
  return `${key}|${port.toString()}`;
}

function keyOf(host: string): string {
  return (readIpv4(host) ?? readIpv6(host))?.key ?? `name:${host.toLowerCase()}`;
}

function bytesOf(host: string): readonly number[] | null {
  const key = keyOf(host);
  return key.startsWith("name:") ? null : keyBytes(key);
}

export class AddressMap {
  private readonly listed = new Map<string, HostPort>();
  private readonly listedHosts = new Map<string, string>();
  private readonly unlisted = new Map<string, HostPort>();
  private readonly back = new Map<string, string>();

  /** @param topology each address of the topology and the loopback address that plays it */
  constructor(topology: readonly { address: HostPort; loopback: HostPort }[]) {
    for (const { address, loopback } of topology) {
      this.listed.set(addressKey(keyOf(address.host), address.port), loopback);
      this.listedHosts.set(keyOf(address.host), loopback.host);
      this.back.set(addressKey(keyOf(loopback.host), loopback.port), hostPortText(address));
    }
  }

  private readonly known = (key: string): boolean => this.listedHosts.has(key);

  /** Addresses of the text that the topology does not have and that have no loopback address yet. */
  missing(text: string): string[] {
    return mentions(text, this.known)
      .filter((mention) => mention.port !== null)
      .map((mention) => addressKey(mention.key, mention.port ?? 0))
      .filter((key, at, all) => !this.listed.has(key) && !this.unlisted.has(key) && all.indexOf(key) === at);
  }

  /** Gives an address that {@link missing} named its loopback address. */
  add(key: string, loopback: HostPort): void {
    this.unlisted.set(key, loopback);
    const [host = "", port = ""] = key.split("|");
    const name = host.startsWith("name:") ? host.slice("name:".length) : keyText(host);
    this.back.set(addressKey(keyOf(loopback.host), loopback.port), hostPortText({ host: name, port: Number(port) }));
  }

  /** The text with every address as a loopback one. Throws for an address that {@link missing} would name. */
  toLoopback(text: string): string {
    let out = "";
    let at = 0;
    for (const mention of mentions(text, this.known)) {
      out += text.slice(at, mention.start) + this.replacement(mention);
      at = mention.end;
    }
    return out + text.slice(at);
  }

  private replacement(mention: Mention): string {
    if (mention.port !== null) {
      const key = addressKey(mention.key, mention.port);
      const loopback = this.listed.get(key) ?? this.unlisted.get(key);
      if (loopback === undefined) throw new Error(`no loopback address was made for ${key}`);
      return mention.write(bytesOf(loopback.host), loopback.port);
    }
    const host = this.listedHosts.get(mention.key);
    if (host !== undefined) return mention.write(bytesOf(host), null);
    const bytes = keyBytes(mention.key);
    // The last three bytes tell such hosts apart; 127.0.0.1 itself belongs to the topology.
    const own = [127, ...bytes.slice(-3)];
    if (own[1] === 0 && own[2] === 0 && (own[3] ?? 0) <= 1) own[1] = 254;
    return mention.write(own, null);
  }

  /** For messages: loopback addresses as the case names them. A loopback host alone stays, it may be any of them. */
  toTopology(text: string): string {
    let out = "";
    let at = 0;
    for (const mention of mentions(text, () => true)) {
      const named = mention.port === null || mention.portImplied ? undefined : this.back.get(addressKey(mention.key, mention.port));
      if (named === undefined) continue;
      out += text.slice(at, mention.start) + named;
      at = mention.end;
    }
    return out + text.slice(at);
  }
}
