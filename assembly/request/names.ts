// Member names that mean something to a stage, and the one place where bytes become one of them. Names are compared after their escapes are resolved (DESIGN,
// decision 5): `"kv\u005ftransfer_params"` is the same name to an engine.

import { same } from "../words";

export const enum Name {
  Other = 0,
  Model = 1,
  Stream = 2,
  StreamOptions = 3,
  MaxTokens = 4,
  MaxCompletionTokens = 5,
  MinTokens = 6,
  MaxOutputTokens = 7,
  N = 8,
  BestOf = 9,
  PromptLogprobs = 10,
  Echo = 11,
  Logprobs = 12,
  PromptEmbeds = 13,
  PreviousResponseId = 14,
  Conversation = 15,
  Background = 16,
  Store = 17,
  CacheHitThreshold = 18,
  CacheSalt = 19,
  KvTransferParams = 20,
  EcTransferParams = 21,
  /** Any name that starts with `bootstrap_`. */
  Bootstrap = 22,
  VllmXargs = 23,
  SamplingParams = 24,
  ExtraArgs = 25,
  MmProcessorKwargs = 26,
  Messages = 27,
  Prompt = 28,
  Input = 29,
  TokenIds = 30,
  Tools = 31,
  System = 32,
  Instructions = 33,
  RequestId = 34,
  ContinueFinalMessage = 35,
  AddGenerationPrompt = 36,
  // Not reported to the sidecar, read by the readers:
  LoraPath = 37,
  ChatTemplate = 38,
  ChatTemplateKwargs = 39,
  Documents = 40,
  Role = 41,
  Content = 42,
  ToolCalls = 43,
  Type = 44,
  Text = 45,
  ImageUrl = 46,
  AudioUrl = 47,
  VideoUrl = 48,
  InputAudio = 49,
  Url = 50,
  Data = 51,
  Format = 52,
  Uuid = 53,
  ToolCallId = 54,
  FunctionCall = 55,
  ReasoningContent = 56,
  Reasoning = 57,
  Arguments = 58,
  Output = 59,
  CallId = 60,
  MessageName = 61,
  Source = 62,
  MediaType = 63,
  InputImage = 64,
  Image = 65,
  Thinking = 66,
  CacheControl = 67,
  InputIds = 68,
  Features = 69,
  MmHashes = 70,
  TruncatePromptTokens = 71,
  TruncationSide = 72,
  COUNT = 73,
}

/** Names up to here are reported with their spans. */
export const LAST_REPORTED: i32 = Name.AddGenerationPrompt;

/** Longest name above, and the room that a scanner keeps for one: a longer name is none of them. */
export const NAME_ROOM: u32 = 32;

const SPELLINGS: StaticArray<string> = [
  "", "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens", "max_output_tokens", "n", "best_of", "prompt_logprobs", "echo",
  "logprobs", "prompt_embeds", "previous_response_id", "conversation", "background", "store", "cache_hit_threshold", "cache_salt", "kv_transfer_params",
  "ec_transfer_params", "bootstrap_", "vllm_xargs", "sampling_params", "extra_args", "mm_processor_kwargs", "messages", "prompt", "input", "token_ids", "tools",
  "system", "instructions", "request_id", "continue_final_message", "add_generation_prompt", "lora_path", "chat_template", "chat_template_kwargs", "documents",
  "role", "content", "tool_calls", "type", "text", "image_url", "audio_url", "video_url", "input_audio", "url", "data", "format", "uuid", "tool_call_id",
  "function_call", "reasoning_content", "reasoning", "arguments", "output", "call_id", "name",
  "source", "media_type", "input_image", "image", "thinking", "cache_control",
  "input_ids", "features", "mm_hashes", "truncate_prompt_tokens", "truncation_side",
];

// The spellings as bytes, one row of NAME_ROOM bytes per name, and the names of each length: a look-up compares with three or four candidates.
const rows = memory.data(4096, 8);
/** For each length, the first name of that length, and for each name the next of the same length. */
const heads = memory.data(64, 8);
const nexts = memory.data(128, 8);

function build(): bool {
  for (let i: i32 = 1; i < Name.COUNT; i++) {
    const word = SPELLINGS[i];
    const size = <u32>word.length;
    for (let c: u32 = 0; c < size; c++) store<u8>(rows + <usize>i * NAME_ROOM + c, <u8>word.charCodeAt(c));
    store<u8>(nexts + i, load<u8>(heads + size));
    store<u8>(heads + size, <u8>i);
  }
  return true;
}
const built: bool = build();

/** The name that the `size` decoded bytes at `at`, with room for {@link NAME_ROOM}, spell. */
export function nameOf(at: usize, size: u32): Name {
  if (size >= 10 && same(at, rows + <usize>Name.Bootstrap * NAME_ROOM, 10)) return Name.Bootstrap;
  if (size >= NAME_ROOM) return Name.Other;
  for (let i = <i32>load<u8>(heads + size); i; i = load<u8>(nexts + i)) {
    if (same(at, rows + <usize>i * NAME_ROOM, size)) return i;
  }
  return Name.Other;
}

/** The spelling of a name, for messages and for the plain bindings. */
export function spelling(name: Name): string {
  return SPELLINGS[name];
}
