import { describe, expect, it } from "vitest";
import { fleetCosts, rowOf, type RowInput, type Sample } from "./rows.js";

function sample(p50Ms: number, cpuMs: number, decisions: Record<string, number> = {}): Sample {
  return { p50Ms, cpuMs, rps: 1000 / p50Ms, busyCpuMs: cpuMs, requests: 10, errors: 0, othersCpus: 0.5, decisions };
}

const input: RowInput = {
  body: "1k",
  endpoints: 8,
  prompt: "cold",
  tuning: { blockTokens: 64, maxBlocks: 256 },
  filter: "filter.wasm",
  connections: 16,
  plain: [sample(1, 0.5), sample(1.2, 0.6), sample(1.1, 0.7)],
  floor: [sample(1.5, 0.9), sample(1.7, 1), sample(1.6, 1.1)],
  ours: [sample(1.6, 0.9, { "prefill-decode": 9, "decode-only": 1 }), sample(1.9, 1.1, { "prefill-decode": 10 }), sample(1.7, 1.3, { "prefill-decode": 10, "encode-decode": 0 })],
};

describe("rowOf", () => {
  const row = rowOf(input);
  it("has medians, and ratios that follow from them", () => {
    expect([row.plainP50Ms, row.floorP50Ms, row.p50Ms]).toEqual([1.1, 1.6, 1.7]);
    expect(row.p50RatioToFloor).toBe(1.2);
    expect([row.plainCpuMs, row.floorCpuMs, row.cpuMs]).toEqual([0.6, 1, 1.1]);
    expect(row.cpuRatioToFloor).toBe(1.25);
  });
  it("tells the spread, and the best rounds by themselves", () => {
    expect(row.spread.p50Ms).toEqual({ min: 1.6, max: 1.9 });
    expect(row.spread.p50RatioToFloor).toEqual({ min: 1.2, max: 1.4 });
    expect(row.best).toMatchObject({ p50RatioToFloor: 1.2, cpuRatioToFloor: 1, addedP50Ms: 0.6, addedCpuMs: 0.4 });
  });
  it("sums requests and decisions", () => {
    expect(row.requests).toBe(90);
    expect(row.rounds).toBe(3);
    expect(row.decisions).toEqual({ "prefill-decode": 0.967, "decode-only": 0.033 });
  });
  it("says null where there is nothing to say", () => {
    const odd = rowOf({ ...input, floor: input.plain });
    expect(odd.p50RatioToFloor).toBeNull();
    expect(odd.spread.p50RatioToFloor).toEqual({ min: null, max: null });
    expect(JSON.stringify(odd)).not.toContain("NaN");
  });
});

describe("fleetCosts", () => {
  it("compares what is added, not what it takes", () => {
    const large: RowInput = { ...input, endpoints: 1000, plain: input.plain.map((one) => ({ ...one, p50Ms: one.p50Ms + 1 })), ours: input.ours.map((one) => ({ ...one, p50Ms: one.p50Ms + 1.25 })) };
    const costs = fleetCosts([rowOf(input), rowOf(large), rowOf({ ...large, prompt: "warm" })]);
    expect(costs).toHaveLength(1);
    expect(costs[0]).toMatchObject({ from: 8, to: 1000, moreP50Ms: 0.25, moreP50BestMs: 0.25, moreCpuMs: 0 });
  });
  it("needs two sizes of fleet", () => {
    expect(fleetCosts([rowOf(input)])).toEqual([]);
  });
});
