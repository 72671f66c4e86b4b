import type { BodyEditor } from "../body/edits.js";
import type { EcParams, Exchange, ReadRequest } from "../exchange.js";
import { relay, type RelayOutcome } from "./relay.js";

/** Decode by the engine alone: the client's own body, with embeddings where they were made. */
export async function decodeLocally(exchange: Exchange, request: ReadRequest, ecParams: EcParams): Promise<void> {
  await relay(exchange, {
    stage: "decode",
    method: "POST",
    headers: exchange.legHeaders(false),
    body: exchange.legBody(request, ecParams),
    shape: request.shape,
    cachedTokens: null,
    handoff: false,
    mayRestart: false,
  });
}

export interface HandoffDecode {
  readonly ecParams: EcParams;
  /** What the connector writes into the body. */
  readonly edit: (editor: BodyEditor) => void;
  /** See RelayPlan. */
  readonly cachedTokens: string | null;
  readonly mayRestart: boolean;
}

/** Decode that takes over what prefill has made. */
export function decodeWithHandoff(exchange: Exchange, request: ReadRequest, { ecParams, edit, cachedTokens, mayRestart }: HandoffDecode): Promise<RelayOutcome> {
  return relay(exchange, {
    stage: "decode",
    method: "POST",
    headers: exchange.legHeaders(cachedTokens !== null),
    body: exchange.legBody(request, ecParams, edit),
    shape: request.shape,
    cachedTokens,
    handoff: true,
    mayRestart,
  });
}
