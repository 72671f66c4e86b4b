import { listEntries, pickPrefiller } from "../candidates.js";
import { ApiError } from "../errors.js";
import type { EcParams, Exchange, ReadRequest } from "../exchange.js";
import { decodeLocally } from "./decode.js";
import { encode } from "./encode.js";

/** Carries out what the routing headers ask for: encoders, then the prefiller, then the engine beside us (sidecar §3, "Order of decisions"). */
export async function orchestrate(exchange: Exchange, request: ReadRequest): Promise<void> {
  const { options, metrics, engine, kvConnector, ecConnector } = exchange.services;
  const { view } = request;

  let prefiller = pickPrefiller(listEntries(exchange.headers, "x-prefiller-host-port"), options.enablePrefillerSampling);
  if (prefiller !== undefined && view.neverSplit !== "") {
    // For pickers in front that do not know the rule (DESIGN, decision 8).
    metrics.neverSplit.inc({ reason: view.neverSplit });
    exchange.log.info({ requestId: exchange.requestId, reason: view.neverSplit }, "never split: run locally");
    prefiller = undefined;
  }
  const encoders = ecConnector === null || view.media.length === 0 ? [] : listEntries(exchange.headers, "x-encoder-hosts-ports");

  if ((prefiller !== undefined || encoders.length > 0) && !(await engine.mayServe())) {
    exchange.fail(new ApiError(503, "the decode engine is not ready: it does not accept connections"));
    return;
  }

  let ecParams: EcParams = null;
  if (ecConnector !== null && encoders.length > 0) {
    const outcome = await encode(exchange, request, ecConnector, encoders);
    if (outcome.kind === "over") return;
    ecParams = outcome.ecParams;
  }
  if (prefiller === undefined) await decodeLocally(exchange, request, ecParams);
  else await kvConnector.serve(exchange, request, prefiller, ecParams);
}
