import { describe, expect, it } from "vitest";
import { Findings } from "./findings.js";

describe("Findings", () => {
  it("keeps what does not hold, in order", () => {
    const found = new Findings();
    expect([found.that(true, "a"), found.that(false, "b"), found.same("c", [1, "x"], [1, "x"]), found.same("d", { a: 1 }, { a: 2 })]).toEqual([true, false, true, false]);
    expect(found.list).toEqual(["b", 'd: {"a":1} where {"a":2} is wanted']);
  });

  it("says where long values begin to differ", () => {
    const found = new Findings();
    found.same("text", `${"a".repeat(1000)}x${"b".repeat(1000)}`, `${"a".repeat(1000)}y`);
    expect(found.list[0]).toMatch(/^text: …a{40}xb{119}… where …a{40}y is wanted$/);
    found.same("empty", "", "x");
    expect(found.list[1]).toBe("empty: nothing where x is wanted");
  });
});
