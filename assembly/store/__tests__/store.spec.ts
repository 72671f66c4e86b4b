// The stand-in for the proxy's shared data behaves as the proxy's does (proxy-wasm shared data; the measured facts are in the header of store/).
import { CREATE, MemoryStore, Space } from "../index";

const bytes = memory.data<u8>([1, 2, 3, 4, 5, 6, 7, 8]);

function value(store: MemoryStore): string {
  let out = "";
  for (let i: u32 = 0; i < store.size; i++) out += load<u8>(store.at + i).toString();
  return out;
}

describe("a store", () => {
  it("gives back what was written, by space and key", () => {
    const store = new MemoryStore();
    expect(store.get(Space.Ids, 0)).toBe(false);
    expect(store.set(Space.Ids, 0, bytes, 3, 0)).toBe(true);
    expect(store.set(Space.Ids, 1, bytes, 2, 0)).toBe(true);
    expect(store.set(Space.Load, 0, bytes + 4, 4, 0)).toBe(true);
    expect(store.set(Space.PrefixHolders, u64.MAX_VALUE, bytes, 1, 0)).toBe(true);
    expect(store.get(Space.Ids, 0)).toBe(true);
    expect(value(store)).toBe("123");
    store.get(Space.Ids, 1);
    expect(value(store)).toBe("12");
    store.get(Space.Load, 0);
    expect(value(store)).toBe("5678");
    store.get(Space.PrefixHolders, u64.MAX_VALUE);
    expect(value(store)).toBe("1");
    expect(store.get(Space.PrefixSlot, u64.MAX_VALUE)).toBe(false);
    expect(store.bytes).toBe(10);
  });

  it("an empty value is one", () => {
    const store = new MemoryStore();
    store.set(Space.Marks, 1, bytes, 0, 0);
    expect(store.get(Space.Marks, 1)).toBe(true);
    expect(store.size).toBe(0);
  });

  it("0 overwrites; a record's number writes once; any other is refused", () => {
    const store = new MemoryStore();
    store.set(Space.Ids, 0, bytes, 1, 0);
    store.get(Space.Ids, 0);
    const cas = store.cas;
    expect(cas != 0).toBe(true);
    expect(store.set(Space.Ids, 0, bytes, 2, cas)).toBe(true);
    expect(store.set(Space.Ids, 0, bytes, 3, cas)).toBe(false);
    expect(store.set(Space.Ids, 0, bytes, 3, CREATE)).toBe(false);
    store.get(Space.Ids, 0);
    expect(value(store)).toBe("12");
    expect(store.set(Space.Ids, 0, bytes, 4, 0)).toBe(true);
    store.get(Space.Ids, 0);
    expect(value(store)).toBe("1234");
  });

  it("where there is no record every number writes, so that CREATE writes there only", () => {
    const store = new MemoryStore();
    expect(store.set(Space.Ids, 0, bytes, 1, 77)).toBe(true);
    expect(store.set(Space.Ids, 1, bytes, 1, CREATE)).toBe(true);
    expect(store.set(Space.Ids, 1, bytes, 2, CREATE)).toBe(false);
  });

  it("what was read is a copy, and gone when the callback ends", () => {
    const store = new MemoryStore();
    store.set(Space.Ids, 0, bytes, 2, 0);
    store.get(Space.Ids, 0);
    const at = store.at;
    store.set(Space.Ids, 0, bytes + 4, 2, 0);
    expect(load<u8>(at)).toBe(1);
    store.release();
    store.get(Space.Ids, 0);
    expect(value(store)).toBe("56");
  });

  it("loses the races that it is told to", () => {
    const store = new MemoryStore();
    store.loseWrites = 2;
    expect(store.set(Space.Ids, 0, bytes, 1, 0)).toBe(false);
    expect(store.set(Space.Ids, 0, bytes, 1, 0)).toBe(false);
    expect(store.set(Space.Ids, 0, bytes, 1, 0)).toBe(true);
  });
});
