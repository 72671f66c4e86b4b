// The face of the proxy's shared data, so that the rooms which keep state there know nothing of Envoy and are tested without it. The semantics are the host's
// (proxy-wasm shared data): no delete, no listing; `cas` 0 overwrites, and so does whoever creates a record with it that he did not find; with CREATE he does not.

/** What a record is for; part of its key. The numbers are the layout's version: a new layout takes a new number, and old records are simply not found. */
export const enum Space {
  /** One secret per process: 16 bytes. */
  Secret = 1,
  /** Endpoint ids. */
  Ids = 2,
  /** In-flight load of the fleet. */
  InFlight = 3,
  /** What one VM knows it has in flight; key: the VM's number. */
  VmShare = 4,
  /** The VMs. */
  Vms = 5,
  /** Who scrapes and heals. */
  Lease = 6,
  /** Scraped load of the fleet (7 was its first layout). */
  Load = 17,
  /** Slots of the prefix index; key: slot number. */
  PrefixSlot = 8,
  /** Endpoints of one long-shared run; key: the run's hash, modulo the number of slots. */
  PrefixHolders = 9,
  /** Generations of one endpoint; key: its id. */
  PrefixGenerations = 10,
  /** Oldest live generation of every endpoint. */
  PrefixFloors = 11,
  /** Small counters and marks of the process; key: which one. */
  Marks = 12,
  /** Where responses are that an engine keeps; key: slot number of the bindings. */
  Responses = 13,
  /** Where sessions are; key: slot number of the bindings. */
  Sessions = 14,
  /** Order in which endpoints were given cold prompts; key: the scorer's name. */
  ColdOrder = 15,
  /** LoRA adapters of the fleet. */
  Adapters = 16,
  /** Added to the spaces of the prefix index: the index of encoded media. */
  Media = 32,
}

/**
 * The `cas` of a record that was not found: the write succeeds where there still is none, and fails where somebody has made one meanwhile. (The host does not look at the
 * number where there is no record, and refuses any other than the record's own, but for 0, where there is one. It counts its writes up from 1: no record gets this one.)
 */
export const CREATE: u32 = u32.MAX_VALUE;

export abstract class Store {
  /** Where the value of the last successful `get` is; good until the callback ends or the store is used in a way that its owner says. */
  at: usize = 0;
  size: u32 = 0;
  cas: u32 = 0;
  /** False: not found, which is a cold start at any time. */
  abstract get(space: Space, key: u64): bool;
  /** False: somebody else wrote in between. */
  abstract set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool;
}

/** Shared data in which nothing is ever found. */
export class NoStore extends Store {
  get(space: Space, key: u64): bool {
    return false;
  }
  set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool {
    return false;
  }
}

class Cell {
  bytes: StaticArray<u8> = [];
  cas: u32 = 0;
}

/** Shared data in a table of one's own: for tests and simulations. */
export class MemoryStore extends Store {
  private cells: Map<u64, Cell> = new Map();
  private next: u32 = 1;
  reads: u32 = 0;
  writes: u32 = 0;
  /** Bytes of all values. */
  bytes: u64 = 0;
  /** Pretend that so many of the next writes lost their race. */
  loseWrites: i32 = 0;

  private keyOf(space: Space, key: u64): u64 {
    return key * 31 + <u64>space;
  }

  get(space: Space, key: u64): bool {
    this.reads++;
    const k = this.keyOf(space, key);
    if (!this.cells.has(k)) return false;
    const cell = this.cells.get(k);
    // A copy of its own per read, as the host gives one.
    const copy = new StaticArray<u8>(cell.bytes.length);
    memory.copy(changetype<usize>(copy), changetype<usize>(cell.bytes), cell.bytes.length);
    this.held.push(copy);
    this.at = changetype<usize>(copy);
    this.size = cell.bytes.length;
    this.cas = cell.cas;
    return true;
  }
  private held: StaticArray<u8>[] = [];

  /** The end of a callback: what `get` returned is gone. */
  release(): void {
    for (let i = 0; i < this.held.length; i++) memory.fill(changetype<usize>(this.held[i]), 0xdd, this.held[i].length);
    this.held = [];
  }

  set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool {
    this.writes++;
    if (this.loseWrites > 0) {
      this.loseWrites--;
      return false;
    }
    const k = this.keyOf(space, key);
    let cell: Cell;
    if (this.cells.has(k)) {
      cell = this.cells.get(k);
      if (cas && cas != cell.cas) return false;
      this.bytes -= cell.bytes.length;
    } else {
      cell = new Cell();
      this.cells.set(k, cell);
    }
    const bytes = new StaticArray<u8>(size);
    memory.copy(changetype<usize>(bytes), at, size);
    cell.bytes = bytes;
    cell.cas = this.next++;
    this.bytes += size;
    return true;
  }
}
