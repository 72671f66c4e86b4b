/** `POST /inference/v1/generate`: tokens in, tokens out; limits and sampling stand in `sampling_params`. */

import { ApiError } from "../errors.js";
import { Fields } from "../fields.js";
import { isObject, member, type Json, type JsonObject } from "../json.js";
import { MEDIA_TOKENS, modalityOf, type MediaItem, type Modality, type PlacedMedia } from "../media.js";
import { promptOfIds } from "./completions.js";
import { generateLogprobs, promptLogprobs } from "./logprobs.js";
import { requestIdOf, type ApiRoute, type GenerationRequest, type Outcome, type ReadContext, type StreamWriter, type WriteContext } from "./request.js";
import { readControl, readSampling, readStreamOptions } from "./sampling.js";
import { DONE, dataEvent } from "./sse.js";
import { openAiUsage, streamedUsage } from "./usage.js";

/** `features`: hashes and places of media that were processed elsewhere. */
function readFeatures(features: JsonObject | null): PlacedMedia[] {
  if (features === null) return [];
  const hashes = member(features, "mm_hashes") ?? null;
  const places = member(features, "mm_placeholders") ?? null;
  if (!isObject(hashes) || !isObject(places)) throw new ApiError(400, "features: mm_hashes and mm_placeholders are wanted", "features");
  const placed: PlacedMedia[] = [];
  for (const [name, list] of Object.entries(hashes)) {
    const modality: Modality | null = modalityOf(name);
    const ranges = member(places, name);
    if (modality === null || !Array.isArray(list) || !Array.isArray(ranges) || ranges.length !== list.length) {
      throw new ApiError(400, `features.mm_hashes.${name}: one placeholder per hash is wanted`, "features");
    }
    list.forEach((hash, index) => {
      const range = ranges[index] ?? null;
      const start = isObject(range) ? member(range, "offset") : null;
      const length = isObject(range) ? member(range, "length") : null;
      if (typeof hash !== "string") throw new ApiError(400, `features.mm_hashes.${name}: strings are wanted`, "features");
      const item: MediaItem = { hash, modality, uuidOnly: null, uuid: null };
      placed.push({ item, start: typeof start === "number" ? start : 0, length: typeof length === "number" ? length : MEDIA_TOKENS[modality] });
    });
  }
  return placed;
}

function read(body: JsonObject, context: ReadContext): GenerationRequest {
  const fields = new Fields(body);
  fields.required("token_ids");
  fields.required("sampling_params");
  const ids = fields.list("token_ids");
  const sampled = fields.inner("sampling_params");
  const options = readStreamOptions(fields, false);
  const features = fields.dict("features");
  const model = fields.string("model");
  const cacheSalt = fields.string("cache_salt");
  const bodyId = fields.string("request_id");
  fields.done();
  if (ids === null || sampled === null) throw new ApiError(400, "token_ids and sampling_params must not be null", ids === null ? "token_ids" : "sampling_params", "Bad Request");
  if (ids.length === 0) throw new ApiError(400, "token_ids: at least one token is wanted", "token_ids");
  const sampling = readSampling(sampled, { caps: ["max_tokens"], defaultMax: null, defaultTemperature: 1, logprobsForm: "count" }, options.stream);
  const extra = sampled.dict("extra_args");
  const kvTransferParams = readControl(fields, "kv_transfer_params", extra);
  const ecTransferParams = readControl(fields, "ec_transfer_params", extra);
  const cacheHitThreshold = fields.number("cache_hit_threshold", { min: 0, max: 1 });
  fields.done();
  return {
    shape: "generate",
    id: `generate-tokens-${requestIdOf(context, bodyId)}`,
    model: model ?? context.defaultModel,
    prompts: [{ ...promptOfIds(ids, "token_ids"), media: readFeatures(features) }],
    sampling,
    ...options,
    echo: false,
    cacheSalt: cacheSalt ?? "",
    forced: null,
    kvTransferParams,
    ecTransferParams,
    cacheHitThreshold,
    body,
    turns: [],
  };
}

function full(request: GenerationRequest, outcome: Outcome, context: WriteContext): JsonObject {
  const wanted = request.sampling.promptLogprobs;
  const prompt = request.prompts[0];
  return {
    request_id: request.id,
    choices: outcome.choices.map((choice): JsonObject => ({
      index: choice.index,
      logprobs: request.sampling.logprobs === null ? null : generateLogprobs(choice.tokens, 0),
      finish_reason: choice.finish,
      token_ids: [...choice.tokens],
    })),
    usage: openAiUsage(outcome.usage, context.promptTokensDetails, "read"),
    prompt_logprobs: wanted === null || prompt === undefined ? null : promptLogprobs(prompt, wanted),
    kv_transfer_params: outcome.kvTransferParams,
    ec_transfer_params: outcome.ecTransferParams,
  };
}

function stream(request: GenerationRequest, context: WriteContext): StreamWriter {
  const counts = new Map<number, number>();
  const pending = new Map<number, number>();
  const chunk = (choices: Json, usage?: JsonObject): string => dataEvent({ request_id: request.id, choices, ...(usage === undefined ? {} : { usage }) });
  const event = (choice: number, tokens: number[], finish: string | null): string => {
    const position = counts.get(choice) ?? 0;
    counts.set(choice, position + tokens.length);
    const logprobs = request.sampling.logprobs === null || tokens.length === 0 ? null : generateLogprobs(tokens, position);
    return chunk([{ index: choice, logprobs, finish_reason: finish, token_ids: tokens }]);
  };
  return {
    start: () => [],
    // The finish reason comes with the last token, so each token waits for the next one.
    token: (choice, token) => {
      const held = pending.get(choice);
      pending.set(choice, token);
      return held === undefined ? [] : [event(choice, [held], null)];
    },
    finish: (choice, finish) => {
      const held = pending.get(choice);
      pending.delete(choice);
      return [event(choice, held === undefined ? [] : [held], finish)];
    },
    end: (outcome) => [...(request.includeUsage ? [chunk([], streamedUsage(outcome.usage, context.promptTokensDetails, "read"))] : []), DONE],
    error: (body) => [dataEvent(body), DONE],
  };
}

export const generateRoute: ApiRoute = {
  shape: "generate",
  paths: ["/inference/v1/generate"],
  read,
  full,
  stream,
};
