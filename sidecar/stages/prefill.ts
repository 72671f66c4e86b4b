import { setTimeout as sleep } from "node:timers/promises";
import { parseCandidate } from "../candidates.js";
import { ApiError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import type { FlatHeaders } from "../headers.js";
import { type Answer, type AnswerOutcome, callForAnswer, openedBody } from "../upstream/answer.js";
import type { Upstream } from "../upstream/pools.js";
import { errorOfLeg, goesOnLocally, relayAnswer } from "./failure.js";

const HEADER = "x-prefiller-host-port";
/** A prefiller that is busy or gone for a moment; everything else is its last word (NX-10 … NX-13). */
const RETRIED = new Set([502, 503, 504]);

export type PrefillOutcome =
  /** 2xx; `body` is opened. */
  | { readonly kind: "answer"; readonly body: Buffer }
  /** Failed, and the policy is to go on with the local engine. */
  | { readonly kind: "local" }
  /** The client has its answer, or has left. */
  | { readonly kind: "over" };

/**
 * Calls the prefiller until it gives its last word or the stage's deadline is over, and reads its whole answer. A client that leaves ends the call at once:
 * nothing was handed over yet (DESIGN, decision 9).
 *
 * @param entry of the routing header
 * @param body emptied when the last word is there
 */
export async function prefill(exchange: Exchange, entry: string, body: Buffer[], extraHeaders: FlatHeaders = []): Promise<PrefillOutcome> {
  const { upstreams } = exchange.services;
  const candidate = parseCandidate(entry);
  if (candidate === null) {
    const local = goesOnLocally(exchange, "prefill", "bad_address", () => {
      exchange.fail(new ApiError(502, "the routing header does not name a prefiller as host:port", HEADER));
    });
    return { kind: local ? "local" : "over" };
  }

  const outcome = await callWithRetries(exchange, upstreams.prefiller(candidate), body, [...exchange.legHeaders(true), ...extraHeaders]);
  // The caller may wait for decode's last event with it in hand.
  body.splice(0);
  if (outcome.kind === "failed") {
    if (exchange.gone.aborted) return { kind: "over" };
    exchange.log.warn({ requestId: exchange.requestId, prefiller: candidate.authority, failure: outcome.error.failure, detail: outcome.error.detail }, "prefill failed");
    const local = goesOnLocally(exchange, "prefill", outcome.error.failure, () => {
      exchange.fail(errorOfLeg("prefill", outcome.error, HEADER));
    });
    return { kind: local ? "local" : "over" };
  }

  const { answer } = outcome;
  if (answer.status >= 200 && answer.status < 300) {
    const opened = await openedBody(answer);
    return { kind: "answer", body: opened ?? Buffer.alloc(0) };
  }
  return { kind: settleRefusal(exchange, answer) ? "local" : "over" };
}

/** A 4xx is the client's own error under either policy; any other status is a failed stage. */
function settleRefusal(exchange: Exchange, answer: Answer): boolean {
  if (answer.status >= 400 && answer.status < 500) {
    relayAnswer(exchange, answer);
    return false;
  }
  return goesOnLocally(exchange, "prefill", `status_${String(answer.status)}`, () => {
    relayAnswer(exchange, answer);
  });
}

async function callWithRetries(exchange: Exchange, upstream: Upstream, body: readonly Buffer[], headers: FlatHeaders): Promise<AnswerOutcome> {
  const { options, metrics } = exchange.services;
  const endsAtMs = options.prefillTimeoutMs === 0 ? Number.POSITIVE_INFINITY : performance.now() + options.prefillTimeoutMs;
  for (let attempt = 0; ; attempt++) {
    const outcome = await callOnce(exchange, upstream, body, headers, endsAtMs);
    const reason = retryReason(outcome);
    if (reason === null || attempt >= options.prefillMaxRetries || exchange.gone.aborted) return outcome;
    // Spread, so that requests that failed together do not come back together.
    const waitMs = options.prefillRetryBackoffMs * (0.5 + Math.random());
    if (performance.now() + waitMs >= endsAtMs) return outcome;
    try {
      await sleep(waitMs, undefined, { signal: exchange.gone });
    } catch {
      return outcome;
    }
    metrics.retries.inc({ stage: "prefill", reason });
    exchange.log.info({ requestId: exchange.requestId, prefiller: upstream.authority, reason, attempt: attempt + 1 }, "prefill is tried again");
  }
}

function retryReason(outcome: AnswerOutcome): string | null {
  if (outcome.kind === "answer") return RETRIED.has(outcome.answer.status) ? `status_${String(outcome.answer.status)}` : null;
  const { failure } = outcome.error;
  return failure === "timeout" || failure === "aborted" || failure === "too_large" ? null : failure;
}

async function callOnce(exchange: Exchange, upstream: Upstream, body: readonly Buffer[], headers: FlatHeaders, endsAtMs: number): Promise<AnswerOutcome> {
  const timeoutMs = endsAtMs === Number.POSITIVE_INFINITY ? 0 : Math.max(1, Math.ceil(endsAtMs - performance.now()));
  const { leg, outcome } = callForAnswer(
    { stage: "prefill", upstream, method: "POST", target: exchange.target, headers, body, timeoutMs, timeoutUntil: "end", resendIfStale: true },
    exchange.services.metrics,
  );
  const stop = (): void => {
    leg.abort("the client left");
  };
  if (exchange.gone.aborted) stop();
  exchange.gone.addEventListener("abort", stop, { once: true });
  const result = await outcome;
  exchange.gone.removeEventListener("abort", stop);
  return result;
}
