// Strict reading (FilterOptions.strict): no member name twice in one object, wherever it stands, and no deep nesting. Parsers differ in what they make of both, so a body with
// them may be scheduled as one request and run as another.
import { avalanche, K3 } from "./hash";

/** Deepest nesting of a strict body. */
export const STRICT_DEPTH: u32 = 64;
/** Names of one body that are told apart; more of them are refused. */
const MAX_NAMES: u32 = 1 << 16;

/** The names of all objects of one body. Unmanaged, made only for scanners that are strict. */
@unmanaged
export class NameSet {
  private table: usize;
  private size: u32;
  private count: u32;
  private serials: usize;
  private serial: u32;

  static make(): NameSet {
    const set = changetype<NameSet>(heap.alloc(offsetof<NameSet>()));
    set.size = 256;
    set.table = heap.alloc(256 << 3);
    set.serials = heap.alloc((STRICT_DEPTH + 1) << 2);
    set.start();
    return set;
  }

  dispose(): void {
    heap.free(this.table);
    heap.free(this.serials);
    heap.free(changetype<usize>(this));
  }

  start(): void {
    if (this.size > 4096) {
      this.size = 256;
      this.table = heap.realloc(this.table, 256 << 3);
    }
    memory.fill(this.table, 0, this.size << 3);
    this.count = 0;
    this.serial = 0;
  }

  /** An object begins at `depth`. */
  enter(depth: u32): void {
    this.serial++;
    store<u32>(this.serials + (depth << 2), this.serial);
  }

  /** Notes a name, by its hash, in the object at `depth`. Returns 1 when it was there before, 2 when there is no room for more, otherwise 0. */
  note(depth: u32, hash: u64): u32 {
    const key = avalanche(hash ^ (<u64>load<u32>(this.serials + (depth << 2)) * K3)) | 1;
    if (this.count << 1 >= this.size) {
      if (this.size >= MAX_NAMES << 1) return 2;
      this.grow();
    }
    let at = <u32>(key >> 20) & (this.size - 1);
    while (true) {
      const held = load<u64>(this.table + (at << 3));
      if (held == key) return 1;
      if (!held) break;
      at = (at + 1) & (this.size - 1);
    }
    store<u64>(this.table + (at << 3), key);
    this.count++;
    return 0;
  }

  private grow(): void {
    const old = this.table;
    const oldSize = this.size;
    this.size <<= 1;
    this.table = heap.alloc(this.size << 3);
    memory.fill(this.table, 0, this.size << 3);
    for (let i: u32 = 0; i < oldSize; i++) {
      const key = load<u64>(old + (i << 3));
      if (!key) continue;
      let at = <u32>(key >> 20) & (this.size - 1);
      while (load<u64>(this.table + (at << 3))) at = (at + 1) & (this.size - 1);
      store<u64>(this.table + (at << 3), key);
    }
    heap.free(old);
  }
}
