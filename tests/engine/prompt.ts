/** A rendered prompt and how it lies in KV blocks. */

import type { BlockContent } from "./blocks.js";
import { TokenChain } from "./fingerprint.js";
import type { PlacedMedia } from "./media.js";

export interface Prompt {
  readonly tokens: Uint32Array;
  readonly media: readonly PlacedMedia[];
  /** Text to repeat when a completion asks for `echo`. */
  readonly echoText: string;
}

export interface PromptLayout {
  /** What each block holds when it was computed from this prompt, the last, partly filled one included. */
  readonly contents: BlockContent[];
  /** Cache keys of the full blocks. */
  readonly keys: string[];
  /** Names the whole prompt: model and every token. */
  readonly identity: string;
  /** To go on behind the prompt. */
  readonly chain: TokenChain;
}

/**
 * @param model a LoRA adapter or another model has other KV for the same text
 * @param cacheSalt part of the cache keys only: it changes who may share blocks, not what they hold
 */
export function layOut(prompt: Prompt, model: string, cacheSalt: string, blockSize: number): PromptLayout {
  const chain = new TokenChain(`model:${model}`);
  const contents: BlockContent[] = [];
  const keys: string[] = [];
  const { tokens } = prompt;
  for (let index = 0; index < tokens.length; index += 1) {
    chain.push(tokens[index] ?? 0);
    const full = (index + 1) % blockSize === 0;
    if (!full && index + 1 < tokens.length) continue;
    const content = chain.value();
    contents.push(content);
    if (full) keys.push(cacheKey(content, cacheSalt));
  }
  return { contents, keys, identity: chain.value(), chain };
}

export function cacheKey(content: BlockContent, cacheSalt: string): string {
  return cacheSalt === "" ? content : `${cacheSalt}|${content}`;
}

/** Contents of the full blocks that an answer's tokens complete, from block `Math.floor(promptTokens / blockSize)` on: what a next turn finds cached. */
export function answerBlocks(layout: PromptLayout, promptTokens: number, answer: readonly number[], blockSize: number): BlockContent[] {
  const chain = layout.chain.clone();
  const contents: BlockContent[] = [];
  answer.forEach((token, index) => {
    chain.push(token);
    if ((promptTokens + index + 1) % blockSize === 0) contents.push(chain.value());
  });
  return contents;
}
