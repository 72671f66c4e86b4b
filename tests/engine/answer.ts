/**
 * The text of an answer: a function of the seed alone (prompt, KV, sampling), so that two engines that saw the same prompt and the same KV say the
 * same, and one that read wrong KV says something else and nothing more. Each token is a three-letter word and a space, which is one token for the
 * tokenizer too: the answer put into the next prompt has the ids under which its blocks are cached.
 */

import { encode, tokenText } from "./tokenizer.js";

const WORDS = (
  "air arc arm ash ask awl axe bag bar bay bed bin bit bow box bud bus cab can cap car cod cow cup cut day den dew dip dog dot dry " +
  "ear eel egg elm eye fan far fig fin fir fit fly fog fox fur gap gas gem gum gun guy hat hay hem hen hop hot hub hut ice ink ivy"
).split(" ");

export type FinishReason = "stop" | "length" | "tool_calls" | "cache_threshold";

export interface AnswerPlan {
  /** Seed of the whole answer; equal seeds give equal answers. */
  seed: string;
  maxTokens: number | null;
  minTokens: number;
  ignoreEos: boolean;
  stop: readonly string[];
  /** The answer is exactly this text (a forced tool call's arguments, a JSON object) instead of words. */
  forcedText: string | null;
}

export interface PlannedAnswer {
  tokens: number[];
  /** Text of each token; a stop string may have cut the last one. */
  pieces: string[];
  finish: "stop" | "length";
}

/** Answers to an unlimited `ignore_eos` end here. */
const LONGEST = 8192;

/** 32-bit numbers from a seed, a different stream for every seed. */
export function randomStream(seed: string): () => number {
  let state = 0;
  for (let index = 0; index < seed.length; index += 1) state = Math.imul(state ^ seed.charCodeAt(index), 0x01000193) + 0x9e3779b9;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
}

export function randomWord(next: () => number): string {
  return WORDS[next() % WORDS.length] ?? "sea";
}

/** Where this answer would end by itself: 24 to 64 tokens. */
function naturalLength(seed: string): number {
  return 24 + (randomStream(`length:${seed}`)() % 41);
}

/** Most tokens that an answer within these limits may have: what a scheduler reserves blocks for. */
export function mostTokens(plan: Omit<AnswerPlan, "seed">): number {
  if (plan.forcedText !== null) return Math.min(plan.maxTokens ?? LONGEST, encode(plan.forcedText).length);
  const natural = plan.ignoreEos ? LONGEST : Math.max(64, plan.minTokens);
  return Math.min(plan.maxTokens ?? natural, natural);
}

export function planAnswer(plan: AnswerPlan): PlannedAnswer {
  const whole = plan.forcedText === null ? words(plan) : [...encode(plan.forcedText)];
  const limit = plan.maxTokens ?? LONGEST;
  const tokens = whole.slice(0, limit);
  const pieces = tokens.map(tokenText);
  const finish = whole.length > limit || (plan.forcedText === null && plan.ignoreEos) ? "length" : "stop";
  return cutAtStop({ tokens, pieces, finish }, plan.stop);
}

function words(plan: AnswerPlan): number[] {
  const natural = Math.max(naturalLength(plan.seed), plan.minTokens);
  const count = plan.ignoreEos ? (plan.maxTokens ?? LONGEST) : Math.min(natural, (plan.maxTokens ?? natural) + 1);
  const next = randomStream(plan.seed);
  return Array.from({ length: count }, () => encode(`${randomWord(next)} `)[0] ?? 0);
}

/** Ends the text before the first stop string, as the real one does (`include_stop_str_in_output` false). */
function cutAtStop(answer: PlannedAnswer, stop: readonly string[]): PlannedAnswer {
  if (stop.length === 0) return answer;
  const text = answer.pieces.join("");
  const ends = stop.filter((item) => item !== "").map((item) => [text.indexOf(item), item.length] as const).filter(([start]) => start >= 0);
  if (ends.length === 0) return answer;
  const [start, length] = ends.reduce((first, other) => (other[0] < first[0] ? other : first));
  const pieces: string[] = [];
  let taken = 0;
  for (const piece of answer.pieces) {
    // The token that completes the stop string was generated, though its text is cut off.
    if (taken >= start + length) break;
    pieces.push(piece.slice(0, Math.max(0, start - taken)));
    taken += piece.length;
  }
  return { tokens: answer.tokens.slice(0, pieces.length), pieces, finish: "stop" };
}
