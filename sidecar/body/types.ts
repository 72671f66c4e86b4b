/**
 * What the scanner says about one request body. Offsets are bytes from the body's first byte (a UTF-8 BOM counts), ends exclusive, so that
 * `body.subarray(start, end)` is the text itself. The scanner copies nothing of the body.
 */

/** API shapes that the sidecar orchestrates, and `other` for every further JSON route. */
export type ApiShape = "chat" | "completions" | "messages" | "responses" | "generate" | "other";

/** Members whose places the scanner reports, at the top level of the body or inside one of the {@link MemberParent} objects. */
export type MemberName =
  | "model"
  | "stream"
  | "stream_options"
  | "max_tokens"
  | "max_completion_tokens"
  | "min_tokens"
  | "max_output_tokens"
  | "n"
  | "best_of"
  | "prompt_logprobs"
  | "echo"
  | "logprobs"
  | "prompt_embeds"
  | "previous_response_id"
  | "conversation"
  | "background"
  | "store"
  | "cache_hit_threshold"
  | "cache_salt"
  | "kv_transfer_params"
  | "ec_transfer_params"
  | "bootstrap" /* any member whose name starts with `bootstrap_` */
  | "vllm_xargs"
  | "sampling_params"
  | "extra_args" /* inside sampling_params only */
  | "mm_processor_kwargs"
  | "messages"
  | "prompt"
  | "input"
  | "token_ids"
  | "tools"
  | "system"
  | "instructions"
  | "request_id"
  | "continue_final_message"
  | "add_generation_prompt";

/** `""` is the top level. */
export type MemberParent = "" | "vllm_xargs" | "sampling_params" | "sampling_params.extra_args";

export type ValueKind = "null" | "true" | "false" | "number" | "string" | "object" | "array";

/** One occurrence of a known member. Duplicates are reported one by one, in the order of the body; the last one is the one an engine takes. */
export interface Member {
  readonly name: MemberName;
  readonly parent: MemberParent;
  /** Index in {@link BodyView.members} of the object that holds it; -1 at the top level. */
  readonly parentIndex: number;
  /** Offset of the opening quote of the name. */
  readonly start: number;
  readonly valueStart: number;
  readonly valueEnd: number;
  readonly kind: ValueKind;
}

export type MediaType = "image_url" | "audio_url" | "video_url" | "input_audio" | "input_image" | "image";

/** One content part that holds media, in order of the body, duplicates included. */
export interface MediaItem {
  readonly type: MediaType;
  /** Span of the whole part, braces included. */
  readonly start: number;
  readonly end: number;
  /** Equal for parts that are equal as a whole (member order and white space aside); `0n`: never merged with another (inline audio, no URL). */
  readonly key: bigint;
}

/** Why a request must not be split between prefill and decode, whatever a decider says (DESIGN, decision 8). `""`: it may. */
export type NeverSplit = "" | "multiple_prompts" | "parallel_sampling" | "prompt_logprobs" | "stateful_response";

export type ScanError = "empty" | "invalid_json" | "invalid_utf8" | "truncated" | "too_deep" | "too_many_members";

export interface BodyView {
  /** Null when the body was read to its end as UTF-8 JSON. */
  readonly error: ScanError | null;
  /** Offset of the byte at which the error was seen. */
  readonly errorOffset: number;
  readonly isObject: boolean;
  /** Offset of the top-level `{`; -1 when {@link isObject} is false. */
  readonly objectStart: number;
  /** Offset behind the top-level `}`. */
  readonly objectEnd: number;
  readonly members: readonly Member[];
  readonly media: readonly MediaItem[];
  readonly neverSplit: NeverSplit;
  /** The last `stream` member is `true`. */
  readonly stream: boolean;
}

/** A scanner for one body: `feed` its pieces in order, then `end`. Cheap to make; `end` or `dispose` gives its memory back. */
export interface BodyScanner {
  feed(piece: Uint8Array): void;
  end(): BodyView;
  dispose(): void;
}
