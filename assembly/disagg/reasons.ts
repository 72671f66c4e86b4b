// Why each stage was or was not chosen: one word per stage and request (DESIGN, decision 4).
import { NeverSplit } from "../scheduling/request";

export const enum DecodeReason {
  /** The stage was not looked at. */
  None,
  Picked,
  NoDecodeEndpoint,
  NoCandidates,
  UndecidedBody,
  UndecidedEncoding,
  NoBody,
  UnknownPath,
}

export const enum PrefillReason {
  None,
  RunUncached,
  RunAlways,
  SkipThresholdZero,
  SkipShortPrompt,
  SkipShortSuffix,
  SkipCached,
  SkipNoDecider,
  SkipNoTokens,
  NoPrefillEndpoint,
  SelfEndpoint,
  // In the order of NeverSplit.
  MultiplePrompts,
  ParallelSampling,
  PromptLogprobs,
  StatefulResponse,
}

export const enum EncodeReason {
  None,
  RunMultimodal,
  SkipTextOnly,
  SkipNoDecider,
  NoEncodeEndpoint,
}

/** Indexed by {@link DecodeReason}; "" where the stage was not looked at. Counters are named after these lists. */
export const DECODE_REASONS: StaticArray<string> = [
  "",
  "picked",
  "no_decode_endpoint",
  "no_candidates",
  "undecided_body",
  "undecided_encoding",
  "no_body",
  "unknown_path",
];

/** Indexed by {@link PrefillReason}. */
export const PREFILL_REASONS: StaticArray<string> = [
  "",
  "run_uncached",
  "run_always",
  "skip_threshold_zero",
  "skip_short_prompt",
  "skip_short_suffix",
  "skip_cached",
  "skip_no_decider",
  "skip_no_tokens",
  "no_prefill_endpoint",
  "self_endpoint",
  "multiple_prompts",
  "parallel_sampling",
  "prompt_logprobs",
  "stateful_response",
];

/** Indexed by {@link EncodeReason}. */
export const ENCODE_REASONS: StaticArray<string> = ["", "run_multimodal", "skip_text_only", "skip_no_decider", "no_encode_endpoint"];

/** True for the reasons with which a decider asks for the stage. */
export function wantsPrefill(reason: PrefillReason): bool {
  return reason == PrefillReason.RunUncached || reason == PrefillReason.RunAlways;
}

/** The reason that overrides every prefill decider (DESIGN, decision 8), `None` when the request may be split. */
export function neverSplitReason(neverSplit: NeverSplit): PrefillReason {
  return neverSplit == NeverSplit.No ? PrefillReason.None : <PrefillReason>(<i32>PrefillReason.MultiplePrompts + <i32>neverSplit - <i32>NeverSplit.MultiplePrompts);
}
