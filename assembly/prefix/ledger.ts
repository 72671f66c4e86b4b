// Generations of many endpoints, written in company: two reads and two writes a request, of its decode and its prefill endpoint, cost more than all its scheduling. An
// endpoint's record is read when the first request is credited to it, and written when the ledger is settled, when a good part of a range has come together, or when its
// place is needed for another endpoint. What waits is lost with a VM that traps, like the change between a slot's write and its count's; the walk over the slots mends both.
import { Store } from "../store";
import { Fleet } from "../endpoints/fleet";
import { raiseFloor } from "./floors";
import { Generations } from "./generations";

/** Endpoints whose changes may wait. Each has ten times its record's size in memory. */
const OPEN: i32 = 16;

export class Ledger {
  private readonly all: StaticArray<Generations> = new StaticArray<Generations>(OPEN);
  /** Of `all`, the ones that are open stand in front. */
  private open: i32 = 0;
  private next: i32 = 0;
  /** Of an endpoint that is only asked about. */
  private readonly asked: Generations;
  /** Learns at once what is dropped here. */
  fleet: Fleet = new Fleet([]);

  constructor(private readonly store: Store) {
    this.asked = new Generations(store);
    for (let i = 0; i < OPEN; i++) this.all[i] = new Generations(store);
  }

  private find(id: u32): Generations | null {
    for (let i = 0; i < this.open; i++) {
      const generations = unchecked(this.all[i]);
      if (generations.id == id) return generations;
    }
    return null;
  }

  /** The record of endpoint `id`, to be changed. `kept` and `kept2` are not closed for it. Valid until the next call that may close it. */
  of(id: u32, kept: u32, kept2: u32): Generations {
    const found = this.find(id);
    if (found) return found;
    let at = this.open;
    if (at < OPEN) this.open++;
    else {
      do {
        at = this.next;
        this.next = (at + 1) % OPEN;
      } while (this.all[at].id == kept || this.all[at].id == kept2);
      this.write(this.all[at]);
    }
    const generations = this.all[at];
    generations.open(id);
    return generations;
  }

  /** Blocks that endpoint `id` holds, what waits included. */
  blocksOf(id: u32): u32 {
    const found = this.find(id);
    if (found) return found.due;
    this.asked.open(id);
    return this.asked.due;
  }

  /** Writes the record when what waits in it is much. */
  release(generations: Generations): void {
    if (!generations.full) return;
    this.write(generations);
    generations.open(generations.id);
  }

  /** Writes all that waits. */
  settle(): void {
    for (let i = 0; i < this.open; i++) this.write(unchecked(this.all[i]));
    this.open = 0;
    this.next = 0;
  }

  private write(generations: Generations): void {
    if (!generations.commit(generations.capacity)) return;
    // The oldest generations have been dropped: everybody must know.
    const place = this.fleet.place(generations.id);
    if (place >= 0) unchecked((this.fleet.floors[place] = generations.floor));
    raiseFloor(this.store, generations.id, generations.floor);
  }
}
