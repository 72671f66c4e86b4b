import { describe, expect, it } from "vitest";

import { BlockPool } from "./blocks.js";

function fill(pool: BlockPool, keys: string[]): number[] {
  const claim = pool.claim(keys, keys.length);
  if (claim === null) throw new Error("no blocks");
  claim.ids.forEach((id, index) => {
    pool.write(id, keys[index] ?? "", keys[index] ?? null);
  });
  return claim.ids;
}

describe("BlockPool", () => {
  it("never hands out block 0, and knows its usage", () => {
    const pool = new BlockPool(5, 16);
    const claim = pool.claim([], 4);
    expect(claim?.ids).toEqual([1, 2, 3, 4]);
    expect(pool.usage).toBe(1);
    expect(pool.claim([], 1)).toBe(null);
    pool.release([1, 2]);
    expect(pool.usage).toBe(0.5);
  });

  it("finds released blocks by their keys, from the start and without a gap", () => {
    const pool = new BlockPool(10, 16);
    const ids = fill(pool, ["a", "b", "c"]);
    pool.release(ids);
    expect(pool.usage).toBe(0);
    expect(pool.claim(["a", "b", "x"], 3)).toMatchObject({ hits: 2 });
    expect(pool.claim(["a", "x", "c"], 3)).toMatchObject({ hits: 1 });
    expect(pool.match(["x", "a"])).toBe(0);
    expect(pool.match(["a", "b", "c", "d"])).toBe(3);
  });

  it("shares a block between two that use it", () => {
    const pool = new BlockPool(3, 16);
    const first = fill(pool, ["a"]);
    const second = pool.claim(["a"], 1);
    expect(second?.ids).toEqual(first);
    pool.release(first);
    expect(pool.used).toBe(1);
    pool.release(second?.ids ?? []);
    expect(pool.used).toBe(0);
  });

  it("reuses the least recently used block first, of one prompt the last", () => {
    const pool = new BlockPool(4, 16);
    const old = fill(pool, ["a", "b"]);
    pool.release(old);
    const young = fill(pool, ["c"]);
    pool.release(young);
    pool.claim([], 1);
    expect([pool.match(["a"]), pool.match(["a", "b"]), pool.match(["c"])]).toEqual([1, 1, 1]);
    pool.claim([], 1);
    expect([pool.match(["a"]), pool.match(["c"])]).toEqual([0, 1]);
  });

  it("keeps the content of a released block until its place is needed", () => {
    const pool = new BlockPool(3, 16);
    const [id] = fill(pool, ["a"]);
    pool.release([id ?? 0]);
    expect(pool.content(id ?? 0)).toBe("a");
    const again = pool.claim([], 2);
    again?.ids.forEach((other) => {
      pool.write(other, "z", null);
    });
    expect(pool.content(id ?? 0)).toBe("z");
    expect(pool.match(["a"])).toBe(0);
  });

  it("counts hits that are free against the free blocks only once", () => {
    const pool = new BlockPool(4, 16);
    pool.release(fill(pool, ["a", "b"]));
    expect(pool.claim(["a", "b"], 3)?.ids.length).toBe(3);
    expect(pool.claim([], 1)).toBe(null);
  });

  it("serves a claim that is larger than itself from beyond, and forgets it", () => {
    const pool = new BlockPool(4, 16);
    const claim = pool.claim([], 10);
    expect(claim?.ids.every((id) => id >= 4)).toBe(true);
    expect(pool.usage).toBe(1);
    expect(pool.claim([], 3)).not.toBe(null);
    pool.release(claim?.ids ?? []);
    expect(pool.used).toBe(3);
    expect(pool.content(claim?.ids[0] ?? 0)).toBe(undefined);
  });

  it("says when blocks come back", () => {
    let calls = 0;
    const pool = new BlockPool(4, 16, () => {
      calls += 1;
    });
    pool.release(pool.claim([], 2)?.ids ?? []);
    expect(calls).toBe(1);
  });
});
