/** From a case's words to the bytes of a request. */
import { encode, type EncodedBody } from "./encodings.js";
import { bodyOfCase, FormatError, type Case, type RequestPlan } from "./format.js";
import { compact, JsonError, parseValue } from "./json.js";
import { padTo } from "./pad.js";
import { set } from "./paths.js";

export interface BuiltRequest {
  /** Before `encoding`; null: no body. */
  body: Buffer | null;
  encoded: EncodedBody | null;
  headers: [name: string, value: string][];
}

function sourceOf(subject: Case, plan: RequestPlan, shared: string): Buffer | null {
  switch (plan.body.kind) {
    case "none":
      return null;
    case "value":
      return Buffer.from(compact(plan.body.value));
    case "case":
      return bodyOfCase(plan.body.number, subject.folder, shared);
    case "file":
      return subject.body;
  }
}

/** The body before `encoding`: the source, `set`, `pad_to`. Throws FormatError. */
export function buildBody(subject: Case, plan: RequestPlan, size: number, shared: string): Buffer | null {
  let body = sourceOf(subject, plan, shared);
  if (body === null) return null;
  try {
    if (plan.set.length > 0) {
      const value = parseValue(body);
      for (const [path, member] of plan.set) set(value, path, member);
      body = Buffer.from(compact(value));
    }
    return padTo(body, size);
  } catch (error) {
    if (error instanceof JsonError) throw new FormatError(`the body cannot be changed, it is no JSON: ${error.message}`);
    throw error;
  }
}

/** The authority that requests name; tests reach loopback whatever it says. */
const HOST = "gateway.example.test";

/**
 * @param size `pad_to`, 0 for none
 * @param shared the folder where bodies of other cases are looked up when the case's own folder has none
 * @param map addresses in header values, see addresses.ts
 */
export async function buildRequest(subject: Case, plan: RequestPlan, size: number, shared: string, map: (text: string) => string): Promise<BuiltRequest> {
  const body = buildBody(subject, plan, size, shared);
  const encoded = body === null ? null : await encode(body, plan.encoding);
  const headers = plan.headers.map(([name, value]): [string, string] => [name, map(value)]);
  const has = (wanted: string): boolean => headers.some(([name]) => name.toLowerCase() === wanted);
  if (!has("host")) headers.unshift(["Host", HOST]);
  if (encoded !== null) {
    if (!has("content-type")) headers.push(["content-type", "application/json"]);
    if (encoded.contentEncoding !== null && !has("content-encoding")) headers.push(["content-encoding", encoded.contentEncoding]);
  }
  return { body, encoded, headers };
}
