import { describe, expect, it } from "vitest";
import { pdEndpoints, tuningsOf } from "./scenario.js";

describe("pdEndpoints", () => {
  it("is half decode, at the ports that are there, and half prefill, at addresses that nobody has", () => {
    const endpoints = pdEndpoints(1000, Array.from({ length: 500 }, (_none, at) => 30_000 + at));
    expect(endpoints).toHaveLength(1000);
    expect(endpoints.filter(({ labels }) => labels.role === "decode")).toHaveLength(500);
    expect(new Set(endpoints.map(({ address, port }) => `${address}:${port}`)).size).toBe(1000);
    expect(endpoints.slice(500).every(({ address }) => /^127\.77\.[01]\.\d{1,3}$/.test(address))).toBe(true);
    expect(new Set(endpoints.map(({ name }) => name)).size).toBe(1000);
  });
  it("has all of them at ports that are there when their metrics are read", () => {
    expect(pdEndpoints(4, [1, 2, 3, 4]).map(({ address, port }) => `${address}:${port}`)).toEqual(["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:4"]);
  });
  it("refuses to decode where nobody listens", () => {
    expect(() => pdEndpoints(8, [1, 2])).toThrow("no pod number 2");
  });
});

describe("tuningsOf", () => {
  it("looks at the whole of the long prompt, whatever the others do", () => {
    expect(tuningsOf("128k-tokens", [64, 5], 256)).toEqual([{ blockTokens: 64, maxBlocks: 2048 }]);
    expect(tuningsOf("1m", [64, 5], 256)).toEqual([
      { blockTokens: 64, maxBlocks: 256 },
      { blockTokens: 5, maxBlocks: 256 },
    ]);
  });
});
