/** One life of an engine: everything that is gone after a restart. */

import { BlockPool } from "./blocks.js";
import { makeConnector } from "./connectors/index.js";
import type { KvConnector } from "./connectors/types.js";
import { EngineCore } from "./core/engine-core.js";
import { Scheduler } from "./core/scheduler.js";
import type { EngineServices } from "./core/services.js";
import { TransferStore } from "./core/transfers.js";
import { EmbeddingConsumer } from "./encode/consumer.js";
import { Encoder } from "./encode/encoder.js";
import { EngineMetrics } from "./metrics.js";
import { newEngineId, type ResolvedOptions } from "./options.js";
import { PeerClient } from "./peer.js";
import { ResponsesStore } from "./responses-store.js";

export class Incarnation {
  readonly services: EngineServices;
  readonly connector: KvConnector;
  readonly core: EngineCore;
  readonly encoder: Encoder;
  readonly consumer: EmbeddingConsumer;
  readonly responses = new ResponsesStore();
  /** `uuid`s of media whose bytes this engine has seen. */
  readonly mediaUuids = new Set<string>();
  /** Open requests by adapter. */
  readonly adapters = new Map<string, number>();
  private readonly peers = new PeerClient();

  constructor(options: ResolvedOptions, controlPort: number) {
    const scheduler = new Scheduler(options.maxNumSeqs);
    const pool = new BlockPool(options.numBlocks, options.blockSize, () => {
      scheduler.kick();
    });
    const transfers = new TransferStore(options.leaseMs, () => {
      scheduler.kick();
    });
    const metrics = new EngineMetrics(options, {
      running: () => scheduler.running,
      waitingForCapacity: () => scheduler.waitingForCapacity,
      deferred: () => scheduler.deferred,
      kvUsage: () => pool.usage,
      runningAdapters: () => [...this.adapters].filter(([, count]) => count > 0).map(([name]) => name),
      waitingAdapters: () => [],
      expiredTransfers: () => transfers.expired,
    });
    this.services = { options, engineId: newEngineId(), controlPort, pool, scheduler, transfers, metrics, peers: this.peers, directory: options.peers };
    this.connector = makeConnector(options.kvConnector, this.services);
    this.encoder = new Encoder(this.services);
    this.consumer = new EmbeddingConsumer(this.services);
    this.core = new EngineCore(this.services, this.connector, this.consumer);
  }

  async start(): Promise<void> {
    await this.connector.start?.();
  }

  async close(): Promise<void> {
    this.services.transfers.clear();
    await this.connector.close?.();
    await this.peers.close();
  }

  /** Counts a request under its adapter until the returned function is called. */
  useAdapter(model: string): () => void {
    if (!this.services.options.loraAdapters.includes(model)) return () => undefined;
    this.adapters.set(model, (this.adapters.get(model) ?? 0) + 1);
    return () => {
      this.adapters.set(model, (this.adapters.get(model) ?? 1) - 1);
    };
  }
}
