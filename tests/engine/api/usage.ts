/** `usage` of the OpenAI APIs. */

import type { JsonObject } from "../json.js";
import type { Usage } from "./request.js";

/** `prompt_tokens_details` is null without `--enable-prompt-tokens-details`, and when nothing was cached, as on the real one. */
export function openAiUsage(usage: Usage, details: boolean): JsonObject {
  return {
    prompt_tokens: usage.promptTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    completion_tokens: usage.completionTokens,
    prompt_tokens_details: details && usage.cachedTokens > 0 ? { cached_tokens: usage.cachedTokens } : null,
  };
}
