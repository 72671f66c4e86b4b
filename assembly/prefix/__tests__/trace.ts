// A trace of conversations, and the exact truth about what engines hold of them: what the simulations compare the index with.
import { BLOCK_COST } from "../index";
import { fleetOf, RacingStore, random, seedRandom, Worker } from "./support";

export { BLOCK_COST };

/** Exactly least recently used, block by block: an engine's cache, which frees the end of a prompt before its beginning. */
export class ExactCache {
  private places: Map<u64, i32> = new Map<u64, i32>();
  private key: StaticArray<u64>;
  private newer: StaticArray<i32>;
  private older: StaticArray<i32>;
  private newest: i32 = -1;
  private oldest: i32 = -1;
  private used: i32 = 0;

  constructor(private capacity: i32) {
    this.key = new StaticArray<u64>(capacity);
    this.newer = new StaticArray<i32>(capacity);
    this.older = new StaticArray<i32>(capacity);
  }

  get full(): bool {
    return this.used == this.capacity;
  }

  held(keys: StaticArray<u64>): i32 {
    let n = 0;
    while (n < keys.length && this.places.has(keys[n])) n++;
    return n;
  }

  private unlink(at: i32): void {
    const newer = this.newer[at];
    const older = this.older[at];
    if (newer >= 0) this.older[newer] = older;
    else this.newest = older;
    if (older >= 0) this.newer[older] = newer;
    else this.oldest = newer;
  }

  touch(keys: StaticArray<u64>): void {
    // The last block first, so that the first is the newest.
    for (let i = keys.length - 1; i >= 0; i--) {
      let at: i32;
      if (this.places.has(keys[i])) {
        at = this.places.get(keys[i]);
        this.unlink(at);
      } else {
        if (this.used < this.capacity) at = this.used++;
        else {
          at = this.oldest;
          this.unlink(at);
          this.places.delete(this.key[at]);
        }
        this.key[at] = keys[i];
        this.places.set(keys[i], at);
      }
      this.older[at] = this.newest;
      this.newer[at] = -1;
      if (this.newest >= 0) this.newer[this.newest] = at;
      else this.oldest = at;
      this.newest = at;
    }
  }
}

export class Conversation {
  keys: u64[] = [];
  last: u64 = 0x77;
  endpoint: i32 = 0;
  turns: i32 = 0;

  extend(owner: u64, blocks: i32): void {
    for (let i = 0; i < blocks; i++) {
      let h = this.last ^ ((owner + <u64>this.keys.length) * 0x9e3779b97f4a7c15);
      h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
      h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
      this.last = h ^ (h >> 31);
      this.keys.push(this.last);
    }
  }

  prompt(): StaticArray<u64> {
    const out = new StaticArray<u64>(this.keys.length);
    for (let i = 0; i < out.length; i++) out[i] = this.keys[i];
    return out;
  }
}

/** One of `count`, with a share that falls with its rank (Zipf, exponent 1). */
export function zipf(count: i32): i32 {
  let total: f64 = 0;
  for (let s = 1; s <= count; s++) total += 1 / <f64>s;
  let at = (<f64>random() / 4294967296.0) * total;
  for (let s = 1; s <= count; s++) {
    at -= 1 / <f64>s;
    if (at <= 0) return s - 1;
  }
  return count - 1;
}

/** What goes on, and what came of it. */
export class Trace {
  endpoints: i32 = 100;
  /** Blocks that each engine's cache has, and that the index credits it with. */
  capacity: i32 = 1000;
  slots: u32 = 1 << 20;
  requests: i32 = 1000;
  /** System prompts, of 20 to 59 blocks each, by Zipf's law. */
  systems: i32 = 300;
  /** Conversations that are open at a time. */
  open: i32 = 1000;
  /** Blocks of a turn and of an answer: 1 to this many. */
  turn: i32 = 8;
  /** Conversations that come back in turn, every second request, each to an endpoint of its own or all to one. */
  longs: i32 = 0;
  longBlocks: i32 = 0;
  longsTogether: bool = false;

  exact: f64 = 0;
  told: f64 = 0;
  /** Hit rates of the long conversations, and of the other requests at their endpoints. */
  longExact: f64 = 0;
  longTold: f64 = 0;
  besideExact: f64 = 0;
  besideTold: f64 = 0;
  /** Reads of shared data per look-up, and bytes there at the end per block that is held anywhere. */
  reads: f64 = 0;
  bytesPerBlock: f64 = 0;
  evictions: u32 = 0;
  /** Caches that are full at the end. */
  full: i32 = 0;

  run(seed: u32): void {
    seedRandom(seed);
    const n = this.endpoints;
    const w = new Worker(new RacingStore(), this.slots, fleetOf(n), n);
    w.capacity = <u32>this.capacity;
    const caches: ExactCache[] = [];
    for (let e = 0; e < n; e++) caches.push(new ExactCache(this.capacity));
    const longs: Conversation[] = [];
    let serial: u64 = 1;
    for (let i = 0; i < this.longs; i++) {
      const c = new Conversation();
      c.extend(<u64>1 << (50 + i), this.longBlocks);
      c.endpoint = this.longsTogether ? 0 : i;
      longs.push(c);
    }
    const open: Conversation[] = [];
    let blocks: f64 = 0;
    let longBlocks: f64 = 0;
    let besideBlocks: f64 = 0;
    let lookups: f64 = 0;
    let reads: f64 = 0;
    for (let r = 0; r < this.requests; r++) {
      w.now = <u32>r / 10 + 1;
      const isLong = longs.length > 0 && r % 2 == 0;
      let c: Conversation;
      if (isLong) c = longs[(r >> 1) % longs.length];
      else if (open.length < this.open || random() % 4 == 0) {
        c = new Conversation();
        const s = zipf(this.systems);
        c.extend(<u64>s * 1000003, 20 + ((s * 7) % 40));
        c.endpoint = <i32>(random() % <u32>n);
        if (open.length < this.open) open.push(c);
        else open[<i32>(random() % <u32>this.open)] = c;
      } else c = open[<i32>(random() % <u32>this.open)];
      c.extend(serial++ << 20, 1 + <i32>(random() % <u32>this.turn));
      // Mostly where it was, sometimes elsewhere.
      if (!isLong && random() % 10 == 0) c.endpoint = <i32>(random() % <u32>n);
      const keys = c.prompt();
      const cache = caches[c.endpoint];
      const before = w.store.reads;
      const told = <f64>w.held(keys, c.endpoint);
      reads += <f64>(w.store.reads - before);
      lookups++;
      const exact = <f64>cache.held(keys);
      this.exact += exact;
      this.told += told;
      blocks += <f64>keys.length;
      if (isLong) {
        this.longExact += exact;
        this.longTold += told;
        longBlocks += <f64>keys.length;
      } else if (c.endpoint < (this.longsTogether ? 1 : this.longs)) {
        this.besideExact += exact;
        this.besideTold += told;
        besideBlocks += <f64>keys.length;
      }
      cache.touch(keys);
      w.serve(keys, <u32>c.endpoint + 1);
      // An answer is part of the next turn's prompt. Long conversations stay as long as they are.
      if (isLong) {
        while (c.keys.length > this.longBlocks) c.keys.pop();
        c.last = c.keys[c.keys.length - 1];
      } else c.extend(serial++ << 20, 1 + <i32>(random() % <u32>this.turn));
    }
    this.exact /= blocks;
    this.told /= blocks;
    this.longExact /= Math.max(1, longBlocks);
    this.longTold /= Math.max(1, longBlocks);
    this.besideExact /= Math.max(1, besideBlocks);
    this.besideTold /= Math.max(1, besideBlocks);
    this.reads = reads / lookups;
    for (let e = 0; e < n; e++) this.full += caches[e].full ? 1 : 0;
    let live: f64 = 0;
    for (let e = 0; e < n; e++) live += <f64>w.index.blocksOf(<u32>e + 1);
    this.bytesPerBlock = <f64>w.store.bytes / live;
    this.evictions = w.index.evictions;
  }

  /** For messages. */
  describe(): string {
    return (
      "told " + this.told.toString() + " of " + this.exact.toString() + ", long " + this.longTold.toString() + " of " + this.longExact.toString() + ", beside " + this.besideTold.toString() + " of " + this.besideExact.toString() +
      ", reads " + this.reads.toString() + ", bytes " + this.bytesPerBlock.toString() + ", evictions " + this.evictions.toString()
    );
  }
}
