// In-flight load: what has been sent and has not ended, by endpoint. One table for the fleet, changed by compare-and-set at a decision, at the first response byte and at
// the end; the only load signal without a scrape's lag.
//
// What makes it true to the request over traps and hot swaps is a second book: each VM writes down what *it* has in flight. A VM that traps takes its streams with it and
// never releases them; its book goes stale, and the table is made anew from the books of the others. A book is marked (odd `turn`) while its VM is between its own record
// and the table, and the table's compare-and-set fails for whoever read it before the change, so a healing never counts a change twice or not at all.
import { Space, Store } from "../store";
import { Fleet } from "./fleet";

const RETRIES: i32 = 16;
/** A VM whose book is older than this has trapped: it ticks several times in between. */
export const STALE_MS: u64 = 8_000;
/** VMs of an earlier module live on without ticks until their last stream ends, and refresh their book with every release. */
export const RETIRED_STALE_MS: u64 = 900_000;
const MAX_VMS: u32 = 512;

const TABLE_HEAD: u32 = 8;
const SHARE_HEAD: u32 = 32;

/** Same layout in the table and in a book. */
@unmanaged
export class Flight {
  id: u32;
  requests: u32;
  tokens: u32;
}
const FLIGHT: u32 = 12;

@unmanaged
class Share {
  /** Odd while its VM changes the table. */
  turn: u32;
  dropped: u32;
  heartbeatMs: u64;
  module: u32;
  count: u32;
  /** Streams are open in this VM. */
  streams: u32;
  private pad: u32;
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
  private tableMissing: bool = false;
  // The changes of one step.
  private pending: usize = memory.data(64 * 12, 8);
  private pendingCount: u32 = 0;

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

  /** Takes a number for this VM and writes it into the list. */
  join(nowMs: u64): void {
    const list = heap.alloc(8 + (MAX_VMS << 2));
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      let cas: u32 = 0;
      let missing = true;
      let n: u32 = 0;
      let next: u32 = 1;
      if (this.store.get(Space.Vms, 0) && this.store.size >= 8) {
        missing = false;
        cas = this.store.cas;
        next = load<u32>(this.store.at);
        n = min(load<u32>(this.store.at, 4), min((this.store.size - 8) >> 2, MAX_VMS));
        memory.copy(list + 8, this.store.at + 8, n << 2);
        let known = false;
        for (let i: u32 = 0; i < n; i++) if (this.vm && load<u32>(list + 8 + (i << 2)) == this.vm) known = true;
        if (known) break;
      }
      const mine = this.vm ? this.vm : next;
      // The oldest entry makes room: it has not been heard of for hundreds of VMs.
      if (n == MAX_VMS) {
        memory.copy(list + 8, list + 12, (MAX_VMS - 1) << 2);
        n--;
      }
      store<u32>(list, this.vm ? next : next + 1);
      store<u32>(list, n + 1, 4);
      store<u32>(list + 8 + (n << 2), mine);
      if (!this.store.set(Space.Vms, 0, list, 8 + ((n + 1) << 2), cas)) continue;
      // On a missing key everybody wins: only a second write, over a record that is there, is one's own. The number stays unused.
      if (missing) continue;
      this.vm = mine;
      break;
    }
    heap.free(list);
    this.writeBook(nowMs);
  }

  private writeBook(nowMs: u64): void {
    const share = this.share;
    share.heartbeatMs = nowMs;
    share.streams = this.streams;
    share.dropped = 0;
    this.beat = nowMs;
    if (this.vm) this.store.set(Space.VmShare, this.vm, this.book, SHARE_HEAD + share.count * FLIGHT, 0);
  }

  /** Notes a change of endpoint `id`, to be made with the others of this step by `flush`. Id 0 is nobody. */
  change(id: u32, requests: i32, tokens: i32): void {
    if (!id || this.pendingCount == 64) return;
    const p = changetype<Flight>(this.pending + this.pendingCount * FLIGHT);
    this.pendingCount++;
    p.id = id;
    p.requests = <u32>requests;
    p.tokens = <u32>tokens;
  }

  /** Makes the noted changes, in this VM's book and in the table. */
  flush(nowMs: u64): void {
    const n = this.pendingCount;
    this.pendingCount = 0;
    if (!n) return;
    if (nowMs > this.beat + (STALE_MS >> 1)) this.revive(nowMs);
    this.share.turn++;
    for (let i: u32 = 0; i < n; i++) {
      const p = changetype<Flight>(this.pending + i * FLIGHT);
      this.applyToBook(p.id, <i32>p.requests, <i32>p.tokens);
    }
    this.writeBook(nowMs);
    let done = false;
    for (let attempt = 0; attempt < RETRIES && !done; attempt++) {
      this.readTable();
      for (let i: u32 = 0; i < n; i++) {
        const p = changetype<Flight>(this.pending + i * FLIGHT);
        this.applyToTable(p.id, <i32>p.requests, <i32>p.tokens);
      }
      done = this.writeTable();
    }
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
    let n: u32 = 0;
    this.tableCas = 0;
    this.tableMissing = true;
    if (this.store.get(Space.InFlight, 0) && this.store.size >= TABLE_HEAD) {
      this.tableMissing = false;
      this.tableCas = this.store.cas;
      n = min(load<u32>(this.store.at), (this.store.size - TABLE_HEAD) / FLIGHT);
      this.growTable(n + 64);
      memory.copy(this.table + TABLE_HEAD, this.store.at + TABLE_HEAD, n * FLIGHT);
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
    const ok = this.store.set(Space.InFlight, 0, this.table, TABLE_HEAD + this.tableCount * FLIGHT, this.tableCas);
    // A write to a missing key succeeds for everybody: make the empty record first, then change it like any other.
    return ok && !this.tableMissing;
  }

  /** The empty table, so that the first change is a change of an existing record. */
  create(): void {
    if (this.store.get(Space.InFlight, 0)) return;
    store<u64>(this.table, 0);
    this.store.set(Space.InFlight, 0, this.table, TABLE_HEAD, 0);
  }

  /**
   * Reads the table for a decision: `requests` and `tokens` by table position. Positions without an entry are set to 0.
   */
  read(fleet: Fleet, requests: StaticArray<i32>, tokens: StaticArray<i32>): void {
    memory.fill(changetype<usize>(requests), 0, <usize>requests.length << 2);
    memory.fill(changetype<usize>(tokens), 0, <usize>tokens.length << 2);
    if (!this.store.get(Space.InFlight, 0) || this.store.size < TABLE_HEAD) return;
    const n = min(load<u32>(this.store.at), (this.store.size - TABLE_HEAD) / FLIGHT);
    for (let i: u32 = 0; i < n; i++) {
      const f = changetype<Flight>(this.store.at + TABLE_HEAD + i * FLIGHT);
      const place = fleet.place(f.id);
      if (place < 0) continue;
      unchecked((requests[place] = <i32>f.requests));
      unchecked((tokens[place] = <i32>f.tokens));
    }
  }

  /** This VM was silent for so long that its share may have been dropped: put it back before it is changed. */
  private revive(nowMs: u64): void {
    if (!this.vm) {
      this.join(nowMs);
      return;
    }
    if (!this.store.get(Space.VmShare, this.vm) || this.store.size < SHARE_HEAD) return;
    if (!changetype<Share>(this.store.at).dropped) return;
    this.join(nowMs);
    const share = this.share;
    share.turn++;
    this.writeBook(nowMs);
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      this.readTable();
      for (let i: u32 = 0; i < share.count; i++) {
        const f = this.bookAt(i);
        this.applyToTable(f.id, <i32>f.requests, <i32>f.tokens);
      }
      if (this.writeTable()) break;
    }
    share.turn++;
    this.writeBook(nowMs);
  }

  /** On every tick: this VM lives. */
  refresh(nowMs: u64): void {
    if (nowMs > this.beat + (STALE_MS >> 1)) this.revive(nowMs);
    if (!this.vm) this.join(nowMs);
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
    const vms = min(load<u32>(this.store.at, 4), min((this.store.size - 8) >> 2, MAX_VMS));
    const list = heap.alloc(8 + (MAX_VMS << 2));
    memory.copy(list, this.store.at, 8 + (vms << 2));
    const listCas = this.store.cas;
    const wasCount = this.tableCount;
    store<u64>(this.table, 0);
    let kept: u32 = 0;
    let calm = true;
    const gone = heap.alloc(MAX_VMS << 2);
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
        store<u32>(gone + (goneCount++ << 2), vm);
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
      if (done && goneCount) {
        for (let g: u32 = 0; g < goneCount; g++) this.drop(load<u32>(gone + (g << 2)));
        store<u32>(list, kept, 4);
        this.store.set(Space.Vms, 0, list, 8 + (kept << 2), listCas);
      }
    }
    heap.free(gone);
    heap.free(list);
    heap.free(was);
    return done;
  }

  private drop(vm: u32): void {
    if (!this.store.get(Space.VmShare, vm) || this.store.size < SHARE_HEAD) return;
    const head = memory.data(SHARE_HEAD, 8);
    memory.copy(head, this.store.at, SHARE_HEAD);
    const share = changetype<Share>(head);
    share.dropped = 1;
    share.count = 0;
    this.store.set(Space.VmShare, vm, head, SHARE_HEAD, this.store.cas);
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

/** No count goes below zero. */
function add(f: Flight, requests: i32, tokens: i32): void {
  const r = <i64>f.requests + requests;
  const t = <i64>f.tokens + tokens;
  f.requests = r < 0 ? 0 : <u32>r;
  f.tokens = t < 0 ? 0 : <u32>t;
}
