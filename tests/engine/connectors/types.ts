/** How KV comes to a request and leaves it: one connector, one file. */

import type { FinishReason } from "../answer.js";
import type { GenerationRequest } from "../api/request.js";
import type { BlockContent } from "../blocks.js";
import type { Leg } from "../core/services.js";
import type { Json } from "../json.js";
import type { PromptLayout } from "../prompt.js";
import type { KvConnectorName } from "../types.js";

/** One prompt of a request, with its blocks. */
export interface Sequence {
  readonly request: GenerationRequest;
  /** Index of the prompt in its request. */
  readonly index: number;
  readonly layout: PromptLayout;
  readonly promptTokens: number;
  /** Blocks of the prompt, cached ones first. */
  readonly promptBlocks: readonly number[];
  /** How many of them were in this engine's cache. */
  readonly hitBlocks: number;
}

/** KV from elsewhere, for the blocks behind the cached ones. */
export interface LoadedKv {
  /** What the blocks were filled with; null where nothing was there. */
  readonly contents: (BlockContent | null)[];
  /** Prompt tokens that need not be computed for it. */
  readonly tokens: number;
  /** Where the tokens are counted: pulled from an engine, or found in a store. */
  readonly source: "external_kv_transfer" | "external_unspecified";
  /** The KV is not this prompt's, whatever it holds: why. */
  readonly wrong: string | null;
}

export interface Finished {
  /** `kv_transfer_params` of the answer. */
  readonly params: Json;
  /** The prompt's blocks have an owner now and must not be released. */
  readonly held: boolean;
}

export const NOTHING_HELD: Finished = { params: null, held: false };

export interface KvConnector {
  readonly name: KvConnectorName;
  /** Rejects a leg that has not the right form. @throws ApiError */
  check(request: GenerationRequest, leg: Leg): void;
  /** Whether {@link load} will wait for another engine: the request then counts as waiting. */
  loads(sequence: Sequence, leg: Leg): boolean;
  /** @throws ApiError when the KV cannot be had, EngineDeath when the real engine dies of it */
  load(sequence: Sequence, leg: Leg): Promise<LoadedKv | null>;
  /** A share of the prompt that must be there already, or the answer is `cache_threshold`. Null: no such rule. */
  threshold?(request: GenerationRequest): number | null;
  /** The prompt's blocks are written; nothing is generated yet. */
  prefilled?(sequence: Sequence, leg: Leg): void;
  /** The last token is there. */
  finished(sequence: Sequence, leg: Leg, finish: FinishReason): Promise<Finished>;
  /** Address that {@link check} and tests may need: port of the rendezvous server. */
  readonly bootstrapPort?: number;
  start?(): Promise<void>;
  close?(): Promise<void>;
}
