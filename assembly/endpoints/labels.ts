// Labels of endpoints: the role matrix, and the syntax that Kubernetes asks of keys and values.

/** Label that names what an endpoint can do (scheduler §7.3). */
export const ROLE_LABEL: string = "llm-d.ai/role";

export const enum Role {
  Encode = 1,
  Prefill = 2,
  Decode = 4,
}

/**
 * What an endpoint with these labels can do, as {@link Role} bits (scheduler §7.3). Without the label it decodes; an empty or unknown value is no role at all.
 * `encode-decode` counts for both, as the seed lists it (the reference's role filters know no such value).
 */
export function rolesOf(labels: Map<string, string>): u32 {
  if (!labels.has(ROLE_LABEL)) return Role.Decode;
  const value = labels.get(ROLE_LABEL);
  if (value == "encode") return Role.Encode;
  if (value == "prefill") return Role.Prefill;
  if (value == "decode") return Role.Decode;
  if (value == "encode-prefill") return Role.Encode | Role.Prefill;
  if (value == "encode-decode") return Role.Encode | Role.Decode;
  if (value == "prefill-decode" || value == "both") return Role.Prefill | Role.Decode;
  if (value == "encode-prefill-decode") return Role.Encode | Role.Prefill | Role.Decode;
  return 0;
}

function isAlphanumeric(c: i32): bool {
  return (c >= 0x30 && c <= 0x39) || (c >= 0x41 && c <= 0x5a) || (c >= 0x61 && c <= 0x7a);
}

/** 1 to 63 letters, digits, `-`, `_`, `.`, with a letter or digit at both ends. */
function isName(text: string): bool {
  const n = text.length;
  if (n == 0 || n > 63) return false;
  for (let i = 0; i < n; i++) {
    const c = text.charCodeAt(i);
    if (isAlphanumeric(c)) continue;
    if (i == 0 || i == n - 1 || (c != 0x2d && c != 0x5f && c != 0x2e)) return false;
  }
  return true;
}

/** Lower-case DNS name of at most 253 characters: parts of letters, digits and inner `-`, joined by dots. */
function isDnsSubdomain(text: string): bool {
  const n = text.length;
  if (n == 0 || n > 253) return false;
  let partStart = 0;
  for (let i = 0; i <= n; i++) {
    const c = i < n ? text.charCodeAt(i) : 0x2e;
    if (c == 0x2e) {
      if (i == partStart || text.charCodeAt(i - 1) == 0x2d) return false;
      partStart = i + 1;
    } else if (c == 0x2d) {
      if (i == partStart) return false;
    } else if (!isAlphanumeric(c) || (c >= 0x41 && c <= 0x5a)) return false;
  }
  return true;
}

/** A Kubernetes label key: `name` or `prefix/name`. */
export function isLabelKey(text: string): bool {
  const slash = text.indexOf("/");
  if (slash < 0) return isName(text);
  return isDnsSubdomain(text.substring(0, slash)) && isName(text.substring(slash + 1));
}

/** A Kubernetes label value: empty, or as the name in a key. */
export function isLabelValue(text: string): bool {
  return text.length == 0 || isName(text);
}
