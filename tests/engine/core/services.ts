/** What the parts of one engine share. */

import type { BlockPool } from "../blocks.js";
import type { EngineDirectory } from "../directory.js";
import type { EngineMetrics } from "../metrics.js";
import type { ResolvedOptions } from "../options.js";
import type { PeerClient } from "../peer.js";
import type { EngineRecord, Stage } from "../types.js";
import type { Scheduler } from "./scheduler.js";
import type { TransferStore } from "./transfers.js";

export interface EngineServices {
  readonly options: ResolvedOptions;
  /** New after each start, as a real engine's. */
  readonly engineId: string;
  readonly controlPort: number;
  readonly pool: BlockPool;
  readonly scheduler: Scheduler;
  readonly transfers: TransferStore;
  readonly metrics: EngineMetrics;
  readonly peers: PeerClient;
  readonly directory: EngineDirectory;
}

/** One request on its way through this engine. */
export interface Leg {
  readonly stage: Stage;
  readonly record: EngineRecord;
  /** Aborted with `ClientGone` or with the engine's death. */
  readonly signal: AbortSignal;
  header(name: string): string | undefined;
}

/** Notes the first rule that a request broke. */
export function noteError(record: EngineRecord, rule: string): void {
  record.error ??= rule;
}
