// Endpoint ids: 32 bits from a counter that never goes back while the process lives, so that what is written under an id (credit, load) can never be taken for another
// endpoint's. One record for all: whoever configures a higher revision updates it, nobody replaces a higher one.
import { CREATE, Space, Store } from "../store";

const HEAD: u32 = 16;
const ENTRY: u32 = 16;
const RETRIES: i32 = 10;

@unmanaged
class Record {
  revision: u64;
  next: u32;
  count: u32;
}

@unmanaged
class Entry {
  key: u64;
  id: u32;
  private pad: u32;
}

export class EndpointIds {
  constructor(private store: Store) {}

  /**
   * The ids of the endpoints with the given keys (a hash of name and address each), written to `out`. New keys get new ids; keys that this revision no longer has lose
   * theirs. Under a record of a higher revision only what is there is read; an endpoint that it does not know has id 0: no credit, no load. False: the record could not
   * be written, and every id is 0.
   */
  assign(keys: StaticArray<u64>, revision: u64, out: StaticArray<u32>): bool {
    const n = keys.length;
    const size = HEAD + <u32>n * ENTRY;
    const mine = heap.alloc(size);
    let done = false;
    for (let attempt = 0; attempt < RETRIES && !done; attempt++) {
      let cas: u32 = CREATE;
      let next: u32 = 1;
      let all = false;
      let higher = false;
      for (let i = 0; i < n; i++) out[i] = 0;
      if (this.store.get(Space.Ids, 0)) {
        cas = this.store.cas;
        if (this.store.size >= HEAD) {
          const old = changetype<Record>(this.store.at);
          next = old.next;
          higher = old.revision > revision;
          all = this.match(keys, out) && old.revision >= revision;
        }
      }
      if (all || higher) {
        done = true;
        break;
      }
      const record = changetype<Record>(mine);
      record.revision = revision;
      record.count = <u32>n;
      for (let i = 0; i < n; i++) {
        if (!out[i]) out[i] = next++;
        const entry = changetype<Entry>(mine + HEAD + <u32>i * ENTRY);
        memory.fill(changetype<usize>(entry), 0, ENTRY);
        entry.key = keys[i];
        entry.id = out[i];
      }
      record.next = next;
      done = this.store.set(Space.Ids, 0, mine, size, cas);
    }
    heap.free(mine);
    if (!done) for (let i = 0; i < n; i++) out[i] = 0;
    return done;
  }

  /** Fills `out` from the record just read; true when every key has an id. */
  private match(keys: StaticArray<u64>, out: StaticArray<u32>): bool {
    const record = changetype<Record>(this.store.at);
    const room = (this.store.size - HEAD) / ENTRY;
    const count = min(record.count, room);
    let size: u32 = 16;
    while (size < count << 1) size <<= 1;
    const table = heap.alloc(size << 2);
    memory.fill(table, 0, size << 2);
    const base = this.store.at + HEAD;
    for (let i: u32 = 0; i < count; i++) {
      let at = <u32>(changetype<Entry>(base + i * ENTRY).key >> 17) & (size - 1);
      while (load<u32>(table + (at << 2))) at = (at + 1) & (size - 1);
      store<u32>(table + (at << 2), i + 1);
    }
    let all = true;
    for (let i = 0; i < keys.length; i++) {
      const key = unchecked(keys[i]);
      let at = <u32>(key >> 17) & (size - 1);
      let id: u32 = 0;
      while (true) {
        const held = load<u32>(table + (at << 2));
        if (!held) break;
        const entry = changetype<Entry>(base + (held - 1) * ENTRY);
        if (entry.key == key) {
          id = entry.id;
          break;
        }
        at = (at + 1) & (size - 1);
      }
      unchecked((out[i] = id));
      if (!id) all = false;
    }
    heap.free(table);
    return all;
  }

  /** What the record says now, without changing it; false when it is not there. */
  read(keys: StaticArray<u64>, out: StaticArray<u32>): bool {
    if (!this.store.get(Space.Ids, 0) || this.store.size < HEAD) return false;
    this.match(keys, out);
    return true;
  }

  /** A new id for the endpoint with `key`, whose old one was `id`: it was restarted in place. Returns the new id, or 0 when somebody else has done it or the race was lost. */
  renew(key: u64, id: u32): u32 {
    for (let attempt = 0; attempt < RETRIES; attempt++) {
      if (!this.store.get(Space.Ids, 0) || this.store.size < HEAD) return 0;
      const size = this.store.size;
      const cas = this.store.cas;
      const copy = heap.alloc(size);
      memory.copy(copy, this.store.at, size);
      const record = changetype<Record>(copy);
      const count = min(record.count, (size - HEAD) / ENTRY);
      let renewed: u32 = 0;
      for (let i: u32 = 0; i < count; i++) {
        const entry = changetype<Entry>(copy + HEAD + i * ENTRY);
        if (entry.key == key && entry.id == id) {
          renewed = record.next;
          record.next++;
          entry.id = renewed;
          break;
        }
      }
      const written = renewed && this.store.set(Space.Ids, 0, copy, size, cas);
      heap.free(copy);
      if (!renewed) return 0;
      if (written) return renewed;
    }
    return 0;
  }
}
