/**
 * shared-storage: KV lies in a store that all engines see, found by content; no parameters on any leg, order is all that matters (real-engine §5). With
 * `cache_hit_threshold` an engine answers `cache_threshold` instead of computing when too little of the prompt is there (sidecar §4.2).
 */

import { oneTokenProblem, streamProblem } from "../api/caps.js";
import type { GenerationRequest } from "../api/request.js";
import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { ApiError } from "../errors.js";
import { isObject, member } from "../json.js";
import { splitHostPort } from "../options.js";
import { PeerUnreachable } from "../peer.js";
import { newHandoff } from "./meeting.js";
import { NOTHING_HELD, type Finished, type KvConnector, type LoadedKv, type Sequence } from "./types.js";

export class SharedStorageConnector implements KvConnector {
  readonly name = "shared-storage";

  constructor(private readonly services: EngineServices) {}

  check(request: GenerationRequest, leg: Leg): void {
    if (leg.stage !== "prefill" || this.services.options.strictness === "real") return;
    const threshold = request.cacheHitThreshold;
    const problem =
      streamProblem(request) ??
      oneTokenProblem(request) ??
      (request.kvTransferParams !== null ? "kv_transfer_params has no place in a leg of this connector" : null) ??
      (threshold !== null && threshold !== 0 ? "cache_hit_threshold must be 0 on a prefill leg" : null);
    if (problem === null) return;
    noteError(leg.record, problem);
    throw new ApiError(400, problem, problem.split(/[ :]/, 1)[0] ?? null);
  }

  threshold(request: GenerationRequest): number | null {
    return request.cacheHitThreshold;
  }

  loads(sequence: Sequence): boolean {
    return sequence.request.sampling.promptLogprobs === null;
  }

  async load(sequence: Sequence, leg: Leg): Promise<LoadedKv | null> {
    const { options } = this.services;
    // Whole blocks only, and at least one token is computed here.
    const full = Math.floor((sequence.promptTokens - 1) / options.blockSize);
    const wanted = sequence.layout.contents.slice(sequence.hitBlocks, full);
    if (wanted.length === 0) return null;
    const found = await this.stored(wanted, leg);
    if (leg.stage === "decode") {
      const handoff = newHandoff("shared-storage", "");
      handoff.found = found > 0;
      handoff.correct = true;
      handoff.blocks = found;
      handoff.tokens = found * options.blockSize;
      handoff.recomputed = found < wanted.length;
      leg.record.handoff ??= handoff;
    }
    return { contents: wanted.slice(0, found), tokens: found * options.blockSize, source: "external_unspecified", wrong: null };
  }

  prefilled(sequence: Sequence): void {
    const full = Math.floor(sequence.promptTokens / this.services.options.blockSize);
    this.services.directory.putKv(sequence.layout.contents.slice(0, full));
  }

  finished(): Promise<Finished> {
    return Promise.resolve(NOTHING_HELD);
  }

  /** How many of the blocks, from the first on, the store has. */
  private async stored(wanted: readonly string[], leg: Leg): Promise<number> {
    const { directory, options, peers } = this.services;
    let found = 0;
    while (found < wanted.length && directory.hasKv(wanted[found] ?? "")) found += 1;
    for (const address of options.kvStores) {
      const store = splitHostPort(address);
      if (found === wanted.length || store === null) continue;
      try {
        const answer = await peers.call(store.host, store.port, "/_sim/kv/match", { contents: [...wanted] }, options.handshakeTimeoutMs, leg.signal);
        const blocks = isObject(answer.json) ? member(answer.json, "blocks") : undefined;
        if (typeof blocks === "number") found = Math.max(found, blocks);
      } catch (error) {
        if (!(error instanceof PeerUnreachable)) throw error;
      }
    }
    return found;
  }
}
