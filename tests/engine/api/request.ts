/** What every API shape's reader makes of a body: one request that the engine's core understands. */

import type { FinishReason } from "../answer.js";
import type { Json, JsonObject } from "../json.js";
import type { Prompt } from "../prompt.js";

export type ApiShape = "chat" | "completions" | "messages" | "responses" | "generate";

export interface Sampling {
  /** Null: no limit was sent (and the API has no default of its own). */
  readonly maxTokens: number | null;
  readonly minTokens: number;
  readonly n: number;
  readonly temperature: number;
  readonly stop: readonly string[];
  readonly ignoreEos: boolean;
  /** How many alternatives per answer token, null for no log-probabilities. */
  readonly logprobs: number | null;
  readonly promptLogprobs: number | null;
  /** Every member that changes which tokens are drawn, as canonical JSON. */
  readonly fingerprint: string;
}

/** The answer must be this instead of free text. */
export interface ForcedOutput {
  readonly kind: "tool" | "json";
  /** The tool's name, `""` for plain JSON. */
  readonly toolName: string;
  /** The text for an answer's seed: its values depend on the seed, its length does not. */
  render(seed: string): string;
}

export interface GenerationRequest {
  readonly shape: ApiShape;
  /** `chatcmpl-…` and so on; the real one takes it from `x-request-id`. */
  readonly id: string;
  readonly model: string;
  readonly prompts: readonly Prompt[];
  readonly sampling: Sampling;
  readonly stream: boolean;
  readonly hasStreamOptions: boolean;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  readonly echo: boolean;
  readonly cacheSalt: string;
  readonly forced: ForcedOutput | null;
  /** From the top level, else from `vllm_xargs` / `sampling_params.extra_args`, as the real engine takes it. */
  readonly kvTransferParams: JsonObject | null;
  readonly ecTransferParams: JsonObject | null;
  readonly cacheHitThreshold: number | null;
  /** The parsed body, for what only one connector reads (`bootstrap_*`). */
  readonly body: JsonObject;
  /** Turns by role and kind of content, for the check of an encode leg. */
  readonly turns: readonly { readonly role: string; readonly media: number; readonly text: boolean }[];
}

export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
  /** Tokens of the prompt that were computed here and are cached from now on. */
  readonly createdTokens: number;
}

export interface Choice {
  readonly index: number;
  readonly tokens: readonly number[];
  readonly pieces: readonly string[];
  readonly finish: FinishReason;
}

/** A whole answer, before it takes an API's form. */
export interface Outcome {
  readonly choices: readonly Choice[];
  readonly usage: Usage;
  readonly kvTransferParams: Json;
  readonly ecTransferParams: Json;
}

/** What readers need to know of the engine and of the HTTP request. */
export interface ReadContext {
  /** Model of a request that names none. */
  readonly defaultModel: string;
  /** First `x-request-id` line, `""` when there is none. */
  readonly requestId: string;
  /** 32 hexadecimal digits, for a request without an id. */
  readonly freshId: string;
  /** Turns of a stored response, for `previous_response_id`; null when it is unknown. */
  storedResponse(id: string): Json[] | null;
}

/** The id of a request, without its API's prefix: the header's, the body's, or a fresh one. */
export function requestIdOf(context: ReadContext, bodyId: string | null): string {
  return context.requestId !== "" ? context.requestId : (bodyId ?? context.freshId);
}

export interface WriteContext {
  readonly promptTokensDetails: boolean;
  /** Seconds since the epoch. */
  readonly created: number;
}

/** The events of one streamed answer, as texts that are sent one write each. */
export interface StreamWriter {
  /** Sent with the headers, before any KV is there (real-engine §7, "Streaming detail"). */
  start(): string[];
  token(choice: number, token: number, piece: string): string[];
  finish(choice: number, finish: FinishReason): string[];
  /** After the last choice. */
  end(outcome: Outcome): string[];
  /** An error after the status line. */
  error(body: JsonObject): string[];
}

export interface ApiRoute {
  readonly shape: ApiShape;
  readonly paths: readonly string[];
  /** @throws ApiError */
  read(body: JsonObject, context: ReadContext): GenerationRequest;
  full(request: GenerationRequest, outcome: Outcome, context: WriteContext): JsonObject;
  stream(request: GenerationRequest, context: WriteContext): StreamWriter;
}
