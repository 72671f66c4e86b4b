/**
 * OffloadingConnector: parameters keyed by role (sidecar §4.5). The prefill leg names who will read, the decode leg where to read, and a pull names where a
 * cached prefix may be fetched; in the seed's dialect `decode`, `prefill`, `p2p`, in the newer one `remote_decoder`, `remote_prefiller`,
 * `remote_kv_source`. A decoder whose KV does not come computes the prompt itself.
 */

import { oneTokenProblem, streamProblem } from "../api/caps.js";
import type { GenerationRequest } from "../api/request.js";
import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { ApiError } from "../errors.js";
import { isObject, member, type JsonObject } from "../json.js";
import { joinHostPort } from "../options.js";
import { PeerUnreachable } from "../peer.js";
import { newHandoff, takeKv } from "./meeting.js";
import { pinAndOffer } from "./pinned-offer.js";
import { RendezvousServer } from "./rendezvous.js";
import { NOTHING_HELD, type Finished, type KvConnector, type LoadedKv, type Sequence } from "./types.js";

interface RoleKeys {
  readonly decoder: string;
  readonly prefiller: string;
  readonly source: string;
}

const DIALECTS: Readonly<Record<"seed" | "v2", RoleKeys>> = {
  seed: { decoder: "decode", prefiller: "prefill", source: "p2p" },
  v2: { decoder: "remote_decoder", prefiller: "remote_prefiller", source: "remote_kv_source" },
};

interface Peer {
  readonly requestId: string;
  readonly host: string;
  readonly port: number;
}

export class OffloadingConnector implements KvConnector {
  readonly name = "offloading";
  private server: RendezvousServer | null = null;
  private removeHolder: () => void = () => undefined;

  constructor(private readonly services: EngineServices) {}

  get bootstrapPort(): number {
    return this.server?.port ?? 0;
  }

  async start(): Promise<void> {
    const { options, pool } = this.services;
    this.server = await RendezvousServer.acquire(options.host, options.bootstrapPort, 1);
    this.removeHolder = this.server.addHolder((contents) => pool.match(contents));
  }

  async close(): Promise<void> {
    this.removeHolder();
    await this.server?.release();
    this.server = null;
  }

  check(request: GenerationRequest, leg: Leg): void {
    const problem = this.problem(request, leg);
    if (problem === null) return;
    noteError(leg.record, problem);
    throw new ApiError(400, problem, "kv_transfer_params");
  }

  loads(sequence: Sequence): boolean {
    const params = sequence.request.kvTransferParams;
    return params !== null && (this.find(params, "prefiller") !== undefined || this.find(params, "source") !== undefined);
  }

  async load(sequence: Sequence, leg: Leg): Promise<LoadedKv | null> {
    const params = sequence.request.kvTransferParams ?? {};
    const prefiller = readPeer(this.find(params, "prefiller"));
    if (prefiller !== null) {
      const place = { host: prefiller.host, port: prefiller.port, key: requestKey(prefiller.requestId, sequence) };
      return takeKv("offloading", place, sequence, leg, this.services, true);
    }
    const source = readPeer(this.find(params, "source"));
    return source === null ? null : this.pull(source, sequence, leg);
  }

  finished(sequence: Sequence, leg: Leg): Promise<Finished> {
    const decoder = this.find(sequence.request.kvTransferParams ?? {}, "decoder");
    const id = isObject(decoder) ? member(decoder, "kv_request_id") : undefined;
    if (typeof id !== "string" || this.server === null) return Promise.resolve(NOTHING_HELD);
    pinAndOffer(this.services, this.server, requestKey(id, sequence), sequence, leg);
    return Promise.resolve({ params: null, held: true });
  }

  /** Fetches the blocks of the prompt's start that the source has in its cache. */
  private async pull(source: Peer, sequence: Sequence, leg: Leg): Promise<LoadedKv | null> {
    const { peers, options } = this.services;
    const peer = joinHostPort(source.host, source.port);
    const handoff = newHandoff("offloading", peer);
    leg.record.handoff ??= handoff;
    leg.record.outbound.push(peer);
    try {
      const answer = await peers.call(source.host, source.port, "/_sim/rendezvous/prefix", { contents: [...sequence.layout.contents] }, options.handshakeTimeoutMs, leg.signal);
      const blocks = isObject(answer.json) ? member(answer.json, "blocks") : undefined;
      const full = Math.floor((sequence.promptTokens - 1) / options.blockSize);
      const there = Math.min(typeof blocks === "number" ? blocks : 0, full);
      handoff.found = there > 0;
      handoff.correct = true;
      handoff.blocks = Math.max(0, there - sequence.hitBlocks);
      handoff.tokens = handoff.blocks * options.blockSize;
      return { contents: sequence.layout.contents.slice(sequence.hitBlocks, sequence.hitBlocks + handoff.blocks), tokens: handoff.tokens, source: "external_kv_transfer", wrong: null };
    } catch (error) {
      if (!(error instanceof PeerUnreachable)) throw error;
      handoff.reason = `source ${error.message}`;
      handoff.recomputed = true;
      handoff.correct = true;
      return null;
    }
  }

  private dialects(): RoleKeys[] {
    const { kvParamsDialect } = this.services.options;
    return kvParamsDialect === "any" ? [DIALECTS.seed, DIALECTS.v2] : [DIALECTS[kvParamsDialect]];
  }

  /** Keys of the other dialect mean nothing to an engine: it silently does not pull (sidecar §10.1). */
  private find(params: JsonObject, role: keyof RoleKeys): JsonObject[string] | undefined {
    for (const keys of this.dialects()) {
      const value = member(params, keys[role]);
      if (value !== undefined) return value;
    }
    return undefined;
  }

  private problem(request: GenerationRequest, leg: Leg): string | null {
    if (this.services.options.strictness === "real") return null;
    const params = request.kvTransferParams;
    if (params !== null) {
      const both = Object.keys(DIALECTS.seed).some((role) => {
        const key = role as keyof RoleKeys;
        return member(params, DIALECTS.seed[key]) !== undefined && member(params, DIALECTS.v2[key]) !== undefined;
      });
      if (both) return "kv_transfer_params carries the keys of both dialects";
    }
    if (leg.stage === "prefill") {
      const decoder = this.find(params ?? {}, "decoder");
      if (!isObject(decoder) || typeof member(decoder, "kv_request_id") !== "string") return "kv_transfer_params must name the decoder with a kv_request_id";
      if (member(decoder, "remote_host") !== undefined) return "kv_transfer_params of a prefill leg must hold no address of the decoder";
      return streamProblem(request) ?? oneTokenProblem(request);
    }
    const prefiller = this.find(params ?? {}, "prefiller");
    if (prefiller !== undefined && readPeer(prefiller) === null) return "kv_transfer_params must give the prefiller's kv_request_id, remote_host and remote_port";
    return null;
  }
}

function readPeer(value: JsonObject[string] | undefined): Peer | null {
  if (!isObject(value)) return null;
  const id = member(value, "kv_request_id");
  const host = member(value, "remote_host");
  const port = member(value, "remote_port");
  if (typeof id !== "string" || typeof host !== "string" || typeof port !== "number" || !Number.isInteger(port)) return null;
  return { requestId: id, host, port };
}

function requestKey(id: string, sequence: Sequence): string {
  return `request:${id}:${String(sequence.index)}`;
}
