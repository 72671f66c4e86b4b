/** `usage` of the OpenAI APIs, member by member as vLLM 0.32 writes it (tests/real-engine holds it against the real one). */

import type { JsonObject } from "../json.js";
import type { Usage } from "./request.js";

/** What the real one says of its build and configuration; this one names itself. */
export const FINGERPRINT = "vllm-0.32.0-simulated";

/** Chat alone says what was written to the cache. */
export type CacheForm = "read" | "read-and-created";

function counts(usage: Usage): JsonObject {
  return { prompt_tokens: usage.promptTokens, total_tokens: usage.promptTokens + usage.completionTokens, completion_tokens: usage.completionTokens };
}

/**
 * Of a whole answer: members that hold nothing are null.
 *
 * @param details `--enable-prompt-tokens-details`
 */
export function openAiUsage(usage: Usage, details: boolean, form: CacheForm): JsonObject {
  const created = form === "read-and-created" ? usage.createdTokens : null;
  return { ...counts(usage), prompt_tokens_details: details ? { cached_tokens: usage.cachedTokens, created_cache_tokens: created, multimodal_tokens: null } : null, completion_tokens_details: null };
}

/** Of a stream's last event: what is null is left out. */
export function streamedUsage(usage: Usage, details: boolean, form: CacheForm): JsonObject {
  const created = form === "read-and-created" ? { created_cache_tokens: usage.createdTokens } : {};
  return { ...counts(usage), ...(details ? { prompt_tokens_details: { cached_tokens: usage.cachedTokens, ...created } } : {}) };
}

/** Of the events before (`continuous_usage_stats`), which know of no cache. */
export function runningUsage(promptTokens: number, completionTokens: number): JsonObject {
  return { prompt_tokens: promptTokens, total_tokens: promptTokens + completionTokens, completion_tokens: completionTokens, completion_tokens_details: null };
}
