import type { BodyEditor } from "../body/edits.js";
import { bytesOf } from "../body/json-spans.js";
import { capToOneToken } from "../body/prefill-caps.js";
import type { BodyView } from "../body/types.js";
import { ApiError } from "../errors.js";
import type { EcParams, Exchange, ReadRequest } from "../exchange.js";
import { decodeLocally, decodeWithHandoff } from "../stages/decode.js";
import { goesOnLocally } from "../stages/failure.js";
import { prefill } from "../stages/prefill.js";
import { cachedTokensOf } from "../usage/usage-edit.js";
import type { KvConnector } from "./connector.js";
import { readHandoff } from "./handoff.js";

/** Tells a prefiller to keep its blocks for another engine; the six members and their values are the protocol's (NX-02). */
const PREFILL_PARAMS =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

/**
 * vLLM's NixlConnector in its serial READ mode (sidecar §4.1): prefill first, then decode with what the prefill answered, verbatim, once and at once. A decode
 * leg whose kept connection was closed begins again from prefill, once: whether its parameters were used is not known.
 */
export const nixlv2: KvConnector = {
  name: "nixlv2",
  async serve(exchange, request, prefiller, ecParams) {
    for (let round = 0; ; round++) {
      const outcome = await serveOnce(exchange, request, prefiller, ecParams, round === 0);
      if (outcome === "over") return;
      exchange.services.metrics.retries.inc({ stage: "decode", reason: "stale_connection" });
    }
  },
};

async function serveOnce(exchange: Exchange, request: ReadRequest, prefiller: string, ecParams: EcParams, mayRestart: boolean): Promise<"over" | "stale"> {
  const { view, shape } = request;
  const prefillBody = exchange.legBody(request, ecParams, (editor) => {
    capToOneToken(editor, view, shape);
    setTransferParams(editor, view, [Buffer.from(PREFILL_PARAMS)]);
  });
  const prefilled = await prefill(exchange, prefiller, prefillBody);
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
  return decodeWithHandoff(exchange, request, {
    ecParams,
    cachedTokens: cachedTokensOf(prefilled.body, handoff.answer, handoff.params, shape),
    mayRestart,
    edit: (editor) => {
      // Nobody reads this answer any more: one token is enough to have the blocks taken and freed.
      if (exchange.gone.aborted) capToOneToken(editor, view, shape);
      setTransferParams(editor, view, [params]);
    },
  });
}

/** Puts transfer parameters in the place of whatever a trusted client sent; those of others are gone already. */
function setTransferParams(editor: BodyEditor, view: BodyView, json: readonly Buffer[]): void {
  for (const member of view.members) if (member.name === "kv_transfer_params" && member.parent === "") editor.remove(member);
  editor.insert("kv_transfer_params", json);
}
