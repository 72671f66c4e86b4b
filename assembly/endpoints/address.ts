// IP addresses as text: read strictly, written as Envoy writes them, since its load balancer compares the text of `ip:port`.

/** The address in its canonical form (RFC 5952), "" when the text is no IPv4 or IPv6 address. Zones and brackets are not part of an address. */
export function canonicalAddress(text: string): string {
  if (text.includes(":")) return canonicalV6(text);
  return isV4(text, 0, text.length) ? text : "";
}

/** `host:port`, an IPv6 host in brackets (scheduler HD-05). */
export function joinHostPort(host: string, port: i32): string {
  return (host.includes(":") ? "[" + host + "]" : host) + ":" + port.toString();
}

/** Four numbers of 0 to 255 without leading zeros. */
function isV4(text: string, from: i32, to: i32): bool {
  let at = from;
  for (let part = 0; part < 4; part++) {
    if (part > 0 && (at >= to || text.charCodeAt(at++) != 0x2e)) return false;
    const start = at;
    let value = 0;
    while (at < to && at - start < 3 && text.charCodeAt(at) >= 0x30 && text.charCodeAt(at) <= 0x39) value = value * 10 + text.charCodeAt(at++) - 0x30;
    if (at == start || value > 255 || (at - start > 1 && text.charCodeAt(start) == 0x30)) return false;
  }
  return at == to;
}

function hexDigit(c: i32): i32 {
  if (c >= 0x30 && c <= 0x39) return c - 0x30;
  c |= 0x20;
  return c >= 0x61 && c <= 0x66 ? c - 0x57 : -1;
}

function canonicalV6(text: string): string {
  const groups = new StaticArray<i32>(8);
  let count = 0;
  let gap = -1;
  let at = 0;
  const n = text.length;
  if (n > 45) return "";
  if (text.startsWith("::")) {
    gap = 0;
    at = 2;
  }
  while (at < n) {
    if (count == 8) return "";
    let end = at;
    while (end < n && text.charCodeAt(end) != 0x3a) end++;
    if (end == n && text.indexOf(".", at) >= 0) {
      // An IPv4 address at the end stands for two groups.
      if (count > 6 || !isV4(text, at, n)) return "";
      let word = 0;
      let part = 0;
      for (; at < n; at++) {
        const c = text.charCodeAt(at);
        if (c == 0x2e) {
          word = (word << 8) | part;
          part = 0;
        } else part = part * 10 + c - 0x30;
      }
      word = (word << 8) | part;
      groups[count++] = word >>> 16;
      groups[count++] = word & 0xffff;
      break;
    }
    if (end == at || end - at > 4) return "";
    let value = 0;
    for (; at < end; at++) {
      const digit = hexDigit(text.charCodeAt(at));
      if (digit < 0) return "";
      value = (value << 4) | digit;
    }
    groups[count++] = value;
    if (at == n) break;
    at++;
    if (at < n && text.charCodeAt(at) == 0x3a) {
      if (gap >= 0) return "";
      gap = count;
      at++;
    } else if (at == n) return ""; // A single colon at the end.
  }
  if (gap < 0 ? count != 8 : count > 7) return "";
  if (gap >= 0) {
    const moved = count - gap;
    for (let i = 1; i <= moved; i++) {
      groups[8 - i] = groups[count - i];
    }
    for (let i = gap; i < 8 - moved; i++) groups[i] = 0;
  }
  return writeV6(groups);
}

function writeV6(groups: StaticArray<i32>): string {
  let best = -1;
  let bestLength = 1; // One group alone is not shortened.
  for (let i = 0; i < 8; ) {
    if (groups[i] != 0) {
      i++;
      continue;
    }
    let end = i;
    while (end < 8 && groups[end] == 0) end++;
    if (end - i > bestLength) {
      best = i;
      bestLength = end - i;
    }
    i = end;
  }
  const mapped = best == 0 && bestLength == 5 && groups[5] == 0xffff;
  let out = "";
  for (let i = 0; i < 8; i++) {
    if (i == best) {
      out += "::";
      i += bestLength - 1;
      continue;
    }
    if (mapped && i == 6) {
      out += ":" + (groups[6] >> 8).toString() + "." + (groups[6] & 255).toString() + "." + (groups[7] >> 8).toString() + "." + (groups[7] & 255).toString();
      break;
    }
    if (out.length > 0 && !out.endsWith(":")) out += ":";
    out += groups[i].toString(16);
  }
  return out;
}
