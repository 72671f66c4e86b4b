import type { ApiShape } from "../body/types.js";
import { cut, write, writeHead } from "../client.js";
import { ApiError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import { answerHeaders, type FlatHeaders, valuesOf } from "../headers.js";
import type { Stage } from "../metrics.js";
import { Leg, type LegListener } from "../upstream/leg.js";
import type { LegError } from "../upstream/leg-error.js";
import { EventStreamRewriter, JsonRewriter, type Rewriter } from "../usage/rewriters.js";
import { ContentWatch } from "./opening-events.js";
import { errorOfLeg } from "./failure.js";

/** So long may a decode leg be kept for the sake of its blocks: then the prefiller's own lease has freed them (real-engine §4). */
const RELEASE_TIMEOUT_MS = 30_000;

export interface RelayPlan {
  readonly stage: Extract<Stage, "decode" | "pass_through">;
  readonly method: string;
  readonly headers: FlatHeaders;
  /** Emptied once it is sent and answered. */
  readonly body: Buffer[] | null;
  readonly shape: ApiShape;
  /** What prefill found in its cache, as the number's text: written into the answer's usage. Null: the answer is not looked into. */
  readonly cachedTokens: string | null;
  /** The body carries hand-over parameters: they are used once, and the engine must be told of them even when the client has left. */
  readonly handoff: boolean;
  /** The caller can begin again from prefill when the connection was stale. */
  readonly mayRestart: boolean;
}

export type RelayOutcome = "over" | "stale";

/**
 * Sends a leg to the engine beside us and its answer to the client as it comes, with back-pressure. A broken answer stays broken; an engine that is not there
 * is a 503, one that breaks before its head a 502.
 *
 * @returns `stale` only when the plan allows a restart: nothing was answered then
 */
export function relay(exchange: Exchange, plan: RelayPlan): Promise<RelayOutcome> {
  // Phase two of a cancellation: what was handed over is still given to decode (DESIGN, decision 9).
  if (exchange.gone.aborted && !plan.handoff) return Promise.resolve("over");
  return new Promise((resolve) => {
    new Relay(exchange, plan, resolve).start();
  });
}

class Relay implements LegListener {
  readonly #exchange: Exchange;
  readonly #plan: RelayPlan;
  readonly #resolve: (outcome: RelayOutcome) => void;
  readonly #leg: Leg;
  readonly #onGone: () => void;
  readonly #onDrain: () => void;
  #rewriter: Rewriter | null = null;
  /** Held until it is known how long the rewritten body is. */
  #heldHead: { readonly status: number; readonly headers: FlatHeaders } | null = null;
  /** Null where it does not matter, or is known. */
  #watch: ContentWatch | null = null;
  /** The engine has taken the handed blocks. */
  #taken: boolean;
  #releaseTimer: NodeJS.Timeout | null = null;

  constructor(exchange: Exchange, plan: RelayPlan, resolve: (outcome: RelayOutcome) => void) {
    this.#exchange = exchange;
    this.#plan = plan;
    this.#resolve = resolve;
    this.#taken = !plan.handoff;
    const { upstreams, options, metrics } = exchange.services;
    this.#leg = new Leg(
      {
        stage: plan.stage,
        upstream: upstreams.decoder,
        method: plan.method,
        target: exchange.target,
        headers: plan.headers,
        body: plan.body,
        timeoutMs: options.decodeFirstByteTimeoutMs,
        timeoutUntil: "head",
        resendIfStale: !plan.handoff,
      },
      this,
      metrics,
    );
    this.#onGone = () => {
      this.#clientLeft();
    };
    this.#onDrain = () => {
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

  get #gone(): boolean {
    return this.#exchange.gone.aborted;
  }

  #clientLeft(): void {
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
    this.#exchange.services.engine.markThere();
    this.#releaseBody();
    const contentType = (valuesOf(headers, "content-type")[0] ?? "").toLowerCase();
    const isStream = contentType.startsWith("text/event-stream");
    if (!this.#taken) {
      // Whole answers come when they are made; streams open before the blocks are there.
      if (isStream && status >= 200 && status < 300) this.#watch = new ContentWatch(this.#plan.shape);
      else this.#taken = true;
    }
    if (this.#gone) {
      this.#endIfTaken();
      return;
    }
    this.#rewriter = this.#rewriterFor(status, headers, contentType, isStream);
    if (this.#rewriter instanceof JsonRewriter) this.#heldHead = { status, headers };
    else this.#sendHead(status, headers, this.#rewriter !== null);
  }

  /** An engine that answers before it has read everything keeps it all until its answer's end. */
  #releaseBody(): void {
    if (!this.#leg.sent) return;
    this.#plan.body?.splice(0);
    this.#exchange.releaseBody();
  }

  #rewriterFor(status: number, headers: FlatHeaders, contentType: string, isStream: boolean): Rewriter | null {
    const { cachedTokens, shape } = this.#plan;
    if (cachedTokens === null || status < 200 || status >= 300) return null;
    const { metrics, options } = this.#exchange.services;
    const coding = valuesOf(headers, "content-encoding").join().trim().toLowerCase();
    if (coding !== "" && coding !== "identity") {
      metrics.usageUnread.inc({ reason: "compressed" });
      return null;
    }
    if (isStream) return new EventStreamRewriter(shape, cachedTokens);
    if (!/^application\/(?:[a-z0-9.+-]+\+)?json/.test(contentType)) return null;
    return new JsonRewriter(shape, cachedTokens, options.bodyLimitBytes, () => {
      metrics.usageUnread.inc({ reason: "too_large" });
    });
  }

  #sendHead(status: number, headers: FlatHeaders, dropLength: boolean, length: number | null = null): void {
    const { response, requestId } = this.#exchange;
    const kept = answerHeaders(headers, dropLength);
    if (length !== null) kept.push("content-length", String(length));
    if (valuesOf(kept, "x-request-id").length === 0) kept.push("x-request-id", requestId);
    writeHead(response, status, kept);
    // A stream whose first event takes its time: the client learns of the head now, in one packet with the event where that is there already.
    setImmediate(() => {
      if (!response.writableEnded && !response.destroyed && "flushHeaders" in response) response.flushHeaders();
    });
  }

  onData(chunk: Buffer): void {
    if (this.#watch?.push(chunk) === true) {
      this.#watch = null;
      this.#taken = true;
    }
    if (this.#gone) {
      this.#endIfTaken();
      return;
    }
    if (this.#rewriter === null) this.#write(chunk);
    else this.#writeAll(this.#rewriter.push(chunk));
  }

  #endIfTaken(): void {
    if (this.#taken) this.#leg.abort("the client left");
  }

  #writeAll(chunks: readonly Buffer[]): void {
    if (chunks.length === 0) return;
    if (this.#heldHead !== null) {
      // The rewriter gave up: the body goes out as it came.
      const { status, headers } = this.#heldHead;
      this.#heldHead = null;
      this.#sendHead(status, headers, false);
    }
    this.#write(chunks.length === 1 && chunks[0] !== undefined ? chunks[0] : Buffer.concat(chunks));
  }

  #write(chunk: Buffer): void {
    if (!write(this.#exchange.response, chunk)) this.#leg.pause();
  }

  onEnd(trailers: FlatHeaders): void {
    const { response } = this.#exchange;
    if (!this.#gone) {
      const rest = this.#rewriter?.end() ?? [];
      if (this.#heldHead !== null) {
        const { status, headers } = this.#heldHead;
        this.#heldHead = null;
        let length = 0;
        for (const chunk of rest) length += chunk.length;
        this.#sendHead(status, headers, true, length);
      }
      for (const chunk of rest) write(response, chunk);
      addTrailers(response, trailers);
      this.#exchange.markAnswered();
      response.end();
    }
    this.#finish("over");
  }

  onError(error: LegError): void {
    const { services, requestId, response, log } = this.#exchange;
    if (error.failure === "refused") services.engine.markAway();
    if (error.failure !== "aborted") log.warn({ requestId, stage: this.#plan.stage, failure: error.failure, detail: error.detail }, "the engine's answer broke off");
    if (!this.#gone) {
      if (!response.headersSent) {
        if (this.#plan.mayRestart && this.#leg.brokeOnStaleConnection && error.failure === "broken") {
          this.#finish("stale");
          return;
        }
        this.#exchange.fail(
          error.failure === "refused" ? new ApiError(503, "the decode engine is not ready: it does not accept connections") : errorOfLeg("decode", error),
        );
      } else {
        // What has begun cannot be taken back: the client must see that it is not whole.
        this.#exchange.markAnswered();
        cut(response);
      }
    }
    this.#finish("over");
  }

  #finish(outcome: RelayOutcome): void {
    if (this.#releaseTimer !== null) clearTimeout(this.#releaseTimer);
    this.#exchange.gone.removeEventListener("abort", this.#onGone);
    this.#exchange.response.off("drain", this.#onDrain);
    this.#resolve(outcome);
  }
}

function addTrailers(response: Exchange["response"], trailers: FlatHeaders): void {
  if (trailers.length === 0) return;
  const byName = Object.create(null) as Record<string, string>;
  for (let index = 0; index + 1 < trailers.length; index += 2) byName[trailers[index] ?? ""] = trailers[index + 1] ?? "";
  response.addTrailers(byName);
}
