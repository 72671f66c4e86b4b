// What the specs of prefix/ share: prompts as chain hashes, an index to ask, and the slow truth about what stands in its slots.
import { MemoryStore, Space } from "../../store";
import { Fleet, PrefixIndex } from "../index";
import { findHolders, holdersAt } from "../holders";
import { APART, Entry, ENTRY, Run } from "../slot";

/** A store in which another worker may do something right before a write. */
export class RacingStore extends MemoryStore {
  /** The write, counted down, before which `race` is called; 0: none. */
  countdown: i32 = 0;
  race: () => void = (): void => {};
  /** How many writes of every hundred lose their race, at random. */
  lossPercent: u32 = 0;

  set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool {
    if (this.countdown && --this.countdown == 0) this.race();
    if (this.lossPercent && random() % 100 < this.lossPercent) {
      this.writes++;
      return false;
    }
    return super.set(space, key, at, size, cas);
  }
}

let state: u32 = 1;

export function seedRandom(seed: u32): void {
  state = seed * 2654435761 + 1;
}

export function random(): u32 {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

function spread(h: u64): u64 {
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
  return h ^ (h >> 31);
}

/** Chain hashes of a prompt whose blocks have the given contents. */
export function prompt(contents: i32[]): StaticArray<u64> {
  const out = new StaticArray<u64>(contents.length);
  let h: u64 = 0x1234;
  for (let i = 0; i < contents.length; i++) {
    h = spread(h ^ spread(<u64>contents[i] + 0x9e3779b97f4a7c15));
    out[i] = h;
  }
  return out;
}

/** `count` blocks that belong to `owner`. */
export function blocks(owner: i32, count: i32): i32[] {
  const out: i32[] = [];
  for (let i = 0; i < count; i++) out.push(owner * 100000 + i);
  return out;
}

export function fleetOf(count: i32, firstId: u32 = 1): Fleet {
  const ids = new StaticArray<u32>(count);
  for (let i = 0; i < count; i++) ids[i] = firstId + <u32>i;
  return new Fleet(ids);
}

/** One worker's index over a store, with the fleet it knows. */
export class Worker {
  index: PrefixIndex;
  capacity: u32 = 1000000;
  now: u32 = 1;

  constructor(
    public store: RacingStore,
    public slots: u32,
    public fleet: Fleet,
    public count: i32,
  ) {
    this.index = new PrefixIndex(store, slots);
  }

  /** Blocks of the prompt that each endpoint holds. */
  ask(keys: StaticArray<u64>): StaticArray<i32> {
    const out = new StaticArray<i32>(this.count);
    this.index.begin();
    this.index.lookup(changetype<usize>(keys), keys.length, this.fleet, out);
    return out;
  }

  /** The same of one endpoint. */
  held(keys: StaticArray<u64>, place: i32): i32 {
    return this.ask(keys)[place];
  }

  /** A request: looked up, then credited to the endpoint with `id`. `tail`: its last block is partial. */
  serve(keys: StaticArray<u64>, id: u32, tail: bool = false): void {
    const out = new StaticArray<i32>(this.count);
    this.index.begin();
    this.index.lookup(changetype<usize>(keys), keys.length, this.fleet, out);
    this.index.credit(changetype<usize>(keys), keys.length, tail, id, this.fleet, this.capacity, this.now);
    this.store.release();
  }
}

export function worker(count: i32, slots: u32 = 1024): Worker {
  return new Worker(new RacingStore(), slots, fleetOf(count), count);
}

/** What stands in the slots, counted the slow way. */
export class Truth {
  runs: i32 = 0;
  /** Blocks of all runs. */
  blocks: i32 = 0;
  /** Entries that count. */
  entries: i32 = 0;
  largest: u32 = 0;
  /** Blocks that each endpoint holds. */
  held: StaticArray<i32>;
  /** A run that is longer than 64 blocks, empty or cut short, or a slot that does not add up. */
  broken: bool = false;

  constructor(w: Worker) {
    this.held = new StaticArray<i32>(w.count);
    this.read(w);
  }

  private read(w: Worker): void {
    for (let slot: u32 = 0; slot < w.slots; slot++) {
      if (!w.store.get(Space.PrefixSlot, slot)) continue;
      const size = w.store.size;
      const at = w.store.at;
      this.largest = max(this.largest, size);
      let p = at + 4;
      for (let n = <u32>load<u8>(at); n; n--) {
        const run = changetype<Run>(p);
        p += run.bytes;
        if (p > at + size || !run.blocks || run.blocks > 64) {
          this.broken = true;
          return;
        }
        this.runs++;
        this.blocks += run.blocks;
        this.count(w, run);
      }
      if (p != at + size) this.broken = true;
      w.store.release();
    }
  }

  private count(w: Worker, run: Run): void {
    let at = run.entriesAt;
    let n: u32 = run.entries;
    const blocks: u32 = run.blocks;
    if (run.flags & APART) {
      n = findHolders(w.store, run, w.slots);
      at = holdersAt;
    }
    for (let e: u32 = 0; e < n; e++) {
      const entry = changetype<Entry>(at + e * ENTRY);
      const place = w.fleet.live(entry.id, entry.generation);
      if (place < 0) continue;
      this.entries++;
      this.held[place] += min(entry.held, blocks);
    }
  }
}

/** "" when every endpoint's count is what stands in the slots; otherwise the first that differs. */
export function audit(w: Worker): string {
  const truth = new Truth(w);
  if (truth.broken) return "broken slots";
  for (let i = 0; i < w.count; i++) {
    const id = <u32>i + 1;
    const counted = w.index.blocksOf(id);
    if (counted != <u32>truth.held[i]) return "endpoint " + i.toString() + ": counted " + counted.toString() + ", there are " + truth.held[i].toString();
  }
  return "";
}
