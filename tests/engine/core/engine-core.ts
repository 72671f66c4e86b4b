/**
 * One request through the engine: wait, find what is cached, load what another engine has, compute the rest, generate, and leave or keep the blocks.
 * The KV blocks carry what they hold, so an answer is made from what was really there.
 */

import { setMaxListeners } from "node:events";

import { mostTokens, planAnswer, type AnswerPlan, type FinishReason, type PlannedAnswer } from "../answer.js";
import type { Choice, GenerationRequest, Outcome } from "../api/request.js";
import type { BlockPool } from "../blocks.js";
import { NOTHING_HELD, type KvConnector, type LoadedKv, type Sequence } from "../connectors/types.js";
import type { EmbeddingConsumer } from "../encode/consumer.js";
import { ApiError, ClientGone } from "../errors.js";
import { fingerprint } from "../fingerprint.js";
import type { Json } from "../json.js";
import { answerBlocks, cacheKey, layOut, type Prompt } from "../prompt.js";
import { noteError, type EngineServices, type Leg } from "./services.js";
import { breathe, sleep } from "./time.js";

/** Where a streamed answer goes; without one nothing is reported before the end. */
export interface AnswerSink {
  token(choice: number, token: number, piece: string): Promise<void>;
  finish(choice: number, finish: FinishReason): Promise<void>;
}

interface PromptResult {
  readonly choices: Choice[];
  readonly cachedTokens: number;
  readonly createdTokens: number;
  readonly completionTokens: number;
  readonly params: Json;
}

/** How the tokens of one prompt were had. */
interface Computed {
  /** `""` when every block holds this prompt's KV. */
  readonly taint: string;
  readonly hitTokens: number;
  readonly external: LoadedKv | null;
}

export class EngineCore {
  constructor(
    private readonly services: EngineServices,
    private readonly connector: KvConnector,
    private readonly embeddings: EmbeddingConsumer,
  ) {}

  /** What the front end refuses before anything runs. @throws ApiError 400 */
  check(request: GenerationRequest): void {
    for (const prompt of request.prompts) this.checkLength(request, prompt);
  }

  /** @throws ApiError, EngineDeath, ClientGone */
  async run(request: GenerationRequest, leg: Leg, sink: AnswerSink | null): Promise<Outcome> {
    leg.record.promptTokens = request.prompts.reduce((sum, prompt) => sum + prompt.tokens.length, 0);
    const results = await this.runAll(request, leg, sink);
    const cachedTokens = results.reduce((sum, result) => sum + result.cachedTokens, 0);
    const createdTokens = results.reduce((sum, result) => sum + result.createdTokens, 0);
    const completionTokens = results.reduce((sum, result) => sum + result.completionTokens, 0);
    leg.record.cachedTokens = cachedTokens;
    leg.record.completionTokens = completionTokens;
    return {
      choices: results.flatMap((result) => result.choices),
      usage: { promptTokens: leg.record.promptTokens, completionTokens, cachedTokens, createdTokens },
      // Of a list of prompts only the first one's parameters come back (real-engine §4).
      kvTransferParams: results[0]?.params ?? null,
      ecTransferParams: null,
    };
  }

  /** All prompts of a list at once; the first failure ends the others. */
  private async runAll(request: GenerationRequest, leg: Leg, sink: AnswerSink | null): Promise<PromptResult[]> {
    if (request.prompts.length === 1) return Promise.all(request.prompts.map((prompt) => this.runPrompt(request, prompt, 0, leg, sink)));
    const siblings = new AbortController();
    const signal = AbortSignal.any([leg.signal, siblings.signal]);
    setMaxListeners(0, signal);
    const shared: Leg = { ...leg, header: (name) => leg.header(name), signal };
    const runs = request.prompts.map((prompt, index) => this.runPrompt(request, prompt, index, shared, sink));
    try {
      return await Promise.all(runs);
    } catch (error) {
      siblings.abort(error);
      await Promise.allSettled(runs);
      throw error;
    }
  }

  private checkLength(request: GenerationRequest, prompt: Prompt): void {
    const { maxModelLen } = this.services.options;
    const length = prompt.tokens.length;
    if (length === 0) throw new ApiError(400, "The prompt is empty", "prompt");
    if (maxModelLen === 0) return;
    const answer = request.sampling.maxTokens ?? 1;
    if (length + answer <= maxModelLen) return;
    throw new ApiError(
      400,
      `This model's maximum context length is ${String(maxModelLen)} tokens. However, you requested ${String(answer)} output tokens and your prompt contains ${String(length)} input tokens.`,
      "input_tokens",
    );
  }

  private async runPrompt(request: GenerationRequest, prompt: Prompt, index: number, leg: Leg, sink: AnswerSink | null): Promise<PromptResult> {
    const { options, scheduler, metrics } = this.services;
    // Blocks belong to the pool that they were taken from, also when the engine has been restarted meanwhile.
    const { pool } = this.services;
    const startedAt = performance.now();
    const length = prompt.tokens.length;
    const layout = layOut(prompt, request.model, request.cacheSalt, options.blockSize);
    // At least one token is computed, and prompt log-probabilities need all of them.
    const reusable = request.sampling.promptLogprobs === null ? layout.keys.slice(0, Math.floor((length - 1) / options.blockSize)) : [];
    const wanted = layout.contents.length + request.sampling.n * Math.ceil(mostTokens(this.planOf(request, "")) / options.blockSize);
    let owned: readonly number[] = [];
    const claim = await scheduler.admit(leg.signal, () => pool.claim(reusable, wanted));
    owned = claim.ids;
    try {
      metrics.queueTime.observe((performance.now() - startedAt) / 1000);
      const sequence: Sequence = { request, index, layout, promptTokens: length, promptBlocks: claim.ids.slice(0, layout.contents.length), hitBlocks: claim.hits };
      metrics.prefixLookup(length, claim.hits * options.blockSize);
      const computed = await this.prefill(sequence, prompt, pool, leg);
      if (computed === null) return await this.belowThreshold(sequence, sink, startedAt);
      metrics.timeToFirstToken.observe((performance.now() - startedAt) / 1000);
      const answers = this.answersOf(request, layout.identity, computed.taint);
      await this.generate(answers, index * request.sampling.n, leg, sink);
      const first = answers[0];
      if (computed.taint === "" && first !== undefined) this.cacheAnswer(sequence, first, pool, claim.ids);
      const finish = first?.finish ?? "stop";
      const finished = await this.connector.finished(sequence, leg, finish);
      if (finished.held) owned = claim.ids.slice(layout.contents.length);
      return this.result(sequence, answers, computed, finished.params, startedAt);
    } catch (error) {
      metrics.requestFinished({ finish: error instanceof ClientGone ? "abort" : "error", promptTokens: 0, localTokens: 0, cachedTokens: 0, externalTokens: 0, externalSource: "external_kv_transfer", completionTokens: 0, startedAt });
      throw error;
    } finally {
      pool.release(owned);
      scheduler.leave();
    }
  }

  /** Fills the prompt's blocks. Null: too little of the prompt was there for the request's threshold. */
  private async prefill(sequence: Sequence, prompt: Prompt, pool: BlockPool, leg: Leg): Promise<Computed | null> {
    const { options, scheduler, metrics } = this.services;
    const { request, layout, promptBlocks, hitBlocks, promptTokens } = sequence;
    const hitTokens = hitBlocks * options.blockSize;
    let external: LoadedKv | null = null;
    if (this.connector.loads(sequence, leg)) {
      external = await scheduler.whileDeferred(() => this.connector.load(sequence, leg));
      metrics.externalLookup(promptTokens - hitTokens, external?.tokens ?? 0);
    }
    const threshold = this.connector.threshold?.(request) ?? null;
    if (threshold !== null && threshold > 0 && (hitTokens + (external?.tokens ?? 0)) / promptTokens < threshold) return null;
    const covered = hitTokens + (external?.tokens ?? 0);
    await this.embeddings.resolve(request, prompt.media, covered, leg);
    await sleep((promptTokens - covered) * options.msPerPrefillToken, leg.signal);
    let taint = external?.wrong === null || external === null ? "" : fingerprint("wrong KV", external.wrong);
    layout.contents.forEach((expected, index) => {
      const id = promptBlocks[index] ?? 0;
      const loaded = external?.contents[index - hitBlocks];
      const actual = index < hitBlocks ? (pool.content(id) ?? "lost") : loaded !== undefined ? (loaded ?? "lost") : taint === "" ? expected : fingerprint(expected, taint);
      if (actual !== expected) taint = fingerprint(taint, String(index), actual);
      if (index >= hitBlocks) pool.write(id, taint === "" ? expected : fingerprint(expected, taint), layout.keys[index] ?? null);
    });
    if (taint !== "") {
      noteError(leg.record, "the KV that was read is not that of this prompt");
      if (leg.record.handoff !== null) leg.record.handoff.correct = false;
    }
    if (taint === "") this.connector.prefilled?.(sequence, leg);
    return { taint, hitTokens, external };
  }

  private planOf(request: GenerationRequest, seed: string): AnswerPlan {
    const { maxTokens, minTokens, ignoreEos, stop } = request.sampling;
    const forcedText = request.forced === null ? null : request.forced.render(seed);
    return { seed, maxTokens: this.limitOf(request, maxTokens), minTokens, ignoreEos, stop, forcedText };
  }

  /** The longest answer that still fits the model's context. */
  private limitOf(request: GenerationRequest, maxTokens: number | null): number | null {
    const { maxModelLen } = this.services.options;
    if (maxModelLen === 0) return maxTokens;
    const longest = Math.max(...request.prompts.map((prompt) => prompt.tokens.length));
    return Math.max(1, Math.min(maxTokens ?? maxModelLen, maxModelLen - longest));
  }

  private answersOf(request: GenerationRequest, identity: string, taint: string): PlannedAnswer[] {
    return Array.from({ length: request.sampling.n }, (_, choice) =>
      planAnswer(this.planOf(request, fingerprint(identity, taint, request.sampling.fingerprint, String(choice)))),
    );
  }

  private async generate(answers: readonly PlannedAnswer[], firstChoice: number, leg: Leg, sink: AnswerSink | null): Promise<void> {
    const { msPerDecodeToken } = this.services.options;
    const steps = Math.max(0, ...answers.map((answer) => answer.tokens.length));
    const startedAt = performance.now();
    if (sink === null) {
      await sleep(Math.max(0, steps - 1) * msPerDecodeToken, leg.signal);
    } else {
      for (let step = 0; step < Math.max(1, steps); step += 1) {
        const due = startedAt + step * msPerDecodeToken - performance.now();
        if (due >= 1) await sleep(due, leg.signal);
        else await breathe(leg.signal);
        for (const [offset, answer] of answers.entries()) {
          const token = answer.tokens[step];
          if (token !== undefined) await sink.token(firstChoice + offset, token, answer.pieces[step] ?? "");
          if (step === Math.max(1, answer.tokens.length) - 1) await sink.finish(firstChoice + offset, answer.finish);
        }
      }
    }
    if (steps > 1) this.services.metrics.interTokenLatency.observe((performance.now() - startedAt) / (steps - 1) / 1000);
  }

  /** The blocks that the answer fills are cached too, all but the last token, whose KV was never computed. */
  private cacheAnswer(sequence: Sequence, answer: PlannedAnswer, pool: BlockPool, ids: readonly number[]): void {
    const { blockSize } = this.services.options;
    const from = Math.floor(sequence.promptTokens / blockSize);
    answerBlocks(sequence.layout, sequence.promptTokens, answer.tokens.slice(0, -1), blockSize).forEach((content, index) => {
      const id = ids[from + index];
      if (id !== undefined) pool.write(id, content, cacheKey(content, sequence.request.cacheSalt));
    });
  }

  private async belowThreshold(sequence: Sequence, sink: AnswerSink | null, startedAt: number): Promise<PromptResult> {
    this.services.metrics.requestFinished({ finish: "cache_threshold", promptTokens: 0, localTokens: 0, cachedTokens: 0, externalTokens: 0, externalSource: "external_unspecified", completionTokens: 0, startedAt });
    const first = sequence.index * sequence.request.sampling.n;
    const choices = Array.from({ length: sequence.request.sampling.n }, (_, choice) => ({ index: first + choice, tokens: [], pieces: [], finish: "cache_threshold" as const }));
    for (const choice of choices) await sink?.finish(choice.index, choice.finish);
    return { choices, cachedTokens: 0, createdTokens: 0, completionTokens: 0, params: NOTHING_HELD.params };
  }

  private result(sequence: Sequence, answers: readonly PlannedAnswer[], computed: Computed, params: Json, startedAt: number): PromptResult {
    const first = sequence.index * sequence.request.sampling.n;
    const choices = answers.map((answer, choice): Choice => ({ index: first + choice, ...answer }));
    const completionTokens = answers.reduce((sum, answer) => sum + answer.tokens.length, 0);
    const externalTokens = computed.external?.tokens ?? 0;
    this.services.metrics.requestFinished({
      finish: answers[0]?.finish ?? "stop",
      promptTokens: sequence.promptTokens,
      localTokens: Math.max(0, sequence.promptTokens - computed.hitTokens - externalTokens),
      cachedTokens: computed.hitTokens,
      externalTokens,
      externalSource: computed.external?.source ?? "external_kv_transfer",
      completionTokens,
      startedAt,
    });
    const { blockSize } = this.services.options;
    const inBlocks = Math.floor(sequence.promptTokens / blockSize) * blockSize;
    return { choices, cachedTokens: computed.hitTokens, createdTokens: Math.max(0, inBlocks - computed.hitTokens - externalTokens), completionTokens, params };
  }
}
