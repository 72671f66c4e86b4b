import type { BodyEditor } from "../body/edits.js";
import type { ApiShape } from "../body/types.js";
import type { Candidate } from "../candidates.js";
import type { Exchange, Job } from "../exchange.js";
import { type FlatHeaders, isEventStream } from "../headers.js";
import { LegError } from "../upstream/leg-error.js";
import { PrefillAttempts, type PrefillFailure } from "./attempts.js";
import { decodeLocally } from "./decode.js";
import { ContentWatch } from "./opening-events.js";
import { badAddress, type PrefillResult, settlePrefillFailure, startPrefill } from "./prefill.js";
import { startRelay } from "./relay.js";

/** Both legs of one attempt, with keys that no other attempt has: what joins two legs is used once. */
export interface ConcurrentLegs {
  readonly kind: "legs";
  readonly prefillBody: Buffer[];
  readonly prefillHeaders: FlatHeaders;
  /** Writes the decode leg's parameters. */
  readonly decode: (editor: BodyEditor) => void;
}

/** What is particular to a connector whose legs run at the same time. */
export interface ConcurrentWay {
  /** Prefill answers before decode has read its blocks, and keeps them until then. */
  readonly keepsBlocks: boolean;
  /** The engine can serve the request without a prefiller. */
  readonly decodesAlone: boolean;
  /** Never rejects. */
  legs(prefiller: Candidate): Promise<ConcurrentLegs | Extract<PrefillResult, { kind: "failed" }>>;
  prefillFailed?(prefiller: Candidate): void;
}

type Ended =
  | { readonly kind: "over" | "stale" | "decode_failed" }
  | { readonly kind: "prefill_failed"; readonly failure: PrefillFailure };

/**
 * Prefill and decode at the same time (sidecar §4.3 … §4.5), with the prefill watched (D3): while nothing of decode has reached the client, a failed prefill ends
 * it and is the answer, or is tried again with new keys, or leaves the engine to compute alone. What decode opens with is kept back until prefill has answered or
 * content proves that its KV is there. Once decode gives content its answer stands, and prefill ends by itself. A client that leaves ends both.
 */
export async function serveConcurrently(exchange: Exchange, job: Job, way: ConcurrentWay): Promise<void> {
  const attempts = new PrefillAttempts(exchange, job.prefillers);
  exchange.trace.set({ "llm_d.pd_proxy.concurrent_pd": true });
  for (let mayRestart = true; ; ) {
    const ended = await tryOnce(exchange, job, way, attempts, mayRestart);
    if (ended.kind === "over" || exchange.gone.aborted) return;
    if (ended.kind === "stale") {
      mayRestart = false;
      exchange.services.metrics.retries.inc({ stage: "decode", reason: "stale_connection" });
      continue;
    }
    if (ended.kind === "prefill_failed") {
      if (await attempts.again(ended.failure)) continue;
      if (exchange.gone.aborted || !settlePrefillFailure(exchange, ended.failure, way.decodesAlone)) return;
    }
    await decodeLocally(exchange, job.request, job.ecParams);
    return;
  }
}

async function tryOnce(exchange: Exchange, job: Job, way: ConcurrentWay, attempts: PrefillAttempts, mayRestart: boolean): Promise<Ended> {
  const { candidate } = attempts;
  const legs = candidate === null ? badAddress(exchange) : await way.legs(candidate);
  if (candidate === null || legs.kind === "failed") return { kind: "prefill_failed", failure: legs.kind === "failed" ? legs.failure : badAddress(exchange).failure };
  if (exchange.gone.aborted) return { kind: "over" };

  const { shape } = job.request;
  const prefill = startPrefill(exchange, attempts, candidate, legs.prefillBody, legs.prefillHeaders, errorEventWatch(shape));
  const prefilled: { result: PrefillResult | null } = { result: null };
  const decode = startRelay(exchange, {
    stage: "decode",
    method: "POST",
    // Its events are looked at, so they must not come compressed.
    headers: exchange.legHeaders(true),
    body: exchange.legBody(job.request, job.ecParams, legs.decode),
    shape,
    cachedTokens: null,
    handoff: true,
    mayRestart,
    mayFallBack: way.decodesAlone && exchange.services.options.onStageFailure === "local",
    partner: {
      get undecided() {
        return prefilled.result === null;
      },
      get blocksHeld() {
        return way.keepsBlocks && prefilled.result?.kind === "answer";
      },
    },
    prefilledBy: candidate.authority,
  });
  const watched = prefill.result.then((result) => {
    prefilled.result = result;
    if (result.kind === "answer") {
      decode.partnerDone();
      return;
    }
    if (result.failure.reason !== "aborted") way.prefillFailed?.(candidate);
    if (!decode.cancel("prefill failed")) noteLate(exchange, result.failure, decode.endedWell);
  });
  const outcome = await decode.outcome;
  // A prefill that nobody will decode from has no purpose: decode failed, or the client left. One whose decode has its KV already is left to end by itself (SG-02).
  if (prefilled.result === null && !decode.endedWell) prefill.leg.abort("decode has ended");
  await watched;

  switch (outcome) {
    case "cancelled":
      return prefilled.result?.kind === "failed" ? { kind: "prefill_failed", failure: prefilled.result.failure } : { kind: "over" };
    case "stale":
      return { kind: "stale" };
    case "failed":
      return { kind: "decode_failed" };
    case "over":
    case "missed":
      return { kind: "over" };
  }
}

/** A prefill that failed although decode has answered already: the answer stands. Ended by ourselves it is no failure. */
function noteLate(exchange: Exchange, { reason }: PrefillFailure, decoded: boolean): void {
  if (reason === "aborted") return;
  exchange.services.metrics.stageFailures.inc({ stage: "prefill", reason, policy: decoded ? "late" : "fail" });
  exchange.log.warn({ requestId: exchange.requestId, stage: "prefill", reason }, "prefill failed after decode had answered");
}

/** A streamed prefill tells of its failure in an event, behind a 200. */
function errorEventWatch(shape: ApiShape): (chunk: Buffer, headers: FlatHeaders) => LegError | null {
  let watch: ContentWatch | null = null;
  return (chunk, headers) => {
    if (!isEventStream(headers)) return null;
    watch ??= new ContentWatch(shape);
    return watch.push(chunk) === "error" ? new LegError("error_event", "an error event in the answer") : null;
  };
}
