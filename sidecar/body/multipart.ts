import { setImmediate } from "node:timers/promises";
import type { Pieces } from "./pieces.js";

/**
 * Forms are for two audio routes only, and no engine's reader of forms is ours: a form is not edited but refused when anything in it might become a control
 * member for any reader (DESIGN, decision 5).
 */
const SUSPECT =
  // Names of fields, plain or inside JSON text of a field, and parameters that carry names in an encoding of their own (RFC 5987).
  /(?:kv|ec)[_%\\+]?[^"\r\n]{0,12}transfer_params|bootstrap_[a-z]+"|vllm_xargs|name\*\d*\*?[ \t]{0,8}=|_charset_/i;

/** A form may be as large as the body limit and is searched in steps, between which open streams get their turn. */
const STEP_BYTES = 256 * 1024;
/** Longer than anything that the search looks for, so that nothing hides across two steps. */
const OVERLAP_BYTES = 128;

export type MultipartProblem = "charset" | "boundary" | "control_member";

/** What keeps a form from being handed on; null when nothing does. */
export async function multipartProblem(contentType: string, body: Pieces): Promise<MultipartProblem | null> {
  const charsets = [...contentType.matchAll(/;\s*charset\s*=\s*"?([^";]*)"?/gi)].map((match) => (match[1] ?? "").trim().toLowerCase());
  // Readers decode the names of fields by it.
  if (charsets.some((charset) => charset !== "utf-8" && charset !== "utf8") || /charset\*/i.test(contentType)) return "charset";
  if ([...contentType.matchAll(/;\s*boundary/gi)].length !== 1) return "boundary";
  for (let at = 0; at < body.length; at += STEP_BYTES) {
    if (at > 0) await setImmediate();
    if (SUSPECT.test(body.join(Math.max(0, at - OVERLAP_BYTES), Math.min(body.length, at + STEP_BYTES)).toString("latin1"))) return "control_member";
  }
  return null;
}

export function isMultipart(contentType: string): boolean {
  return /^\s*multipart\/form-data\s*(?:;|$)/i.test(contentType);
}
