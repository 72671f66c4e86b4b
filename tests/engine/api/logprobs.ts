/** Log-probabilities: made up, but a function of the answer, so that equal answers have equal ones. */

import { randomStream } from "../answer.js";
import type { Json, JsonObject } from "../json.js";
import type { Prompt } from "../prompt.js";
import { tokenText } from "../tokenizer.js";

function logprobOf(seed: string): number {
  return -((randomStream(seed)() % 4000) / 1000);
}

function entry(token: number, position: number, rank: number): { text: string; logprob: number } {
  const other = rank === 0 ? token : ((token * 31 + rank * 7 + position) % 0x01fffff) + 0x10000000;
  return { text: tokenText(other), logprob: logprobOf(`${String(token)}:${String(position)}`) - rank };
}

/** One token in the form of chat completions. */
export function chatLogprob(token: number, position: number, piece: string, top: number): JsonObject {
  const bytes = (text: string): Json => [...Buffer.from(text)];
  const own = entry(token, position, 0);
  return {
    token: piece,
    logprob: own.logprob,
    bytes: bytes(piece),
    top_logprobs: Array.from({ length: top }, (_, rank) => {
      const item = entry(token, position, rank);
      return { token: item.text, logprob: item.logprob, bytes: bytes(item.text) };
    }),
  };
}

/** The form of generate, which names tokens by id. */
export function generateLogprobs(tokens: readonly number[], first: number): JsonObject {
  return {
    content: tokens.map((token, index) => ({
      token: `token_id:${String(token)}`,
      logprob: entry(token, first + index, 0).logprob,
      bytes: null,
      top_logprobs: [],
    })),
  };
}

/** The form of completions: four parallel lists. */
export function completionLogprobs(tokens: readonly number[], pieces: readonly string[], top: number, first: number, firstOffset: number): JsonObject {
  let offset = firstOffset;
  const offsets: number[] = [];
  const tops: Json[] = [];
  const values: number[] = [];
  tokens.forEach((token, index) => {
    offsets.push(offset);
    offset += (pieces[index] ?? "").length;
    const own = entry(token, first + index, 0);
    values.push(own.logprob);
    const best: JsonObject = {};
    for (let rank = 0; rank < Math.max(1, top); rank += 1) {
      const item = entry(token, first + index, rank);
      best[item.text] = item.logprob;
    }
    tops.push(best);
  });
  return { text_offset: offsets, token_logprobs: values, tokens: [...pieces], top_logprobs: tops };
}

/** One entry per prompt token; the first has none, nothing predicts it. */
export function promptLogprobs(prompt: Prompt, top: number): Json {
  return [...prompt.tokens].map((token, index): Json => {
    if (index === 0) return null;
    const entries: JsonObject = {};
    for (let rank = 0; rank < Math.max(1, top); rank += 1) {
      const item = entry(token, index, rank);
      const id = rank === 0 ? String(token) : String(0x10000000 + ((token * 31 + rank * 7 + index) % 0x01fffff));
      entries[id] = { logprob: item.logprob, rank: rank + 1, decoded_token: item.text };
    }
    return entries;
  });
}
