/** Members that every generation API shares: limits, sampling, log-probabilities, control members. */

import { ApiError } from "../errors.js";
import type { Fields } from "../fields.js";
import { canonical, isObject, member, type Json, type JsonObject } from "../json.js";
import type { Sampling } from "./request.js";

/** Members that change which tokens are drawn. Those that only cut the answer short (limits, stop) are not among them. */
const DRAWING_MEMBERS = [
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "seed",
  "presence_penalty",
  "frequency_penalty",
  "repetition_penalty",
  "logit_bias",
  "bad_words",
  "allowed_token_ids",
  "response_format",
  "structured_outputs",
  "guided_json",
  "guided_regex",
  "guided_choice",
  "guided_grammar",
  "tool_choice",
  "parallel_tool_calls",
  "use_beam_search",
  "length_penalty",
  "best_of",
];
/** Of these only the first matters when decoding is greedy. */
const RANDOM_MEMBERS: readonly string[] = ["top_p", "top_k", "min_p", "seed"];

export interface SamplingRule {
  /** Names of the members that cap the answer; the first one that is given counts. */
  readonly caps: readonly string[];
  /** Limit when none is sent. */
  readonly defaultMax: number | null;
  readonly defaultTemperature: number;
  /** `logprobs` is a flag with `top_logprobs` beside it (chat), a count (completions, generate), or not there (messages, responses). */
  readonly logprobsForm: "flag" | "count" | "none";
}

export function readSampling(fields: Fields, rule: SamplingRule, stream: boolean): Sampling {
  let maxTokens = rule.defaultMax;
  for (const name of [...rule.caps].reverse()) {
    const value = fields.int(name);
    if (value === null) continue;
    if (value < 1) throw new ApiError(400, `${name} must be at least 1, got ${String(value)}.`, name);
    maxTokens = value;
  }
  const minTokens = fields.int("min_tokens") ?? 0;
  const n = fields.int("n") ?? 1;
  const bestOf = fields.int("best_of") ?? n;
  const temperature = fields.number("temperature", { min: 0 }) ?? rule.defaultTemperature;
  const topP = fields.number("top_p");
  const promptLogprobs = fields.int("prompt_logprobs", { min: -1 });
  const logprobs = readLogprobs(fields, rule.logprobsForm);
  const stop = readStop(fields);
  const ignoreEos = fields.bool("ignore_eos") ?? false;
  fields.done();
  if (minTokens < 0) throw new ApiError(400, `min_tokens must be greater than or equal to 0, got ${String(minTokens)}.`, "min_tokens");
  if (maxTokens !== null && minTokens > maxTokens) {
    throw new ApiError(400, `min_tokens must be less than or equal to max_tokens=${String(maxTokens)}, got ${String(minTokens)}.`, "min_tokens");
  }
  if (n < 1) throw new ApiError(400, `n must be at least 1, got ${String(n)}.`, "n");
  if (bestOf < n) throw new ApiError(400, `best_of must be greater than or equal to n, got n=${String(n)} and best_of=${String(bestOf)}.`, "best_of");
  if (n > 1 && temperature === 0) throw new ApiError(400, `n must be 1 when using greedy sampling, got ${String(n)}.`);
  if (topP !== null && (topP <= 0 || topP > 1)) throw new ApiError(400, `top_p must be in (0, 1], got ${String(topP)}.`, "top_p");
  if (promptLogprobs !== null && stream) throw new ApiError(400, "`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs");
  return { maxTokens, minTokens, n, temperature, stop, ignoreEos, logprobs, promptLogprobs, fingerprint: drawingFingerprint(fields.object, temperature) };
}

function readLogprobs(fields: Fields, form: SamplingRule["logprobsForm"]): number | null {
  if (form === "none") return null;
  if (form === "count") return fields.int("logprobs", { min: 0 });
  const wanted = fields.bool("logprobs") ?? false;
  const top = fields.int("top_logprobs", { min: 0 });
  if (top !== null && top > 0 && !wanted) throw new ApiError(400, "when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs");
  return wanted ? (top ?? 0) : null;
}

function readStop(fields: Fields): string[] {
  const value = fields.raw("stop");
  if (value === null) return [];
  if (typeof value === "string") return [value];
  if (Array.isArray(value) && value.every((item): item is string => typeof item === "string")) return value;
  fields.fail("stop", "list_type", "Input should be a valid string or list of strings");
  return [];
}

function drawingFingerprint(object: JsonObject, temperature: number): string {
  const drawn: JsonObject = {};
  for (const name of DRAWING_MEMBERS) {
    const value = member(object, name);
    if (value === undefined || value === null) continue;
    if (temperature === 0 && RANDOM_MEMBERS.includes(name)) continue;
    drawn[name] = value;
  }
  return canonical(drawn);
}

export interface StreamOptions {
  stream: boolean;
  hasStreamOptions: boolean;
  includeUsage: boolean;
  continuousUsage: boolean;
}

/** @param checked chat and completions refuse `stream_options` without `stream` */
export function readStreamOptions(fields: Fields, checked: boolean): StreamOptions {
  const stream = fields.bool("stream") ?? false;
  const options = fields.inner("stream_options");
  const includeUsage = options?.bool("include_usage") ?? false;
  const continuousUsage = includeUsage && (options?.bool("continuous_usage_stats") ?? false);
  if (checked && options !== null && Object.keys(options.object).length > 0 && !stream) throw new ApiError(400, "Stream options can only be defined when `stream=True`.", "stream_options");
  return { stream, hasStreamOptions: options !== null, includeUsage, continuousUsage };
}

/** A dictionary that may stand at the top level or among the extra arguments; the top level wins (real-engine §4, "More doors"). */
export function readControl(fields: Fields, name: "kv_transfer_params" | "ec_transfer_params", extra: JsonObject | null): JsonObject | null {
  const top = fields.dict(name);
  if (top !== null && Object.keys(top).length > 0) return top;
  const inner: Json = extra === null ? null : (member(extra, name) ?? null);
  if (inner !== null && !isObject(inner)) throw new ApiError(500, "Internal server error");
  return inner;
}
