// Which encoder has encoded which media: the prefix index once more, over spaces of its own, with an item as a prompt of one block. So it is bounded as that is, forgets what
// an encoder has not been sent for the longest, and drops what a restarted encoder held.
import { Fleet } from "../endpoints/fleet";
import { Space, Store } from "../store";
import { pruneFloors, readFloors } from "./floors";
import { PrefixIndex } from "./prefix-index";

/** 4 MiB of shared data at most, for about a hundred thousand items. */
const SLOTS: u32 = 1024;

/** The spaces of the prefix index, moved. */
class MovedStore extends Store {
  constructor(private readonly inner: Store) {
    super();
  }

  get(space: Space, key: u64): bool {
    const inner = this.inner;
    if (!inner.get(<Space>(<i32>space + <i32>Space.Media), key)) return false;
    this.at = inner.at;
    this.size = inner.size;
    this.cas = inner.cas;
    return true;
  }

  set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool {
    return this.inner.set(<Space>(<i32>space + <i32>Space.Media), key, at, size, cas);
  }
}

export class MediaIndex {
  private readonly store: Store;
  private readonly index: PrefixIndex;
  private fleet: Fleet = new Fleet([]);
  private found: StaticArray<i32> = new StaticArray<i32>(0);

  constructor(store: Store) {
    const moved = new MovedStore(store);
    this.store = moved;
    this.index = new PrefixIndex(moved, SLOTS);
  }

  /** The endpoints' ids, by table position; again whenever they change. */
  useIds(ids: StaticArray<u32>): void {
    this.fleet = new Fleet(ids);
    this.found = new StaticArray<i32>(ids.length);
    this.refresh();
  }

  /** On every tick: what waits is written, and which generations still count. */
  refresh(): void {
    this.index.settle(this.fleet);
    readFloors(this.store, this.fleet);
  }

  /** Forgets endpoints that are gone; done by the lease holder. */
  prune(): void {
    pruneFloors(this.store, this.fleet);
  }

  /** Sets bit i of `held[place]` where the endpoint at that table position holds item i of the `count` items at `items` (`RequestFacts.items`), and clears all others. */
  match(items: usize, count: i32, held: StaticArray<u64>): void {
    held.fill(0);
    const index = this.index;
    index.begin();
    for (let i = 0; i < count; i++) {
      const item = items + (<usize>i << 4);
      if (!load<u64>(item)) continue;
      const found = this.found;
      found.fill(0);
      if (!index.lookup(item, 1, this.fleet, found)) continue;
      for (let p = 0; p < found.length; p++) unchecked((held[p] = held[p] | (<u64>unchecked(found[p]) << i)));
    }
  }

  /** Item i of those that `match` was asked for last is encoded by the endpoint with id `id` now, which remembers `capacity` items. */
  credit(items: usize, i: i32, id: u32, capacity: i32, nowS: u32): void {
    const item = items + (<usize>i << 4);
    if (load<u64>(item)) this.index.credit(item, 1, false, id, this.fleet, capacity, nowS);
  }
}
