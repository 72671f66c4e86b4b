// The scanner, the prefix index and the scheduler by themselves, on shared data in this module's own memory, for `bench micro`: numbers in, numbers out. tests/bench/modules.ts
// copies this file to build/bench/micro.ts, from where it imports, and compiles it.
import { loadDocument, LoadedConfig } from "../../assembly/config/document";
import { Fleet } from "../../assembly/endpoints/fleet";
import { PrefixIndex } from "../../assembly/prefix";
import { RequestView, Scanner, ScanError, ShapeId } from "../../assembly/request";
import { RequestFacts } from "../../assembly/scheduling/request";
import { Space, Store } from "../../assembly/store";

/** One record: its key, where its value is and what fits there. */
@unmanaged
class Cell {
  key: u64;
  at: usize;
  size: u32;
  room: u32;
  cas: u32;
  private pad: u32;
}
const CELL: usize = offsetof<Cell>();

/** Shared data with the host's semantics, without garbage: reads are copied, as the host copies them, into memory that is used again after `release`. */
class BenchStore extends Store {
  reads: u32 = 0;
  writes: u32 = 0;
  bytesRead: u64 = 0;
  bytesWritten: u64 = 0;
  private mask: u32 = (1 << 17) - 1;
  private cells: usize = heap.alloc(<usize>(1 << 17) * CELL);
  private used: u32 = 0;
  private last: u32 = 0;
  private copies: usize = heap.alloc(4 << 20);
  private top: usize = 0;

  constructor() {
    super();
    memory.fill(this.cells, 0, <usize>(this.mask + 1) * CELL);
  }

  private find(space: Space, key: u64): Cell {
    const k = ((key + 1) * 31 + <u64>space) | 1;
    let i = <u32>((k * 0x9e3779b185ebca87) >> 40) & this.mask;
    while (true) {
      const cell = changetype<Cell>(this.cells + <usize>i * CELL);
      if (!cell.key || cell.key == k) {
        cell.key = k;
        return cell;
      }
      i = (i + 1) & this.mask;
    }
  }

  get(space: Space, key: u64): bool {
    this.reads++;
    const cell = this.find(space, key);
    if (!cell.at) return false;
    this.bytesRead += cell.size;
    if (this.top + cell.size > 4 << 20) this.top = 0;
    const to = this.copies + this.top;
    memory.copy(to, cell.at, cell.size);
    this.top += (cell.size + 15) & ~15;
    this.at = to;
    this.size = cell.size;
    this.cas = cell.cas;
    return true;
  }

  set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool {
    this.writes++;
    const cell = this.find(space, key);
    if (cell.at && cas && cas != cell.cas) return false;
    if (size > cell.room) {
      if (cell.at) heap.free(cell.at);
      cell.room = max<u32>(64, size + (size >> 1));
      cell.at = heap.alloc(cell.room);
    } else if (!cell.at) cell.at = heap.alloc((cell.room = 64));
    memory.copy(cell.at, at, size);
    cell.size = size;
    cell.cas = ++this.last;
    this.bytesWritten += size;
    return true;
  }

  release(): void {
    this.top = 0;
  }
}

export function allocate(size: u32): usize {
  return heap.alloc(size);
}
export function release(at: usize): void {
  heap.free(at);
}

// ---- scanner ----

const scanner = Scanner.make();
const view = new RequestView();

/**
 * Reads a body of `size` bytes at `at`, in pieces, `repeat` times. `blockTokens` 0: counts and hashes no blocks, as the sidecar does. Returns the number of keys, or
 * 0x80000000 and the error.
 */
export function scan(at: usize, size: u32, piece: u32, blockTokens: u32, maxBlocks: u32, repeat: u32): u32 {
  let result: u32 = 0;
  for (; repeat; repeat--) {
    scanner.start();
    scanner.reader.start(ShapeId.Chat, 0x6a09e667f3bcc909, blockTokens, maxBlocks, blockTokens == 0);
    for (let from: u32 = 0; from < size; from += piece) scanner.feed(at + from, min(piece, size - from));
    view.take(scanner);
    result = view.error == ScanError.None ? view.keyCount : 0x80000000 | <u32>view.error;
  }
  return result;
}

// ---- prefix index ----

let data: BenchStore = new BenchStore();
let index: PrefixIndex | null = null;
let fleet: Fleet = new Fleet([]);
let matched: StaticArray<i32> = [];
let capacity: u32 = 0;

export function useIndex(slots: u32, endpoints: u32, blocksPerEndpoint: u32): void {
  data = new BenchStore();
  const ids = new StaticArray<u32>(endpoints);
  for (let i: u32 = 0; i < endpoints; i++) ids[i] = i + 1;
  fleet = new Fleet(ids);
  matched = new StaticArray<i32>(endpoints);
  index = new PrefixIndex(data, slots);
  capacity = blocksPerEndpoint;
}

/** Writes the chain hashes of blocks `[from, count)` of prompt `owner`, behind those that stand there already: prompts share what was written before `from`. */
export function makeKeys(at: usize, count: u32, owner: u32, from: u32): void {
  let h: u64 = from ? load<u64>(at + (<usize>(from - 1) << 3)) : 0x1234567;
  for (let i = from; i < count; i++) {
    h = (h ^ ((<u64>owner << 32) + i + 1)) * 0x9e3779b185ebca87;
    h ^= h >> 29;
    h *= 0xc2b2ae3d27d4eb4f;
    h ^= h >> 32;
    changetype<Word>(at + (<usize>i << 3)).value = h;
  }
}
@unmanaged
class Word {
  value: u64;
}

/** Blocks that the best endpoint holds. */
export function lookup(keys: usize, count: u32): u32 {
  data.release();
  index!.begin();
  memory.fill(changetype<usize>(matched), 0, <usize>matched.length << 2);
  return index!.lookup(keys, count, fleet, matched);
}

/** Right after a look-up of the same keys, as in the filter. */
export function credit(keys: usize, count: u32, endpoint: u32, seconds: u32): void {
  index!.credit(keys, count, false, endpoint + 1, fleet, capacity, seconds);
}

export function reads(): u32 {
  return data.reads;
}
export function writes(): u32 {
  return data.writes;
}
export function bytesRead(): f64 {
  return <f64>data.bytesRead;
}
export function bytesWritten(): f64 {
  return <f64>data.bytesWritten;
}

// ---- scheduler ----

let config: LoadedConfig | null = null;
const facts = new RequestFacts();

/** Takes over a plugin document; returns its number of endpoints, -1 when it is refused. */
export function configure(at: usize, size: u32): i32 {
  const result = loadDocument(String.UTF8.decodeUnsafe(at, size));
  config = result.config;
  return result.config ? result.config!.endpoints.count : -1;
}

/** Decides `repeat` requests of so many tokens, nothing of which is cached anywhere. Returns the place of the last decode endpoint. */
export function decide(tokens: i32, repeat: u32): i32 {
  const c = config!;
  let place = -1;
  for (; repeat; repeat--) {
    facts.reset();
    facts.hasTokens = true;
    facts.tokens = tokens;
    facts.blockTokens = c.prefix.blockTokens;
    facts.totalBlocks = tokens / c.prefix.blockTokens;
    place = c.scheduler.decide(facts).decode.first;
  }
  return place;
}

export function abort_(message: string | null, fileName: string | null, line: u32, column: u32): void {
  unreachable();
}
