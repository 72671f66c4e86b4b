import { describe, expect, it } from "vitest";
import { addedRatio, figure, latencies, median, quantile, rounded, Samples } from "./numbers.js";

describe("quantile", () => {
  it("interpolates between neighbours", () => {
    expect(quantile([10, 20, 30, 40], 0.5)).toBe(25);
    expect(quantile([10, 20, 30], 0.5)).toBe(20);
    expect(quantile([0, 100], 0.99)).toBeCloseTo(99, 10);
  });
  it("ends at the ends, whatever is asked for", () => {
    expect(quantile([1, 2, 3], -1)).toBe(1);
    expect(quantile([1, 2, 3], 2)).toBe(3);
  });
  it("has no answer for no values", () => {
    expect(quantile([], 0.5)).toBeNaN();
  });
});

describe("median and figure", () => {
  it("does not need order and leaves its input alone", () => {
    const values = [9, 1, 5];
    expect(median(values)).toBe(5);
    expect(values).toEqual([9, 1, 5]);
  });
  it("tells the spread", () => {
    expect(figure([4, 2, 8, 6])).toEqual({ median: 5, min: 2, max: 8 });
    expect(figure([]).median).toBeNaN();
  });
});

describe("addedRatio", () => {
  it("is added cost over added cost", () => {
    expect(addedRatio(1, 2, 2.5)).toBe(1.5);
    expect(addedRatio(0.3, 0.35, 0.36)).toBeCloseTo(1.2, 10);
  });
  it("may lie below 1, and below 0 when ours was faster than plain", () => {
    expect(addedRatio(1, 3, 2)).toBe(0.5);
    expect(addedRatio(1, 3, 0)).toBe(-0.5);
  });
  it("says nothing when the floor is not above plain", () => {
    expect(addedRatio(1, 1, 2)).toBeNull();
    expect(addedRatio(2, 1, 3)).toBeNull();
    expect(addedRatio(Number.NaN, 1, 3)).toBeNull();
    expect(addedRatio(1, 2, Number.NaN)).toBeNull();
  });
});

describe("latencies", () => {
  it("sorts by number, not by text", () => {
    const found = latencies(Float64Array.from([100, 9, 20]));
    expect(found.p50).toBe(20);
    expect(found.max).toBe(100);
    expect(found.mean).toBe(43);
  });
});

describe("rounded", () => {
  it("keeps JSON free of what it cannot hold", () => {
    expect(rounded(1.23456, 3)).toBe(1.235);
    expect(rounded(Number.NaN, 3)).toBeNull();
    expect(rounded(Number.POSITIVE_INFINITY, 3)).toBeNull();
    expect(rounded(null, 3)).toBeNull();
  });
});

describe("Samples", () => {
  it("grows and keeps the order", () => {
    const samples = new Samples();
    for (let i = 0; i < 10_000; i++) samples.add(i);
    expect(samples.length).toBe(10_000);
    const all = samples.all();
    expect([all[0], all[4096], all[9999]]).toEqual([0, 4096, 9999]);
    samples.clear();
    expect(samples.all()).toHaveLength(0);
  });
});
