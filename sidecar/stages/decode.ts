import type { BodyEditor } from "../body/edits.js";
import type { EcParams, Exchange, ReadRequest } from "../exchange.js";
import { chunksOf, decodeInChunks } from "./chunked.js";
import { relay, type RelayOutcome } from "./relay.js";

export interface LocalDecode {
  /** What the connector writes into the body. */
  readonly edit?: (editor: BodyEditor) => void;
  /** Who computed the prompt, where that was not this engine alone. */
  readonly prefilledBy?: string;
  /** See RelayPlan. */
  readonly probe?: boolean;
}

/** Decode without anything that is used up: the client's own body, with embeddings where they were made. */
export async function decodeLocally(exchange: Exchange, request: ReadRequest, ecParams: EcParams, { edit, prefilledBy, probe = false }: LocalDecode = {}): Promise<RelayOutcome> {
  const plan = {
    cachedTokens: null,
    handoff: false,
    mayRestart: false,
    mayFallBack: false,
    prefilledBy: prefilledBy ?? (exchange.prefillAsked ? "local" : null),
  };
  const chunks = probe ? null : chunksOf(exchange, request);
  if (chunks !== null) return decodeInChunks(exchange, { ...plan, request, ecParams, ...(edit === undefined ? {} : { edit }) }, chunks);
  return relay(exchange, {
    ...plan,
    stage: "decode",
    method: "POST",
    headers: exchange.legHeaders(probe),
    body: exchange.legBody(request, ecParams, edit),
    shape: request.shape,
    probe,
  });
}

export interface HandoffDecode {
  readonly ecParams: EcParams;
  /** What the connector writes into the body. */
  readonly edit: (editor: BodyEditor) => void;
  /** See RelayPlan. */
  readonly cachedTokens: string | null;
  readonly mayRestart: boolean;
  readonly mayFallBack: boolean;
  readonly prefilledBy: string | null;
}

/** Decode that takes over what prefill has made. */
export function decodeWithHandoff(exchange: Exchange, request: ReadRequest, { ecParams, edit, ...plan }: HandoffDecode): Promise<RelayOutcome> {
  const chunks = exchange.gone.aborted ? null : chunksOf(exchange, request);
  if (chunks !== null) return decodeInChunks(exchange, { ...plan, handoff: true, request, ecParams, edit }, chunks);
  return relay(exchange, {
    ...plan,
    stage: "decode",
    method: "POST",
    headers: exchange.legHeaders(plan.cachedTokens !== null),
    body: exchange.legBody(request, ecParams, edit),
    shape: request.shape,
    handoff: true,
  });
}
