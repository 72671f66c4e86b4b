/**
 * A prefill or decode engine that takes embeddings from encoders. Each reference of `ec_transfer_params` is checked with the encoder that it names, needed
 * or not; what an item's tokens need is taken from there, from the shared store, or encoded here, and the record says which.
 */

import type { GenerationRequest } from "../api/request.js";
import { sleep } from "../core/time.js";
import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { canonical, isObject, member, type Json, type JsonObject } from "../json.js";
import { distinctMedia, type MediaItem, type PlacedMedia } from "../media.js";
import { joinHostPort, splitHostPort } from "../options.js";
import { PeerUnreachable } from "../peer.js";
import type { MediaRecord } from "../types.js";

interface Checked {
  readonly reference: MediaRecord["reference"];
  readonly peer: string | null;
}

const NO_REFERENCE: Checked = { reference: "none", peer: null };
/** Most embeddings that a consumer keeps; the oldest go first. */
const MOST_CACHED = 1024;

export class EmbeddingConsumer {
  private readonly cache = new Set<string>();

  constructor(private readonly services: EngineServices) {}

  /**
   * @param covered prompt tokens, from the start, whose KV needs no computing
   */
  async resolve(request: GenerationRequest, media: readonly PlacedMedia[], covered: number, leg: Leg): Promise<void> {
    const checked = await this.checkReferences(request, media, leg);
    for (const item of distinctMedia(media)) {
      const check = checked.get(item.hash) ?? NO_REFERENCE;
      const needed = media.some((place) => place.item.hash === item.hash && place.start + place.length > covered);
      const [source, peer] = needed ? await this.fetch(item, check, leg) : (["kv", check.peer] as const);
      leg.record.media.push({ hash: item.hash, modality: item.modality, source, reference: check.reference, peer });
      this.remember(item.hash);
    }
  }

  clear(): void {
    this.cache.clear();
  }

  private remember(hash: string): void {
    this.cache.delete(hash);
    this.cache.add(hash);
    const oldest = this.cache.values().next();
    if (this.cache.size > MOST_CACHED && oldest.done !== true) this.cache.delete(oldest.value);
  }

  private async fetch(item: MediaItem, check: Checked, leg: Leg): Promise<readonly [MediaRecord["source"], string | null]> {
    const { options, directory } = this.services;
    if (this.cache.has(item.hash)) return ["cache", check.peer];
    if (check.reference === "found" && options.ecConnector !== "ec-example") return ["reference", check.peer];
    if (options.ecConnector !== "ec-nixl") {
      const stored = directory.embedding(item.hash);
      if (stored !== undefined) return ["store", stored.writer];
      for (const address of options.encoders) {
        const parsed = splitHostPort(address);
        if (parsed !== null && (await this.ask(parsed.host, parsed.port, item.hash, leg)) !== null) return ["store", address];
      }
    }
    await sleep(options.msPerMediaItem, leg.signal);
    return ["local", null];
  }

  private async checkReferences(request: GenerationRequest, media: readonly PlacedMedia[], leg: Leg): Promise<Map<string, Checked>> {
    const checked = new Map<string, Checked>();
    for (const [hash, entry] of Object.entries(request.ecTransferParams ?? {})) {
      if (!media.some((place) => place.item.hash === hash)) noteError(leg.record, `ec_transfer_params.${hash}: no such item in the request`);
      const check = await this.checkReference(hash, entry, leg);
      checked.set(hash, check);
      if (check.reference !== "found" && check.reference !== "none") noteError(leg.record, `ec_transfer_params.${hash}: ${check.reference}`);
    }
    return checked;
  }

  private async checkReference(hash: string, entry: Json, leg: Leg): Promise<Checked> {
    if (!isObject(entry)) return { reference: "malformed", peer: null };
    const host = member(entry, "peer_host");
    const port = Number(member(entry, "peer_port") ?? Number.NaN);
    // ec-example's entries name no peer: the store is asked by content.
    if (host === undefined && member(entry, "peer_port") === undefined) return NO_REFERENCE;
    if (typeof host !== "string" || !Number.isInteger(port) || port < 1 || port > 65535) return { reference: "malformed", peer: null };
    const peer = joinHostPort(host, port);
    const held = await this.ask(host, port, hash, leg);
    if (held === null) return { reference: "missing", peer };
    return { reference: canonical(held) === canonical(entry) ? "found" : "edited", peer };
  }

  /** What the encoder handed out for the item, null when it has not got it or cannot be reached. */
  private async ask(host: string, port: number, hash: string, leg: Leg): Promise<JsonObject | null> {
    leg.record.outbound.push(joinHostPort(host, port));
    try {
      const answer = await this.services.peers.call(host, port, "/_sim/embedding", { hash }, this.services.options.handshakeTimeoutMs, leg.signal);
      const entry = isObject(answer.json) ? member(answer.json, "entry") : undefined;
      return isObject(entry) ? entry : null;
    } catch (error) {
      if (error instanceof PeerUnreachable) return null;
      throw error;
    }
  }
}
