// Scraped load and health of the fleet: one record, written by the lease holder, read once per request.
import { Space, Store } from "../store";
import { Fleet } from "./fleet";
import { EndpointTable, KNOWN_KV_USAGE, KNOWN_RUNNING, KNOWN_WAITING } from "./table";

/** Two scrapes in a row refused, reset or timed out: left out of every profile until one succeeds. */
export const UNREACHABLE: u32 = 1;
/** Its `/health` answers 503: it is going, or not there yet. */
export const DRAINING: u32 = 2;
/** It has been scraped at least once. */
export const SCRAPED: u32 = 4;
const KNOWN_SHIFT: u32 = 8;

/** Failed scrapes in a row that take an endpoint out. */
export const FAILURES_OUT: u32 = 2;

/** One endpoint's place in the record. */
@unmanaged
export class LoadEntry {
  id: u32;
  flags: u32;
  /** When the values were scraped. */
  scrapedMs: u64;
  waiting: f32;
  running: f32;
  kvUsage: f32;
  /** The engine's cache: tokens per block and number of blocks; 0: not told. */
  blockTokens: u32;
  blocks: u32;
  /** Failed scrapes in a row. */
  failures: u16;
  /** Requests that the endpoint had in flight from here when the values were scraped. */
  inflight: u16;
  /** What tells a restart: the process's start and a counter that only grows. */
  startTime: f64;
  counter: f64;

  known(mask: u8): bool {
    return ((this.flags >> KNOWN_SHIFT) & mask) != 0;
  }
  setKnown(mask: u8): void {
    this.flags |= <u32>mask << KNOWN_SHIFT;
  }
  clearKnown(): void {
    this.flags &= ~(<u32>0xff << KNOWN_SHIFT);
  }
}

export const LOAD_ENTRY: u32 = offsetof<LoadEntry>();
const HEAD: u32 = 8;

/**
 * Reads the record into the table's dynamic columns. Values older than `staleMs` are not known. `table.inflightRequests` is of this moment: what has come on top of the
 * scrape since is `table.sinceScrape` (which `noteSinceScrape` brings up to date while the record is not read again). Returns endpoints that were left out.
 */
export function readLoad(from: Store, fleet: Fleet, table: EndpointTable, nowMs: u64, staleMs: u64): i32 {
  const n = table.count;
  for (let i = 0; i < n; i++) {
    unchecked((table.known[i] = 0));
    unchecked((table.usable[i] = 1));
    unchecked((table.scrapedInflight[i] = i32.MAX_VALUE));
  }
  if (!from.get(Space.Load, 0) || from.size < HEAD) {
    noteSinceScrape(table);
    return 0;
  }
  const count = min(load<u32>(from.at), (from.size - HEAD) / LOAD_ENTRY);
  let out: i32 = 0;
  for (let k: u32 = 0; k < count; k++) {
    const e = changetype<LoadEntry>(from.at + HEAD + k * LOAD_ENTRY);
    const i = fleet.place(e.id);
    if (i < 0) continue;
    if (e.flags & (UNREACHABLE | DRAINING)) {
      unchecked((table.usable[i] = 0));
      out++;
    }
    unchecked((table.cacheTokens[i] = <f64>e.blockTokens * <f64>e.blocks));
    if (nowMs > e.scrapedMs + staleMs) continue;
    unchecked((table.known[i] = <u8>((e.flags >> KNOWN_SHIFT) & (KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE))));
    unchecked((table.waiting[i] = e.waiting));
    unchecked((table.running[i] = e.running));
    unchecked((table.kvUsage[i] = e.kvUsage));
    unchecked((table.scrapedInflight[i] = <i32>e.inflight));
  }
  noteSinceScrape(table);
  return out;
}

/** What is in flight now on top of what was when the endpoint was scraped; none where the scrape is not known. */
export function noteSinceScrape(table: EndpointTable): void {
  for (let i = 0, n = table.count; i < n; i++) unchecked((table.sinceScrape[i] = max(0, table.inflightRequests[i] - table.scrapedInflight[i])));
}

/** Tokens per block that the first endpoint with a known cache reports; 0: none does. */
export function reportedBlockTokens(from: Store, fleet: Fleet): u32 {
  if (!from.get(Space.Load, 0) || from.size < HEAD) return 0;
  const count = min(load<u32>(from.at), (from.size - HEAD) / LOAD_ENTRY);
  for (let k: u32 = 0; k < count; k++) {
    const e = changetype<LoadEntry>(from.at + HEAD + k * LOAD_ENTRY);
    if (e.blockTokens && fleet.place(e.id) >= 0) return e.blockTokens;
  }
  return 0;
}

/** The lease holder's copy of the record, by table position. */
export class LoadBook {
  private at: usize;
  private count: u32;
  dirty: bool = false;

  constructor(ids: StaticArray<u32>) {
    this.count = <u32>ids.length;
    this.at = heap.alloc(HEAD + this.count * LOAD_ENTRY);
    memory.fill(this.at, 0, HEAD + this.count * LOAD_ENTRY);
    store<u32>(this.at, this.count);
    for (let i = 0; i < ids.length; i++) this.entry(i).id = ids[i];
  }

  dispose(): void {
    heap.free(this.at);
  }

  entry(i: i32): LoadEntry {
    return changetype<LoadEntry>(this.at + HEAD + <u32>i * LOAD_ENTRY);
  }

  /** Takes over what the record says of the same endpoints: the last holder's knowledge. */
  adopt(from: Store, fleet: Fleet): void {
    if (!from.get(Space.Load, 0) || from.size < HEAD) return;
    const n = min(load<u32>(from.at), (from.size - HEAD) / LOAD_ENTRY);
    for (let k: u32 = 0; k < n; k++) {
      const e = changetype<LoadEntry>(from.at + HEAD + k * LOAD_ENTRY);
      const i = fleet.place(e.id);
      if (i >= 0) memory.copy(changetype<usize>(this.entry(i)), changetype<usize>(e), LOAD_ENTRY);
    }
  }

  /** An endpoint was restarted in place: its load and credit start at nothing under `id`. */
  renew(i: i32, id: u32): void {
    const e = this.entry(i);
    const startTime = e.startTime;
    const counter = e.counter;
    memory.fill(changetype<usize>(e), 0, LOAD_ENTRY);
    e.id = id;
    e.startTime = startTime;
    e.counter = counter;
    this.dirty = true;
  }

  write(to: Store): void {
    to.set(Space.Load, 0, this.at, HEAD + this.count * LOAD_ENTRY, 0);
    this.dirty = false;
  }
}
