/** Mooncake and offloading: the prefill answer does not wait for the decoder, its blocks stay pinned until they are read or the lease is over. */

import type { EngineServices, Leg } from "../core/services.js";
import { offerKv } from "./meeting.js";
import type { RendezvousServer } from "./rendezvous.js";
import type { Sequence } from "./types.js";

export function pinAndOffer(services: EngineServices, server: RendezvousServer, key: string, sequence: Sequence, leg: Leg): void {
  const { transfers, pool } = services;
  transfers.hold(key, pool, [...sequence.promptBlocks], sequence.promptTokens, {});
  const offered = offerKv(server, key, sequence, leg);
  const lease = setTimeout(() => {
    offered.withdraw();
  }, services.options.leaseMs);
  lease.unref();
  void offered.taken.then(() => {
    clearTimeout(lease);
    transfers.read(key, pool, []);
  });
}
