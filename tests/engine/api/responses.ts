/** `POST /v1/responses`. */

import { ApiError } from "../errors.js";
import { Fields } from "../fields.js";
import { fingerprint } from "../fingerprint.js";
import { isObject, member, stringify, type Json, type JsonObject } from "../json.js";
import { renderChat, type Turn } from "../render.js";
import { describeTurns, renderConfig } from "./chat.js";
import { readForced } from "./forced.js";
import type { ApiRoute, GenerationRequest, Outcome, ReadContext, StreamWriter, Usage, WriteContext } from "./request.js";
import { readControl, readSampling, readStreamOptions } from "./sampling.js";
import { namedEvent } from "./sse.js";

function readItem(value: Json, index: number): Turn {
  const path = `input.${String(index)}`;
  if (!isObject(value)) throw new ApiError(400, `${path}: Input should be a valid dictionary`, "input", "Bad Request");
  const type = member(value, "type") ?? "message";
  if (type === "function_call") {
    const name = member(value, "name");
    const args = member(value, "arguments");
    return { role: "assistant", content: null, toolCalls: [{ name: typeof name === "string" ? name : "", arguments: typeof args === "string" ? args : "" }] };
  }
  if (type === "function_call_output") {
    const output = member(value, "output") ?? "";
    return { role: "tool", content: typeof output === "string" ? output : stringify(output) };
  }
  if (type === "reasoning") return { role: "assistant", content: stringify(member(value, "summary") ?? []) };
  const role = member(value, "role");
  const content = member(value, "content") ?? null;
  if (type !== "message" || typeof role !== "string") throw new ApiError(400, `${path}: a message with a role is wanted`, "input", "Bad Request");
  if (content !== null && typeof content !== "string" && !Array.isArray(content)) throw new ApiError(400, `${path}.content: Input should be a valid string or list`, "input", "Bad Request");
  return { role, content };
}

/** `input` as a list of items, whatever its form; what a later response with `previous_response_id` starts from. */
export function inputItems(body: JsonObject, context: Pick<ReadContext, "storedResponse">): Json[] {
  const input = member(body, "input") ?? null;
  const items: Json[] = typeof input === "string" ? [{ role: "user", content: input }] : Array.isArray(input) ? input : [];
  const previous = member(body, "previous_response_id") ?? null;
  if (previous === null) return items;
  const stored = typeof previous === "string" ? context.storedResponse(previous) : null;
  if (stored === null) {
    throw new ApiError(404, `Response with id '${typeof previous === "string" ? previous : ""}' not found.`, "response_id");
  }
  return [...stored, ...items];
}

function read(body: JsonObject, context: ReadContext): GenerationRequest {
  const fields = new Fields(body);
  fields.required("input");
  const input = fields.raw("input");
  if (input !== null && typeof input !== "string" && !Array.isArray(input)) fields.fail("input", "string_type", "Input should be a valid string or list");
  const instructions = fields.string("instructions");
  const previousId = fields.string("previous_response_id");
  const background = fields.bool("background") ?? false;
  const store = fields.bool("store") ?? true;
  fields.list("tools");
  const options = readStreamOptions(fields, false);
  const extra = fields.dict("vllm_xargs");
  const model = fields.string("model");
  const cacheSalt = fields.string("cache_salt");
  const bodyId = fields.string("request_id");
  const text = fields.dict("text");
  fields.done();
  if (background && !store) throw new ApiError(400, "background can only be used when `store` is true", "background");
  if (previousId !== null && !previousId.startsWith("resp_")) throw new ApiError(400, "Invalid 'previous_response_id': Expected an ID that begins with 'resp'.", "previous_response_id");
  const items = inputItems(body, context);
  if (background) throw new ApiError(400, "The engine does not run responses in the background", "background");
  const sampling = readSampling(fields, { caps: ["max_output_tokens"], defaultMax: null, defaultTemperature: 1, logprobsForm: "none" }, options.stream);
  const kvTransferParams = readControl(fields, "kv_transfer_params", extra);
  const ecTransferParams = readControl(fields, "ec_transfer_params", extra);
  const cacheHitThreshold = fields.number("cache_hit_threshold", { min: 0, max: 1 });
  fields.done();
  const turns: Turn[] = [...(instructions === null ? [] : [{ role: "system", content: instructions }]), ...items.map(readItem)];
  if (turns.length === 0) throw new ApiError(400, "input: at least one item is wanted", "input");
  const prompt = renderChat({
    turns,
    tools: fields.raw("tools"),
    addGenerationPrompt: true,
    continueFinalMessage: false,
    config: renderConfig(body),
    processing: fields.raw("mm_processor_kwargs"),
  });
  return {
    shape: "responses",
    id: bodyId ?? `resp_${context.freshId}`,
    model: model ?? context.defaultModel,
    prompts: [prompt],
    sampling,
    ...options,
    echo: false,
    cacheSalt: cacheSalt ?? "",
    forced: readForced(fields.raw("tools"), fields.raw("tool_choice"), text === null ? null : (member(text, "format") ?? null)),
    kvTransferParams,
    ecTransferParams,
    cacheHitThreshold,
    body,
    turns: describeTurns(turns),
  };
}

function usageJson(usage: Usage, details: boolean): JsonObject {
  return {
    input_tokens: usage.promptTokens,
    input_tokens_details: { cached_tokens: details ? usage.cachedTokens : 0, cache_write_tokens: usage.createdTokens, input_tokens_per_turn: [], cached_tokens_per_turn: [] },
    output_tokens: usage.completionTokens,
    output_tokens_details: { reasoning_tokens: 0, tool_output_tokens: 0, output_tokens_per_turn: [], tool_output_tokens_per_turn: [] },
    total_tokens: usage.promptTokens + usage.completionTokens,
  };
}

const itemId = (request: GenerationRequest): string => `${request.forced?.kind === "tool" ? "fc" : "msg"}_${fingerprint(request.id)}`;

function outputItem(request: GenerationRequest, text: string, status: string): JsonObject {
  if (request.forced?.kind === "tool") {
    return { type: "function_call", id: itemId(request), call_id: `call_${fingerprint(request.id)}`, name: request.forced.toolName, arguments: text, status };
  }
  return { type: "message", id: itemId(request), role: "assistant", status, content: [{ type: "output_text", text, annotations: [], logprobs: null }], phase: null };
}

function responseJson(request: GenerationRequest, context: WriteContext, outcome: Outcome | null): JsonObject {
  const choice = outcome?.choices[0];
  const cut = choice?.finish === "length";
  const status = outcome === null ? "in_progress" : cut ? "incomplete" : "completed";
  const echo = (name: string, fallback: Json): Json => member(request.body, name) ?? fallback;
  return {
    id: request.id,
    created_at: context.created,
    incomplete_details: cut ? { reason: "max_output_tokens" } : null,
    instructions: echo("instructions", null),
    metadata: echo("metadata", null),
    model: request.model,
    object: "response",
    output: choice === undefined ? [] : [outputItem(request, choice.pieces.join(""), "completed")],
    parallel_tool_calls: echo("parallel_tool_calls", true),
    temperature: request.sampling.temperature,
    tool_choice: echo("tool_choice", "auto"),
    tools: echo("tools", []),
    top_p: echo("top_p", 1),
    background: echo("background", false),
    max_output_tokens: request.sampling.maxTokens,
    max_tool_calls: null,
    previous_response_id: echo("previous_response_id", null),
    prompt: null,
    reasoning: echo("reasoning", null),
    service_tier: "auto",
    status,
    text: echo("text", null),
    top_logprobs: echo("top_logprobs", null),
    truncation: echo("truncation", "disabled"),
    usage: outcome === null ? null : usageJson(outcome.usage, context.promptTokensDetails),
    user: echo("user", null),
    presence_penalty: echo("presence_penalty", 0),
    frequency_penalty: echo("frequency_penalty", 0),
    kv_transfer_params: outcome?.kvTransferParams ?? null,
    ec_transfer_params: outcome?.ecTransferParams ?? null,
    input_messages: null,
    output_messages: null,
  };
}

function stream(request: GenerationRequest, context: WriteContext): StreamWriter {
  const tool = request.forced?.kind === "tool";
  const place = { item_id: itemId(request), output_index: 0 };
  let sequence = 0;
  let text = "";
  let open = false;
  const event = (type: string, members: JsonObject): string => {
    const line = namedEvent(type, { type, sequence_number: sequence, ...members });
    sequence += 1;
    return line;
  };
  const item = (status: string, done: boolean): JsonObject => {
    const whole = outputItem(request, done ? text : "", status);
    return done || tool ? whole : { ...whole, content: [] };
  };
  const part = (value: string, logprobs: Json): JsonObject => ({ type: "output_text", text: value, annotations: [], logprobs });
  const openItem = (): string[] => {
    open = true;
    const added = [event("response.output_item.added", { output_index: 0, item: item("in_progress", false) })];
    if (!tool) added.push(event("response.content_part.added", { ...place, content_index: 0, part: part("", []) }));
    return added;
  };
  return {
    start: () => [
      event("response.created", { response: responseJson(request, context, null) }),
      event("response.in_progress", { response: responseJson(request, context, null) }),
    ],
    token: (choice, _token, piece) => {
      if (choice !== 0) return [];
      const events = open ? [] : openItem();
      text += piece;
      events.push(
        tool
          ? event("response.function_call_arguments.delta", { ...place, delta: piece })
          : event("response.output_text.delta", { ...place, content_index: 0, delta: piece, logprobs: [] }),
      );
      return events;
    },
    finish: () => [],
    end: (outcome) => {
      const events: string[] = [];
      if (open) {
        if (tool) {
          events.push(event("response.function_call_arguments.done", { ...place, name: request.forced?.toolName ?? "", arguments: text }));
        } else {
          events.push(event("response.output_text.done", { ...place, content_index: 0, text, logprobs: [] }));
          events.push(event("response.content_part.done", { ...place, content_index: 0, part: part(text, null) }));
        }
        events.push(event("response.output_item.done", { output_index: 0, item: item("completed", true) }));
      }
      // A stream never carries a hand-off (real-engine §4).
      const response = responseJson(request, context, { ...outcome, kvTransferParams: null, ecTransferParams: null });
      events.push(event("response.completed", { response }));
      return events;
    },
    error: (body) => {
      const inner = member(body, "error") ?? null;
      const message = isObject(inner) ? (member(inner, "message") ?? "") : "";
      return [event("error", { code: "server_error", message, param: null })];
    },
  };
}

export const responsesRoute: ApiRoute = {
  shape: "responses",
  paths: ["/v1/responses"],
  read,
  full: (request, outcome, context) => responseJson(request, context, outcome),
  stream,
};
