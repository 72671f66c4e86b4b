/** `POST /v1/messages` (Anthropic). */

import type { FinishReason } from "../answer.js";
import { ApiError } from "../errors.js";
import { Fields } from "../fields.js";
import { fingerprint } from "../fingerprint.js";
import { isObject, member, stringify, type Json, type JsonObject } from "../json.js";
import { renderChat, type ChatInput, type Turn } from "../render.js";
import { describeTurns, renderConfig } from "./chat.js";
import { readForced } from "./forced.js";
import { requestIdOf, type ApiRoute, type GenerationRequest, type Outcome, type ReadContext, type StreamWriter, type Usage, type WriteContext } from "./request.js";
import { readControl, readSampling, readStreamOptions } from "./sampling.js";
import { namedEvent } from "./sse.js";

function resultText(content: Json): Json {
  return content ?? "";
}

/** One message may become several turns: tool results are turns of their own. */
function readTurns(value: Json, index: number): Turn[] {
  const path = `messages.${String(index)}`;
  if (!isObject(value)) throw new ApiError(400, `${path}: Input should be a valid dictionary`, "messages", "Bad Request");
  const role = member(value, "role");
  const content = member(value, "content") ?? null;
  if (role !== "user" && role !== "assistant" && role !== "system") throw new ApiError(400, `${path}.role: Input should be 'user', 'assistant' or 'system'`, "messages", "Bad Request");
  if (typeof content === "string") return [{ role, content }];
  if (!Array.isArray(content)) throw new ApiError(400, `${path}.content: Input should be a valid string or list`, "messages", "Bad Request");
  const turns: Turn[] = [];
  const parts: Json[] = [];
  const toolCalls: { name: string; arguments: string }[] = [];
  for (const block of content) {
    const type = isObject(block) ? member(block, "type") : null;
    if (isObject(block) && type === "tool_use") {
      const name = member(block, "name");
      toolCalls.push({ name: typeof name === "string" ? name : "", arguments: stringify(member(block, "input") ?? {}) });
    } else if (isObject(block) && type === "tool_result") {
      turns.push({ role: "tool", content: resultText(member(block, "content") ?? null) });
    } else {
      parts.push(block);
    }
  }
  if (parts.length > 0 || toolCalls.length > 0) turns.push({ role, content: parts, ...(toolCalls.length > 0 ? { toolCalls } : {}) });
  return turns;
}

export function readMessagesInput(body: JsonObject): { input: ChatInput; turns: Turn[] } {
  const fields = new Fields(body);
  fields.required("messages");
  const messages = fields.list("messages");
  fields.list("tools");
  fields.done();
  if (messages === null || messages.length === 0) throw new ApiError(400, "messages: at least one message is wanted", "messages");
  const system = fields.raw("system");
  if (system !== null && typeof system !== "string" && !Array.isArray(system)) throw new ApiError(400, "system: Input should be a valid string or list", "system", "Bad Request");
  const turns = [...(system === null ? [] : [{ role: "system", content: system }]), ...messages.flatMap(readTurns)];
  const processing = member(body, "mm_processor_kwargs") ?? null;
  const input = { turns, tools: fields.raw("tools"), addGenerationPrompt: true, continueFinalMessage: false, config: renderConfig(body), processing };
  return { input, turns };
}

function read(body: JsonObject, context: ReadContext): GenerationRequest {
  const fields = new Fields(body);
  fields.required("max_tokens");
  fields.required("model");
  const { input, turns } = readMessagesInput(body);
  fields.done();
  const options = readStreamOptions(fields, false);
  const named: JsonObject = { ...body };
  const stopSequences = member(body, "stop_sequences");
  if (stopSequences !== undefined) named["stop"] = stopSequences;
  const sampling = readSampling(new Fields(named), { caps: ["max_tokens"], defaultMax: null, defaultTemperature: 1, logprobsForm: "none" }, options.stream);
  const extra = fields.dict("vllm_xargs");
  const model = fields.string("model");
  const cacheSalt = fields.string("cache_salt");
  const kvTransferParams = readControl(fields, "kv_transfer_params", extra);
  const ecTransferParams = readControl(fields, "ec_transfer_params", extra);
  const cacheHitThreshold = fields.number("cache_hit_threshold", { min: 0, max: 1 });
  fields.done();
  return {
    shape: "messages",
    id: `chatcmpl-${requestIdOf(context, null)}`,
    model: model ?? context.defaultModel,
    prompts: [renderChat(input)],
    sampling,
    ...options,
    echo: false,
    cacheSalt: cacheSalt ?? "",
    forced: readForced(fields.raw("tools"), fields.raw("tool_choice"), null),
    kvTransferParams,
    ecTransferParams,
    cacheHitThreshold,
    body,
    turns: describeTurns(turns),
  };
}

function stopReason(request: GenerationRequest, finish: FinishReason): string {
  if (request.forced?.kind === "tool" && finish === "stop") return "tool_use";
  if (finish === "length") return "max_tokens";
  return finish === "cache_threshold" ? "cache_threshold" : "end_turn";
}

/** All input is the sum of the three: what was read from a cache, what was written to it, and the rest. */
function usageJson(usage: Usage, details: boolean): JsonObject {
  if (!details) return { input_tokens: usage.promptTokens, output_tokens: usage.completionTokens };
  return {
    input_tokens: Math.max(0, usage.promptTokens - usage.cachedTokens - usage.createdTokens),
    output_tokens: usage.completionTokens,
    cache_creation_input_tokens: usage.createdTokens,
    cache_read_input_tokens: usage.cachedTokens,
  };
}

function toolUse(request: GenerationRequest, input: Json): JsonObject {
  return { type: "tool_use", id: `toolu_${fingerprint(request.id)}`, name: request.forced?.toolName ?? "", input };
}

/** The arguments of a tool call that a limit has cut are no JSON; the real one answers 500 then. */
function toolInput(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    throw new ApiError(500, "Internal server error");
  }
}

function full(request: GenerationRequest, outcome: Outcome, context: WriteContext): JsonObject {
  const choice = outcome.choices[0];
  const text = choice?.pieces.join("") ?? "";
  const content: Json = request.forced?.kind === "tool" ? [toolUse(request, toolInput(text))] : text === "" ? [] : [{ type: "text", text }];
  return {
    id: request.id,
    type: "message",
    role: "assistant",
    content,
    model: request.model,
    stop_reason: stopReason(request, choice?.finish ?? "stop"),
    usage: usageJson(outcome.usage, context.promptTokensDetails),
    // This API leaves out what is null.
    ...(outcome.kvTransferParams === null ? {} : { kv_transfer_params: outcome.kvTransferParams }),
    ...(outcome.ecTransferParams === null ? {} : { ec_transfer_params: outcome.ecTransferParams }),
  };
}

function stream(request: GenerationRequest, context: WriteContext): StreamWriter {
  const promptTokens = request.prompts.reduce((sum, prompt) => sum + prompt.tokens.length, 0);
  let open = false;
  let finish: FinishReason = "stop";
  return {
    start: () => [
      namedEvent("message_start", {
        type: "message_start",
        message: {
          id: request.id,
          type: "message",
          role: "assistant",
          content: [],
          model: request.model,
          stop_reason: null,
          stop_sequence: null,
          usage: { input_tokens: promptTokens, output_tokens: 0 },
        },
      }),
    ],
    token: (choice, _token, piece) => {
      if (choice !== 0) return [];
      const tool = request.forced?.kind === "tool";
      const events: string[] = [];
      if (!open) {
        const block: JsonObject = tool ? toolUse(request, {}) : { type: "text", text: "" };
        events.push(namedEvent("content_block_start", { type: "content_block_start", index: 0, content_block: block }));
        open = true;
      }
      const delta: JsonObject = tool ? { type: "input_json_delta", partial_json: piece } : { type: "text_delta", text: piece };
      events.push(namedEvent("content_block_delta", { type: "content_block_delta", index: 0, delta }));
      return events;
    },
    finish: (choice, reason) => {
      if (choice === 0) finish = reason;
      return [];
    },
    end: (outcome) => [
      ...(open ? [namedEvent("content_block_stop", { type: "content_block_stop", index: 0 })] : []),
      namedEvent("message_delta", {
        type: "message_delta",
        delta: { stop_reason: stopReason(request, finish), stop_sequence: null },
        usage: usageJson(outcome.usage, context.promptTokensDetails),
      }),
      namedEvent("message_stop", { type: "message_stop" }),
    ],
    error: (body) => {
      const inner = member(body, "error") ?? null;
      const message = isObject(inner) ? (member(inner, "message") ?? "") : "";
      return [namedEvent("error", { type: "error", error: { type: "internal_error", message } })];
    },
  };
}

export const messagesRoute: ApiRoute = {
  shape: "messages",
  paths: ["/v1/messages"],
  read,
  full,
  stream,
};
