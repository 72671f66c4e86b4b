import { failoverOrder, isSameHost, listEntries, parseCandidate, pickPrefiller } from "../candidates.js";
import { kvSourceOf, pullAlone, pullsFromSources } from "../connectors/kv-source.js";
import { setTransferParams } from "../connectors/transfer-params.js";
import type { Engine } from "../engine.js";
import { ApiError } from "../errors.js";
import type { EcParams, Exchange, Job, ReadRequest } from "../exchange.js";
import { valuesOf } from "../headers.js";
import { decodeLocally } from "./decode.js";
import { encode, encodeProblem } from "./encode.js";

const RANK_HEADER = "x-data-parallel-host-port";

/** Carries out what the routing headers ask for: encoders, then the prefiller, then the engine beside us (sidecar §3, "Order of decisions"). */
export async function orchestrate(exchange: Exchange, request: ReadRequest): Promise<void> {
  const { options, metrics, kvConnector, ecConnector } = exchange.services;
  const { view } = request;

  const ranked = rankOf(exchange);
  if (ranked === null) {
    exchange.fail(new ApiError(400, "the routing header names no data-parallel rank of this pod", RANK_HEADER));
    return;
  }
  exchange.useEngine(ranked);

  const entries = listEntries(exchange.headers, "x-prefiller-host-port");
  exchange.trace.set({
    "llm_d.pd_proxy.connector": options.kvConnector,
    "llm_d.pd_proxy.kv_connector": options.kvConnector,
    "llm_d.pd_proxy.ec_connector": options.ecConnector,
    "llm_d.openai.api": request.shape,
    "llm_d.pd_proxy.prefill_candidates": entries.length,
    "llm_d.pd_proxy.decode.streaming": view.stream,
    "llm_d.pd_proxy.decode.data_parallel": options.dataParallelSize > 1,
    "llm_d.pd_proxy.decode.target": ranked.upstream.authority,
  });
  let prefiller = pickPrefiller(entries, options.enablePrefillerSampling);
  exchange.prefillAsked = prefiller !== undefined;
  if (prefiller !== undefined && !isAllowed(exchange, "prefill", prefiller)) {
    exchange.fail(new ApiError(403, "the routing header names a prefiller that is not allowed", "x-prefiller-host-port"));
    return;
  }
  if (prefiller !== undefined && view.neverSplit !== "") {
    // For pickers in front that do not know the rule (DESIGN, decision 8).
    metrics.neverSplit.inc({ reason: view.neverSplit });
    exchange.trace.set({ "llm_d.pd_proxy.reason": view.neverSplit });
    exchange.log.info({ requestId: exchange.requestId, reason: view.neverSplit }, "never split: run locally");
    prefiller = undefined;
  }
  if (ecConnector === null) tellIgnored(exchange, "encode", "x-encoder-hosts-ports", "--ec-connector");
  if (!pullsFromSources(options)) tellIgnored(exchange, "kv_source", "x-kv-cache-source-host-port", "--kv-connector=offloading, or --enable-p2p-pull with nixlv2");
  const encoderEntries = ecConnector === null || view.media.length === 0 ? [] : listEntries(exchange.headers, "x-encoder-hosts-ports");
  const encoders = encoderEntries.filter((entry) => isAllowed(exchange, "encode", entry));

  const problem = encoders.length === 0 ? null : encodeProblem(view, options);
  if (problem !== null) {
    metrics.bodiesRefused.inc({ reason: "media" });
    exchange.log.info({ requestId: exchange.requestId, reason: problem.message }, "body refused");
    exchange.fail(problem);
    return;
  }

  if ((prefiller !== undefined || encoders.length > 0) && !(await exchange.engine.mayServe())) {
    exchange.fail(new ApiError(503, "the decode engine is not ready: it does not accept connections"));
    return;
  }

  let ecParams: EcParams = null;
  if (ecConnector !== null && encoders.length > 0) {
    const outcome = await encode(exchange, request, ecConnector, encoders);
    if (outcome.kind === "over") return;
    ecParams = outcome.ecParams;
  }
  const source = view.neverSplit === "" ? kvSourceOf(exchange) : null;
  const kvSource = source !== null && isAllowed(exchange, "kv_source", source.authority) ? source : null;
  exchange.trace.set({
    "llm_d.pd_proxy.disaggregation_used": prefiller !== undefined,
    "llm_d.pd_proxy.prefill_target": prefiller ?? "",
    "llm_d.pd_proxy.kv_cache_source": kvSource?.authority ?? "",
    "llm_d.ec_proxy.encode_disaggregation_used": encoders.length > 0,
    "llm_d.ec_proxy.encoder_candidates": encoderEntries.length,
    "llm_d.ec_proxy.encoder_allowed": encoders.length,
  });
  if (prefiller !== undefined) {
    const [, ...others] = failoverOrder(entries, prefiller);
    const prefillers = [prefiller, ...(options.prefillMaxRetries > 0 ? others.filter((entry) => isAllowed(exchange, "prefill", entry)) : [])];
    await kvConnector.serve(exchange, { request, ecParams, kvSource, prefillers });
  } else {
    await decodeAlone(exchange, { request, ecParams, kvSource });
  }
}

/** The picker in front counts on a stage that this sidecar leaves out: served all the same, and told, since nothing else would show it. */
function tellIgnored(exchange: Exchange, stage: "encode" | "kv_source", header: string, flag: string): void {
  if (listEntries(exchange.headers, header).length === 0) return;
  const { metrics, ignoredPlanSeen } = exchange.services;
  metrics.plansIgnored.inc({ stage });
  if (ignoredPlanSeen[stage].due) exchange.log.warn({ requestId: exchange.requestId, header }, `a routing header is ignored: this sidecar runs without ${flag}`);
}

/** Whether the allowlist has an entry of a routing header; one that it has not is counted and told (sidecar §6). */
function isAllowed(exchange: Exchange, stage: "prefill" | "encode" | "kv_source", entry: string): boolean {
  const { allowlist, metrics } = exchange.services;
  if (allowlist.allows(entry)) return true;
  metrics.denied.inc({ stage });
  exchange.trace.set({ "llm_d.pd_proxy.denied_target": entry.slice(0, 256) });
  const [agent = ""] = valuesOf(exchange.headers, "user-agent");
  const client = exchange.request.socket.remoteAddress;
  exchange.log.warn({ requestId: exchange.requestId, stage, denied: entry.slice(0, 256), client, agent: agent.slice(0, 256), path: exchange.target.split("?")[0] }, "an endpoint that is not allowed");
  return false;
}

/** Decode without a prefiller, with a prefix that another pod holds where the picker has named one (OF-04). */
async function decodeAlone(exchange: Exchange, { request, ecParams, kvSource }: Omit<Job, "prefillers">): Promise<void> {
  const pull = kvSource === null ? null : pullAlone(exchange, kvSource);
  await decodeLocally(
    exchange,
    request,
    ecParams,
    pull === null
      ? {}
      : {
          edit: (editor) => {
            setTransferParams(editor, request.view, pull);
          },
        },
  );
}

/**
 * The engine of the rank that the deprecated header names, where the request came to the base listener; a rank's own listener does not look at it (sidecar §7).
 * Null: it names none of ours, which is told before anything is spent (D24).
 */
function rankOf(exchange: Exchange): Engine | null {
  const value = exchange.cameToBase ? (valuesOf(exchange.headers, RANK_HEADER)[0] ?? "").trim() : "";
  if (value === "") return exchange.engine;
  const named = parseCandidate(value);
  const found = exchange.services.engines.find((engine) => {
    const own = exchange.ownAddress(engine);
    return named !== null && named.port === own.port && isSameHost(named.host, own.host);
  });
  return found ?? null;
}
