import type { Candidate } from "../candidates.js";
import { ApiError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import type { FlatHeaders } from "../headers.js";
import { type Answer, type AnswerOutcome, callForAnswer, openedBody } from "../upstream/answer.js";
import type { Leg } from "../upstream/leg.js";
import type { LegError, LegFailure } from "../upstream/leg-error.js";
import { PrefillAttempts, type PrefillFailure } from "./attempts.js";
import { errorOfLeg, goesOnLocally, relayAnswer } from "./failure.js";

const HEADER = "x-prefiller-host-port";
/** A prefiller that is busy or gone for a moment; everything else is its last word (NX-10 … NX-13). */
const RETRIED = new Set([502, 503, 504]);
/** As a transport failure counts as 502 (sidecar §4.1), but for what another attempt cannot help. */
const RETRIED_FAILURES: ReadonlySet<LegFailure> = new Set<LegFailure>(["refused", "unreachable", "tls", "broken"]);

export type PrefillOutcome =
  /** 2xx; `body` is opened. */
  | { readonly kind: "answer"; readonly body: Buffer; readonly prefiller: Candidate }
  /** Failed, and the policy is to go on with the local engine. */
  | { readonly kind: "local" }
  /** The client has its answer, or has left. */
  | { readonly kind: "over" };

/**
 * Calls prefillers until one gives its last word or the stage's deadline is over, and reads its whole answer. A client that leaves ends the call at once:
 * nothing was handed over yet (DESIGN, decision 9).
 *
 * @param entries of the routing header, in the order in which they are asked
 */
export async function prefill(exchange: Exchange, entries: readonly string[], bodyFor: (prefiller: Candidate) => Buffer[]): Promise<PrefillOutcome> {
  const attempts = new PrefillAttempts(exchange, entries);
  for (;;) {
    const { candidate } = attempts;
    const result = candidate === null ? badAddress(exchange) : await callOnce(exchange, attempts, candidate, bodyFor(candidate));
    if (result.kind === "answer") return { kind: "answer", body: (await openedBody(result.answer)) ?? Buffer.alloc(0), prefiller: result.prefiller };
    if (exchange.gone.aborted) return { kind: "over" };
    if (await attempts.again(result.failure)) continue;
    if (exchange.gone.aborted) return { kind: "over" };
    return { kind: settlePrefillFailure(exchange, result.failure) ? "local" : "over" };
  }
}

/**
 * What becomes of a request whose prefill failed for good. A 4xx is the client's own error under either policy.
 *
 * @param decodesAlone the engine can do without; where it cannot, the failure is the client's answer whatever the policy
 * @returns whether to go on locally
 */
export function settlePrefillFailure(exchange: Exchange, { reason, final, respond }: PrefillFailure, decodesAlone = true): boolean {
  if (final) {
    respond();
    return false;
  }
  return goesOnLocally(exchange, "prefill", reason, respond, decodesAlone);
}

export type PrefillResult = { readonly kind: "answer"; readonly answer: Answer; readonly prefiller: Candidate } | { readonly kind: "failed"; readonly failure: PrefillFailure };

/** The header's current entry names nobody. */
export function badAddress(exchange: Exchange): Extract<PrefillResult, { kind: "failed" }> {
  const error = new ApiError(502, "the routing header does not name a prefiller as host:port", HEADER);
  return failed({ reason: "bad_address", respond: () => { exchange.fail(error); } });
}

export function failed(failure: Pick<PrefillFailure, "reason" | "respond"> & Partial<PrefillFailure>): Extract<PrefillResult, { kind: "failed" }> {
  return { kind: "failed", failure: { retried: false, broken: false, final: false, ...failure } };
}

export interface PrefillCall {
  readonly leg: Leg;
  /** Never rejects. */
  readonly result: Promise<PrefillResult>;
}

/**
 * Starts one attempt.
 *
 * @param body emptied when the answer is there
 * @param watch see callForAnswer: the answer is not kept then
 */
export function startPrefill(
  exchange: Exchange,
  attempts: PrefillAttempts,
  prefiller: Candidate,
  body: Buffer[],
  extraHeaders: FlatHeaders = [],
  watch?: (chunk: Buffer, headers: FlatHeaders) => LegError | null,
): PrefillCall {
  const { timeoutMs, fresh } = attempts;
  const { upstreams, metrics } = exchange.services;
  const upstream = upstreams.prefiller(prefiller);
  const headers = [...exchange.legHeaders(true), ...extraHeaders];
  const { leg, outcome } = callForAnswer(
    { stage: "prefill", upstream, method: "POST", target: exchange.target, headers, body, timeoutMs, timeoutUntil: "end", resendIfStale: true, fresh, trace: exchange.trace },
    metrics,
    watch,
  );
  const result = outcome.then((ended) => {
    // Who waits for decode's last event may hold the leg in hand.
    body.splice(0);
    return resultOf(exchange, prefiller, ended);
  });
  return { leg, result };
}

async function callOnce(exchange: Exchange, attempts: PrefillAttempts, prefiller: Candidate, body: Buffer[]): Promise<PrefillResult> {
  const { leg, result } = startPrefill(exchange, attempts, prefiller, body);
  const stop = (): void => {
    leg.abort("the client left");
  };
  if (exchange.gone.aborted) stop();
  exchange.gone.addEventListener("abort", stop, { once: true });
  const ended = await result;
  exchange.gone.removeEventListener("abort", stop);
  return ended;
}

function resultOf(exchange: Exchange, prefiller: Candidate, outcome: AnswerOutcome): PrefillResult {
  if (outcome.kind === "answer") {
    const { answer } = outcome;
    exchange.logBody("prefill's answer", [answer.body]);
    if (answer.status >= 200 && answer.status < 300) return { kind: "answer", answer, prefiller };
    return failed({
      reason: `status_${String(answer.status)}`,
      retried: RETRIED.has(answer.status),
      final: answer.status >= 400 && answer.status < 500,
      respond: () => {
        relayAnswer(exchange, answer);
      },
    });
  }
  const { error, leg } = outcome;
  if (error.failure !== "aborted") {
    exchange.log.warn({ requestId: exchange.requestId, prefiller: prefiller.authority, failure: error.failure, detail: error.detail }, "prefill leg ended");
  }
  return failed({
    reason: error.failure,
    // Once an answer has begun the prefiller was there and at work: that is its last word.
    retried: RETRIED_FAILURES.has(error.failure) && !leg.gotBytes,
    broken: error.failure === "broken",
    respond: () => {
      exchange.fail(errorOfLeg("prefill", error, HEADER));
    },
  });
}
