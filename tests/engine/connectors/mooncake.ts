/**
 * mooncake: both legs carry the same `transfer_id`, the decode leg also says where the prefiller's bootstrap server is and which engine it was; the
 * bootstrap server's `GET /query` lists the engines by rank (sidecar §4.4).
 */

import { oneTokenProblem, streamProblem } from "../api/caps.js";
import type { GenerationRequest } from "../api/request.js";
import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { ApiError } from "../errors.js";
import { member, type JsonObject } from "../json.js";
import { takeKv } from "./meeting.js";
import { truthy } from "./nixl.js";
import { pinAndOffer } from "./pinned-offer.js";
import { RendezvousServer } from "./rendezvous.js";
import { NOTHING_HELD, type Finished, type KvConnector, type LoadedKv, type Sequence } from "./types.js";

function transferId(params: JsonObject | null): string | null {
  const id = member(params ?? {}, "transfer_id");
  return typeof id === "string" && id !== "" ? id : null;
}

/** `http://host:port` of a bootstrap server, null when it is none. */
function bootstrapAddress(params: JsonObject): { host: string; port: number } | null {
  const text = member(params, "remote_bootstrap_addr");
  if (typeof text !== "string" || !URL.canParse(text)) return null;
  const url = new URL(text);
  return url.protocol === "http:" && url.port !== "" ? { host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(url.port) } : null;
}

export class MooncakeConnector implements KvConnector {
  readonly name = "mooncake";
  private server: RendezvousServer | null = null;

  constructor(private readonly services: EngineServices) {}

  get bootstrapPort(): number {
    return this.server?.port ?? 0;
  }

  async start(): Promise<void> {
    const { options } = this.services;
    if (options.role !== "decode") this.server = await RendezvousServer.acquire(options.host, options.bootstrapPort, options.dataParallelSize);
  }

  async close(): Promise<void> {
    await this.server?.release();
    this.server = null;
  }

  check(request: GenerationRequest, leg: Leg): void {
    const problem = this.problem(request, leg);
    if (problem === null) return;
    noteError(leg.record, problem);
    throw new ApiError(400, problem, problem.split(/[ :]/, 1)[0] ?? null);
  }

  loads(sequence: Sequence): boolean {
    return truthy(member(sequence.request.kvTransferParams ?? {}, "do_remote_prefill"));
  }

  load(sequence: Sequence, leg: Leg): Promise<LoadedKv> {
    const params = sequence.request.kvTransferParams ?? {};
    const address = bootstrapAddress(params) ?? { host: "", port: 0 };
    return takeKv("mooncake", { ...address, key: transferKey(transferId(params) ?? "", sequence) }, sequence, leg, this.services, false);
  }

  finished(sequence: Sequence, leg: Leg): Promise<Finished> {
    const params = sequence.request.kvTransferParams;
    const id = transferId(params);
    if (id === null || this.server === null || !truthy(member(params ?? {}, "do_remote_decode"))) return Promise.resolve(NOTHING_HELD);
    pinAndOffer(this.services, this.server, transferKey(id, sequence), sequence, leg);
    return Promise.resolve({ params: null, held: true });
  }

  private problem(request: GenerationRequest, leg: Leg): string | null {
    const params = request.kvTransferParams;
    if (leg.stage === "decode") {
      if (params === null || !truthy(member(params, "do_remote_prefill"))) return null;
      if (transferId(params) === null) return "kv_transfer_params.transfer_id must be a non-empty string";
      if (bootstrapAddress(params) === null) return "kv_transfer_params.remote_bootstrap_addr must be http://host:port";
      return typeof member(params, "remote_engine_id") === "string" ? null : "kv_transfer_params.remote_engine_id must be a string";
    }
    if (this.services.options.strictness === "real") return null;
    if (member(params ?? {}, "do_remote_decode") !== true) return "kv_transfer_params.do_remote_decode must be true";
    if (member(params ?? {}, "do_remote_prefill") !== false) return "kv_transfer_params.do_remote_prefill must be false";
    if (transferId(params) === null) return "kv_transfer_params.transfer_id must be a non-empty string";
    const rank = Number(leg.header("x-data-parallel-rank") ?? Number.NaN);
    if (!Number.isInteger(rank) || rank < 0 || rank >= (this.server?.engineIds.length ?? 1)) return "x-data-parallel-rank must be one of the ranks of /query";
    return streamProblem(request) ?? oneTokenProblem(request);
  }
}

function transferKey(id: string, sequence: Sequence): string {
  return `transfer:${id}:${String(sequence.index)}`;
}
