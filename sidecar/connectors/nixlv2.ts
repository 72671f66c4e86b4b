import { bytesOf } from "../body/json-spans.js";
import { capToOneToken } from "../body/prefill-caps.js";
import type { Candidate } from "../candidates.js";
import { ApiError } from "../errors.js";
import type { Exchange, Job } from "../exchange.js";
import { decodeLocally, decodeWithHandoff } from "../stages/decode.js";
import { goesOnLocally } from "../stages/failure.js";
import { prefill } from "../stages/prefill.js";
import { cachedTokensOf } from "../usage/usage-edit.js";
import type { KvConnector } from "./connector.js";
import { readHandoff } from "./handoff.js";
import { pullMember } from "./kv-source.js";
import { setTransferParams } from "./transfer-params.js";

/** Tells a prefiller to keep its blocks for another engine; the six members and their values are the protocol's (NX-02). */
const PREFILL_PARAMS =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

/**
 * vLLM's NixlConnector in its serial READ mode (sidecar §4.1): prefill first, then decode with what the prefill answered, verbatim, once and at once. A decode
 * leg whose kept connection was closed begins again from prefill, once: whether its parameters were used is not known.
 *
 * Blocks of an abandoned prefill. Before its answer: its call is closed, and the engine frees what it has at once. After it: they stay pinned until a decode
 * engine has read them, so that is told although nobody waits for its answer, with one token to make (DESIGN, decision 9). Where decode cannot be told any
 * more (it failed, its parameters are unusable, the answer was lost on the way) nothing frees them before the prefiller's lease is over (real-engine §4).
 */
export const nixlv2: KvConnector = {
  name: "nixlv2",
  async serve(exchange, job) {
    for (let round = 0; ; round++) {
      const outcome = await serveOnce(exchange, job, round === 0);
      if (outcome === "over") return;
      exchange.services.metrics.retries.inc({ stage: "decode", reason: "stale_connection" });
    }
  },
};

async function serveOnce(exchange: Exchange, { request, ecParams, prefillers, kvSource }: Job, mayRestart: boolean): Promise<"over" | "stale"> {
  const { view, shape } = request;
  const { options } = exchange.services;
  const prefillBody = (prefiller: Candidate): Buffer[] =>
    exchange.legBody(request, ecParams, (editor) => {
      const pull = pullMember(kvSource, prefiller, options);
      capToOneToken(editor, view, shape);
      setTransferParams(editor, view, pull === null ? PREFILL_PARAMS : `${PREFILL_PARAMS.slice(0, -1)},${pull}}`);
    });
  const prefilled = await prefill(exchange, prefillers, prefillBody);
  if (prefilled.kind === "over") return "over";
  if (prefilled.kind === "local") {
    await decodeLocally(exchange, request, ecParams);
    return "over";
  }

  const handoff = readHandoff(prefilled.body);
  if (handoff.kind !== "handoff") {
    const reason = handoff.kind === "unreadable" ? "unreadable" : handoff.reason;
    exchange.services.metrics.handoffInvalid.inc({ reason });
    const local = goesOnLocally(exchange, "prefill", "handoff_invalid", () => {
      exchange.fail(new ApiError(502, `prefill answered without a usable hand-off (handoff_invalid: ${reason})`, "kv_transfer_params"));
    });
    if (local) await decodeLocally(exchange, request, ecParams);
    return "over";
  }

  const params = bytesOf(prefilled.body, handoff.params);
  const outcome = await decodeWithHandoff(exchange, request, {
    ecParams,
    cachedTokens: cachedTokensOf(prefilled.body, handoff.answer, handoff.params, shape),
    mayRestart,
    mayFallBack: options.onStageFailure === "local",
    prefilledBy: prefilled.prefiller.authority,
    edit: (editor) => {
      // Nobody reads this answer any more: one token is enough to have the blocks taken and freed.
      if (exchange.gone.aborted) capToOneToken(editor, view, shape);
      setTransferParams(editor, view, [params]);
    },
  });
  if (outcome === "stale") return "stale";
  // The parameters may be used: the engine computes the prompt itself.
  if (outcome === "failed") await decodeLocally(exchange, request, ecParams);
  return "over";
}
