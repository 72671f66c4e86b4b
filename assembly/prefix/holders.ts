// The endpoints of a run that has more of them than a slot keeps: a record of their own. There are as many such records as slots and no more, since shared data forgets
// nothing: where two runs meet in one, the later one has it, and the other is held by nobody until it is sent again.
//
// record: tag of the run u64 | entries x entry
import { CREATE, Space, Store } from "../store";
import { ENTRY, Entry, holdersTag, Run } from "./slot";

/** Endpoints of one run at most; further ones get no credit for it. */
export const MAX_HOLDERS: u32 = 4096;
const HEAD: u32 = 8;

/** Where the entries are that `findHolders` found; good as long as what the store returned. */
export let holdersAt: usize = 0;

/** How many entries the run has in its own record; 0 when it has none, or another run has taken its place. */
export function findHolders(from: Store, run: Run, slots: u32): u32 {
  const tag = holdersTag(run);
  if (!from.get(Space.PrefixHolders, tag % <u64>slots) || from.size < HEAD || load<u64>(from.at) != tag) return 0;
  holdersAt = from.at + HEAD;
  return min<u32>((from.size - HEAD) / ENTRY, MAX_HOLDERS);
}

/** Such a record in private memory, to be changed and written back. */
export class Holders {
  private room: StaticArray<u8> = new StaticArray<u8>(HEAD + MAX_HOLDERS * ENTRY);
  private at: usize = 0;
  private cas: u32 = 0;
  private tag: u64 = 0;
  count: u32 = 0;

  constructor() {
    this.at = changetype<usize>(this.room);
  }

  entry(i: u32): Entry {
    return changetype<Entry>(this.at + HEAD + i * ENTRY);
  }

  /** The entries of the run with tag `tag`, as they are now. */
  read(from: Store, tag: u64, slots: u32): void {
    this.tag = tag;
    this.count = 0;
    this.cas = CREATE;
    if (!from.get(Space.PrefixHolders, tag % <u64>slots)) return;
    this.cas = from.cas;
    if (from.size < HEAD || load<u64>(from.at) != tag) return;
    this.count = min<u32>((from.size - HEAD) / ENTRY, MAX_HOLDERS);
    memory.copy(this.at + HEAD, from.at + HEAD, this.count * ENTRY);
  }

  /** Takes the `count` entries at `entries` instead. */
  take(entries: usize, count: u32): void {
    memory.copy(this.at + HEAD, entries, count * ENTRY);
    this.count = count;
  }

  /** Writes them as those of the run that was read last; false when somebody else wrote in between. */
  write(to: Store, slots: u32): bool {
    return this.put(to, this.tag, slots, this.cas);
  }

  /** Writes them as those of the run with tag `tag`, whatever is there. */
  replace(to: Store, tag: u64, slots: u32): bool {
    return this.put(to, tag, slots, 0);
  }

  private put(to: Store, tag: u64, slots: u32, cas: u32): bool {
    store<u64>(this.at, tag);
    return to.set(Space.PrefixHolders, tag % <u64>slots, this.at, HEAD + this.count * ENTRY, cas);
  }
}
