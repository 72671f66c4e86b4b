// What the scheduler knows of one request: plain numbers, made by request/ from the body and by prefix/ from the index. Nothing of Envoy in it.

import { clear } from "../words";

/** Why a request is never split, whatever a decider says (DESIGN, decision 8). The order is the order of precedence. */
export const enum NeverSplit {
  No = 0,
  MultiplePrompts = 1,
  ParallelSampling = 2,
  PromptLogprobs = 3,
  StatefulResponse = 4,
}

/** Distinct media items of one request that are told apart; and the most encoders that one request names. */
export const MOST_ITEMS: i32 = 48;
/** Header values that a configuration's plugins may ask for. */
export const MOST_HEADERS: i32 = 8;

export class RequestFacts {
  /** False: the prompt could not be counted (no body, unknown shape, unreadable): deciders say no with `skip_no_tokens`. */
  hasTokens: bool = false;
  /** Estimated tokens of all prompts, tools and system text included (scheduler §4.1). */
  tokens: i32 = 0;
  /** Blocks of all prompts that take part in the prefix match, the partial last ones included; 0 without tokens. */
  totalBlocks: i32 = 0;
  /** Tokens per block that {@link totalBlocks} was made with. */
  blockTokens: i32 = 0;
  /** Media items in the body, duplicates included. */
  mmItems: i32 = 0;
  /** Media items that differ (the sidecar sends one encode request for each). */
  mmDistinct: i32 = 0;
  /** The first {@link MOST_ITEMS} of these, in the order of their appearance: 16 bytes each, key (u64; 0: unlike any other) and tokens (u32). */
  items: usize = 0;
  /** FNV-1a of the model's name, as of the adapters that engines report; 0: none. */
  model: u32 = 0;
  /** Hashes of the header values that the configuration asks for; 0: not there. */
  readonly headers: StaticArray<u64> = new StaticArray<u64>(MOST_HEADERS);
  /** Seconds, of the clock that all VMs share. */
  nowS: u32 = 0;
  neverSplit: NeverSplit = NeverSplit.No;
  /** False: no stage of it may run on another pod, because nobody would carry the plan out on its path (embeddings): deciders are not asked. */
  splits: bool = true;
  /** Table position of the endpoint that knows what the request goes on with (a response that an engine keeps); -1: any will do. */
  pinned: i32 = -1;
  /** Per endpoint 1 when it may serve this request at all (the subset that a filter ahead has chosen); null: all may. */
  subset: StaticArray<u8> | null = null;
  /** Below 0: may be refused when the fleet is saturated (scheduler §6.1). */
  priority: i32 = 0;
  /** The client prefers an error to a decode endpoint without its KV cache: `Prefer: if-available` (scheduler §3.8). */
  ifAvailable: bool = false;
  /** FNV-1a of the request id: the same request finds the same KV source (scheduler §3.9). */
  requestHash: u32 = 0;

  /** Items that are told apart. */
  get itemCount(): i32 {
    return this.items ? min(this.mmDistinct, MOST_ITEMS) : 0;
  }

  itemKey(i: i32): u64 {
    return load<u64>(this.items + (i << 4));
  }

  itemTokens(i: i32): u32 {
    return load<u32>(this.items + (i << 4), 8);
  }

  /** Back to a request of which nothing is known, so that one object serves every stream of a VM. */
  reset(): void {
    this.hasTokens = false;
    this.tokens = 0;
    this.totalBlocks = 0;
    this.blockTokens = 0;
    this.mmItems = 0;
    this.mmDistinct = 0;
    this.items = 0;
    this.model = 0;
    clear(changetype<usize>(this.headers), MOST_HEADERS << 3);
    this.nowS = 0;
    this.neverSplit = NeverSplit.No;
    this.splits = true;
    this.pinned = -1;
    this.subset = null;
    this.priority = 0;
    this.ifAvailable = false;
    this.requestHash = 0;
  }
}
