// The slow truth under the fast counts: the lease holder reads all slots within a minute and puts each endpoint's counts right by what it found there.
import { Space, Store } from "../store";
import { Fleet } from "../endpoints/fleet";
import { Generations, MAX_RANGES } from "./generations";
import { findHolders, holdersAt } from "./holders";
import { APART, ENTRY, Entry, firstRun, Run, runEnd, runsIn } from "./slot";

const RANGES: i32 = <i32>MAX_RANGES + 1;

/** One walk at a time: `start`, `step` until it says so, and again. */
export class IndexWalk {
  private generations: Generations;
  private next: u32 = 0;
  private ids: StaticArray<u32> = [];
  /** Where each of them stands in the arrays below. */
  private places: Fleet = new Fleet([]);
  /** Of each endpoint, the ranges that it had when the walk began: their first generations, their counts, and what the walk has met of them. */
  private firsts: StaticArray<u32>[] = [];
  private before: StaticArray<u32>[] = [];
  private found: StaticArray<u32>[] = [];
  private ranges: StaticArray<i32> = [];

  constructor(
    private store: Store,
    private slots: u32,
  ) {
    this.generations = new Generations(store);
  }

  /** A walk for the endpoints `ids` (0s are skipped) begins. */
  start(ids: StaticArray<u32>): void {
    this.next = 0;
    this.ids = ids;
    this.places = new Fleet(ids);
    this.ranges = new StaticArray<i32>(ids.length);
    this.firsts = new Array<StaticArray<u32>>(ids.length);
    this.before = new Array<StaticArray<u32>>(ids.length);
    this.found = new Array<StaticArray<u32>>(ids.length);
    for (let i = 0; i < ids.length; i++) {
      const firsts = new StaticArray<u32>(RANGES);
      const before = new StaticArray<u32>(RANGES);
      if (ids[i]) {
        this.generations.open(ids[i]);
        const n = <i32>this.generations.count;
        for (let r = 0; r < n; r++) {
          firsts[r] = this.generations.range(r).first;
          before[r] = this.generations.range(r).blocks;
        }
        this.ranges[i] = n;
      }
      this.firsts[i] = firsts;
      this.before[i] = before;
      this.found[i] = new StaticArray<u32>(RANGES);
    }
  }

  /** Reads the next `slots` slots; true when the walk is complete and the counts have been put right. */
  step(slots: u32, fleet: Fleet): bool {
    const end = min(this.next + slots, this.slots);
    for (; this.next < end; this.next++) {
      if (!this.store.get(Space.PrefixSlot, this.next)) continue;
      const at = this.store.at;
      const end = at + this.store.size;
      let p = firstRun(at);
      for (let n = runsIn(at, this.store.size); n; n--) {
        const next = runEnd(p, end);
        if (!next) break;
        this.countRun(changetype<Run>(p), fleet);
        p = next;
      }
    }
    if (this.next < this.slots) return false;
    for (let i = 0; i < this.ids.length; i++) {
      if (this.ids[i] && this.ranges[i]) this.generations.replace(this.ids[i], this.firsts[i], this.before[i], this.found[i], this.ranges[i]);
    }
    return true;
  }

  private countRun(run: Run, fleet: Fleet): void {
    let at = run.entriesAt;
    let n: u32 = run.entries;
    const blocks: u32 = run.blocks;
    if (run.flags & APART) {
      n = findHolders(this.store, run, this.slots);
      at = holdersAt;
    }
    for (; n; n--, at += ENTRY) {
      const entry = changetype<Entry>(at);
      // The fleet may have changed since the walk began.
      if (fleet.live(entry.id, entry.generation) < 0) continue;
      const place = this.places.place(entry.id);
      if (place < 0) continue;
      const firsts = this.firsts[place];
      for (let r = this.ranges[place] - 1; r >= 0; r--) {
        if (unchecked(firsts[r]) <= entry.generation) {
          const found = this.found[place];
          unchecked((found[r] = found[r] + min(entry.held, blocks)));
          break;
        }
      }
    }
  }
}
