// Which encoder has encoded what.
import { MemoryStore, Space } from "../../store";
import { MediaIndex } from "../media";
import { Fleet, PrefixIndex } from "../index";

/** Items with these keys (0: an item like no other), as `RequestFacts.items` has them. */
class Items {
  readonly bytes: StaticArray<u8>;

  constructor(keys: StaticArray<u64>) {
    this.bytes = new StaticArray<u8>(max(1, keys.length) * 16);
    this.count = keys.length;
    for (let i = 0; i < keys.length; i++) store<u64>(this.at + <usize>i * 16, keys[i]);
  }
  readonly count: i32;

  get at(): usize {
    return changetype<usize>(this.bytes);
  }
}

class Encoders {
  readonly index: MediaIndex;
  readonly held: StaticArray<u64>;

  constructor(
    readonly store: MemoryStore,
    readonly ids: StaticArray<u32>,
  ) {
    const index = new MediaIndex(store);
    this.index = index;
    this.held = new StaticArray<u64>(ids.length);
    index.useIds(ids);
  }

  /** The request's items that each encoder holds, as bits from the first on. */
  match(keys: StaticArray<u64>): string {
    const items = new Items(keys);
    this.index.match(items.at, items.count, this.held);
    let out = "";
    for (let p = 0; p < this.held.length; p++) {
      if (p) out += " ";
      for (let i = 0; i < keys.length; i++) out += ((this.held[p] >> i) & 1).toString();
    }
    return out;
  }

  /** The encoder at table position `place` is sent all of the items. */
  encode(place: i32, keys: StaticArray<u64>, capacity: i32 = 100, nowS: u32 = 1): void {
    this.match(keys);
    const items = new Items(keys);
    for (let i = 0; i < keys.length; i++) this.index.credit(items.at, i, this.ids[place], capacity, nowS);
    this.store.release();
  }
}

function key(i: i32): u64 {
  let h = <u64>i * 0x9e3779b97f4a7c15 + 0x1234567;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
  return h ^ (h >> 31);
}

const THREE: StaticArray<u32> = [1, 2, 3];

describe("the index of encoded media", () => {
  it("knows each encoder's items, item by item", () => {
    const e = new Encoders(new MemoryStore(), THREE);
    expect(e.match([key(1), key(2)])).toBe("00 00 00");
    e.encode(0, [key(1)]);
    e.encode(2, [key(2), key(1)]);
    expect(e.match([key(1), key(2)])).toBe("10 00 11");
    expect(e.match([key(3), key(2), key(1)])).toBe("001 000 011");
    expect(e.match([])).toBe("  ");
  });

  it("an item without a key is like no other", () => {
    const e = new Encoders(new MemoryStore(), THREE);
    e.encode(0, [0, key(1)]);
    expect(e.match([0, key(1)])).toBe("01 00 00");
  });

  it("is one for all workers, and not the prefix index's", () => {
    const store = new MemoryStore();
    const a = new Encoders(store, THREE);
    const b = new Encoders(store, THREE);
    a.encode(1, [key(5)]);
    expect(b.match([key(5)])).toBe("0 1 0");
    const prefixes = new PrefixIndex(store, 1024);
    const found = new StaticArray<i32>(3);
    const items = new Items([key(5)]);
    prefixes.begin();
    prefixes.lookup(items.at, 1, new Fleet(THREE), found);
    expect(found[1]).toBe(0);
    expect(store.get(Space.PrefixFloors, 0)).toBe(false);
  });

  it("an encoder is taken to remember so many items: the oldest go, what is used stays", () => {
    const e = new Encoders(new MemoryStore(), THREE);
    // Generations close at a sixteenth of the capacity, so the bound is kept to that.
    for (let i = 0; i < 64; i++) {
      e.encode(0, [key(i)], 32, i);
      e.encode(0, [key(1000)], 32, i);
      e.index.refresh();
    }
    let known = 0;
    for (let i = 0; i < 64; i++) if (e.match([key(i)]).startsWith("1")) known++;
    expect(known).toBeLessThanOrEqual(32);
    expect(known).toBeGreaterThanOrEqual(26);
    expect(e.match([key(0)])).toBe("0 0 0");
    expect(e.match([key(63)])).toBe("1 0 0");
    expect(e.match([key(1000)])).toBe("1 0 0");
  });

  it("a restarted encoder holds nothing, and one that is gone is no longer asked for", () => {
    const store = new MemoryStore();
    const e = new Encoders(store, [1, 2, 3]);
    e.encode(0, [key(1)]);
    e.encode(1, [key(1)]);
    const later = new Encoders(store, [9, 2]);
    later.index.prune();
    expect(later.match([key(1)])).toBe("0 1");
  });

  it("memory is bounded however many items come", () => {
    const store = new MemoryStore();
    const e = new Encoders(store, THREE);
    for (let i = 0; i < 60000; i++) e.encode(i % 3, [key(i)], 1000000, i);
    expect(store.bytes <= 1024 * 4096 + 65536).toBe(true);
    expect(e.match([key(59999)])).toBe("0 0 1");
  });
});
