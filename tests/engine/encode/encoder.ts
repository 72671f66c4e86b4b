/** The encoder: answers what it has encoded and keeps it for those who come for it (real-engine §6). */

import { oneTokenProblem, streamProblem } from "../api/caps.js";
import type { GenerationRequest, Outcome } from "../api/request.js";
import { sleep } from "../core/time.js";
import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { ApiError } from "../errors.js";
import { hash32 } from "../fingerprint.js";
import type { JsonObject } from "../json.js";
import { joinHostPort } from "../options.js";
import { distinctMedia, type MediaItem } from "../media.js";

/** Most embeddings that an encoder holds; the oldest go first. */
const MOST_HELD = 4096;

function metadataOf(item: MediaItem): JsonObject {
  const number = hash32(item.hash) >>> 0;
  const [height, width] = [2 + (number % 7), 2 + ((number >>> 8) % 7)];
  switch (item.modality) {
    case "image":
      return { image_grid_thw: [1, height * 2, width * 2] };
    case "video":
      return { video_grid_thw: [4, height * 2, width * 2] };
    case "audio":
      return { audio_feature_length: 100 + (number % 900) };
  }
}

/** What is wrong with the form of an encode leg, null when nothing is (sidecar EC-04). */
export function encodeLegProblem(request: GenerationRequest): string | null {
  const [turn] = request.turns;
  if (request.turns.length !== 1 || turn === undefined) return "messages must be exactly one message";
  if (turn.role !== "user") return "messages.0.role must be user";
  if (turn.media === 0) return "messages.0.content must hold media";
  if (turn.text) return "messages.0.content must hold media only";
  if (request.kvTransferParams !== null) return "kv_transfer_params has no place in an encode leg";
  return streamProblem(request) ?? oneTokenProblem(request);
}

export class Encoder {
  private readonly held = new Map<string, JsonObject>();

  constructor(private readonly services: EngineServices) {}

  heldHashes(): string[] {
    return [...this.held.keys()];
  }

  /** What was handed out for the item, null when it is not held. */
  entry(hash: string): JsonObject | null {
    return this.held.get(hash) ?? null;
  }

  /** @throws ApiError 400 that names what is wrong with the leg */
  check(request: GenerationRequest, leg: Leg): void {
    if (this.services.options.strictness === "real") return;
    const problem = encodeLegProblem(request);
    if (problem === null) return;
    noteError(leg.record, problem);
    throw new ApiError(400, problem, problem.split(" ", 1)[0] ?? null);
  }

  async answer(request: GenerationRequest, leg: Leg): Promise<Outcome> {
    const { options, scheduler, directory, controlPort, metrics } = this.services;
    const places = request.prompts.flatMap((prompt) => prompt.media);
    const items = distinctMedia(places);
    const promptTokens = request.prompts.reduce((sum, prompt) => sum + prompt.tokens.length, 0);
    const address = joinHostPort(options.host, controlPort);
    leg.record.promptTokens = promptTokens;
    const startedAt = performance.now();
    await scheduler.admit(leg.signal, () => true);
    try {
      for (const item of items) {
        const known = this.held.has(item.hash);
        if (!known) await sleep(options.msPerMediaItem, leg.signal);
        leg.record.media.push({ hash: item.hash, modality: item.modality, source: known ? "cache" : "local", reference: "none", peer: null });
        this.hold(item, address, places.flatMap((place, index) => (place.item.hash === item.hash ? [index] : [])));
        directory.putEmbedding(item.hash, address);
      }
    } finally {
      scheduler.leave();
    }
    metrics.requestFinished({ finish: "stop", promptTokens, localTokens: promptTokens, cachedTokens: 0, externalTokens: 0, externalSource: "external_kv_transfer", completionTokens: 0, startedAt });
    const references: JsonObject = {};
    for (const item of items) references[item.hash] = this.held.get(item.hash) ?? null;
    return {
      choices: Array.from({ length: request.sampling.n }, (_, index) => ({ index, tokens: [], pieces: [], finish: "stop" as const })),
      usage: { promptTokens, completionTokens: 0, cachedTokens: 0, createdTokens: 0 },
      kvTransferParams: null,
      ecTransferParams: items.length === 0 ? null : references,
    };
  }

  private hold(item: MediaItem, address: string, itemIndices: number[]): void {
    if (!this.held.has(item.hash)) {
      const colon = address.lastIndexOf(":");
      const host = address.slice(0, colon).replace(/^\[|\]$/g, "");
      const remote: JsonObject = this.services.options.ecConnector === "ec-example" ? {} : { peer_host: host, peer_port: Number(address.slice(colon + 1)) };
      this.held.set(item.hash, { item_indices: itemIndices, metadata: metadataOf(item), ...remote });
    }
    const oldest = this.held.keys().next();
    if (this.held.size > MOST_HELD && oldest.done !== true) this.held.delete(oldest.value);
  }
}
