// What must come back to the pod that knows it.
import { MemoryStore, Space } from "../../store";
import { bind, boundTo, idHash } from "../bindings";

function hashOf(id: string): u64 {
  const bytes = String.UTF8.encode(id);
  return idHash(changetype<usize>(bytes), bytes.byteLength);
}

describe("bindings", () => {
  it("an id is where it was bound last", () => {
    const store = new MemoryStore();
    expect(boundTo(store, Space.Responses, hashOf("resp_1"), 10, 0)).toBe(0);
    bind(store, Space.Responses, hashOf("resp_1"), 7, 10);
    bind(store, Space.Responses, hashOf("resp_2"), 8, 10);
    expect(boundTo(store, Space.Responses, hashOf("resp_1"), 20, 0)).toBe(7);
    expect(boundTo(store, Space.Responses, hashOf("resp_2"), 20, 0)).toBe(8);
    bind(store, Space.Responses, hashOf("resp_1"), 9, 30);
    expect(boundTo(store, Space.Responses, hashOf("resp_1"), 30, 0)).toBe(9);
  });

  it("counts no longer than its time", () => {
    const store = new MemoryStore();
    bind(store, Space.Responses, 5, 7, 100);
    expect(boundTo(store, Space.Responses, 5, 400, 300)).toBe(7);
    expect(boundTo(store, Space.Responses, 5, 401, 300)).toBe(0);
  });

  it("a full record drops what was bound the longest ago; memory is bounded", () => {
    const store = new MemoryStore();
    // All of these fall into one record.
    for (let i: u32 = 0; i < 40; i++) bind(store, Space.Responses, <u64>(i + 1) * 1024 * 0x20000000 * 1024, i + 1, i);
    let found = 0;
    for (let i: u32 = 0; i < 40; i++) if (boundTo(store, Space.Responses, <u64>(i + 1) * 1024 * 0x20000000 * 1024, 50, 0) == i + 1) found++;
    expect(found).toBeGreaterThanOrEqual(32);
    expect(boundTo(store, Space.Responses, <u64>40 * 1024 * 0x20000000 * 1024, 50, 0)).toBe(40);
    for (let i: u64 = 1; i < 100000; i++) bind(store, Space.Responses, i * 0x9e3779b185ebca87, <u32>i, <u32>i);
    expect(store.bytes <= 1024 * 512).toBe(true);
    expect(boundTo(store, Space.Responses, 99999 * 0x9e3779b185ebca87, 0, 0)).toBe(99999);
  });

  it("a lost race is tried again, and given up in the end without harm", () => {
    const store = new MemoryStore();
    bind(store, Space.Responses, 3, 1, 1);
    store.loseWrites = 2;
    bind(store, Space.Responses, 3, 2, 2);
    expect(boundTo(store, Space.Responses, 3, 2, 0)).toBe(2);
    store.loseWrites = 100;
    bind(store, Space.Responses, 3, 4, 3);
    expect(boundTo(store, Space.Responses, 3, 3, 0)).toBe(2);
  });
});
