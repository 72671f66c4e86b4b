// Least recently used without a list (DESIGN, Shapes): at most 64 ranges of generations, closed at a sixteenth of the capacity, merged where they are smallest.
import { MemoryStore, Space } from "../../store";
import { Generations } from "../index";
import { MAX_RANGES } from "../generations";

const CAPACITY: u32 = 1600;

/** A touch of `blocks` blocks that were last touched in `last` (0: never); returns the generation that they carry now. */
function touch(g: Generations, id: u32, last: u32, blocks: u32): u32 {
  g.open(id);
  const now = g.current;
  if (last >= g.floor) g.move(last, blocks);
  g.add(blocks);
  g.commit(CAPACITY);
  return now;
}

describe("generations", () => {
  it("of a new endpoint: one, and nothing in it", () => {
    const g = new Generations(new MemoryStore());
    g.open(1);
    expect(g.current).toBe(1);
    expect(g.floor).toBe(1);
    expect(g.total).toBe(0);
    // Nothing changed: nothing written.
    expect(g.commit(CAPACITY)).toBe(false);
  });

  it("close at a sixteenth of the capacity, not before", () => {
    const store = new MemoryStore();
    const g = new Generations(store);
    expect(touch(g, 1, 0, 99)).toBe(1);
    g.open(1);
    expect(g.current).toBe(1);
    touch(g, 1, 0, 1);
    g.open(1);
    expect(g.current).toBe(2);
    expect(g.total).toBe(100);
    expect(g.floor).toBe(1);
  });

  it("are touched again without being counted twice", () => {
    const g = new Generations(new MemoryStore());
    let last: u32 = touch(g, 1, 0, 60);
    for (let i = 0; i < 10; i++) last = touch(g, 1, last, 60);
    g.open(1);
    expect(g.total).toBe(60);
    expect(g.current).toBe(1);
  });

  it("the oldest goes when the live total passes the capacity, and its entries are dead", () => {
    const g = new Generations(new MemoryStore());
    for (let i = 0; i < 16; i++) expect(touch(g, 1, 0, 100)).toBe(i + 1);
    g.open(1);
    expect(g.total).toBe(1600);
    expect(g.floor).toBe(1);
    g.add(1);
    expect(g.commit(CAPACITY)).toBe(true);
    expect(g.floor).toBe(2);
    expect(g.total).toBe(1501);
    // A touch of what died is a new entry.
    g.open(1);
    expect(g.floor).toBe(2);
  });

  it("of one endpoint are not another's", () => {
    const store = new MemoryStore();
    const g = new Generations(store);
    const other = new Generations(store);
    g.open(1);
    g.add(10);
    // In the middle of it another endpoint is changed: its run had to make room.
    other.open(2);
    other.add(7);
    other.commit(CAPACITY);
    other.open(2);
    other.move(1, 3);
    other.commit(CAPACITY);
    // Two of the ten are gone again before they were written.
    g.move(1, 2);
    expect(g.due).toBe(8);
    g.commit(CAPACITY);
    g.open(1);
    expect(g.total).toBe(8);
    g.open(2);
    expect(g.total).toBe(4);
  });

  it("never more than 64 ranges; the two smallest neighbours become one, and nothing that lives is dropped", () => {
    const store = new MemoryStore();
    const g = new Generations(store);
    // An old range that must survive, and a conversation that closes a range with every turn and leaves next to nothing behind.
    touch(g, 1, 0, 300);
    let big: u32 = 0;
    const small: u32[] = [];
    for (let i = 0; i < 400; i++) {
      big = touch(g, 1, big, 500);
      small.push(touch(g, 1, 0, 1));
      store.get(Space.PrefixGenerations, 1);
      expect(load<u32>(store.at)).toBeLessThanOrEqual(MAX_RANGES);
      store.release();
    }
    g.open(1);
    expect(g.total).toBe(300 + 500 + 400);
    expect(g.floor).toBe(1);
    // The small ones are still told apart by age: dropping takes the old ones first.
    let dropped = false;
    for (let i = 0; i < 5 && !dropped; i++) {
      touch(g, 1, 0, 100);
      g.open(1);
      dropped = g.floor > 1;
    }
    expect(dropped).toBe(true);
    expect(g.floor).toBeLessThanOrEqual(small[0]);
    expect(g.total).toBeGreaterThan(1600 - 300 - 1);
  });

  it("neighbours are merged by their sum, not by their place", () => {
    const store = new MemoryStore();
    const g = new Generations(store);
    // 64 full ranges of 20 blocks each at a small capacity, but for two small neighbours in the middle.
    const capacity: u32 = 320;
    for (let i = 0; i < 15; i++) {
      g.open(1);
      g.add(20);
      g.commit(capacity);
    }
    g.open(1);
    expect(g.total).toBe(300);
    // Empty the ranges 6 and 7.
    g.move(6, 19);
    g.move(7, 19);
    g.commit(capacity);
    // Touches that move everything on: ranges are closed and left behind with one block each.
    let last: u32 = 0;
    for (let i = 0; i < 60; i++) {
      g.open(1);
      const now = g.current;
      if (last) g.move(last, 20);
      g.add(20);
      last = now;
      g.commit(capacity);
    }
    store.get(Space.PrefixGenerations, 1);
    expect(load<u32>(store.at)).toBeLessThanOrEqual(MAX_RANGES);
    // Full ranges are still their own: 1 to 5 have 20 blocks each.
    for (let r = 0; r < 5; r++) expect(load<u32>(store.at + 8 + (r << 3) + 4)).toBe(20, r.toString());
    store.release();
  });

  it("no count goes below zero, whatever is taken", () => {
    const g = new Generations(new MemoryStore());
    touch(g, 1, 0, 10);
    g.open(1);
    g.move(1, 1000);
    g.move(0, 1000);
    g.move(u32.MAX_VALUE, 1000);
    g.commit(CAPACITY);
    g.open(1);
    expect(g.total).toBe(0);
  });

  it("thousands of moves in one commit are bounded", () => {
    const g = new Generations(new MemoryStore());
    touch(g, 1, 0, 1000);
    g.open(1);
    for (let i: u32 = 0; i < 5000; i++) g.move(i & 1, 1);
    g.commit(CAPACITY);
    g.open(1);
    expect(g.total).toBeLessThan(1000);
  });
});
