/**
 * A prefiller's side of hand-offs: blocks that stay pinned for a decoder until it has read them, or until their lease runs out (real-engine §4).
 */

import type { BlockPool } from "../blocks.js";
import type { Json, JsonObject } from "../json.js";

export type ReadStatus = "ok" | "unknown" | "expired" | "taken";

export interface ReadResult {
  readonly status: ReadStatus;
  /** What each block holds now, null for one that holds nothing. */
  readonly contents: (string | null)[];
  /** The parameters as they were handed out, null when the request is unknown. */
  readonly params: Json;
}

export interface HeldTransfer {
  readonly requestId: string;
  readonly blockIds: number[];
  readonly tokens: number;
  readonly expiresAt: number;
  readonly params: JsonObject;
}

interface Held extends HeldTransfer {
  readonly timer: NodeJS.Timeout;
  readonly pool: BlockPool;
}

/** How many finished hand-offs are remembered, to tell one that was used from one that never was. */
const REMEMBERED = 10_000;

export class TransferStore {
  private readonly held = new Map<string, Held>();
  private readonly past = new Map<string, { status: "expired" | "taken"; params: JsonObject }>();
  private expiredCount = 0;

  constructor(
    private readonly leaseMs: number,
    private readonly onExpired: () => void,
  ) {}

  get expired(): number {
    return this.expiredCount;
  }

  get pinnedBlocks(): number {
    let blocks = 0;
    for (const transfer of this.held.values()) blocks += transfer.blockIds.length;
    return blocks;
  }

  list(): HeldTransfer[] {
    return [...this.held.values()];
  }

  /** Takes over the caller's references to the blocks. */
  hold(requestId: string, pool: BlockPool, blockIds: number[], tokens: number, params: JsonObject): void {
    const timer = setTimeout(() => {
      this.expiredCount += 1;
      this.end(requestId, "expired");
      this.onExpired();
    }, this.leaseMs);
    timer.unref();
    this.held.set(requestId, { requestId, pool, blockIds, tokens, params, timer, expiresAt: performance.now() + this.leaseMs });
  }

  /** A decoder has read the blocks: they are given back at once, whatever they hold. */
  read(requestId: string, pool: BlockPool, blockIds: readonly number[]): ReadResult {
    const contents = blockIds.map((id) => pool.content(id) ?? null);
    const transfer = this.held.get(requestId);
    if (transfer === undefined) {
      const past = this.past.get(requestId);
      return { status: past?.status ?? "unknown", contents, params: past?.params ?? null };
    }
    this.end(requestId, "taken");
    return { status: "ok", contents, params: transfer.params };
  }

  clear(): void {
    for (const transfer of this.held.values()) clearTimeout(transfer.timer);
    this.held.clear();
    this.past.clear();
    this.expiredCount = 0;
  }

  private end(requestId: string, status: "expired" | "taken"): void {
    const transfer = this.held.get(requestId);
    if (transfer === undefined) return;
    this.held.delete(requestId);
    clearTimeout(transfer.timer);
    this.past.set(requestId, { status, params: transfer.params });
    const oldest = this.past.keys().next();
    if (this.past.size > REMEMBERED && oldest.done !== true) this.past.delete(oldest.value);
    transfer.pool.release(transfer.blockIds);
  }
}
