/** `POST /v1/completions`: text, token ids, and lists of either with one choice (or `n`) per prompt. */

import { ApiError } from "../errors.js";
import { Fields } from "../fields.js";
import { fingerprint, hash32 } from "../fingerprint.js";
import type { Json, JsonObject } from "../json.js";
import type { Prompt } from "../prompt.js";
import { renderText } from "../render.js";
import { decode, mediaToken, VOCABULARY_END } from "../tokenizer.js";
import { readForced } from "./forced.js";
import { completionLogprobs, promptLogprobs } from "./logprobs.js";
import { requestIdOf, type ApiRoute, type Choice, type GenerationRequest, type Outcome, type ReadContext, type StreamWriter, type WriteContext } from "./request.js";
import { readControl, readSampling, readStreamOptions } from "./sampling.js";
import { DONE, dataEvent } from "./sse.js";
import { FINGERPRINT, openAiUsage, streamedUsage } from "./usage.js";

/** @throws ApiError 400 for an id that no vocabulary has */
export function promptOfIds(ids: readonly Json[], param: string): Prompt {
  const tokens = new Uint32Array(ids.length);
  ids.forEach((id, index) => {
    if (typeof id !== "number" || !Number.isInteger(id)) throw new ApiError(400, `${param}.${String(index)}: Input should be a valid integer`, param, "Bad Request");
    if (id < 0 || id >= VOCABULARY_END) throw new ApiError(400, `Token id ${String(id)} is out of vocabulary`, param);
    tokens[index] = id;
  });
  return { tokens, media: [], echoText: decode(tokens) };
}

/** Embedded prompts have no ids: their place is taken by tokens made from the bytes. */
function promptOfEmbeds(value: Json): Prompt[] {
  const items = Array.isArray(value) ? value : [value];
  return items.map((item) => {
    if (typeof item !== "string") throw new ApiError(400, "prompt_embeds: base64 text is wanted", "prompt_embeds");
    const tokens = new Uint32Array(Math.max(1, Math.ceil(item.length / 64)));
    tokens.forEach((_, index) => {
      tokens[index] = mediaToken(hash32(fingerprint(item.slice(index * 64, index * 64 + 64))));
    });
    return { tokens, media: [], echoText: "" };
  });
}

function readPrompts(fields: Fields): Prompt[] {
  const value = fields.raw("prompt");
  const embeds = fields.raw("prompt_embeds");
  const embedded = embeds === null ? [] : promptOfEmbeds(embeds);
  if (value === null) {
    if (embedded.length === 0) throw new ApiError(400, "Either prompt or prompt_embeds must be provided and non-empty.", "prompt");
    return embedded;
  }
  const addSpecial = fields.bool("add_special_tokens") ?? true;
  if (typeof value === "string") return [renderText(value, addSpecial), ...embedded];
  if (!Array.isArray(value)) throw new ApiError(400, "prompt: Input should be a valid string or list", "prompt", "Bad Request");
  if (value.length === 0) throw new ApiError(400, "prompt: an empty list", "prompt");
  if (typeof value[0] === "number") return [promptOfIds(value, "prompt"), ...embedded];
  const prompts = value.map((item, index) => {
    if (typeof item === "string") return renderText(item, addSpecial);
    if (Array.isArray(item)) return promptOfIds(item, `prompt.${String(index)}`);
    throw new ApiError(400, `prompt.${String(index)}: Input should be a valid string or list of integers`, "prompt", "Bad Request");
  });
  return [...prompts, ...embedded];
}

function read(body: JsonObject, context: ReadContext): GenerationRequest {
  const fields = new Fields(body);
  const options = readStreamOptions(fields, true);
  const sampling = readSampling(fields, { caps: ["max_tokens"], defaultMax: 16, defaultTemperature: 1, logprobsForm: "count" }, options.stream);
  const echo = fields.bool("echo") ?? false;
  const extra = fields.dict("vllm_xargs");
  const model = fields.string("model");
  const cacheSalt = fields.string("cache_salt");
  const kvTransferParams = readControl(fields, "kv_transfer_params", extra);
  const ecTransferParams = readControl(fields, "ec_transfer_params", extra);
  const cacheHitThreshold = fields.number("cache_hit_threshold", { min: 0, max: 1 });
  const bodyId = fields.string("request_id");
  fields.done();
  return {
    shape: "completions",
    id: `cmpl-${requestIdOf(context, bodyId)}`,
    model: model ?? context.defaultModel,
    prompts: readPrompts(fields),
    sampling,
    ...options,
    echo,
    cacheSalt: cacheSalt ?? "",
    forced: readForced(null, null, fields.raw("response_format")),
    kvTransferParams,
    ecTransferParams,
    cacheHitThreshold,
    body,
    turns: [],
  };
}

function promptOf(request: GenerationRequest, choice: number): Prompt | undefined {
  return request.prompts[Math.floor(choice / request.sampling.n)];
}

function choiceJson(request: GenerationRequest, choice: Choice): JsonObject {
  const prompt = promptOf(request, choice.index);
  const echoed = request.echo && prompt !== undefined ? prompt.echoText : "";
  const top = request.sampling.logprobs;
  const echoedTokens = request.echo && prompt !== undefined ? [...prompt.tokens] : [];
  const logprobs =
    top === null ? null : completionLogprobs([...echoedTokens, ...choice.tokens], [...echoedTokens.map((id) => decode([id])), ...choice.pieces], top, 0, 0);
  const wanted = request.sampling.promptLogprobs;
  return {
    index: choice.index,
    text: echoed + choice.pieces.join(""),
    logprobs,
    finish_reason: choice.finish,
    stop_reason: null,
    token_ids: null,
    prompt_logprobs: wanted === null || prompt === undefined ? null : promptLogprobs(prompt, wanted),
    prompt_token_ids: null,
    routed_experts: null,
  };
}

function full(request: GenerationRequest, outcome: Outcome, context: WriteContext): JsonObject {
  return {
    id: request.id,
    object: "text_completion",
    created: context.created,
    model: request.model,
    choices: outcome.choices.map((choice) => choiceJson(request, choice)),
    service_tier: null,
    system_fingerprint: FINGERPRINT,
    usage: openAiUsage(outcome.usage, context.promptTokensDetails, "read"),
    kv_transfer_params: outcome.kvTransferParams,
    ec_transfer_params: outcome.ecTransferParams,
    metrics: null,
  };
}

function stream(request: GenerationRequest, context: WriteContext): StreamWriter {
  const counts = new Map<number, number>();
  const chunk = (choices: Json, usage?: JsonObject, last = false): string =>
    dataEvent({ id: request.id, object: "text_completion", created: context.created, model: request.model, choices, ...(usage === undefined ? {} : { usage }), ...(last ? { system_fingerprint: FINGERPRINT } : {}) });
  const piece = (choice: number, tokens: number[], text: string, finish: string | null): string => {
    const position = counts.get(choice) ?? 0;
    counts.set(choice, position + tokens.length);
    const top = request.sampling.logprobs;
    const logprobs = top === null || tokens.length === 0 ? null : completionLogprobs(tokens, [text], top, position, 0);
    return chunk([{ index: choice, text, logprobs, finish_reason: finish, stop_reason: null, prompt_token_ids: null, token_ids: null }], undefined, finish !== null && !request.includeUsage);
  };
  return {
    start: () => (request.echo ? Array.from({ length: request.prompts.length * request.sampling.n }, (_, choice) => piece(choice, [], promptOf(request, choice)?.echoText ?? "", null)) : []),
    token: (choice, token, text) => [piece(choice, [token], text, null)],
    finish: (choice, finish) => [piece(choice, [], "", finish)],
    end: (outcome) => [...(request.includeUsage ? [chunk([], streamedUsage(outcome.usage, context.promptTokensDetails, "read"), true)] : []), DONE],
    error: (body) => [dataEvent(body), DONE],
  };
}

export const completionsRoute: ApiRoute = {
  shape: "completions",
  paths: ["/v1/completions"],
  read,
  full,
  stream,
};

/** Text of a prompt that was given as ids. */
export function promptText(prompt: Prompt): string {
  return decode(prompt.tokens);
}
