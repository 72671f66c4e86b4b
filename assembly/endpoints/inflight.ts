// In-flight load: what has been sent and has not ended, by endpoint. One table for the fleet, changed by compare-and-set at a decision, at the first response byte and at
// the end; the only load signal without a scrape's lag.
//
// What makes it true to the request over traps and hot swaps is a second book: each VM writes down what *it* has in flight. A VM that traps takes its streams with it and
// never releases them; its book goes stale, and the table is made anew from the books of the others. A book is marked (odd `turn`) while its VM is between its own record
// and the table, and the table's compare-and-set fails for whoever read it before the change, so a healing never counts a change twice or not at all. Which books count is
// told by the list of VMs: whoever was silent for so long that he may have been taken off it looks there, after his book is written, before he changes the table.
import { CREATE, Space, Store } from "../store";
import { clear, copy } from "../words";
import { Fleet } from "./fleet";

const RETRIES: i32 = 16;
/** A VM whose book is older than this has trapped: it ticks several times in between. */
export const STALE_MS: u64 = 8_000;
/** VMs of an earlier module live on without ticks until their last stream ends, and refresh their book with every release. */
export const RETIRED_STALE_MS: u64 = 900_000;
const MAX_VMS: u32 = 512;

const TABLE_HEAD: u32 = 8;
const SHARE_HEAD: u32 = 24;

/** Same layout in the table and in a book. */
@unmanaged
export class Flight {
  id: u32;
  requests: u32;
  tokens: u32;
}
const FLIGHT: u32 = 12;
/** Changes that wait: those of one step (decode, prefill and an encoder per media item), and releases of earlier ones. */
const MAX_PENDING: u32 = 128;
/** With more of them there might be no room for another step's. */
const MANY_PENDING: u32 = 64;
/** The table is written so often at most; what comes in between waits for the next change, or for the tick. With less traffic nothing waits. */
const SPACING_MS: u64 = 5;
/** A VM without a tick for so long is a retired one, which gets none any more: nothing may wait there. */
const TICKLESS_MS: u64 = 600;
/** Where counts end, so that none of them is read as a negative one. */
const MOST: i64 = 0x7fffffff;

@unmanaged
class Share {
  /** Odd while its VM changes the table. */
  turn: u32;
  count: u32;
  heartbeatMs: u64;
  module: u32;
}

export class InFlight {
  /** This VM's number; 0 before it has joined. */
  vm: u32 = 0;
  /** Changes that were given up after lost races; the next healing mends them. */
  lost: u32 = 0;
  /** Healings that changed the table. */
  healed: u32 = 0;
  /** Streams open in this VM. */
  streams: u32 = 0;
  private beat: u64 = 0;
  private book: usize;
  private bookRoom: u32 = 64;
  private table: usize;
  private tableRoom: u32 = 256;
  private tableCas: u32 = 0;
  // The changes of one step.
  private pending: usize = heap.alloc(MAX_PENDING * FLIGHT);
  private pendingCount: u32 = 0;
  private flushedMs: u64 = 0;
  private tickMs: u64 = 0;
  /** The table in memory is what `read` found; the compare-and-set tells whether it still is. */
  private held: bool = false;
  /** When the table in memory was the one in shared data; 0: it never was, or is something else now. */
  private readMs: u64 = 0;

  /** `module`: any number that differs from module to module. */
  constructor(
    private store: Store,
    private module: u32,
  ) {
    this.book = heap.alloc(SHARE_HEAD + this.bookRoom * FLIGHT);
    this.table = heap.alloc(TABLE_HEAD + this.tableRoom * FLIGHT);
    memory.fill(this.book, 0, SHARE_HEAD);
    changetype<Share>(this.book).module = module;
  }

  private get share(): Share {
    return changetype<Share>(this.book);
  }

  private bookAt(i: u32): Flight {
    return changetype<Flight>(this.book + SHARE_HEAD + i * FLIGHT);
  }

  private tableAt(i: u32): Flight {
    return changetype<Flight>(this.table + TABLE_HEAD + i * FLIGHT);
  }

  private get tableCount(): u32 {
    return load<u32>(this.table);
  }

  /** Takes a number for this VM and writes it into the list; one that has its number sees to it that it is still there. */
  join(nowMs: u64): void {
    const number = this.enlist(this.vm);
    if (number) this.vm = number;
    this.writeBook(nowMs);
  }

  /** Puts VM number `wanted`, or a new one for 0, into the list. Returns the number; 0 when every race was lost. */
  private enlist(wanted: u32): u32 {
    const list = heap.alloc(8 + (MAX_VMS << 2));
    let given: u32 = 0;
    for (let attempt = 0; attempt < RETRIES && !given; attempt++) {
      let cas: u32 = CREATE;
      let n: u32 = 0;
      let next: u32 = 1;
      if (this.store.get(Space.Vms, 0)) {
        cas = this.store.cas;
        if (this.store.size >= 8) {
          next = max<u32>(1, load<u32>(this.store.at));
          n = listed(this.store);
          memory.copy(list + 8, this.store.at + 8, n << 2);
          if (wanted && stands(list, n, wanted)) {
            given = wanted;
            break;
          }
        }
      }
      const mine = wanted ? wanted : next;
      // The oldest entry makes room: it has not been heard of for hundreds of VMs.
      if (n == MAX_VMS) {
        memory.copy(list + 8, list + 12, (MAX_VMS - 1) << 2);
        n--;
      }
      store<u32>(list, max(next, mine + 1));
      store<u32>(list, n + 1, 4);
      store<u32>(list + 8 + (n << 2), mine);
      if (this.store.set(Space.Vms, 0, list, 8 + ((n + 1) << 2), cas)) given = mine;
    }
    heap.free(list);
    return given;
  }

  private writeBook(nowMs: u64): void {
    const share = this.share;
    share.heartbeatMs = nowMs;
    this.beat = nowMs;
    if (this.vm) this.store.set(Space.VmShare, this.vm, this.book, SHARE_HEAD + share.count * FLIGHT, 0);
  }

  /** Notes a change of endpoint `id`, to be made with the others of this step by `flush`. Id 0 is nobody. */
  change(id: u32, requests: i32, tokens: i32): void {
    if (!id) return;
    for (let i: u32 = 0; i < this.pendingCount; i++) {
      const p = changetype<Flight>(this.pending + i * FLIGHT);
      if (p.id != id) continue;
      p.requests += <u32>requests;
      p.tokens += <u32>tokens;
      return;
    }
    if (this.pendingCount == MAX_PENDING) return;
    const p = changetype<Flight>(this.pending + this.pendingCount * FLIGHT);
    this.pendingCount++;
    p.id = id;
    p.requests = <u32>requests;
    p.tokens = <u32>tokens;
  }

  /**
   * Makes the noted changes now, or in company of the next ones when the last were made just now: three writes a request cost as much as all its scheduling. This VM's own
   * decisions know them at once (`read`), another VM's a little later. A VM that traps loses them with the streams that they are of.
   */
  flushSoon(nowMs: u64): void {
    if (this.pendingCount > MANY_PENDING || nowMs >= this.flushedMs + SPACING_MS || nowMs > this.tickMs + TICKLESS_MS) this.flush(nowMs);
  }

  /** Makes the noted changes, in this VM's book and in the table. */
  flush(nowMs: u64): void {
    const n = this.pendingCount;
    this.pendingCount = 0;
    if (!n) return;
    this.flushedMs = nowMs;
    const silent = nowMs > this.beat + (STALE_MS >> 1);
    this.share.turn++;
    if (silent) {
      this.writeBook(nowMs);
      this.revive(nowMs);
    }
    for (let i: u32 = 0; i < n; i++) {
      const p = changetype<Flight>(this.pending + i * FLIGHT);
      this.applyToBook(p.id, <i32>p.requests, <i32>p.tokens);
    }
    this.writeBook(nowMs);
    let done = false;
    for (let attempt = 0; attempt < RETRIES && !done; attempt++) {
      if (!this.held) this.readTable();
      this.held = false;
      for (let i: u32 = 0; i < n; i++) {
        const p = changetype<Flight>(this.pending + i * FLIGHT);
        this.applyToTable(p.id, <i32>p.requests, <i32>p.tokens);
      }
      done = this.writeTable();
    }
    this.readMs = done ? nowMs : 0;
    if (!done) this.lost++;
    this.share.turn++;
    this.writeBook(nowMs);
  }

  private applyToBook(id: u32, requests: i32, tokens: i32): void {
    let i: u32 = 0;
    while (i < this.share.count && this.bookAt(i).id != id) i++;
    if (i == this.share.count) {
      if (requests <= 0 && tokens <= 0) return;
      if (i == this.bookRoom) {
        this.bookRoom <<= 1;
        this.book = heap.realloc(this.book, SHARE_HEAD + this.bookRoom * FLIGHT);
      }
      const f = this.bookAt(i);
      f.id = id;
      f.requests = 0;
      f.tokens = 0;
      this.share.count++;
    }
    const f = this.bookAt(i);
    add(f, requests, tokens);
    if (!f.requests && !f.tokens) {
      const last = this.bookAt(this.share.count - 1);
      f.id = last.id;
      f.requests = last.requests;
      f.tokens = last.tokens;
      this.share.count--;
    }
  }

  private readTable(): void {
    this.held = false;
    this.readMs = 0;
    let n: u32 = 0;
    this.tableCas = CREATE;
    if (this.store.get(Space.InFlight, 0)) {
      this.tableCas = this.store.cas;
      if (this.store.size >= TABLE_HEAD) {
        n = min(load<u32>(this.store.at), (this.store.size - TABLE_HEAD) / FLIGHT);
        this.growTable(n + 64);
        copy(this.table + TABLE_HEAD, this.store.at + TABLE_HEAD, n * FLIGHT);
      }
    }
    store<u64>(this.table, n);
  }

  private growTable(room: u32): void {
    if (room <= this.tableRoom) return;
    while (this.tableRoom < room) this.tableRoom <<= 1;
    this.table = heap.realloc(this.table, TABLE_HEAD + this.tableRoom * FLIGHT);
  }

  private applyToTable(id: u32, requests: i32, tokens: i32): void {
    const n = this.tableCount;
    let i: u32 = 0;
    while (i < n && this.tableAt(i).id != id) i++;
    if (i == n) {
      if (requests <= 0 && tokens <= 0) return;
      this.growTable(n + 1);
      const f = this.tableAt(i);
      f.id = id;
      f.requests = 0;
      f.tokens = 0;
      store<u32>(this.table, n + 1);
    }
    const f = this.tableAt(i);
    add(f, requests, tokens);
    if (!f.requests && !f.tokens) {
      const last = this.tableAt(this.tableCount - 1);
      f.id = last.id;
      f.requests = last.requests;
      f.tokens = last.tokens;
      store<u32>(this.table, this.tableCount - 1);
    }
  }

  private writeTable(): bool {
    return this.store.set(Space.InFlight, 0, this.table, TABLE_HEAD + this.tableCount * FLIGHT, this.tableCas);
  }

  /**
   * The table for a decision: `requests` and `tokens` by table position. Positions without an entry are set to 0. What this VM has changed and not yet written is in it.
   * What was read less than `ageMs` ago is not read again: others write no more often than that. The `flush` that follows a reading need not read, either.
   */
  read(fleet: Fleet, requests: StaticArray<i32>, tokens: StaticArray<i32>, nowMs: u64, ageMs: u64): void {
    clear(changetype<usize>(requests), <usize>requests.length << 2);
    clear(changetype<usize>(tokens), <usize>tokens.length << 2);
    // Wraps where the clock was set back: then it is read again.
    if (!this.readMs || nowMs - this.readMs >= ageMs) {
      this.readTable();
      this.held = true;
      this.readMs = nowMs;
    }
    for (let i: u32 = 0, n = this.tableCount; i < n; i++) {
      const f = this.tableAt(i);
      const place = fleet.place(f.id);
      if (place < 0) continue;
      unchecked((requests[place] = <i32>min<u32>(f.requests, <u32>MOST)));
      unchecked((tokens[place] = <i32>min<u32>(f.tokens, <u32>MOST)));
    }
    for (let i: u32 = 0, n = this.pendingCount; i < n; i++) {
      const p = changetype<Flight>(this.pending + i * FLIGHT);
      const place = fleet.place(p.id);
      if (place < 0) continue;
      unchecked((requests[place] = sum(requests[place], <i32>p.requests)));
      unchecked((tokens[place] = sum(tokens[place], <i32>p.tokens)));
    }
  }

  /** Requests that endpoint `id` has in flight. */
  requestsOf(id: u32): u32 {
    if (!this.store.get(Space.InFlight, 0) || this.store.size < TABLE_HEAD) return 0;
    const n = min(load<u32>(this.store.at), (this.store.size - TABLE_HEAD) / FLIGHT);
    for (let i: u32 = 0; i < n; i++) {
      const f = changetype<Flight>(this.store.at + TABLE_HEAD + i * FLIGHT);
      if (f.id == id) return f.requests;
    }
    return 0;
  }

  /**
   * This VM was silent for so long that it may have been taken off the list, and its share with it: puts both back. Its book is marked and written; who takes it off from
   * now on sees that and puts it back himself.
   */
  private revive(nowMs: u64): void {
    if (this.isListed()) return;
    this.join(nowMs);
    const share = this.share;
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      this.readTable();
      for (let i: u32 = 0; i < share.count; i++) {
        const f = this.bookAt(i);
        this.applyToTable(f.id, <i32>f.requests, <i32>f.tokens);
      }
      if (this.writeTable()) break;
    }
  }

  private isListed(): bool {
    if (!this.vm || !this.store.get(Space.Vms, 0) || this.store.size < 8) return false;
    return stands(this.store.at, listed(this.store), this.vm);
  }

  /** On every tick: this VM lives. */
  refresh(nowMs: u64): void {
    this.tickMs = nowMs;
    this.flush(nowMs);
    if (!this.isListed()) {
      this.share.turn++;
      this.writeBook(nowMs);
      this.revive(nowMs);
      this.share.turn++;
    }
    this.writeBook(nowMs);
  }

  /**
   * The lease holder's healing: the table becomes the sum of all books that are alive. Does nothing while a book is being changed (the next tick will do). Returns
   * whether it was done.
   */
  heal(nowMs: u64): bool {
    this.readTable();
    const before = this.tableCas;
    const was = this.copyTable();
    if (!this.store.get(Space.Vms, 0) || this.store.size < 8) {
      heap.free(was);
      return false;
    }
    const vms = listed(this.store);
    const list = heap.alloc(8 + (MAX_VMS << 2));
    memory.copy(list, this.store.at, 8 + (vms << 2));
    const listCas = this.store.cas;
    const wasCount = this.tableCount;
    store<u64>(this.table, 0);
    let kept: u32 = 0;
    let calm = true;
    // Number and book of those who are gone.
    const gone = heap.alloc(MAX_VMS << 3);
    let goneCount: u32 = 0;
    for (let v: u32 = 0; v < vms && calm; v++) {
      const vm = load<u32>(list + 8 + (v << 2));
      if (!this.store.get(Space.VmShare, vm) || this.store.size < SHARE_HEAD) {
        // It has its number and no book yet.
        store<u32>(list + 8 + (kept++ << 2), vm);
        continue;
      }
      const share = changetype<Share>(this.store.at);
      const limit = share.module == this.module ? STALE_MS : RETIRED_STALE_MS;
      const silent = nowMs > share.heartbeatMs + limit;
      if (silent || (!share.count && nowMs > share.heartbeatMs + STALE_MS)) {
        store<u32>(gone + (goneCount << 3), vm);
        store<u32>(gone + (goneCount++ << 3), this.store.cas, 4);
        continue;
      }
      if (share.turn & 1) {
        calm = false;
        break;
      }
      store<u32>(list + 8 + (kept++ << 2), vm);
      const n = min(share.count, (this.store.size - SHARE_HEAD) / FLIGHT);
      for (let i: u32 = 0; i < n; i++) {
        const f = changetype<Flight>(this.store.at + SHARE_HEAD + i * FLIGHT);
        this.applyToTable(f.id, <i32>f.requests, <i32>f.tokens);
      }
    }
    let done = false;
    if (calm) {
      done = true;
      if (!this.same(was, wasCount)) {
        this.tableCas = before;
        done = this.writeTable();
        if (done) this.healed++;
      }
      store<u32>(list, kept, 4);
      if (done && goneCount && this.store.set(Space.Vms, 0, list, 8 + (kept << 2), listCas)) {
        for (let g: u32 = 0; g < goneCount; g++) this.close(load<u32>(gone + (g << 3)), load<u32>(gone + (g << 3), 4));
      }
    }
    heap.free(gone);
    heap.free(list);
    heap.free(was);
    return done;
  }

  /** VM number `vm` has been taken off the list: its book is emptied, unless it has been written since it was found stale; then that VM lives. */
  private close(vm: u32, cas: u32): void {
    const empty = memory.data(SHARE_HEAD, 8);
    if (!this.store.set(Space.VmShare, vm, empty, SHARE_HEAD, cas)) this.enlist(vm);
  }

  private copyTable(): usize {
    const size = TABLE_HEAD + this.tableCount * FLIGHT;
    const copy = heap.alloc(size);
    memory.copy(copy, this.table, size);
    return copy;
  }

  /** Whether the table holds what the copy `was` held, in any order. */
  private same(was: usize, wasCount: u32): bool {
    if (this.tableCount != wasCount) return false;
    for (let i: u32 = 0; i < wasCount; i++) {
      const f = changetype<Flight>(was + TABLE_HEAD + i * FLIGHT);
      let found = false;
      for (let k: u32 = 0; k < wasCount && !found; k++) {
        const g = this.tableAt(k);
        found = f.id == g.id && f.requests == g.requests && f.tokens == g.tokens;
      }
      if (!found) return false;
    }
    return true;
  }
}

function sum(count: i32, change: i32): i32 {
  return <i32>min(max<i64>(<i64>count + change, 0), MOST);
}

/** No count goes below zero, or so far up that it would be read as less. */
function add(f: Flight, requests: i32, tokens: i32): void {
  f.requests = <u32>min(max<i64>(<i64>f.requests + requests, 0), MOST);
  f.tokens = <u32>min(max<i64>(<i64>f.tokens + tokens, 0), MOST);
}

/** How many numbers the list of VMs holds that has just been read; at least 8 bytes of it are there. */
function listed(from: Store): u32 {
  return min(load<u32>(from.at, 4), min((from.size - 8) >> 2, MAX_VMS));
}

/** Whether `vm` is one of the `n` numbers in `list`. */
function stands(list: usize, n: u32, vm: u32): bool {
  for (let i: u32 = 0; i < n; i++) if (load<u32>(list + 8 + (i << 2)) == vm) return true;
  return false;
}
