/** What sglang, mooncake and offloading have in common: a prefiller offers its KV under a key, a decoder takes it. */

import { noteError, type EngineServices, type Leg } from "../core/services.js";
import { sleep } from "../core/time.js";
import { internalError } from "../errors.js";
import { isObject, member } from "../json.js";
import { joinHostPort } from "../options.js";
import { PeerUnreachable } from "../peer.js";
import type { HandoffRecord, KvConnectorName } from "../types.js";
import type { RendezvousServer } from "./rendezvous.js";
import type { LoadedKv, Sequence } from "./types.js";

export interface MeetingPlace {
  readonly host: string;
  readonly port: number;
  readonly key: string;
}

export function newHandoff(connector: KvConnectorName, peer: string): HandoffRecord {
  return { connector, found: false, blocks: 0, tokens: 0, verbatim: true, differs: [], correct: false, recomputed: false, peer, reason: "" };
}

/**
 * Waits for the prefiller's KV.
 *
 * @param recompute the connector computes the prompt itself when the KV does not come; otherwise the request fails
 * @throws ApiError 500 when the KV does not come and `recompute` is false
 */
export async function takeKv(connector: KvConnectorName, place: MeetingPlace, sequence: Sequence, leg: Leg, services: EngineServices, recompute: boolean): Promise<LoadedKv> {
  const { options, peers } = services;
  const peer = joinHostPort(place.host, place.port);
  const handoff = newHandoff(connector, peer);
  leg.record.handoff ??= handoff;
  leg.record.outbound.push(peer);
  const wanted = sequence.promptBlocks.length - sequence.hitBlocks;
  try {
    const answer = await peers.call(place.host, place.port, "/_sim/rendezvous/take", { key: place.key, waitMs: options.rendezvousTimeoutMs }, options.rendezvousTimeoutMs + 1_000, leg.signal);
    const status = isObject(answer.json) ? member(answer.json, "status") : undefined;
    const contents = isObject(answer.json) ? member(answer.json, "contents") : undefined;
    if (status === "ok" && Array.isArray(contents)) {
      const mine = contents.slice(contents.length - wanted).map((content) => (typeof content === "string" ? content : null));
      handoff.found = true;
      handoff.correct = contents.length === sequence.promptBlocks.length;
      handoff.blocks = mine.length;
      handoff.tokens = sequence.promptTokens - sequence.hitBlocks * options.blockSize;
      const wrong = handoff.correct ? null : "the prefiller's prompt has another number of blocks";
      if (wrong !== null) noteError(leg.record, `hand-off: ${wrong}`);
      return { contents: mine, tokens: handoff.tokens, source: "external_kv_transfer", wrong };
    }
    handoff.reason = status === "used" ? "the key was used before" : "no prefiller came with this key";
  } catch (error) {
    if (!(error instanceof PeerUnreachable)) throw error;
    handoff.reason = `bootstrap server ${error.message}`;
  }
  noteError(leg.record, `hand-off: ${handoff.reason}`);
  if (!recompute) throw internalError();
  handoff.recomputed = true;
  handoff.correct = true;
  return { contents: [], tokens: 0, source: "external_kv_transfer", wrong: null };
}

export interface Offered {
  /** The decoder has read the blocks. */
  readonly taken: Promise<void>;
  /** Nobody may take them any more. */
  withdraw(): void;
}

/** Offers the prompt's blocks; the caller keeps them until `taken` or gives up. */
export function offerKv(server: RendezvousServer, key: string, sequence: Sequence, leg: Leg): Offered {
  let done: () => void = () => undefined;
  const taken = new Promise<void>((resolve) => {
    done = resolve;
  });
  const fresh = server.offer(key, { contents: [...sequence.layout.contents], tokens: sequence.promptTokens, taken: done });
  if (!fresh) noteError(leg.record, `the key ${key} was used before`);
  return {
    taken,
    withdraw: () => {
      server.withdraw(key);
    },
  };
}

/** Waits until the blocks were read, as long as a lease lasts; false when nobody came. */
export async function waitTaken(offered: Offered, leaseMs: number, signal: AbortSignal): Promise<boolean> {
  const stop = new AbortController();
  const limit = AbortSignal.any([signal, stop.signal]);
  try {
    return await Promise.race([offered.taken.then(() => true), sleep(leaseMs, limit).then(() => false)]);
  } finally {
    stop.abort(new Error("decided"));
  }
}
