/** APIs that answer numbers instead of text: embeddings, pooling, classify, score, rerank. */

import { randomStream } from "../answer.js";
import { ApiError } from "../errors.js";
import { Fields } from "../fields.js";
import { fingerprint } from "../fingerprint.js";
import { isObject, member, type Json, type JsonObject } from "../json.js";
import { renderText } from "../render.js";
import { promptOfIds, promptText } from "./completions.js";
import { readChatInput } from "./chat.js";

export interface PoolingContext {
  readonly id: string;
  readonly created: number;
  readonly defaultModel: string;
  readonly dimensions: number;
}

export interface PoolingAnswer {
  readonly promptTokens: number;
  readonly json: JsonObject;
}

interface Input {
  /** What the numbers are made from. */
  readonly identity: string;
  readonly tokens: number;
}

function inputOf(value: Json, name: string): Input {
  if (typeof value === "string") return { identity: value, tokens: renderText(value).tokens.length };
  if (Array.isArray(value)) return { identity: promptText(promptOfIds(value, name)), tokens: value.length };
  throw new ApiError(400, `${name}: a string or a list of token ids is wanted`, name, "Bad Request");
}

/** `input` as vLLM takes it: one or several texts, one or several lists of ids, or a conversation in `messages`. */
function readInputs(body: JsonObject): Input[] {
  const value = member(body, "input") ?? null;
  if (value === null && member(body, "messages") !== undefined) {
    const { input } = readChatInput(body);
    const text = JSON.stringify(input.turns);
    return [{ identity: text, tokens: renderText(text).tokens.length }];
  }
  if (value === null) throw new ApiError(400, "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'input'), 'msg': 'Field required'}", "input", "Bad Request");
  if (!Array.isArray(value) || typeof value[0] === "number") return [inputOf(value, "input")];
  if (value.length === 0) throw new ApiError(400, "input: an empty list", "input");
  return value.map((item) => inputOf(item, "input"));
}

/** A vector of length 1. */
function vector(identity: string, model: string, dimensions: number): number[] {
  const next = randomStream(fingerprint(model, identity));
  const values = Array.from({ length: dimensions }, () => next() / 0xffffffff - 0.5);
  const length = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0)) || 1;
  return values.map((value) => value / length);
}

function usage(promptTokens: number): JsonObject {
  return { prompt_tokens: promptTokens, total_tokens: promptTokens, completion_tokens: 0, prompt_tokens_details: null };
}

function modelOf(body: JsonObject, context: PoolingContext): string {
  return new Fields(body).string("model") ?? context.defaultModel;
}

function embeddings(body: JsonObject, context: PoolingContext): PoolingAnswer {
  const fields = new Fields(body);
  const dimensions = fields.int("dimensions", { min: 1 }) ?? context.dimensions;
  const format = fields.string("encoding_format") ?? "float";
  fields.done();
  if (format !== "float" && format !== "base64") throw new ApiError(400, "encoding_format: Input should be 'float' or 'base64'", "encoding_format", "Bad Request");
  const model = modelOf(body, context);
  const inputs = readInputs(body);
  const data = inputs.map(({ identity }, index): JsonObject => {
    const values = vector(identity, model, dimensions);
    const embedding: Json = format === "float" ? values : Buffer.from(new Float32Array(values).buffer).toString("base64");
    return { index, object: "embedding", embedding };
  });
  const promptTokens = inputs.reduce((sum, input) => sum + input.tokens, 0);
  return { promptTokens, json: { id: `embd-${context.id}`, object: "list", created: context.created, model, data, usage: usage(promptTokens) } };
}

function pooling(body: JsonObject, context: PoolingContext): PoolingAnswer {
  const model = modelOf(body, context);
  const inputs = readInputs(body);
  const data = inputs.map(({ identity }, index): JsonObject => ({ index, object: "pooling", data: vector(identity, model, context.dimensions) }));
  const promptTokens = inputs.reduce((sum, input) => sum + input.tokens, 0);
  return { promptTokens, json: { id: `pool-${context.id}`, object: "list", created: context.created, model, data, usage: usage(promptTokens) } };
}

function classify(body: JsonObject, context: PoolingContext): PoolingAnswer {
  const model = modelOf(body, context);
  const inputs = readInputs(body);
  const data = inputs.map(({ identity }, index): JsonObject => {
    const score = (randomStream(fingerprint(model, identity))() % 1000) / 1000;
    return { index, label: score > 0.5 ? "LABEL_1" : "LABEL_0", probs: [1 - score, score], num_classes: 2 };
  });
  const promptTokens = inputs.reduce((sum, input) => sum + input.tokens, 0);
  return { promptTokens, json: { id: `classify-${context.id}`, object: "list", created: context.created, model, data, usage: usage(promptTokens) } };
}

function texts(body: JsonObject, names: readonly string[]): { name: string; list: string[] } {
  for (const name of names) {
    const value = member(body, name);
    if (typeof value === "string") return { name, list: [value] };
    if (Array.isArray(value) && value.every((item): item is string => typeof item === "string")) return { name, list: value };
  }
  throw new ApiError(400, `${names[0] ?? ""}: a string or a list of strings is wanted`, names[0] ?? null, "Bad Request");
}

function relevance(left: string, right: string, model: string): number {
  return (randomStream(fingerprint(model, left, right))() % 10_000) / 10_000;
}

function score(body: JsonObject, context: PoolingContext): PoolingAnswer {
  const model = modelOf(body, context);
  const left = texts(body, ["text_1", "queries", "data_1"]).list;
  const right = texts(body, ["text_2", "documents", "data_2"]).list;
  const pairs = left.length === 1 ? right.map((text) => [left[0] ?? "", text] as const) : right.map((text, index) => [left[index] ?? "", text] as const);
  const promptTokens = pairs.reduce((sum, [one, two]) => sum + renderText(one + two).tokens.length, 0);
  const data = pairs.map(([one, two], index): JsonObject => ({ index, object: "score", score: relevance(one, two, model) }));
  return { promptTokens, json: { id: `score-${context.id}`, object: "list", created: context.created, model, data, usage: usage(promptTokens) } };
}

function rerank(body: JsonObject, context: PoolingContext): PoolingAnswer {
  const model = modelOf(body, context);
  const query = texts(body, ["query"]).list[0] ?? "";
  const documents = texts(body, ["documents"]).list;
  const most = new Fields(body).int("top_n", { min: 0 }) ?? 0;
  const results = documents
    .map((text, index) => ({ index, document: { text }, relevance_score: relevance(query, text, model) }))
    .sort((one, two) => two.relevance_score - one.relevance_score)
    .slice(0, most === 0 ? documents.length : most);
  const promptTokens = documents.reduce((sum, text) => sum + renderText(query + text).tokens.length, 0);
  return { promptTokens, json: { id: `rerank-${context.id}`, model, usage: { prompt_tokens: promptTokens, total_tokens: promptTokens }, results } };
}

type PoolingApi = (body: JsonObject, context: PoolingContext) => PoolingAnswer;

const APIS: Readonly<Record<string, PoolingApi>> = {
  "/v1/embeddings": embeddings,
  "/pooling": pooling,
  "/classify": classify,
  "/score": score,
  "/v1/score": score,
  "/rerank": rerank,
  "/v1/rerank": rerank,
  "/v2/rerank": rerank,
};

export const POOLING_PATHS: readonly string[] = Object.keys(APIS);

/** @throws ApiError */
export function answerPooling(path: string, body: Json, context: PoolingContext): PoolingAnswer {
  const api = APIS[path];
  if (api === undefined || !isObject(body)) throw new ApiError(400, "Input should be a valid dictionary", null, "Bad Request");
  return api(body, context);
}
