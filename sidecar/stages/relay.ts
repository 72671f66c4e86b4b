import { FirstEventId, responseIdIn, withNotes } from "../answer-notes.js";
import type { ApiShape } from "../body/types.js";
import { cut, write, writeHead } from "../client.js";
import { ApiError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import { answerHeaders, contentTypeOf, type FlatHeaders, isEventStream, valuesOf } from "../headers.js";
import type { Stage } from "../metrics.js";
import { Leg, type LegListener } from "../upstream/leg.js";
import type { LegError } from "../upstream/leg-error.js";
import { EventStreamRewriter, JsonRewriter, type Rewriter } from "../usage/rewriters.js";
import { ContentWatch, type FirstEvent, isMiss } from "./opening-events.js";
import { countDecodeFailure, errorOfLeg } from "./failure.js";

/** So long may a decode leg be kept for the sake of its blocks: then the prefiller's own lease has freed them (real-engine §4). */
export const RELEASE_TIMEOUT_MS = 30_000;

export interface RelayPlan {
  readonly stage: Extract<Stage, "decode" | "pass_through">;
  readonly method: string;
  readonly headers: FlatHeaders;
  /** Emptied once it is sent and answered. */
  readonly body: Buffer[] | null;
  readonly shape: ApiShape;
  /** What prefill found in its cache, as the number's text: written into the answer's usage. Null: the answer's usage is not touched. */
  readonly cachedTokens: string | null;
  /** The body carries hand-over parameters: they are used once, and the engine must be told of them even when the client has left. */
  readonly handoff: boolean;
  /** The caller can begin again from prefill when the connection was stale. */
  readonly mayRestart: boolean;
  /** The caller has another way when the leg fails before its first content: until then nothing of it reaches the client. */
  readonly mayFallBack?: boolean;
  /** The engine may answer that too little is cached (sidecar §4.2): nothing of the answer reaches the client before that is known. */
  readonly probe?: boolean;
  /** The prefill leg that runs at the same time. */
  readonly partner?: Partner;
  /** See AnswerNotes. */
  readonly prefilledBy: string | null;
}

/** The prefill leg of a concurrent connector, as decode sees it. */
export interface Partner {
  /** It has not answered: decode's opening is kept back until it has, or until content proves that its blocks are there. */
  readonly undecided: boolean;
  /** It has answered, and keeps blocks until decode has read them. */
  readonly blocksHeld: boolean;
}

export type RelayOutcome =
  /** The client has its answer, or has left. */
  | "over"
  /** A kept connection was closed before anything was answered; only where the plan allows a restart. */
  | "stale"
  /** Failed before its first content, and nothing was answered; only where the plan has a fallback. Counted. */
  | "failed"
  /** A probe's miss; nothing was answered. */
  | "missed"
  /** Ended by {@link RelayHandle.cancel}; nothing was answered. */
  | "cancelled";

export interface RelayHandle {
  readonly outcome: Promise<RelayOutcome>;
  /** The partner has answered: what was kept back for it goes out, and the deadline for content runs from now on. */
  partnerDone(): void;
  /** Ends the leg in favour of another answer; false when it has given the client something already. */
  cancel(reason: string): boolean;
  /** A 2xx answer that is on its way, or was given to its end. */
  readonly endedWell: boolean;
}

/**
 * Sends a leg to the engine beside us and its answer to the client as it comes, with back-pressure. A broken answer stays broken; an engine that is not there
 * is a 503, one that breaks before its head a 502.
 */
export function relay(exchange: Exchange, plan: RelayPlan): Promise<RelayOutcome> {
  return startRelay(exchange, plan).outcome;
}

/** {@link relay} for a caller that runs another leg beside it. */
export function startRelay(exchange: Exchange, plan: RelayPlan): RelayHandle {
  // Phase two of a cancellation: what was handed over is still given to decode (DESIGN, decision 9).
  if (exchange.gone.aborted && (!plan.handoff || plan.partner?.blocksHeld === false)) {
    return { outcome: Promise.resolve("over"), partnerDone: () => undefined, cancel: () => false, endedWell: false };
  }
  let started: Relay | null = null;
  const outcome = new Promise<RelayOutcome>((resolve) => {
    started = new Relay(exchange, plan, resolve);
  });
  if (started === null) throw new Error("a promise's executor runs at once");
  const running: Relay = started;
  running.start();
  return {
    outcome,
    partnerDone: () => {
      running.partnerDone();
    },
    cancel: (reason) => running.cancel(reason),
    get endedWell() {
      return running.endedWell;
    },
  };
}

/** The answer's head while it is kept back, with what came behind it. */
interface Held {
  readonly status: number;
  readonly headers: FlatHeaders;
  readonly chunks: Buffer[];
  bytes: number;
}

class Relay implements LegListener {
  readonly #exchange: Exchange;
  readonly #plan: RelayPlan;
  readonly #resolve: (outcome: RelayOutcome) => void;
  readonly #leg: Leg;
  readonly #onGone: () => void;
  readonly #onDrain: () => void;
  #rewriter: Rewriter | null = null;
  #held: Held | null = null;
  /** Null where it does not matter, or is known. */
  #watch: ContentWatch | null = null;
  /** Null: not wanted. */
  #firstEventId: FirstEventId | null = null;
  #responseId: string | null = null;
  /** The engine has taken the handed blocks. */
  #taken: boolean;
  #releaseTimer: NodeJS.Timeout | null = null;
  /** It began with 2xx and then failed. */
  #spoilt = false;
  #over = false;

  constructor(exchange: Exchange, plan: RelayPlan, resolve: (outcome: RelayOutcome) => void) {
    this.#exchange = exchange;
    this.#plan = plan;
    this.#resolve = resolve;
    this.#taken = !plan.handoff;
    const { options, metrics } = exchange.services;
    this.#leg = new Leg(
      {
        stage: plan.stage,
        upstream: exchange.engine.upstream,
        method: plan.method,
        target: exchange.target,
        headers: plan.headers,
        body: plan.body,
        // Decode beside a prefill waits for that, which has a deadline of its own.
        timeoutMs: plan.partner?.undecided === true ? 0 : options.decodeFirstByteTimeoutMs,
        // Where blocks are handed over the first byte proves nothing: an engine opens its stream, then waits for them (real-engine §7).
        timeoutUntil: plan.handoff ? "told" : "head",
        resendIfStale: !plan.handoff,
        trace: exchange.trace,
      },
      this,
      metrics,
    );
    this.#onGone = () => {
      this.#clientLeft();
    };
    this.#onDrain = () => {
      exchange.readerFlows();
      this.#leg.resume();
    };
  }

  start(): void {
    const { gone, response } = this.#exchange;
    response.on("drain", this.#onDrain);
    if (gone.aborted) this.#clientLeft();
    else gone.addEventListener("abort", this.#onGone, { once: true });
    if (!this.#leg.done) this.#leg.start();
  }

  partnerDone(): void {
    if (this.#over) return;
    if (!this.#taken) this.#leg.setDeadline(this.#exchange.services.options.decodeFirstByteTimeoutMs);
    this.#releaseIfDue();
  }

  cancel(reason: string): boolean {
    if (this.#over || this.#exchange.response.headersSent) return false;
    this.#endAs("cancelled", reason);
    return true;
  }

  get endedWell(): boolean {
    const { response } = this.#exchange;
    return !this.#gone && !this.#spoilt && response.headersSent && response.statusCode < 300;
  }

  get #gone(): boolean {
    return this.#exchange.gone.aborted;
  }

  #clientLeft(): void {
    // Beside a prefill that holds nothing there is nothing to take.
    if (this.#plan.partner?.blocksHeld === false) this.#taken = true;
    if (this.#taken) {
      this.#leg.abort("the client left");
      return;
    }
    // The blocks lie in the prefiller until decode takes them: the leg goes on, unread by anybody, until it has.
    this.#exchange.services.metrics.handoffsReleased.inc();
    this.#leg.resume();
    this.#releaseTimer = setTimeout(() => {
      this.#leg.abort("the hand-off's lease is over");
    }, RELEASE_TIMEOUT_MS);
  }

  onHead(status: number, headers: FlatHeaders): void {
    if (this.#over) return;
    this.#exchange.engine.markThere();
    const { stage, shape, probe } = this.#plan;
    if (!this.#mayComeBack) this.#releaseBody();
    const contentType = contentTypeOf(headers);
    const ok = status >= 200 && status < 300;
    const isStream = ok && isEventStream(headers);
    const coding = valuesOf(headers, "content-encoding").join().trim().toLowerCase();
    const readable = coding === "" || coding === "identity";
    // Whole answers come when they are made; streams open before the blocks are there. What an engine compresses unasked is taken for content.
    if (isStream && readable && stage === "decode") this.#watch = new ContentWatch(shape);
    else this.#take();
    if (this.#gone) {
      this.#endIfTaken();
      return;
    }
    if (!ok && status >= 500 && stage === "decode") {
      const reason = `status_${String(status)}`;
      countDecodeFailure(this.#exchange, reason, this.#mayFallBack);
      if (this.#mayFallBack) {
        this.#endAs("failed", "the engine failed");
        return;
      }
    }
    this.#rewriter = this.#rewriterFor(ok, readable, contentType, isStream);
    if (probe === true && ok && !isStream && !(this.#rewriter instanceof JsonRewriter)) {
      this.#failProbe();
      return;
    }
    if (isStream && readable && shape === "responses" && stage === "decode") this.#firstEventId = new FirstEventId();
    this.#held = { status, headers, chunks: [], bytes: 0 };
    if (!(this.#rewriter instanceof JsonRewriter)) this.#releaseIfDue();
  }

  /** The caller may want the body again, as long as nothing of this answer has reached the client. */
  get #mayComeBack(): boolean {
    const { mayFallBack, probe, partner } = this.#plan;
    return mayFallBack === true || probe === true || partner !== undefined;
  }

  /** An engine that answers before it has read everything keeps it all until its answer's end. */
  #releaseBody(): void {
    if (!this.#leg.sent) return;
    this.#plan.body?.splice(0);
    this.#exchange.releaseBody();
  }

  get #mayFallBack(): boolean {
    return this.#plan.mayFallBack === true && !this.#exchange.response.headersSent;
  }

  #take(): void {
    this.#taken = true;
    this.#leg.inTime();
  }

  #rewriterFor(ok: boolean, readable: boolean, contentType: string, isStream: boolean): Rewriter | null {
    const { cachedTokens, shape, probe, stage } = this.#plan;
    // A response's id stands in its body, and so does a probe's miss: both want the whole of it.
    const wanted = cachedTokens !== null || probe === true || (shape === "responses" && stage === "decode");
    if (!ok || !wanted) return null;
    const { metrics, options } = this.#exchange.services;
    if (!readable) {
      if (cachedTokens !== null) metrics.usageUnread.inc({ reason: "compressed" });
      return null;
    }
    const onTooLarge = (): void => {
      if (cachedTokens !== null) metrics.usageUnread.inc({ reason: "too_large" });
    };
    if (isStream) return cachedTokens === null ? null : new EventStreamRewriter(shape, cachedTokens, options.bodyLimitBytes, onTooLarge);
    if (!/^application\/(?:[a-z0-9.+-]+\+)?json/.test(contentType)) return null;
    return new JsonRewriter(shape, cachedTokens, options.bodyLimitBytes, onTooLarge);
  }

  /** Why the head of a stream, and what came behind it, is still kept back. */
  get #mustHold(): boolean {
    const { probe, partner, handoff } = this.#plan;
    if (this.#watch !== null && (probe === true || this.#mayFallBack || (handoff && partner?.undecided === true))) return true;
    return this.#firstEventId !== null;
  }

  #releaseIfDue(): void {
    if (this.#held === null || this.#rewriter instanceof JsonRewriter) return;
    if (this.#mustHold && this.#held.bytes <= this.#exchange.services.options.bodyLimitBytes) return;
    this.#release();
  }

  /** Gives out what was kept back. */
  #release(): void {
    if (this.#held === null) return;
    const { status, headers, chunks } = this.#held;
    this.#held = null;
    this.#sendHead(status, headers, this.#rewriter !== null);
    for (const chunk of chunks) this.#pass(chunk);
  }

  #sendHead(status: number, headers: FlatHeaders, dropLength: boolean, length: number | null = null, responseId: string | null = null): void {
    const { response, requestId } = this.#exchange;
    const kept = withNotes(answerHeaders(headers, dropLength), status, { prefilledBy: this.#plan.prefilledBy, responseId: responseId ?? this.#responseId });
    if (length !== null) kept.push("content-length", String(length));
    if (valuesOf(kept, "x-request-id").length === 0) kept.push("x-request-id", requestId);
    writeHead(response, status, kept);
    this.#releaseBody();
    // A stream whose first event takes its time: the client learns of the head now, in one packet with the event where that is there already.
    setImmediate(() => {
      if (!response.writableEnded && !response.destroyed && "flushHeaders" in response) response.flushHeaders();
    });
  }

  onData(chunk: Buffer): void {
    if (this.#over) return;
    const first = this.#watch?.push(chunk) ?? null;
    if (first !== null && this.#opened(first)) return;
    if (this.#gone) {
      this.#endIfTaken();
      return;
    }
    if (this.#firstEventId?.push(chunk) === true) {
      this.#responseId = this.#firstEventId.id;
      this.#firstEventId = null;
    }
    if (this.#held !== null && !(this.#rewriter instanceof JsonRewriter)) {
      this.#held.chunks.push(chunk);
      this.#held.bytes += chunk.length;
      this.#releaseIfDue();
      return;
    }
    this.#pass(chunk);
  }

  /** The stream's first event that does more than open it. @returns whether the relay is over with it */
  #opened(first: FirstEvent): boolean {
    this.#watch = null;
    this.#take();
    if (first === "missed" && this.#plan.probe === true && !this.#gone) {
      this.#endAs("missed", "too little is cached");
      return true;
    }
    if (first !== "error" || this.#gone) return false;
    this.#spoilt = true;
    countDecodeFailure(this.#exchange, "error_event", this.#mayFallBack);
    if (!this.#mayFallBack) return false;
    this.#endAs("failed", "the engine's stream told of an error");
    return true;
  }

  #endIfTaken(): void {
    if (this.#taken) this.#leg.abort("the client left");
  }

  /** The leg's end has nothing more to tell: what becomes of the request is known. */
  #endAs(outcome: RelayOutcome, reason: string): void {
    this.#finish(outcome);
    this.#leg.abort(reason);
  }

  #failProbe(): void {
    this.#exchange.fail(new ApiError(500, "the decode engine's answer is not JSON"));
    this.#endAs("over", "a probe's answer that cannot be read");
  }

  #pass(chunk: Buffer): void {
    if (this.#rewriter === null) this.#write(chunk);
    else this.#writeAll(this.#rewriter.push(chunk));
  }

  #writeAll(chunks: readonly Buffer[]): void {
    if (chunks.length === 0) return;
    if (this.#held !== null) {
      // The rewriter gave up: the body goes out as it came.
      const { status, headers } = this.#held;
      this.#held = null;
      this.#sendHead(status, headers, false);
    }
    this.#write(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks));
  }

  #write(chunk: Buffer): void {
    this.#exchange.trace.firstByte();
    if (write(this.#exchange.response, chunk)) return;
    this.#leg.pause();
    this.#exchange.readerBlocked();
  }

  onEnd(trailers: FlatHeaders): void {
    if (this.#over) return;
    const { response } = this.#exchange;
    if (!this.#gone) {
      if (!(this.#rewriter instanceof JsonRewriter)) this.#release();
      const rest = this.#rewriter?.end() ?? [];
      if (this.#held !== null && !this.#sendWholeHead(this.#held, rest)) return;
      if (rest.length > 0) this.#exchange.trace.firstByte();
      for (const chunk of rest) write(response, chunk);
      addTrailers(response, trailers);
      this.#exchange.markAnswered();
      response.end();
    }
    this.#finish("over");
  }

  /** The head of an answer whose body is there to its end. @returns false when that answer is not for the client */
  #sendWholeHead({ status, headers }: Held, body: readonly Buffer[]): boolean {
    const { shape, probe, stage } = this.#plan;
    this.#held = null;
    let length = 0;
    for (const chunk of body) length += chunk.length;
    let id: string | null = null;
    if (probe === true) {
      const parsed = parsedJson(body);
      if (parsed === undefined) {
        this.#failProbe();
        return false;
      }
      if (isMiss(parsed)) {
        this.#finish("missed");
        return false;
      }
    }
    if (shape === "responses" && stage === "decode") id = responseIdIn(body.length === 1 && body[0] !== undefined ? body[0] : Buffer.concat(body));
    this.#sendHead(status, headers, true, length, id);
    return true;
  }

  onError(error: LegError): void {
    if (this.#over) return;
    const { requestId, response, log, engine } = this.#exchange;
    if (error.failure === "refused") engine.markAway();
    if (error.failure !== "aborted") log.warn({ requestId, stage: this.#plan.stage, failure: error.failure, detail: error.detail }, "the engine's answer broke off");
    if (!this.#gone) {
      if (!response.headersSent) {
        if (this.#plan.mayRestart && this.#leg.brokeOnStaleConnection && error.failure === "broken") {
          this.#finish("stale");
          return;
        }
        if (this.#plan.stage === "decode") countDecodeFailure(this.#exchange, error.failure, this.#mayFallBack && error.failure !== "refused");
        // An engine that refuses connections can do nothing alone either.
        if (this.#mayFallBack && error.failure !== "refused") {
          this.#finish("failed");
          return;
        }
        this.#exchange.fail(
          error.failure === "refused" ? new ApiError(503, "the decode engine is not ready: it does not accept connections") : errorOfLeg("decode", error),
        );
      } else {
        // What has begun cannot be taken back: the client must see that it is not whole.
        this.#spoilt = true;
        this.#exchange.markAnswered();
        cut(response);
      }
    }
    this.#finish("over");
  }

  #finish(outcome: RelayOutcome): void {
    if (this.#over) return;
    this.#over = true;
    if (this.#releaseTimer !== null) clearTimeout(this.#releaseTimer);
    this.#exchange.gone.removeEventListener("abort", this.#onGone);
    this.#exchange.response.off("drain", this.#onDrain);
    this.#resolve(outcome);
  }
}

/** Undefined: no JSON. */
function parsedJson(body: readonly Buffer[]): unknown {
  try {
    return JSON.parse(Buffer.concat(body).toString()) as unknown;
  } catch {
    return undefined;
  }
}

function addTrailers(response: Exchange["response"], trailers: FlatHeaders): void {
  if (trailers.length === 0) return;
  const byName = Object.create(null) as Record<string, string>;
  for (let index = 0; index + 1 < trailers.length; index += 2) byName[trailers[index] ?? ""] = trailers[index + 1] ?? "";
  response.addTrailers(byName);
}
