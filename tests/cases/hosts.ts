/**
 * Spellings of IP hosts. The same host can be written in many ways (`10.0.1.20`, `0x0a000114`, `012.0.1.20`, `[fd00:0:0:1:0:0:0:20]`, `::ffff:10.0.1.20`),
 * and a test of an allowlist writes it in just those: a mapped address has to keep the spelling.
 */

/** A host read from its text: which host it is (`key`, equal for all spellings) and how to write another host in the same spelling. */
export interface Host {
  /** `4:` or `6:` and the bytes in hex. An IPv4 address inside IPv6 (`::ffff:a.b.c.d`) has the IPv4 key. */
  key: string;
  /** Writes `bytes` (4 for an IPv4 key; 4 or 16 for an IPv6 key) in this spelling. */
  respell: (bytes: readonly number[]) => string;
}

interface Part {
  value: number;
  radix: 8 | 10 | 16;
  /** Letters and zeros in front of the digits, as written. */
  prefix: string;
  width: number;
  upper: boolean;
}

function readPart(text: string): Part | null {
  if (/^0[xX][0-9a-fA-F]+$/.test(text)) {
    const digits = text.slice(2);
    return { value: Number.parseInt(digits, 16), radix: 16, prefix: text.slice(0, 2), width: digits.length, upper: /[A-F]/.test(digits) };
  }
  if (/^0[0-7]+$/.test(text)) return { value: Number.parseInt(text, 8), radix: 8, prefix: "0", width: text.length - 1, upper: false };
  if (/^(?:0|[1-9][0-9]*)$/.test(text)) return { value: Number(text), radix: 10, prefix: "", width: 1, upper: false };
  return null;
}

function writePart(part: Part, value: number): string {
  const digits = value.toString(part.radix).padStart(part.radix === 10 ? 1 : part.width, "0");
  return part.prefix + (part.upper ? digits.toUpperCase() : digits);
}

function big(bytes: readonly number[]): number {
  return bytes.reduce((sum, byte) => sum * 256 + byte, 0);
}

/** IPv4 in the forms that inet_aton reads: one to four parts, each decimal, octal or hexadecimal; a dot at the end is kept. */
export function readIpv4(text: string): Host | null {
  const dot = text.endsWith(".") ? "." : "";
  const parts = (dot === "" ? text : text.slice(0, -1)).split(".").map(readPart);
  if (parts.length < 1 || parts.length > 4) return null;
  const read: Part[] = [];
  for (const part of parts) {
    if (part === null) return null;
    read.push(part);
  }
  const last = read.at(-1);
  if (last === undefined || read.slice(0, -1).some((part) => part.value > 255) || last.value >= 256 ** (5 - read.length)) return null;
  const bytes = read.slice(0, -1).map((part) => part.value);
  for (let shift = 4 - read.length; shift >= 0; shift--) bytes.push(Math.floor(last.value / 256 ** shift) % 256);
  return {
    key: `4:${hex(bytes)}`,
    respell: (target) => [...read.slice(0, -1).map((part, at) => writePart(part, target[at] ?? 0)), writePart(last, big(target.slice(read.length - 1)))].join(".") + dot,
  };
}

function hex(bytes: readonly number[]): string {
  return bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The 16 bytes of an IPv6 text (no brackets, no zone); null when it is none. */
function ipv6Bytes(text: string): number[] | null {
  const halves = text.split("::");
  if (halves.length > 2) return null;
  const groups = (half: string): number[] | null => {
    if (half === "") return [];
    const out: number[] = [];
    const parts = half.split(":");
    for (const [at, part] of parts.entries()) {
      if (part.includes(".")) {
        const dotted = part.split(".");
        if (at !== parts.length - 1 || dotted.length !== 4 || dotted.some((piece) => !/^(?:0|[1-9][0-9]{0,2})$/.test(piece) || Number(piece) > 255)) return null;
        out.push(...dotted.map(Number));
      } else if (/^[0-9a-fA-F]{1,4}$/.test(part)) {
        const value = Number.parseInt(part, 16);
        out.push(value >> 8, value & 255);
      } else {
        return null;
      }
    }
    return out;
  };
  const head = groups(halves[0] ?? "");
  if (head === null) return null;
  if (halves.length === 1) return head.length === 16 ? head : null;
  const tail = groups(halves[1] ?? "");
  if (tail === null || head.length + tail.length > 14 || (halves[0] ?? "").includes(".")) return null;
  return [...head, ...new Array<number>(16 - head.length - tail.length).fill(0), ...tail];
}

/** RFC 5952's shortest form. */
export function writeIpv6(bytes: readonly number[]): string {
  const groups: number[] = [];
  for (let at = 0; at < 16; at += 2) groups.push(((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0));
  let best = { at: -1, length: 1 };
  for (let at = 0; at < 8; at++) {
    let length = 0;
    while (at + length < 8 && groups[at + length] === 0) length++;
    if (length > best.length) best = { at, length };
  }
  const text = (from: number, to: number): string =>
    groups
      .slice(from, to)
      .map((group) => group.toString(16))
      .join(":");
  return best.at < 0 ? text(0, 8) : `${text(0, best.at)}::${text(best.at + best.length, 8)}`;
}

const MAPPED_PREFIX = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255];

/** IPv6 without brackets: compressed or in full, any case, with leading zeros, IPv4 inside in dots or in hexadecimal; a zone (`%eth0`) is kept. */
export function readIpv6(text: string): Host | null {
  const zoneAt = text.indexOf("%");
  const plain = zoneAt < 0 ? text : text.slice(0, zoneAt);
  const zone = zoneAt < 0 ? "" : text.slice(zoneAt);
  if (!plain.includes(":")) return null;
  const bytes = ipv6Bytes(plain);
  if (bytes === null) return null;
  const mapped = MAPPED_PREFIX.every((byte, at) => bytes[at] === byte);
  const full = !plain.includes("::");
  const upper = /[A-F]/.test(plain);
  const padded = full && plain.split(":").every((group) => group.length === 4 || group.includes("."));
  const dotted = plain.includes(".");
  const write = (target: readonly number[]): string => {
    const all = target.length === 4 ? [...MAPPED_PREFIX, ...target] : target;
    const isMapped = MAPPED_PREFIX.every((byte, at) => all[at] === byte);
    let out: string;
    if (!full && !(dotted && isMapped)) {
      out = isMapped ? `::ffff:${groupText(all.slice(12), false).join(":")}` : writeIpv6(all);
    } else if (dotted && isMapped) {
      const quad = all.slice(12).join(".");
      out = full ? `${groupText(all.slice(0, 12), padded).join(":")}:${quad}` : `::ffff:${quad}`;
    } else {
      out = groupText(all, padded).join(":");
    }
    return (upper ? out.toUpperCase() : out) + zone;
  };
  return { key: mapped ? `4:${hex(bytes.slice(12))}` : `6:${hex(bytes)}`, respell: write };
}

function groupText(bytes: readonly number[], padded: boolean): string[] {
  const out: string[] = [];
  for (let at = 0; at < bytes.length; at += 2) {
    const text = (((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)).toString(16);
    out.push(padded ? text.padStart(4, "0") : text);
  }
  return out;
}

/** The bytes behind a key. */
export function keyBytes(key: string): number[] {
  const out: number[] = [];
  for (let at = 2; at < key.length; at += 2) out.push(Number.parseInt(key.slice(at, at + 2), 16));
  return out;
}

/** The usual text of a host key: dotted, or RFC 5952 without brackets. */
export function keyText(key: string): string {
  const bytes = keyBytes(key);
  return key.startsWith("4:") ? bytes.join(".") : writeIpv6(bytes);
}
