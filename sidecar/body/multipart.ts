import { setImmediate } from "node:timers/promises";
import type { Pieces } from "./pieces.js";

/**
 * Forms are for two audio routes only, and no engine's reader of forms is ours: a form is not edited but refused when anything in it might become a control
 * member for any reader (DESIGN, decision 5).
 */
const SUSPECT = new RegExp(
  [
    // Names of fields, plain or inside JSON text of a field.
    /(?:kv|ec)[_%\\+]?[^"\r\n]{0,12}transfer_params|bootstrap_[a-z]+"|name[ \t]{0,8}=[ \t]{0,8}"?bootstrap_|vllm_xargs/,
    // Parameters that carry names in an encoding of their own (RFC 5987, RFC 2047), and charsets and encodings in which a reader would find other text than stands here.
    /name\*\d*\*?[ \t]{0,8}=|name[ \t]{0,8}=[ \t]{0,8}"?=\?|_charset_|charset[ \t]{0,8}=[ \t]{0,8}"?[ \t]{0,8}utf-?(?:7|16|32)|content-transfer-encoding[ \t]{0,8}:[ \t]{0,8}(?:quoted-printable|base64)/,
  ]
    .map(({ source }) => source)
    .join("|"),
  "i",
);

/** Escapes of one kind inside another: a percent-encoded backslash, an escaped percent. */
const MAX_UNESCAPES = 4;

/** A form may be as large as the body limit and is searched in steps, between which open streams get their turn. */
const STEP_BYTES = 256 * 1024;
/** Longer than anything that the search looks for with each of its letters escaped more than once, so that nothing hides across two steps. */
const OVERLAP_BYTES = 2048;

export type MultipartProblem = "charset" | "boundary" | "control_member";

/** What keeps a form from being handed on; null when nothing does. */
export async function multipartProblem(contentType: string, body: Pieces): Promise<MultipartProblem | null> {
  const charsets = [...contentType.matchAll(/;\s*charset\s*=\s*"?([^";]*)"?/gi)].map((match) => (match[1] ?? "").trim().toLowerCase());
  // Readers decode the names of fields by it.
  if (charsets.some((charset) => charset !== "utf-8" && charset !== "utf8") || /charset\*/i.test(contentType)) return "charset";
  if ([...contentType.matchAll(/;\s*boundary/gi)].length !== 1) return "boundary";
  for (let at = 0; at < body.length; at += STEP_BYTES) {
    if (at > 0) await setImmediate();
    if (isSuspect(body.join(Math.max(0, at - OVERLAP_BYTES), Math.min(body.length, at + STEP_BYTES)))) return "control_member";
  }
  return null;
}

/** Whether anything suspect stands in a text as it is, or as readers have it once they have undone percent-encoding and the escapes of JSON and of quoted names. */
function isSuspect(bytes: Buffer): boolean {
  if (SUSPECT.test(bytes.toString("latin1"))) return true;
  let form = bytes;
  for (let turn = 0; turn < MAX_UNESCAPES; turn++) {
    const plain = unescaped(form);
    if (plain.length === form.length) return false;
    if (SUSPECT.test(plain.toString("latin1"))) return true;
    form = plain;
  }
  return false;
}

const PERCENT = 0x25;
const BACKSLASH = 0x5c;

/** Byte by byte, since a form may hold nothing but escapes. Escapes of one kind in each other are undone at once: `%255f`, `\\\\u005f`. */
function unescaped(from: Buffer): Buffer {
  const to = Buffer.allocUnsafe(from.length);
  let size = 0;
  let at = 0;
  while (at < from.length) {
    const byte = from[at++] ?? 0;
    let plain = byte;
    if (byte === PERCENT) {
      while (from[at] === 0x32 && from[at + 1] === 0x35) at += 2;
      const code = hexByte(from, at);
      if (code >= 0) {
        plain = code;
        at += 2;
      }
    } else if (byte === BACKSLASH) {
      while (from[at] === BACKSLASH) at += 1;
      const digits = from[at] === 0x75 && from[at + 1] === 0x30 && from[at + 2] === 0x30 ? at + 3 : from[at] === 0x78 ? at + 1 : -1;
      const code = digits < 0 ? -1 : hexByte(from, digits);
      if (code >= 0) at = digits + 2;
      plain = code >= 0 ? code : (from[at++] ?? 0);
    }
    to[size++] = plain;
  }
  return to.subarray(0, size);
}

/** -1: not two hexadecimal digits. */
function hexByte(bytes: Buffer, at: number): number {
  const [high, low] = [hexDigit(bytes[at] ?? 0), hexDigit(bytes[at + 1] ?? 0)];
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

export function isMultipart(contentType: string): boolean {
  return /^\s*multipart\/form-data\s*(?:;|$)/i.test(contentType);
}
