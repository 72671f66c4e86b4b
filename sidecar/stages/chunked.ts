import { withNotes } from "../answer-notes.js";
import type { BodyEditor } from "../body/edits.js";
import { removeTopLevel } from "../body/prefill-caps.js";
import { answer, write, writeAndCut, writeHead } from "../client.js";
import { ApiError } from "../errors.js";
import type { EcParams, Exchange, ReadRequest } from "../exchange.js";
import { answerHeaders, type FlatHeaders, valuesOf, withoutHeader } from "../headers.js";
import { type Answer, type AnswerOutcome, callForAnswer, openedBody } from "../upstream/answer.js";
import { withCachedTokens } from "../usage/usage-edit.js";
import { type ChunkAnswer, chunkEvent, finishEvent, JoinedChunks, readChunk, usageEvent } from "./chunk-answer.js";
import { type ChunkedRequest, chunkedRequest, editForChunk } from "./chunked-request.js";
import { countDecodeFailure, errorOfLeg, relayAnswer } from "./failure.js";
import { RELEASE_TIMEOUT_MS, relay, type RelayOutcome } from "./relay.js";

export interface ChunkedDecode {
  readonly request: ReadRequest;
  readonly ecParams: EcParams;
  /** What the connector writes into the first chunk's body. */
  readonly edit?: (editor: BodyEditor) => void;
  /** See RelayPlan. */
  readonly cachedTokens: string | null;
  readonly handoff: boolean;
  readonly mayRestart: boolean;
  readonly mayFallBack: boolean;
  readonly prefilledBy: string | null;
}

/** Whether a request is decoded in chunks (`--decode-chunk-size`), and how; null: in one piece. */
export function chunksOf(exchange: Exchange, request: ReadRequest): ChunkedRequest | null {
  const { decodeChunkSize } = exchange.services.options;
  return decodeChunkSize > 0 ? chunkedRequest(request, decodeChunkSize) : null;
}

/**
 * Chunked decode (sidecar §4.6, D20): the engine is asked for so many tokens at a time and gets its own text back to go on from. The client sees one answer, or one
 * stream with an event per chunk. Only the first chunk carries what was handed over.
 */
export function decodeInChunks(exchange: Exchange, plan: ChunkedDecode, chunks: ChunkedRequest): Promise<RelayOutcome> {
  return new ChunkedCall(exchange, plan, chunks).run();
}

/** An engine that does not count is taken to have made what it was asked for, so that there is an end. */
function counted(chunk: ChunkAnswer, tokens: number | null): ChunkAnswer {
  return chunk.completionTokens > 0 || chunk.text.length === 0 ? chunk : { ...chunk, completionTokens: tokens ?? 1 };
}

type Step =
  /** Nothing more of this request. */
  | { readonly kind: "end"; readonly outcome: RelayOutcome }
  | { readonly kind: "chunk"; readonly chunk: ChunkAnswer; readonly headers: FlatHeaders }
  /** The engine has no room for so many tokens more. */
  | { readonly kind: "full" };

class ChunkedCall {
  readonly #exchange: Exchange;
  readonly #plan: ChunkedDecode;
  readonly #chunks: ChunkedRequest;
  readonly #joined = new JoinedChunks();

  constructor(exchange: Exchange, plan: ChunkedDecode, chunks: ChunkedRequest) {
    this.#exchange = exchange;
    this.#plan = plan;
    this.#chunks = chunks;
  }

  async run(): Promise<RelayOutcome> {
    const { decodeChunkSize } = this.#exchange.services.options;
    const { budget } = this.#chunks;
    let last: { readonly chunk: ChunkAnswer; readonly headers: FlatHeaders } | null = null;
    for (let bounded = true; ; ) {
      const left = budget - this.#joined.completionTokens;
      const step = await this.#call(bounded ? Math.min(decodeChunkSize, left) : null);
      if (step.kind === "end") return step.outcome;
      if (step.kind === "full") {
        // Without a limit of the client's the engine says itself when its context is full: what room is left is used, then the answer ends as it does there.
        if (bounded) {
          bounded = false;
          continue;
        }
        return last === null ? "over" : this.#finish(last.chunk, last.headers, "length", true);
      }
      last = step;
      const { chunk, headers } = step;
      this.#joined.add(chunk);
      const empty = chunk.completionTokens === 0 && chunk.text.length === 0;
      const more = bounded && chunk.finish === "length" && this.#joined.completionTokens < budget && !empty;
      if (!chunk.plain && (more || this.#chunks.stream)) {
        // Its words cannot be given back to the engine: the whole is asked for, as if there were no chunks. Only a first chunk can be so.
        if (this.#joined.count === 1) return this.#inOnePiece();
        return this.#finish(chunk, headers, chunk.finish, false);
      }
      if (!more) return this.#finish(chunk, headers, chunk.finish, false);
      if (this.#chunks.stream && !(await this.#send(chunk, headers, null))) return "over";
    }
  }

  /** @param tokens at most; null: as many as the engine has room for */
  async #call(tokens: number | null): Promise<Step> {
    const { request, ecParams, edit, handoff } = this.#plan;
    const isFirst = this.#joined.count === 0;
    const carries = isFirst && handoff;
    const body = this.#exchange.legBody(request, ecParams, (editor) => {
      if (isFirst) edit?.(editor);
      else removeTopLevel(editor, request.view, "kv_transfer_params");
      editForChunk(editor, request.view, this.#chunks, { made: this.#joined.completionTokens, said: isFirst ? null : this.#joined.text, tokens });
    });
    const outcome = await this.#ask(body, carries);
    const exchange = this.#exchange;
    if (exchange.gone.aborted) return { kind: "end", outcome: "over" };
    if (outcome.kind === "failed") return { kind: "end", outcome: this.#broken(outcome, carries) };
    exchange.engine.markThere();
    const { answer: whole } = outcome;
    if (whole.status < 200 || whole.status >= 300) {
      if (whole.status === 400 && !isFirst && this.#chunks.budget === Number.POSITIVE_INFINITY) return { kind: "full" };
      return { kind: "end", outcome: this.#refused(whole, isFirst) };
    }
    const opened = await openedBody(whole);
    const chunk = opened === null ? null : readChunk(opened);
    if (chunk !== null) return { kind: "chunk", chunk: counted(chunk, tokens), headers: whole.headers };
    if (isFirst) relayAnswer(exchange, whole);
    else this.#breakOff(new ApiError(502, "decode failed: its answer is not that of a chat request"));
    return { kind: "end", outcome: "over" };
  }

  async #ask(body: Buffer[], carries: boolean): Promise<AnswerOutcome> {
    const { gone, services, engine, target } = this.#exchange;
    const { leg, outcome } = callForAnswer(
      {
        stage: "decode",
        upstream: engine.upstream,
        method: "POST",
        target,
        headers: this.#exchange.legHeaders(true),
        body,
        timeoutMs: services.options.decodeFirstByteTimeoutMs,
        timeoutUntil: "head",
        resendIfStale: !carries,
        trace: this.#exchange.trace,
      },
      services.metrics,
    );
    let timer: NodeJS.Timeout | null = null;
    const left = (): void => {
      if (!carries) {
        leg.abort("the client left");
        return;
      }
      // As in relay.ts: decode is let take the blocks.
      services.metrics.handoffsReleased.inc();
      timer = setTimeout(() => {
        leg.abort("the hand-off's lease is over");
      }, RELEASE_TIMEOUT_MS);
    };
    if (gone.aborted) left();
    gone.addEventListener("abort", left, { once: true });
    const result = await outcome;
    gone.removeEventListener("abort", left);
    if (timer !== null) clearTimeout(timer);
    return result;
  }

  #broken({ error, leg }: Extract<AnswerOutcome, { kind: "failed" }>, carries: boolean): RelayOutcome {
    const { engine, log, requestId } = this.#exchange;
    if (error.failure === "refused") engine.markAway();
    log.warn({ requestId, stage: "decode", failure: error.failure, detail: error.detail }, "a chunk of decode broke off");
    const isFirst = this.#joined.count === 0;
    if (isFirst && carries && this.#plan.mayRestart && error.failure === "broken" && leg.brokeOnStaleConnection) return "stale";
    const fallsBack = isFirst && this.#plan.mayFallBack && error.failure !== "refused";
    countDecodeFailure(this.#exchange, error.failure, fallsBack);
    if (fallsBack) return "failed";
    this.#breakOff(error.failure === "refused" ? new ApiError(503, "the decode engine is not ready: it does not accept connections") : errorOfLeg("decode", error));
    return "over";
  }

  #refused(whole: Answer, isFirst: boolean): RelayOutcome {
    if (whole.status >= 500) {
      const fallsBack = isFirst && this.#plan.mayFallBack;
      countDecodeFailure(this.#exchange, `status_${String(whole.status)}`, fallsBack);
      if (fallsBack) return "failed";
    }
    if (this.#exchange.response.headersSent) this.#breakOffWith(whole.body);
    else relayAnswer(this.#exchange, whole);
    return "over";
  }

  /** Before anything was sent the client gets the error; after that its stream tells of it and breaks, so that it cannot be taken for whole. */
  #breakOff(error: ApiError): void {
    if (this.#exchange.response.headersSent) this.#breakOffWith(error.body());
    else this.#exchange.fail(error);
  }

  #breakOffWith(error: Buffer): void {
    const { response } = this.#exchange;
    this.#exchange.markAnswered();
    const line = error.toString().replaceAll(/[\r\n]+/g, " ");
    writeAndCut(response, Buffer.from(`data: ${line}\n\n`));
  }

  /** The request as if there were no chunks; what was handed over is used. */
  #inOnePiece(): Promise<RelayOutcome> {
    const { request, ecParams, prefilledBy } = this.#plan;
    return relay(this.#exchange, {
      stage: "decode",
      method: "POST",
      headers: this.#exchange.legHeaders(this.#plan.cachedTokens !== null),
      body: this.#exchange.legBody(request, ecParams, (editor) => {
        removeTopLevel(editor, request.view, "kv_transfer_params");
      }),
      shape: request.shape,
      cachedTokens: this.#plan.cachedTokens,
      handoff: false,
      mayRestart: false,
      prefilledBy,
    });
  }

  /** @param sent the chunk went out before as one of many, and only the end is to be told */
  async #finish(chunk: ChunkAnswer, headers: FlatHeaders, finish: string, sent: boolean): Promise<RelayOutcome> {
    const { response } = this.#exchange;
    this.#exchange.releaseBody();
    this.#exchange.trace.set({
      "llm_d.pd_proxy.chunked_decode.chunk_size": this.#exchange.services.options.decodeChunkSize,
      "llm_d.pd_proxy.chunked_decode.chunks": this.#joined.count,
      "llm_d.pd_proxy.chunked_decode.total_tokens": this.#joined.completionTokens,
      "llm_d.pd_proxy.chunked_decode.streaming": this.#chunks.stream,
    });
    if (!this.#chunks.stream) {
      this.#answerWhole(headers);
      return "over";
    }
    if (sent) write(response, finishEvent(chunk, finish));
    else if (!(await this.#send(chunk, headers, finish))) return "over";
    if (this.#chunks.includeUsage) write(response, usageEvent(chunk, this.#withCachedTokens(this.#joined.usage(), true)));
    write(response, Buffer.from("data: [DONE]\n\n"));
    this.#exchange.markAnswered();
    response.end();
    return "over";
  }

  #answerWhole(headers: FlatHeaders): void {
    const body = Buffer.concat(this.#withCachedTokens(this.#joined.whole() ?? [], false));
    this.#exchange.markAnswered();
    answer(this.#exchange.response, 200, [...this.#headers(headers), "content-length", String(body.length)], body);
  }

  #withCachedTokens(json: readonly Buffer[], isUsage: boolean): readonly Buffer[] {
    const { cachedTokens, request } = this.#plan;
    if (cachedTokens === null) return json;
    const whole = Buffer.concat(isUsage ? [Buffer.from('{"usage":'), ...json, Buffer.from("}")] : json);
    const edited = Buffer.concat(withCachedTokens(whole, request.shape, cachedTokens) ?? [whole]);
    return isUsage ? [edited.subarray('{"usage":'.length, -1)] : [edited];
  }

  /** @returns whether somebody still reads */
  async #send(chunk: ChunkAnswer, headers: FlatHeaders, finish: string | null): Promise<boolean> {
    const { response, gone } = this.#exchange;
    const isFirst = !response.headersSent;
    if (isFirst) writeHead(response, 200, ["content-type", "text/event-stream; charset=utf-8", ...withoutHeader(this.#headers(headers), "content-type")]);
    this.#exchange.trace.firstByte();
    if (write(response, chunkEvent(chunk, isFirst, finish))) return !gone.aborted;
    // Nothing more is asked of the engine while the client does not read.
    this.#exchange.readerBlocked();
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.#exchange.readerFlows();
        response.off("drain", done);
        gone.removeEventListener("abort", done);
        resolve();
      };
      response.once("drain", done);
      gone.addEventListener("abort", done, { once: true });
      if (gone.aborted) done();
    });
    return !gone.aborted;
  }

  #headers(headers: FlatHeaders): string[] {
    const kept = withNotes(answerHeaders(headers, true), 200, { prefilledBy: this.#plan.prefilledBy, responseId: null });
    if (valuesOf(kept, "x-request-id").length === 0) kept.push("x-request-id", this.#exchange.requestId);
    return withoutHeader(kept, "content-encoding");
  }
}
