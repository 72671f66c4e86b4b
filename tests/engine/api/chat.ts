/** `POST /v1/chat/completions`. */

import type { FinishReason } from "../answer.js";
import { ApiError } from "../errors.js";
import { fingerprint } from "../fingerprint.js";
import { Fields } from "../fields.js";
import { isObject, member, type Json, type JsonObject } from "../json.js";
import { modalityOf } from "../media.js";
import { renderChat, type ChatInput, type Turn } from "../render.js";
import { readForced } from "./forced.js";
import { chatLogprob, promptLogprobs } from "./logprobs.js";
import { requestIdOf, type ApiRoute, type GenerationRequest, type Outcome, type ReadContext, type StreamWriter, type WriteContext } from "./request.js";
import { readControl, readSampling, readStreamOptions } from "./sampling.js";
import { DONE, dataEvent } from "./sse.js";
import { FINGERPRINT, openAiUsage, runningUsage, streamedUsage } from "./usage.js";

const CONFIG_MEMBERS = ["chat_template", "chat_template_kwargs", "documents", "reasoning_effort"];

/** The members that change how a prompt renders, null when there are none. */
export function renderConfig(body: JsonObject): Json {
  const config: JsonObject = {};
  for (const name of CONFIG_MEMBERS) {
    const value = member(body, name);
    if (value !== undefined && value !== null) config[name] = value;
  }
  return Object.keys(config).length === 0 ? null : config;
}

/** What an encode leg's check looks at. */
export function describeTurns(turns: readonly Turn[]): GenerationRequest["turns"] {
  return turns.map(({ role, content }) => {
    const parts = Array.isArray(content) ? content : [];
    const media = parts.filter((part) => isObject(part) && typeof part["type"] === "string" && modalityOf(part["type"]) !== null).length;
    return { role, media, text: (typeof content === "string" && content !== "") || parts.length > media };
  });
}

function readTurn(value: Json, index: number): Turn {
  const path = `messages.${String(index)}`;
  if (!isObject(value)) throw new ApiError(400, `${path}: Input should be a valid dictionary`, "messages", "Bad Request");
  const role = member(value, "role");
  if (typeof role !== "string") throw new ApiError(400, `${path}.role: Field required`, "messages", "Bad Request");
  const content = member(value, "content") ?? null;
  if (content !== null && typeof content !== "string" && !Array.isArray(content)) {
    throw new ApiError(400, `${path}.content: Input should be a valid string or list`, "messages", "Bad Request");
  }
  const calls = member(value, "tool_calls") ?? null;
  const name = member(value, "name");
  return { role, content, ...(typeof name === "string" ? { name } : {}), ...(Array.isArray(calls) ? { toolCalls: calls.map((call) => readToolCall(call, path)) } : {}) };
}

function readToolCall(call: Json, path: string): { name: string; arguments: string } {
  const inner = isObject(call) ? member(call, "function") : null;
  const name = isObject(inner) ? member(inner, "name") : null;
  const args = isObject(inner) ? (member(inner, "arguments") ?? "") : null;
  if (typeof name !== "string" || typeof args !== "string") throw new ApiError(400, `${path}.tool_calls: function name and arguments are wanted`, "messages", "Bad Request");
  return { name, arguments: args };
}

/** Also used by `/tokenize`. */
export function readChatInput(body: JsonObject): { input: ChatInput; turns: Turn[] } {
  const fields = new Fields(body);
  fields.required("messages");
  const messages = fields.list("messages");
  const addGenerationPrompt = fields.bool("add_generation_prompt") ?? true;
  const continueFinalMessage = fields.bool("continue_final_message") ?? false;
  fields.list("tools");
  fields.done();
  if (continueFinalMessage && fields.bool("add_generation_prompt") === true) {
    throw new ApiError(400, "Cannot set both `continue_final_message` and `add_generation_prompt` to True.", "continue_final_message");
  }
  const turns = (messages ?? []).map(readTurn);
  if (turns.length === 0) throw new ApiError(400, "messages: at least one message is wanted", "messages");
  const processing = member(body, "mm_processor_kwargs") ?? null;
  const input = { turns, tools: member(body, "tools") ?? null, addGenerationPrompt, continueFinalMessage, config: renderConfig(body), processing };
  return { input, turns };
}

function read(body: JsonObject, context: ReadContext): GenerationRequest {
  const { input, turns } = readChatInput(body);
  const fields = new Fields(body);
  const options = readStreamOptions(fields, true);
  const sampling = readSampling(fields, { caps: ["max_completion_tokens", "max_tokens"], defaultMax: null, defaultTemperature: 1, logprobsForm: "flag" }, options.stream);
  const extra = fields.dict("vllm_xargs");
  const model = fields.string("model");
  const cacheSalt = fields.string("cache_salt");
  const kvTransferParams = readControl(fields, "kv_transfer_params", extra);
  const ecTransferParams = readControl(fields, "ec_transfer_params", extra);
  const cacheHitThreshold = fields.number("cache_hit_threshold", { min: 0, max: 1 });
  const bodyId = fields.string("request_id");
  fields.done();
  return {
    shape: "chat",
    id: `chatcmpl-${requestIdOf(context, bodyId)}`,
    model: model ?? context.defaultModel,
    prompts: [renderChat(input)],
    sampling,
    ...options,
    echo: fields.bool("echo") ?? false,
    cacheSalt: cacheSalt ?? "",
    forced: readForced(fields.raw("tools"), fields.raw("tool_choice"), fields.raw("response_format")),
    kvTransferParams,
    ecTransferParams,
    cacheHitThreshold,
    body,
    turns: describeTurns(turns),
  };
}

function toolCallId(request: GenerationRequest, index: number): string {
  return `chatcmpl-tool-${fingerprint(request.id, String(index))}`;
}

function finishOf(request: GenerationRequest, finish: FinishReason): FinishReason {
  return request.forced?.kind === "tool" && finish === "stop" ? "tool_calls" : finish;
}

function full(request: GenerationRequest, outcome: Outcome, context: WriteContext): JsonObject {
  const top = request.sampling.logprobs;
  const prompt = request.prompts[0];
  return {
    id: request.id,
    object: "chat.completion",
    created: context.created,
    model: request.model,
    choices: outcome.choices.map((choice): JsonObject => {
      const text = choice.pieces.join("");
      const tool = request.forced?.kind === "tool";
      const toolCalls: Json[] = tool ? [{ id: toolCallId(request, choice.index), type: "function", function: { name: request.forced?.toolName ?? "", arguments: text } }] : [];
      return {
        index: choice.index,
        // No list of calls where there are none.
        message: { role: "assistant", content: tool ? null : text, refusal: null, annotations: null, audio: null, function_call: null, ...(tool ? { tool_calls: toolCalls } : {}), reasoning: null },
        logprobs: top === null ? null : { content: choice.tokens.map((token, index) => chatLogprob(token, index, choice.pieces[index] ?? "", top)) },
        finish_reason: finishOf(request, choice.finish),
        stop_reason: null,
        token_ids: null,
        routed_experts: null,
      };
    }),
    service_tier: null,
    system_fingerprint: FINGERPRINT,
    usage: openAiUsage(outcome.usage, context.promptTokensDetails, "read-and-created"),
    prompt_logprobs: request.sampling.promptLogprobs === null || prompt === undefined ? null : promptLogprobs(prompt, request.sampling.promptLogprobs),
    prompt_token_ids: null,
    prompt_text: null,
    kv_transfer_params: outcome.kvTransferParams,
    ec_transfer_params: outcome.ecTransferParams,
    metrics: null,
  };
}

function stream(request: GenerationRequest, context: WriteContext): StreamWriter {
  const top = request.sampling.logprobs;
  const counts = new Map<number, number>();
  const promptTokens = request.prompts.reduce((sum, prompt) => sum + prompt.tokens.length, 0);
  const chunk = (choices: Json, usage?: JsonObject, more: JsonObject = {}): string =>
    dataEvent({
      id: request.id,
      object: "chat.completion.chunk",
      created: context.created,
      model: request.model,
      choices,
      ...(usage === undefined ? {} : { usage }),
      ...more,
    });
  // On the last event: the one with the usage, or the one that finishes a choice.
  const signed = (last: boolean): JsonObject => (last ? { system_fingerprint: FINGERPRINT } : {});
  const running = (choice: number): JsonObject | undefined =>
    request.continuousUsage ? runningUsage(promptTokens, counts.get(choice) ?? 0) : undefined;
  return {
    start: () =>
      Array.from({ length: request.sampling.n }, (_, index) =>
        chunk([{ index, delta: { role: "assistant", content: "" }, logprobs: null, finish_reason: null }], running(index), { prompt_token_ids: null, prompt_text: null }),
      ),
    token: (choice, token, piece) => {
      const position = counts.get(choice) ?? 0;
      counts.set(choice, position + 1);
      const delta: JsonObject =
        request.forced?.kind === "tool"
          ? {
              tool_calls: [
                position === 0
                  ? { index: 0, id: toolCallId(request, choice), type: "function", function: { name: request.forced.toolName, arguments: piece } }
                  : { index: 0, function: { arguments: piece } },
              ],
            }
          : { content: piece };
      const logprobs = top === null ? null : { content: [chatLogprob(token, position, piece, top)] };
      return [chunk([{ index: choice, delta, logprobs, finish_reason: null, token_ids: null }], running(choice))];
    },
    finish: (choice, finish) => [chunk([{ index: choice, delta: { content: "" }, logprobs: null, finish_reason: finishOf(request, finish), stop_reason: null }], running(choice), signed(!request.includeUsage))],
    end: (outcome) => [...(request.includeUsage ? [chunk([], streamedUsage(outcome.usage, context.promptTokensDetails, "read-and-created"), signed(true))] : []), DONE],
    error: (body) => [dataEvent(body), DONE],
  };
}

export const chatRoute: ApiRoute = {
  shape: "chat",
  paths: ["/v1/chat/completions"],
  read,
  full,
  stream,
};
