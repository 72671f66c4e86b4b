/** What a request asks of an engine, by the engine's role and, for mixed roles, by the request. */

import { isObject, member, type Json } from "./json.js";
import { modalityOf } from "./media.js";
import { truthy } from "./connectors/nixl.js";
import type { Role, Stage } from "./types.js";

/** Stage of a request that says nothing about itself. */
export function roleStage(role: Role): Stage {
  return role === "encode" || role === "prefill" ? role : "decode";
}

export function stageOf(role: Role, body: Json | undefined): Stage {
  if (role === "prefill" || role === "decode" || role === "encode" || !isObject(body)) return roleStage(role);
  const params = member(body, "kv_transfer_params");
  if (isObject(params)) {
    const decoder = member(params, "decode") ?? member(params, "remote_decoder");
    if (truthy(member(params, "do_remote_decode")) || isObject(decoder)) return "prefill";
  }
  return role === "encode-prefill-decode" && looksLikeEncodeLeg(body) ? "encode" : "decode";
}

/** One user message that holds media and nothing else, and one token wanted. */
function looksLikeEncodeLeg(body: Json): boolean {
  if (!isObject(body)) return false;
  const turns = member(body, "messages") ?? member(body, "input");
  if (!Array.isArray(turns) || turns.length !== 1) return false;
  const [turn] = turns;
  if (!isObject(turn ?? null)) return false;
  const content = isObject(turn) ? member(turn, "content") : undefined;
  const role = isObject(turn) ? member(turn, "role") : undefined;
  if (role !== "user" || !Array.isArray(content) || content.length === 0) return false;
  const onlyMedia = content.every((part) => isObject(part) && typeof part["type"] === "string" && modalityOf(part["type"]) !== null);
  return onlyMedia && ["max_tokens", "max_completion_tokens", "max_output_tokens"].some((name) => member(body, name) === 1);
}
