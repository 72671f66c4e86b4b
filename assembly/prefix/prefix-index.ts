// The prefix index: which endpoint holds how many blocks of a prompt, from its start without a gap. A radix tree of runs (see slot.ts) over a fixed number of
// shared-data slots. A run is up to 64 consecutive blocks that no two known prompts divide; where a prompt leaves a run in its middle the run is cut there, so a system
// prompt that ten thousand conversations share is stored, and counted, once.
import { CREATE, Space, Store } from "../store";
import { Fleet } from "../endpoints/fleet";
import { Generations } from "./generations";
import { findHolders, Holders, holdersAt, MAX_HOLDERS } from "./holders";
import { Ledger } from "./ledger";
import { APART, CLOSED, ENTRY, Entry, findRun, holdersTag, Run, RUN_BLOCKS, RUN_ENTRIES, RUN_HEAD, SLOT_BYTES, SlotEditor, spread, TAIL } from "./slot";

/** Retries of a write that lost its race against another worker; then this request leaves no trace in that run. */
const RETRIES: i32 = 4;
/** Slots of one look-up that the following update need not read again. */
const PATH: u32 = 64;

@unmanaged
class Step {
  slot: u32;
  cas: u32;
  at: usize;
  size: u32;
}

/** An endpoint that is being credited, and what the write that is being made changes of its counts. */
class Taker {
  id: u32 = 0;
  private had: u32 = 0;
  private hadIn: u32 = 0;
  private has: u32 = 0;

  /** `generations`: of endpoint `id`, where there is one. */
  constructor(public generations: Generations) {}

  /** Its entry is to say that it holds `held` blocks of `blocks`; returns false when it says so already. */
  note(entry: Entry, held: u32, blocks: u32): bool {
    const generations = this.generations;
    const had = entry.generation >= generations.floor ? min(entry.held, blocks) : 0;
    if (had >= held && entry.generation == generations.current) return false;
    this.had = had;
    this.hadIn = entry.generation;
    this.has = max(had, held);
    entry.generation = generations.current;
    entry.held = this.has;
    return true;
  }

  /** It is to have an entry where it had none. */
  noteNew(held: u32): void {
    this.had = 0;
    this.has = held;
  }

  /** Nothing is noted. */
  forget(): void {
    this.had = 0;
    this.has = 0;
  }

  /** What was noted has been written. */
  settle(): void {
    if (this.had) this.generations.move(this.hadIn, this.had);
    if (this.has) this.generations.add(this.has);
    this.forget();
  }
}

export class PrefixIndex {
  /** Runs that were dropped because their slot was full. */
  evictions: u32 = 0;
  /** Writes given up after lost races. */
  lostWrites: u32 = 0;
  private editor: SlotEditor = new SlotEditor();
  private one: Taker;
  private two: Taker;
  private readonly ledger: Ledger;
  private settledMs: u64 = 0;
  private holders: Holders = new Holders();
  private room: StaticArray<u8> = new StaticArray<u8>(PATH * offsetof<Step>() + (RUN_BLOCKS << 2) + MAX_HOLDERS * ENTRY);
  /** What the last look-up read. */
  private path: usize = 0;
  private pathCount: u32 = 0;
  /** Hashes of the run that is being cut off. */
  private scratch: usize = 0;
  /** Entries of the runs that the next write takes out of their slot, and how many runs had to make room. */
  private gone: usize = 0;
  private goneCount: u32 = 0;
  private goneRuns: u32 = 0;
  /** Of the record that `readSlot` found. */
  private cas: u32 = 0;

  /** `slots` records of at most 4 KiB are used, never more. */
  constructor(
    private store: Store,
    private slots: u32,
  ) {
    const nobody = new Generations(store);
    this.one = new Taker(nobody);
    this.two = new Taker(nobody);
    this.ledger = new Ledger(store);
    this.path = changetype<usize>(this.room);
    this.scratch = this.path + PATH * offsetof<Step>();
    this.gone = this.scratch + (RUN_BLOCKS << 2);
  }

  /** Before the first look-up or credit of a callback: what an earlier one read stands in the arena no more. */
  begin(): void {
    this.pathCount = 0;
  }

  private slotOf(root: u64, start: u32, hash: u32): u32 {
    return <u32>(spread(root + (<u64>start << 32) + <u64>hash) % <u64>this.slots);
  }

  /** Blocks that the run and the prompt have in common, from the run's first. */
  private common(run: Run, keys: usize, count: u32, from: u32): u32 {
    const most = min<u32>(run.blocks, count - from);
    let m: u32 = 1;
    while (m < most && run.hash(m) == load<u32>(keys + (<usize>(from + m) << 3))) m++;
    return m;
  }

  /**
   * How many blocks of the prompt with the `count` chain hashes at `keys` each endpoint holds, contiguous from the first: written to `out` by table position (which the
   * caller has zeroed). Returns the largest. Costs one read per run.
   */
  lookup(keys: usize, count: u32, fleet: Fleet, out: StaticArray<i32>): u32 {
    if (!count) return 0;
    const root = load<u64>(keys);
    let i: u32 = 0;
    let best: u32 = 0;
    while (i < count) {
      const hash = load<u32>(keys + (<usize>i << 3));
      const slot = this.slotOf(root, i, hash);
      const found = this.store.get(Space.PrefixSlot, slot);
      if (this.pathCount < PATH) {
        const step = changetype<Step>(this.path + this.pathCount * offsetof<Step>());
        this.pathCount++;
        step.slot = slot;
        step.cas = found ? this.store.cas : CREATE;
        step.at = this.store.at;
        step.size = found ? this.store.size : 0;
      }
      if (!found) break;
      const run = findRun(this.store.at, this.store.size, root, i, hash);
      if (!run) break;
      const m = this.common(run, keys, count, i);
      let at = run.entriesAt;
      let n: u32 = run.entries;
      if (run.flags & APART) {
        n = findHolders(this.store, run, this.slots);
        at = holdersAt;
      }
      let onward = false;
      for (; n; n--, at += ENTRY) {
        const entry = changetype<Entry>(at);
        const place = fleet.live(entry.id, entry.generation);
        if (place < 0 || unchecked(out[place]) != <i32>i) continue;
        const held = i + min(entry.held, m);
        unchecked((out[place] = held));
        if (held > best) best = held;
        if (entry.held >= m) onward = true;
      }
      if (!onward || m < <u32>run.blocks) break;
      i += m;
    }
    return best;
  }

  /** Loads slot `slot` into the editor, from the look-up's path the first time. */
  private readSlot(slot: u32, fresh: bool): void {
    this.goneCount = 0;
    this.goneRuns = 0;
    if (!fresh) {
      for (let i: u32 = 0; i < this.pathCount; i++) {
        const step = changetype<Step>(this.path + i * offsetof<Step>());
        if (step.slot != slot) continue;
        if (step.size) this.editor.load(step.at, step.size);
        else this.editor.clear();
        this.cas = step.cas;
        return;
      }
    }
    if (this.store.get(Space.PrefixSlot, slot)) {
      this.editor.load(this.store.at, this.store.size);
      this.cas = this.store.cas;
    } else {
      this.editor.clear();
      this.cas = CREATE;
    }
  }

  /** Writes the editor's slot; what was evicted from it leaves the counts only when it is really gone. */
  private writeSlot(slot: u32): bool {
    // The path's copy of this slot is old now, whether or not this write is the one that made it so.
    for (let i: u32 = 0; i < this.pathCount; i++) {
      const step = changetype<Step>(this.path + i * offsetof<Step>());
      if (step.slot == slot) step.slot = u32.MAX_VALUE;
    }
    if (!this.store.set(Space.PrefixSlot, slot, this.editor.at, this.editor.size, this.cas)) return false;
    this.evictions += this.goneRuns;
    this.goneRuns = 0;
    for (let i: u32 = 0; i < this.goneCount; i++) {
      const entry = changetype<Entry>(this.gone + i * ENTRY);
      const other = this.ledger.of(entry.id, this.one.id, this.two.id);
      other.move(entry.generation, entry.held);
      this.ledger.release(other);
    }
    this.goneCount = 0;
    return true;
  }

  /**
   * Endpoint `id` now holds the prompt's first `count` blocks, at `capacity` blocks in all. `tail`: the last of them is partial. `now`: seconds, of any clock that only
   * grows. A touch that changes nothing writes nothing.
   */
  credit(keys: usize, count: u32, tail: bool, id: u32, fleet: Fleet, capacity: u32, now: u32): void {
    this.creditBoth(keys, count, tail, id, 0, fleet, capacity, now);
  }

  /** The same for two endpoints in one go, each slot written once. `second` 0: for the first alone. */
  creditBoth(keys: usize, count: u32, tail: bool, first: u32, second: u32, fleet: Fleet, capacity: u32, now: u32): void {
    if (!count || !first) return;
    this.ledger.fleet = fleet;
    this.take(this.one, first, capacity);
    this.take(this.two, second == first ? 0 : second, capacity);
    const root = load<u64>(keys);
    let i: u32 = 0;
    while (i < count) {
      const hash = load<u32>(keys + (<usize>i << 3));
      const slot = this.slotOf(root, i, hash);
      let done: u32 = 0;
      for (let attempt = 0; attempt < RETRIES && !done; attempt++) {
        this.readSlot(slot, attempt > 0);
        done = this.creditRun(slot, root, keys, count, tail, i, fleet, now);
      }
      if (!done) {
        this.lostWrites++;
        break;
      }
      i += done;
    }
    this.ledger.release(this.one.generations);
    if (this.two.id) this.ledger.release(this.two.generations);
  }

  /** Endpoint `id` is the taker now; 0: nobody. */
  private take(taker: Taker, id: u32, capacity: u32): void {
    taker.id = id;
    if (!id) return;
    taker.generations = this.ledger.of(id, this.one.id, this.two.id);
    taker.generations.capacity = capacity;
  }

  /** Writes what waits in the endpoints' counts (ledger.ts). What `lookup` and `credit` say does not depend on it. */
  settle(fleet: Fleet): void {
    this.ledger.fleet = fleet;
    this.ledger.settle();
  }

  /** The same, unless it was done less than `ms` ago. */
  settleAfter(fleet: Fleet, nowMs: u64, ms: u64): void {
    // Wraps where the clock was set back: then it is done.
    if (nowMs - this.settledMs < ms) return;
    this.settledMs = nowMs;
    this.settle(fleet);
  }

  /** One run of a credit. Returns the blocks that are done; 0: the race was lost. Counts are noted only when the write has succeeded. */
  private creditRun(slot: u32, root: u64, keys: usize, count: u32, tail: bool, from: u32, fleet: Fleet, now: u32): u32 {
    const editor = this.editor;
    let run = editor.find(root, from, load<u32>(keys + (<usize>from << 3)));
    if (!run) return this.newRun(slot, root, keys, count, tail, from, fleet, now);
    const m = this.common(run, keys, count, from);
    const blocks = <u32>run.blocks;
    const left = count - from;
    let held = m;
    let changed = false;
    if (m < left) {
      // The prompt goes on behind what it has in common with the run.
      let grow = m == blocks && !(run.flags & CLOSED);
      if (m < blocks) {
        if (m == blocks - 1 && (run.flags & (TAIL | CLOSED | APART)) == TAIL) {
          // A conversation's next turn: the partial block of the last one has been filled up. (With more endpoints than the slot keeps it is cut off like any other.)
          editor.resize(run, m);
          this.trim(run, m, this.one.id, this.two.id);
          grow = true;
        } else {
          if (!this.cut(slot, run, m, fleet, now)) return 0;
          this.readSlot(slot, true);
          run = editor.find(root, from, load<u32>(keys + (<usize>from << 3)));
          if (!run || <u32>run.blocks != m) return 0;
        }
        changed = true;
      }
      if (grow) {
        const add = min(RUN_BLOCKS - m, left - m);
        if (add) {
          editor.resize(run, m + add);
          for (let k: u32 = 0; k < add; k++) store<u32>(changetype<usize>(run) + RUN_HEAD + ((m + k) << 2), load<u32>(keys + (<usize>(from + m + k) << 3)));
          held = m + add;
          if (tail && held == left) run.flags |= TAIL;
          else run.flags &= ~TAIL;
          changed = true;
        }
      }
    }
    return this.touch(slot, run, held, changed, fleet, now) ? held : 0;
  }

  /**
   * Entries of a run that has become shorter, but for those of endpoints `but` and `and`, which are about to hold more. The blocks that other endpoints lose this way stay in
   * their counts until the next walk.
   */
  private trim(run: Run, blocks: u32, but: u32, and: u32): void {
    if (run.flags & APART) return; // `held` is read as at most the run's length
    for (let e: u32 = 0; e < <u32>run.entries; e++) {
      const entry = run.entry(e);
      if (entry.held > blocks && entry.id != but && entry.id != and) entry.held = blocks;
    }
  }

  private newRun(slot: u32, root: u64, keys: usize, count: u32, tail: bool, from: u32, fleet: Fleet, now: u32): u32 {
    const editor = this.editor;
    const blocks = min(RUN_BLOCKS, count - from);
    this.makeRoom(RUN_HEAD + (blocks << 2) + 2 * ENTRY, fleet, null);
    const run = editor.append(root, from, blocks, now);
    for (let k: u32 = 0; k < blocks; k++) store<u32>(changetype<usize>(run) + RUN_HEAD + (k << 2), load<u32>(keys + (<usize>(from + k) << 3)));
    if (tail && from + blocks == count) run.flags |= TAIL;
    this.enter(run, this.one, blocks);
    if (this.two.id) this.enter(run, this.two, blocks);
    return this.written(this.writeSlot(slot)) ? blocks : 0;
  }

  private enter(run: Run, taker: Taker, held: u32): void {
    this.editor.addEntry(run, taker.id, taker.generations.current, held);
    taker.noteNew(held);
  }

  /** The write that changes what the takers have noted was made, or was not. */
  private written(made: bool): bool {
    if (made) {
      this.one.settle();
      this.two.settle();
    } else {
      this.one.forget();
      this.two.forget();
    }
    return made;
  }

  /** Notes that the takers hold `held` blocks of the run; writes the slot (or the run's own record) when something changes. */
  private touch(slot: u32, run: Run, held: u32, changed: bool, fleet: Fleet, now: u32): bool {
    if (!(run.flags & APART) && this.missing(run)) {
      this.sweep(run, fleet);
      if (<u32>run.entries + this.missing(run) > RUN_ENTRIES) {
        if (!this.moveApart(run)) return false;
        changed = true;
      }
    }
    if (run.flags & APART) return this.touchApart(slot, run, held, changed, fleet, now);
    if (this.noteIn(run, this.one, held)) changed = true;
    if (this.two.id && this.noteIn(run, this.two, held)) changed = true;
    if (!changed) return true;
    run.touched = now;
    return this.written(this.fitAndWrite(slot, run, fleet));
  }

  /** Takers that have no entry in the run. */
  private missing(run: Run): u32 {
    return <u32>(indexOf(run, this.one.id) < 0) + <u32>(this.two.id != 0 && indexOf(run, this.two.id) < 0);
  }

  private noteIn(run: Run, taker: Taker, held: u32): bool {
    const index = indexOf(run, taker.id);
    if (index >= 0) return taker.note(run.entry(index), held, RUN_BLOCKS);
    this.enter(run, taker, held);
    return true;
  }

  /** Drops the entries of a run that no longer count. */
  private sweep(run: Run, fleet: Fleet): void {
    for (let e = <i32>run.entries - 1; e >= 0; e--) {
      const entry = run.entry(e);
      if (fleet.live(entry.id, entry.generation) < 0) this.editor.removeEntry(run, e);
    }
  }

  private fitAndWrite(slot: u32, run: Run, fleet: Fleet): bool {
    this.makeRoom(0, fleet, run);
    return this.writeSlot(slot);
  }

  /**
   * Evicts until `bytes` more fit: first runs that nobody holds any more, then the one whose last write is the longest ago. `keep` stays, and may move in memory only
   * towards the front, so the caller's work on it is done by then.
   */
  private makeRoom(bytes: u32, fleet: Fleet, keep: Run | null): void {
    const editor = this.editor;
    let kept = keep ? changetype<usize>(keep) : 0;
    for (let pass = 0; editor.size + bytes > SLOT_BYTES && editor.runs; pass++) {
      let victim: usize = 0;
      let oldest: u32 = u32.MAX_VALUE;
      let dead = false;
      let p = editor.first();
      for (let n = editor.runs; n; n--) {
        const run = changetype<Run>(p);
        const next = p + run.bytes;
        if (p != kept) {
          if (pass == 0 && !(run.flags & APART) && !this.held(run, fleet)) {
            victim = p;
            dead = true;
            break;
          }
          if (run.touched < oldest) {
            oldest = run.touched;
            victim = p;
          }
        }
        p = next;
      }
      if (!victim) return;
      const run = changetype<Run>(victim);
      if (dead) pass = -1;
      else {
        this.goneRuns++;
        this.leave(run, fleet);
      }
      if (kept > victim) kept -= run.bytes;
      editor.removeRun(run);
    }
  }

  private held(run: Run, fleet: Fleet): bool {
    for (let e: u32 = 0; e < <u32>run.entries; e++) {
      const entry = run.entry(e);
      if (fleet.live(entry.id, entry.generation) >= 0) return true;
    }
    return false;
  }

  /** A run goes: its blocks leave the counts of those who held them, as soon as the slot has been written. */
  private leave(run: Run, fleet: Fleet): void {
    let at = run.entriesAt;
    let n: u32 = run.entries;
    if (run.flags & APART) {
      n = findHolders(this.store, run, this.slots);
      at = holdersAt;
    }
    for (; n; n--, at += ENTRY) {
      const entry = changetype<Entry>(at);
      // More than there is room for stay in the counts until the next walk.
      if (this.goneCount == MAX_HOLDERS || fleet.live(entry.id, entry.generation) < 0) continue;
      const to = changetype<Entry>(this.gone + this.goneCount * ENTRY);
      this.goneCount++;
      to.id = entry.id;
      to.generation = entry.generation;
      to.held = min<u32>(entry.held, run.blocks);
    }
  }

  /**
   * Cuts the run at `m`: what follows becomes a run of its own, written first; then the shortened run. A reader in between sees the old run, or a short one whose
   * continuation is already there.
   */
  private cut(slot: u32, run: Run, m: u32, fleet: Fleet, now: u32): bool {
    const editor = this.editor;
    const root = run.root;
    const start = run.start;
    const blocks = <u32>run.blocks;
    const hash0 = run.hash(0);
    const flags = run.flags;
    // The continuation, taken out of the editor's copy before another slot is loaded there.
    const tailBlocks = blocks - m;
    const hashes = this.scratch;
    memory.copy(hashes, changetype<usize>(run) + RUN_HEAD + (m << 2), tailBlocks << 2);
    const holders = this.holders;
    if (flags & APART) holders.read(this.store, holdersTag(run), this.slots);
    else holders.take(run.entriesAt, run.entries);
    let n: u32 = 0;
    for (let e: u32 = 0; e < holders.count; e++) {
      const entry = holders.entry(e);
      const held = min(entry.held, blocks);
      if (held <= m || fleet.live(entry.id, entry.generation) < 0) continue;
      const to = holders.entry(n);
      to.id = entry.id;
      to.generation = entry.generation;
      to.held = held - m;
      n++;
    }
    holders.count = n;
    if (n) {
      const tailStart = start + m;
      const tailSlot = this.slotOf(root, tailStart, load<u32>(hashes));
      let written = false;
      for (let attempt = 0; attempt < RETRIES && !written; attempt++) {
        this.readSlot(tailSlot, true);
        const old = editor.find(root, tailStart, load<u32>(hashes));
        if (old) {
          this.leave(old, fleet);
          editor.removeRun(old);
        }
        const apart = n > RUN_ENTRIES;
        let keep: Run | null = null;
        // In one slot with the run that is being cut: that one must not be evicted for its own tail.
        if (tailSlot == slot) keep = editor.find(root, start, hash0);
        this.makeRoom(RUN_HEAD + (tailBlocks << 2) + (apart ? 0 : n * ENTRY), fleet, keep);
        const tail = editor.append(root, tailStart, tailBlocks, now);
        memory.copy(changetype<usize>(tail) + RUN_HEAD, hashes, tailBlocks << 2);
        tail.flags = flags & (TAIL | CLOSED);
        if (apart) {
          tail.flags |= APART;
          if (!holders.replace(this.store, holdersTag(tail), this.slots)) continue;
        } else {
          for (let e: u32 = 0; e < n; e++) {
            const entry = holders.entry(e);
            editor.addEntry(tail, entry.id, entry.generation, entry.held);
          }
        }
        written = this.writeSlot(tailSlot);
      }
      if (!written) return false;
    }
    this.readSlot(slot, true);
    const again = editor.find(root, start, hash0);
    if (!again || <u32>again.blocks != blocks) return false;
    editor.resize(again, m);
    this.trim(again, m, 0, 0);
    again.flags = (again.flags & APART) | CLOSED;
    again.touched = now;
    return this.writeSlot(slot);
  }

  /** The run's entries move to a record of their own. */
  private moveApart(run: Run): bool {
    this.holders.take(run.entriesAt, run.entries);
    if (!this.holders.replace(this.store, holdersTag(run), this.slots)) return false;
    while (run.entries) this.editor.removeEntry(run, <u32>run.entries - 1);
    run.flags |= APART;
    return true;
  }

  private touchApart(slot: u32, run: Run, held: u32, changed: bool, fleet: Fleet, now: u32): bool {
    const holders = this.holders;
    const one = this.one;
    const two = this.two;
    // Making room may move the run.
    const tag = holdersTag(run);
    const blocks: u32 = run.blocks;
    if (changed) {
      run.touched = now;
      if (!this.fitAndWrite(slot, run, fleet)) return false;
    }
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      holders.read(this.store, tag, this.slots);
      let first: i32 = -1;
      let second: i32 = -1;
      let n: u32 = 0;
      for (let e: u32 = 0; e < holders.count; e++) {
        const entry = holders.entry(e);
        if (entry.id == one.id) first = <i32>n;
        else if (two.id && entry.id == two.id) second = <i32>n;
        else if (fleet.live(entry.id, entry.generation) < 0) continue;
        if (n != e) memory.copy(changetype<usize>(holders.entry(n)), changetype<usize>(entry), ENTRY);
        n++;
      }
      holders.count = n;
      let noted = this.noteApart(one, first, held, blocks);
      if (two.id && this.noteApart(two, second, held, blocks)) noted = true;
      if (!noted) return true;
      if (this.written(holders.write(this.store, this.slots))) return true;
    }
    return false;
  }

  /** In the record that `holders` has: `place` is the taker's entry, -1 when it has none. */
  private noteApart(taker: Taker, place: i32, held: u32, blocks: u32): bool {
    const holders = this.holders;
    if (place >= 0) return taker.note(holders.entry(place), held, blocks);
    if (holders.count == MAX_HOLDERS) return false;
    const entry = holders.entry(holders.count++);
    entry.id = taker.id;
    entry.generation = taker.generations.current;
    entry.held = held;
    taker.noteNew(held);
    return true;
  }

  /**
   * Endpoint `id` holds no more than the prompt's first `keep` blocks after all: the request that it was credited for failed. (What another request has earned it meanwhile
   * goes, too: too little credit costs a prefill, too much of it a wrong decision.)
   */
  discredit(keys: usize, count: u32, keep: u32, id: u32): void {
    if (keep >= count || !id) return;
    const taker = this.one;
    taker.id = id;
    this.two.id = 0;
    taker.generations = this.ledger.of(id, id, 0);
    const root = load<u64>(keys);
    let i: u32 = 0;
    while (i < count) {
      const hash = load<u32>(keys + (<usize>i << 3));
      const slot = this.slotOf(root, i, hash);
      let common: u32 = 0;
      let whole = false;
      let done = false;
      for (let attempt = 0; attempt < RETRIES && !done; attempt++) {
        this.readSlot(slot, true);
        const run = this.editor.find(root, i, hash);
        if (!run) break;
        common = this.common(run, keys, count, i);
        whole = common == <u32>run.blocks;
        done = this.lower(slot, run, id, keep > i ? min(keep - i, common) : 0);
      }
      if (!done || !whole) break;
      i += common;
    }
    this.ledger.release(taker.generations);
  }

  /** Endpoint `id` holds at most `held` blocks of the run. False: the race was lost. */
  private lower(slot: u32, run: Run, id: u32, held: u32): bool {
    const blocks: u32 = run.blocks;
    if (run.flags & APART) {
      const holders = this.holders;
      holders.read(this.store, holdersTag(run), this.slots);
      for (let e: u32 = 0; e < holders.count; e++) {
        const entry = holders.entry(e);
        if (entry.id != id) continue;
        const was = min(entry.held, blocks);
        const generation = entry.generation;
        if (was <= held) return true;
        // An entry without blocks is dropped at the next touch.
        entry.held = held;
        if (!holders.write(this.store, this.slots)) return false;
        this.one.generations.move(generation, was - held);
        return true;
      }
      return true;
    }
    for (let e: u32 = 0; e < <u32>run.entries; e++) {
      const entry = run.entry(e);
      if (entry.id != id) continue;
      const was = min(entry.held, blocks);
      const generation = entry.generation;
      if (was <= held) return true;
      if (held) entry.held = held;
      else this.editor.removeEntry(run, e);
      if (!this.writeSlot(slot)) return false;
      this.one.generations.move(generation, was - held);
      return true;
    }
    return true;
  }

  /** Blocks that endpoint `id` holds, as far as its counts know. */
  blocksOf(id: u32): u32 {
    return this.ledger.blocksOf(id);
  }
}

/** Where the run has an entry of endpoint `id`; -1: nowhere. */
function indexOf(run: Run, id: u32): i32 {
  for (let e: u32 = 0; e < <u32>run.entries; e++) if (run.entry(e).id == id) return <i32>e;
  return -1;
}
