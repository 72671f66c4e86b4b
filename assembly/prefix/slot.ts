// A slot of the prefix index: one shared-data record of at most 4 KiB that holds several runs. This file knows the bytes; what is done with them is prefix-index.ts.
//
// slot:   runs u8, 3 bytes 0, then the runs one behind the other
// run:    root u64 | start u32 | touched u32 | blocks u8 | flags u8 | entries u8 | 0 u8 | blocks x u32 | entries x entry
// entry:  endpoint id u32 | generation u32 | blocks held u32
//
// A run is found by its root (chain hash of its prompt's first block), the place of its first block in the prompt and that block's 32-bit chain hash. Together they name
// the same text as the block's own 64-bit chain hash does, but they can also be told of a run that was cut out of the middle of another, where only 32 bits are kept.

import { copy } from "../words";

export const SLOT_BYTES: u32 = 4096;
/** Blocks of one run. */
export const RUN_BLOCKS: u32 = 64;
/** Endpoints that a run keeps in its slot; more of them move to a record of their own. */
export const RUN_ENTRIES: u32 = 64;
export const ENTRY: u32 = 12;
export const RUN_HEAD: u32 = 20;
const SLOT_HEAD: u32 = 4;

/** A continuation is known: the run does not grow. */
export const CLOSED: u8 = 1;
/** The last block is a prompt's partial one. */
export const TAIL: u8 = 2;
/** The entries are in a record of their own. */
export const APART: u8 = 4;

@unmanaged
export class Entry {
  id: u32;
  generation: u32;
  held: u32;
}

@unmanaged
export class Run {
  root: u64;
  start: u32;
  /** Seconds of the last write; the oldest run of a full slot goes first. */
  touched: u32;
  blocks: u8;
  flags: u8;
  entries: u8;
  private pad: u8;

  // @ts-ignore: decorator
  @inline
  hash(i: u32): u32 {
    return load<u32>(changetype<usize>(this) + RUN_HEAD + (i << 2));
  }
  // @ts-ignore: decorator
  @inline
  get bytes(): u32 {
    return RUN_HEAD + (<u32>this.blocks << 2) + <u32>this.entries * ENTRY;
  }
  // @ts-ignore: decorator
  @inline
  get entriesAt(): usize {
    return changetype<usize>(this) + RUN_HEAD + (<u32>this.blocks << 2);
  }
  // @ts-ignore: decorator
  @inline
  entry(i: u32): Entry {
    return changetype<Entry>(this.entriesAt + i * ENTRY);
  }
}

export function spread(h: u64): u64 {
  h ^= h >> 31;
  h *= 0x9e3779b185ebca87;
  h ^= h >> 29;
  h *= 0xc2b2ae3d27d4eb4f;
  return h ^ (h >> 32);
}

/** What the record of an APART run's entries begins with, and where it is found (holders.ts). */
export function holdersTag(run: Run): u64 {
  return spread(run.root ^ spread((<u64>run.start << 32) | <u64>run.hash(0)));
}

/** Number of runs in the record `[at, at+size)`; 0 when it is too short to hold any. */
export function runsIn(at: usize, size: u32): u32 {
  return size < SLOT_HEAD ? 0 : <u32>load<u8>(at);
}

export function firstRun(at: usize): usize {
  return at + SLOT_HEAD;
}

/** Where the run at `p` ends, in a record that ends at `end`; 0 when there is no whole run. What is read from shared data is believed no further than this. */
export function runEnd(p: usize, end: usize): usize {
  if (p + RUN_HEAD > end) return 0;
  const run = changetype<Run>(p);
  if (!run.blocks || run.blocks > RUN_BLOCKS || run.entries > RUN_ENTRIES) return 0;
  const next = p + run.bytes;
  return next > end ? 0 : next;
}

/** The run in the record `[at, at+size)`, or null. A record that does not add up holds none behind the place where it breaks. */
export function findRun(at: usize, size: u32, root: u64, start: u32, hash: u32): Run | null {
  let p = firstRun(at);
  const end = at + size;
  for (let n = runsIn(at, size); n; n--) {
    const next = runEnd(p, end);
    if (!next) return null;
    const run = changetype<Run>(p);
    if (run.root == root && run.start == start && run.hash(0) == hash) return run;
    p = next;
  }
  return null;
}

/** One slot in private memory, to be changed and written back. */
export class SlotEditor {
  /** Room for one run more than a slot holds, so that an edit may overflow before something is evicted. */
  private room: StaticArray<u8> = new StaticArray<u8>(SLOT_BYTES + 2048);
  at: usize = 0;
  size: u32 = SLOT_HEAD;

  constructor() {
    this.at = changetype<usize>(this.room);
    this.clear();
  }

  clear(): void {
    store<u32>(this.at, 0);
    this.size = SLOT_HEAD;
  }

  /** Takes over the record `[from, from+size)`; one that does not add up is an empty slot, because what moves runs about relies on it. */
  load(from: usize, size: u32): void {
    this.clear();
    if (size > SLOT_BYTES) return;
    let p = firstRun(from);
    for (let n = runsIn(from, size); n; n--) {
      p = runEnd(p, from + size);
      if (!p) return;
    }
    if (p != from + size) return;
    copy(this.at, from, size);
    this.size = size;
  }

  // @ts-ignore: decorator
  @inline
  get runs(): u32 {
    return <u32>load<u8>(this.at);
  }

  find(root: u64, start: u32, hash: u32): Run | null {
    return findRun(this.at, this.size, root, start, hash);
  }

  first(): usize {
    return firstRun(this.at);
  }

  private shift(from: usize, by: i32): void {
    const end = this.at + this.size;
    if (from != end) memory.copy(from + by, from, end - from);
    this.size += by;
  }

  /** A new run of `blocks` blocks without entries, behind the others. The caller sees to it that there is room (`SLOT_BYTES` plus one run). */
  append(root: u64, start: u32, blocks: u32, now: u32): Run {
    const run = changetype<Run>(this.at + this.size);
    run.root = root;
    run.start = start;
    run.touched = now;
    run.blocks = <u8>blocks;
    run.flags = 0;
    run.entries = 0;
    store<u8>(changetype<usize>(run), 0, 19);
    this.size += RUN_HEAD + (blocks << 2);
    store<u8>(this.at, <u8>(this.runs + 1));
    return run;
  }

  removeRun(run: Run): void {
    const bytes = run.bytes;
    this.shift(changetype<usize>(run) + bytes, -(<i32>bytes));
    store<u8>(this.at, <u8>(this.runs - 1));
  }

  /** Makes the run `blocks` long; new hashes are the caller's to fill. */
  resize(run: Run, blocks: u32): void {
    const by = (<i32>blocks - <i32>run.blocks) << 2;
    if (by > 0) this.shift(run.entriesAt, by);
    else if (by < 0) this.shift(run.entriesAt, by);
    run.blocks = <u8>blocks;
  }

  addEntry(run: Run, id: u32, generation: u32, held: u32): void {
    this.shift(run.entriesAt + <u32>run.entries * ENTRY, ENTRY);
    const entry = run.entry(run.entries);
    run.entries++;
    entry.id = id;
    entry.generation = generation;
    entry.held = held;
  }

  removeEntry(run: Run, i: u32): void {
    this.shift(changetype<usize>(run.entry(i)) + ENTRY, -(<i32>ENTRY));
    run.entries--;
  }
}
