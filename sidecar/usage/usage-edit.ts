import { lastMember, membersOf, readValue, type Span } from "../body/json-spans.js";
import type { ApiShape } from "../body/types.js";

/** The member of `usage` that holds the count, and the one inside it; `inner` is null where the count stands in `usage` itself. */
interface UsagePlace {
  readonly outer: string;
  readonly inner: string | null;
  /** Members of an event under which its usage may stand: `""` is the event itself. */
  readonly holders: readonly string[];
  /** Anthropic's count of input tokens is without those from a cache: what moves from one to the other leaves the sum as it is. */
  readonly apart?: string;
}

const OPENAI: UsagePlace = { outer: "prompt_tokens_details", inner: "cached_tokens", holders: [""] };

/** Where each API says how much of the prompt came from a cache (D8: no API gets another's member). */
const PLACES: Readonly<Record<ApiShape, UsagePlace>> = {
  chat: OPENAI,
  completions: OPENAI,
  generate: OPENAI,
  other: OPENAI,
  // Whole answers hold it at the top, `response.completed` and its kin one level down.
  responses: { outer: "input_tokens_details", inner: "cached_tokens", holders: ["", "response"] },
  // Anthropic: whole answers and `message_delta` at the top, `message_start` inside `message`.
  messages: { outer: "cache_read_input_tokens", inner: null, holders: ["", "message"], apart: "input_tokens" },
};

/** Text that every object with usage contains: what lacks it need not be read. */
export const USAGE_MARK = Buffer.from('"usage"');

const COUNT = /^(?:0|[1-9]\d*)$/;

interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Sets the cached-token count in one JSON object, splicing that number alone; where the engine left the member out it is added.
 *
 * @param cachedTokens the number's text, as the prefill engine wrote it
 * @returns views of the bytes with the new text between them; null when there is nothing to change (no JSON, no usage object)
 */
export function withCachedTokens(bytes: Buffer, shape: ApiShape, cachedTokens: string): Buffer[] | null {
  const root = readValue(bytes);
  if (root?.kind !== "object") return null;
  const place = PLACES[shape];
  const splices: Splice[] = [];
  for (const holder of place.holders) {
    const usage = lastMember(bytes, holder === "" ? root : lastMember(bytes, root, holder), "usage");
    if (usage?.kind === "object") splices.push(spliceOf(bytes, usage, place, cachedTokens), ...restOf(bytes, usage, place, cachedTokens));
  }
  if (splices.length === 0) return null;
  const out: Buffer[] = [];
  let at = 0;
  for (const { start, end, text } of splices.sort((a, b) => a.start - b.start)) {
    out.push(bytes.subarray(at, start), Buffer.from(text));
    at = end;
  }
  out.push(bytes.subarray(at));
  return out;
}

function spliceOf(bytes: Buffer, usage: Span, { outer, inner }: UsagePlace, cachedTokens: string): Splice {
  const value = lastMember(bytes, usage, outer);
  if (inner === null) return value === null ? insertion(bytes, usage, outer, cachedTokens) : replacement(value, cachedTokens);
  if (value === null) return insertion(bytes, usage, outer, `{"${inner}":${cachedTokens}}`);
  if (value.kind !== "object") return replacement(value, `{"${inner}":${cachedTokens}}`);
  const count = lastMember(bytes, value, inner);
  return count === null ? insertion(bytes, value, inner, cachedTokens) : replacement(count, cachedTokens);
}

/**
 * The other part of a sum, where the API has one (vLLM: input_tokens = prompt - cache_read - cache_creation). It does not go below 0, as vLLM's does not: a decoder that computed
 * the prompt after all, and counts it as created, has less than that left.
 */
function restOf(bytes: Buffer, usage: Span, { outer, apart }: UsagePlace, cachedTokens: string): Splice[] {
  const rest = apart === undefined ? null : lastMember(bytes, usage, apart);
  if (rest === null) return [];
  const before = lastMember(bytes, usage, outer);
  const tokens = countOf(bytes, rest);
  if (tokens === null) return [];
  const left = tokens + ((before === null ? null : countOf(bytes, before)) ?? 0n) - BigInt(cachedTokens);
  return [replacement(rest, String(left < 0n ? 0n : left))];
}

/** A count that stands there as one, of any size; null for anything else. */
function countOf(bytes: Buffer, { start, end }: Span): bigint | null {
  const text = bytes.toString("latin1", start, end);
  return COUNT.test(text) ? BigInt(text) : null;
}

function replacement({ start, end }: Span, text: string): Splice {
  return { start, end, text };
}

function insertion(bytes: Buffer, object: Span, name: string, json: string): Splice {
  const comma = membersOf(bytes, object).length === 0 ? "" : ",";
  return { start: object.end - 1, end: object.end - 1, text: `${comma}"${name}":${json}` };
}

/**
 * The cached-token count of a prefill's answer as its number's text; `0` when it has none (NX-20). An engine that does not print details still hands its
 * hits over with the blocks (real-engine §4), so that is looked at second.
 */
export function cachedTokensOf(bytes: Buffer, answer: Span, handoff: Span | null, shape: ApiShape): string {
  const place = PLACES[shape];
  const usage = lastMember(bytes, answer, "usage");
  const outer = lastMember(bytes, usage, place.outer);
  const count = place.inner === null ? outer : lastMember(bytes, outer, place.inner);
  for (const candidate of [count, lastMember(bytes, handoff, "remote_prefill_cached_tokens")]) {
    if (candidate !== null && countOf(bytes, candidate) !== null) return bytes.toString("latin1", candidate.start, candidate.end);
  }
  return "0";
}
