/** An engine without any KV connector: every prompt is computed where it is served. */

import { NOTHING_HELD, type Finished, type KvConnector, type LoadedKv } from "./types.js";

export class NoConnector implements KvConnector {
  readonly name = "none";

  check(): void {
    // Control members are unknown to such an engine and without effect.
  }

  loads(): boolean {
    return false;
  }

  load(): Promise<LoadedKv | null> {
    return Promise.resolve(null);
  }

  finished(): Promise<Finished> {
    return Promise.resolve(NOTHING_HELD);
  }
}
