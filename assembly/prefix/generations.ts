// One endpoint's least-recently-used order without a list: at most 64 ranges of generations, each with the number of blocks whose last touch lies in it.
// A range closes when it holds a sixteenth of the capacity; when there are too many, the two neighbours with the smallest sum become one; the oldest is dropped only
// when the live total passes the capacity, and then its entries are dead wherever they stand.
import { CREATE, Space, Store } from "../store";
import { copy } from "../words";

/** One range: generations from `first` up to the next range's. */
@unmanaged
export class Range {
  first: u32;
  blocks: u32;
}

export const MAX_RANGES: u32 = 64;
/** Bytes in front of the ranges: number of ranges. */
const HEAD: u32 = 8;
const SIZE: u32 = HEAD + (MAX_RANGES + 1) * 8;
/** Retries of a lost race; after that the counts drift until the next walk replaces them. */
const RETRIES: i32 = 5;
const MAX_CHANGES: u32 = 128;

@unmanaged
class Change {
  generation: u32;
  blocks: u32;
}

/** Generations of one endpoint while requests are credited to it: `open`, any number of `move` and `add`, `commit`. */
export class Generations {
  private room: StaticArray<u8> = new StaticArray<u8>(SIZE + (MAX_CHANGES << 3));
  private record: usize = 0;
  private changes: usize = 0;
  private changeCount: u32 = 0;
  private added: u32 = 0;
  private moved: u32 = 0;
  /** The generation that what was added carries. */
  private opened: u32 = 1;
  id: u32 = 0;
  /** Of the record that was read last. */
  private cas: u32 = CREATE;
  /** The generation that touches carry now. */
  current: u32 = 1;
  /** The oldest generation that counts. */
  floor: u32 = 1;
  /** Blocks that the endpoint holds. */
  total: u32 = 0;
  /** Blocks that it has room for, as the last credit since `open` knew it. */
  capacity: u32 = u32.MAX_VALUE;

  constructor(private store: Store) {
    this.record = changetype<usize>(this.room);
    this.changes = this.record + SIZE;
  }

  /** Reads endpoint `id`'s record; a missing one is a new endpoint. */
  open(id: u32): void {
    this.id = id;
    this.capacity = u32.MAX_VALUE;
    this.forget();
    this.read();
    this.opened = this.current;
  }

  private forget(): void {
    this.changeCount = 0;
    this.added = 0;
    this.moved = 0;
  }

  private read(): void {
    let cas: u32 = CREATE;
    const record = this.record;
    store<u64>(record, 1);
    this.range(0).first = 1;
    this.range(0).blocks = 0;
    if (this.store.get(Space.PrefixGenerations, this.id)) {
      cas = this.store.cas;
      const n = this.store.size >= HEAD ? load<u32>(this.store.at) : 0;
      // A record that does not add up is a new endpoint's, and written over.
      if (n && n <= MAX_RANGES && this.store.size == HEAD + (n << 3)) copy(record, this.store.at, this.store.size);
    }
    const count = this.count;
    this.current = this.range(count - 1).first;
    this.floor = this.range(0).first;
    this.total = this.sum();
    this.cas = cas;
  }

  // @ts-ignore: decorator
  @inline
  get count(): u32 {
    return load<u32>(this.record);
  }

  // @ts-ignore: decorator
  @inline
  range(i: u32): Range {
    return changetype<Range>(this.record + HEAD + (i << 3));
  }

  private sum(): u32 {
    let total: u32 = 0;
    for (let i: u32 = 0, n = this.count; i < n; i++) total += this.range(i).blocks;
    return total;
  }

  /** `blocks` whose last touch was in `generation` are no longer there. */
  move(generation: u32, blocks: u32): void {
    this.moved += blocks;
    if (this.changeCount) {
      const last = changetype<Change>(this.changes + ((this.changeCount - 1) << 3));
      if (last.generation == generation) {
        last.blocks += blocks;
        return;
      }
    }
    // Nobody waits with so many (`full`); what one request alone has beyond them is left to the next walk.
    if (this.changeCount == MAX_CHANGES) return;
    const change = changetype<Change>(this.changes + (this.changeCount << 3));
    this.changeCount++;
    change.generation = generation;
    change.blocks = blocks;
  }

  /** `blocks` are held now, touched in the current generation. */
  add(blocks: u32): void {
    this.added += blocks;
  }

  /** Blocks that the endpoint holds when what was moved and added is written. */
  get due(): u32 {
    const sum = this.total + this.added;
    return sum - min(sum, this.moved);
  }

  /** What was moved and added is so much that it should not wait for more: a good part of a range, or of the room for it. */
  get full(): bool {
    return this.changeCount > MAX_CHANGES >> 1 || this.added + this.moved > this.capacity >> 5;
  }

  /**
   * Writes what was moved and added, closes a full range, drops what passes `capacity` (in blocks). True when the floor has risen: entries below it are dead.
   * The slots are written first, this second: a VM that traps in between leaves counts that the walk replaces.
   */
  commit(capacity: u32): bool {
    if (!this.changeCount && !this.added) return false;
    const before = this.floor;
    let risen = false;
    // What `open` read is written back, and read again only when somebody else was faster.
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      this.apply(capacity);
      if (this.store.set(Space.PrefixGenerations, this.id, this.record, HEAD + (this.count << 3), this.cas)) {
        risen = this.floor != before;
        break;
      }
      this.read();
    }
    this.forget();
    this.opened = this.current;
    return risen;
  }

  private apply(capacity: u32): void {
    // First what was touched: some of it may have been touched again since, or be gone already.
    const touched = this.rangeOf(this.opened);
    if (touched) touched.blocks += this.added;
    for (let i: u32 = 0; i < this.changeCount; i++) {
      const change = changetype<Change>(this.changes + (i << 3));
      const range = this.rangeOf(change.generation);
      if (range) range.blocks -= min(range.blocks, change.blocks);
    }
    const last = this.range(this.count - 1);
    if (last.blocks >= max<u32>(1, capacity >> 4)) this.close(last.first + 1);
    this.total = this.sum();
    while (this.total > capacity && this.count > 1) {
      // The range that is being filled stays, even where one prompt alone is larger than the endpoint.
      if (this.count == 2 && !this.range(1).blocks) break;
      this.total -= this.range(0).blocks;
      this.remove(0);
    }
    this.floor = this.range(0).first;
    this.current = this.range(this.count - 1).first;
  }

  /** The range of that generation; null when it has been dropped. */
  private rangeOf(generation: u32): Range | null {
    for (let i = <i32>this.count - 1; i >= 0; i--) {
      const range = this.range(i);
      if (range.first <= generation) return range;
    }
    return null;
  }

  private close(next: u32): void {
    const at = this.range(this.count);
    at.first = next;
    at.blocks = 0;
    store<u32>(this.record, this.count + 1);
    if (this.count <= MAX_RANGES) return;
    let best: u32 = 0;
    let least: u32 = u32.MAX_VALUE;
    for (let i: u32 = 0, n = this.count - 2; i < n; i++) {
      const sum = this.range(i).blocks + this.range(i + 1).blocks;
      if (sum < least) {
        least = sum;
        best = i;
      }
    }
    this.range(best).blocks = least;
    this.remove(best + 1);
  }

  private remove(i: u32): void {
    const at = changetype<usize>(this.range(i));
    const end = changetype<usize>(this.range(this.count));
    memory.copy(at, at + 8, end - at - 8);
    store<u32>(this.record, this.count - 1);
  }

  /**
   * Puts the counts of endpoint `id` right by what a walk over the slots found: `found[r]` blocks in generations from `firsts[r]` (ascending), where there were `before[r]`
   * when it began. What has been touched since may have been met before it moved to a newer range or after it, so a count is only brought to the nearest that the walk
   * allows: as many as were found, or fewer by what has left the range meanwhile. A range with generations that were being filled then, or are newer, keeps its count.
   * False when the record changed just now (the next walk will do).
   */
  replace(id: u32, firsts: StaticArray<u32>, before: StaticArray<u32>, found: StaticArray<u32>, ranges: i32): bool {
    this.id = id;
    this.read();
    if (this.cas == CREATE || !ranges) return false;
    const newest = unchecked(firsts[ranges - 1]);
    for (let i: u32 = 0, n = this.count; i < n; i++) {
      const range = this.range(i);
      const next = i + 1 < n ? this.range(i + 1).first : u32.MAX_VALUE;
      if (next > newest) break;
      let were: u32 = 0;
      let are: u32 = 0;
      for (let r = 0; r < ranges; r++) {
        const first = unchecked(firsts[r]);
        if (first < range.first || first >= next) continue;
        were += unchecked(before[r]);
        are += unchecked(found[r]);
      }
      const left = were - min(were, range.blocks);
      range.blocks = min(max(range.blocks, are - min(are, left)), are);
    }
    this.total = this.sum();
    return this.store.set(Space.PrefixGenerations, id, this.record, HEAD + (this.count << 3), this.cas);
  }
}
