import { answer } from "../client.js";
import { ApiError } from "../errors.js";
import type { Exchange } from "../exchange.js";
import { answerHeaders, valuesOf } from "../headers.js";
import type { Answer } from "../upstream/answer.js";
import type { LegError } from "../upstream/leg-error.js";

/**
 * What becomes of a request whose encode or prefill failed (`--on-stage-failure`): counted and logged, then either the failure is the client's answer or the
 * local engine does what it can alone.
 *
 * @param respond gives the client the failure
 * @param possible whether the engine can do anything alone
 * @returns whether to go on locally
 */
export function goesOnLocally(exchange: Exchange, stage: "encode" | "prefill" | "decode", reason: string, respond: () => void, possible = true): boolean {
  const { options, metrics, log } = exchange.services;
  const policy = possible ? options.onStageFailure : "fail";
  metrics.stageFailures.inc({ stage, reason, policy });
  log.warn({ requestId: exchange.requestId, stage, reason, policy }, policy === "local" ? "stage failed, going on locally" : "stage failed");
  if (policy === "local") return true;
  respond();
  return false;
}

/** Counts a decode leg that failed before its first content. `fallsBack`: the engine goes on without what was handed over; otherwise the failure is the client's. */
export function countDecodeFailure(exchange: Exchange, reason: string, fallsBack: boolean): void {
  const policy = fallsBack ? "local" : "fail";
  exchange.services.metrics.stageFailures.inc({ stage: "decode", reason, policy });
  exchange.log.warn({ requestId: exchange.requestId, stage: "decode", reason, policy }, fallsBack ? "decode failed, going on without a hand-off" : "decode failed");
}

/** Hands an engine's whole answer to the client: status, headers and body as they came (NX-14). */
export function relayAnswer(exchange: Exchange, { status, headers, body }: Answer): void {
  if (exchange.gone.aborted || exchange.response.headersSent) return;
  exchange.markAnswered();
  const kept = [...answerHeaders(headers, true), "content-length", String(body.length)];
  if (valuesOf(kept, "x-request-id").length === 0) kept.push("x-request-id", exchange.requestId);
  answer(exchange.response, status, kept, body);
}

/** The client's answer to a leg that ended without one. */
export function errorOfLeg(stage: string, error: LegError, param: string | null = null): ApiError {
  if (error.failure === "timeout") return new ApiError(504, `${stage} did not answer in time`, param);
  return new ApiError(502, `${stage} failed: ${FAILURE_TEXTS[error.failure]}`, param);
}

const FAILURE_TEXTS: Readonly<Record<LegError["failure"], string>> = {
  refused: "it refuses connections",
  unreachable: "it cannot be reached",
  tls: "no secure connection",
  broken: "the connection broke before its answer was whole",
  protocol: "its answer is not HTTP",
  too_large: "its answer is too large",
  error_event: "its stream told of an error",
  timeout: "it did not answer in time",
  aborted: "the call was ended",
};
