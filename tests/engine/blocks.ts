/**
 * The KV blocks of one engine, with automatic prefix caching as vLLM does it: a block that nobody uses keeps its content and can be found again by it
 * until it is the least recently used one and somebody needs its place.
 */

/** A block's content is named by the chain hash of all tokens up to its end. */
export type BlockContent = string;

export interface Claim {
  /** Ids of all blocks, hits first. */
  readonly ids: number[];
  /** How many of them were found in the cache. */
  readonly hits: number;
}

export class BlockPool {
  /** Block 0 is vLLM's null block and never handed out. */
  private nextFresh = 1;
  /** Blocks that nobody uses, least recently used first. */
  private readonly free = new Set<number>();
  private readonly references = new Map<number, number>();
  private readonly contents = new Map<number, BlockContent>();
  private readonly keys = new Map<number, string>();
  private readonly byKey = new Map<string, number>();
  /** Ids beyond the pool, see {@link claim}. */
  private nextOverflow: number;
  private overflowUsed = 0;

  constructor(
    readonly total: number,
    readonly blockSize: number,
    /** Called after blocks were given back: somebody may be waiting for them. */
    private readonly onRelease: () => void = () => undefined,
  ) {
    this.nextOverflow = total;
  }

  get usable(): number {
    return this.total - 1;
  }

  get used(): number {
    return Math.min(this.usable, this.usable - this.freeCount + this.overflowUsed);
  }

  get cached(): number {
    return this.byKey.size;
  }

  /** 0 to 1, as `vllm:kv_cache_usage_perc`: blocks in use by requests or pinned; cached blocks that nobody uses are free. */
  get usage(): number {
    return this.used / this.usable;
  }

  private get freeCount(): number {
    return this.free.size + (this.total - this.nextFresh);
  }

  /**
   * Takes `count` blocks: first those whose keys are cached, from the start of `keys` on without a gap, then free ones. Null when there are not enough;
   * nothing is changed then. A claim for more than the whole pool is served from ids beyond it, uncached, so that a body of any size can be tried
   * on an engine of the usual size.
   */
  claim(keys: readonly string[], count: number): Claim | null {
    if (count > this.usable) {
      const ids = Array.from({ length: count }, () => this.nextOverflow++);
      for (const id of ids) this.references.set(id, 1);
      this.overflowUsed += count;
      return { ids, hits: 0 };
    }
    const hits: number[] = [];
    for (const key of keys.slice(0, count)) {
      const id = this.byKey.get(key);
      if (id === undefined) break;
      hits.push(id);
    }
    const hitsFromFree = hits.filter((id) => this.free.has(id)).length;
    if (count - hits.length > this.freeCount - hitsFromFree) return null;
    for (const id of hits) {
      this.free.delete(id);
      this.references.set(id, (this.references.get(id) ?? 0) + 1);
    }
    const ids = [...hits];
    while (ids.length < count) ids.push(this.takeFree());
    return { ids, hits: hits.length };
  }

  /** How many of the keys, from the first on without a gap, are cached. */
  match(keys: readonly string[]): number {
    let count = 0;
    while (count < keys.length && this.byKey.has(keys[count] ?? "")) count += 1;
    return count;
  }

  content(id: number): BlockContent | undefined {
    return this.contents.get(id);
  }

  /** Writes a block's content; with a key it can be found again, unless another block already has that key. */
  write(id: number, content: BlockContent, key: string | null): void {
    this.forgetKey(id);
    this.contents.set(id, content);
    if (key !== null && id < this.total && !this.byKey.has(key)) {
      this.byKey.set(key, id);
      this.keys.set(id, key);
    }
  }

  /** Gives blocks back; the last ones of a prompt are reused first. */
  release(ids: readonly number[]): void {
    for (const id of [...ids].reverse()) {
      const left = (this.references.get(id) ?? 0) - 1;
      if (left > 0) {
        this.references.set(id, left);
        continue;
      }
      this.references.delete(id);
      if (id >= this.total) {
        this.contents.delete(id);
        this.overflowUsed -= 1;
      } else {
        this.free.add(id);
      }
    }
    this.onRelease();
  }

  /** Forgets what is cached; blocks in use stay. */
  resetCache(): void {
    this.byKey.clear();
    this.keys.clear();
  }

  private takeFree(): number {
    let id: number;
    if (this.nextFresh < this.total) {
      id = this.nextFresh;
      this.nextFresh += 1;
    } else {
      const oldest = this.free.values().next();
      if (oldest.done === true) throw new Error("claim checks that there are free blocks");
      id = oldest.value;
      this.free.delete(id);
    }
    this.forgetKey(id);
    this.references.set(id, 1);
    return id;
  }

  private forgetKey(id: number): void {
    const key = this.keys.get(id);
    if (key === undefined) return;
    this.keys.delete(id);
    if (this.byKey.get(key) === id) this.byKey.delete(key);
  }
}
