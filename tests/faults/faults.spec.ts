import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Scenario } from "../wire/bed.js";
import type { Outcome } from "../wire/run.js";
import { SCENARIOS } from "../wire/scenarios.js";
import { type Fault, FAULTS } from "./faults.js";
import { Lanes } from "./lanes.js";
import { compile, compileOriginal, compilePatched, patch } from "./patched.js";

/** Copies that are tried at the same time. */
const LANES = 3;
/** All scenarios on each copy: minutes instead of seconds, and it tells who else would have told. */
const everything = process.env["CROSSPOINT_FAULTS"] === "all";

function named(beginning: string): Scenario[] {
  return SCENARIOS.filter(({ name }) => name.startsWith(beginning));
}

/** What a copy can do that is wrong in one way only: at least one of these. */
const USUAL = ["decode alone chat", "text alone calls no encoder", "health is the sidecar's own"];

function chosen({ told }: Fault): Scenario[] {
  if (everything) return [...SCENARIOS];
  return [...new Set([...told, ...USUAL].flatMap(named))];
}

function line({ name }: Fault, outcomes: readonly Outcome[]): string {
  const telling = outcomes.filter(({ violations }) => violations.length > 0);
  return [`${name}: told by ${String(telling.length)} of ${String(outcomes.length)}`, ...telling.map(({ scenario, violations }) => `    ${scenario}\n        ${violations[0] ?? ""}`)].join("\n");
}

describe("the list of faults", () => {
  it("has 25 or more, each with a name of its own, and all fit the code", () => {
    expect(FAULTS.length).toBeGreaterThanOrEqual(25);
    expect(new Set(FAULTS.map(({ name }) => name)).size).toBe(FAULTS.length);
    for (const { name, told } of FAULTS) for (const beginning of told) expect([name, beginning, named(beginning).length > 0]).toEqual([name, beginning, true]);
    for (const beginning of USUAL) expect(named(beginning)).toHaveLength(1);
  });

  it("fails where a patch does not fit", () => {
    const edit = { name: "x", file: "x.ts", find: "b", put: "c" };
    expect(patch("abc", edit)).toBe("acc");
    expect(() => patch("ac", edit)).toThrow("fault x: its text stands 0 times in sidecar/x.ts");
    expect(() => patch("abb", edit)).toThrow("2 times");
    expect(() => patch("abc", { ...edit, put: "b" })).toThrow("changes nothing");
    expect(() => compile("const = 1;", "x.ts")).toThrow("x.ts");
  });
});

describe("a sidecar that is wrong in one way", () => {
  let lanes: Lanes;
  let original = "";

  beforeAll(async () => {
    original = compileOriginal();
    lanes = await Lanes.start(LANES);
  });
  afterAll(async () => {
    await lanes.close();
  });

  it("is not found where nothing was patched", { timeout: 120_000 }, async () => {
    const outcomes = await lanes.run("unpatched", original, SCENARIOS);
    expect(outcomes.filter(({ violations }) => violations.length > 0)).toEqual([]);
    expect(outcomes.length).toBe(SCENARIOS.length);
  });

  it.concurrent.each(FAULTS.map((fault) => [fault.name, fault] as const))("%s is told", { timeout: 600_000 }, async (_, fault) => {
    const outcomes = await lanes.run(fault.name, compilePatched(fault), chosen(fault));
    console.log(line(fault, outcomes));
    const told = outcomes.filter(({ scenario, violations }) => violations.length > 0 && fault.told.some((beginning) => scenario.startsWith(beginning)));
    expect(told.length, `${fault.what}: no scenario tells it`).toBeGreaterThan(0);
    expect(outcomes.some(({ violations }) => violations.length === 0), `${fault.what}: nothing works any more, which is more than one fault`).toBe(true);
  });
});
