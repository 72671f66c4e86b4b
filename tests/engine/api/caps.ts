/** Which members cap an answer, per API shape: what a prefill or encode leg must set to 1. */

import { isObject, member, type JsonObject } from "../json.js";
import type { ApiShape, GenerationRequest } from "./request.js";

export interface Caps {
  readonly parent: "" | "sampling_params";
  readonly names: readonly string[];
}

export const CAPS: Readonly<Record<ApiShape, Caps>> = {
  chat: { parent: "", names: ["max_tokens", "max_completion_tokens"] },
  completions: { parent: "", names: ["max_tokens"] },
  messages: { parent: "", names: ["max_tokens"] },
  responses: { parent: "", names: ["max_output_tokens"] },
  generate: { parent: "sampling_params", names: ["max_tokens"] },
};

/** What is wrong with the limits of a leg that must make one token, as text that names the member; null when nothing is. */
export function oneTokenProblem(request: GenerationRequest): string | null {
  const { parent, names } = CAPS[request.shape];
  const inner = parent === "" ? request.body : member(request.body, parent);
  const limits: JsonObject = isObject(inner) ? inner : {};
  const prefix = parent === "" ? "" : `${parent}.`;
  const given = names.filter((name) => (member(limits, name) ?? null) !== null);
  if (given.length === 0) return `${prefix}${names[0] ?? ""} must be 1, it is missing`;
  for (const name of given) if (member(limits, name) !== 1) return `${prefix}${name} must be 1`;
  const least = member(limits, "min_tokens") ?? null;
  if (least !== null && (typeof least !== "number" || least > 1)) return `${prefix}min_tokens must be at most 1`;
  return null;
}

/** The leg must not be streamed: a streamed answer carries no parameters (real-engine §4 and §6). */
export function streamProblem(request: GenerationRequest): string | null {
  if (request.stream) return "stream must be false";
  if (member(request.body, "stream_options") !== undefined) return "stream_options must be absent";
  return null;
}
