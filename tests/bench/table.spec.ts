import { describe, expect, it } from "vitest";
import { cell, table } from "./table.js";

describe("table", () => {
  it("makes columns as wide as they have to be", () => {
    expect(table(["body", "ms"], [["1k", "0.25"], ["4m-image", "13"]], 1)).toEqual(["body        ms", "--------  ----", "1k        0.25", "4m-image    13"]);
  });
});

describe("cell", () => {
  it("has a dash for what is no number", () => {
    expect([cell(1.005, 1), cell(null, 1), cell(undefined, 1), cell(Number.NaN, 1)]).toEqual(["1.0", "-", "-", "-"]);
  });
});
