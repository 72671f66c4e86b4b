import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { inRoot } from "../fleet/root.js";
import { readAspect, readCases, readRunner, readVitest, totals } from "./results.js";
import { idsIn, rowLine, stateOf, strangers, type Difference, type Row } from "./rows.js";

const read = <T>(name: string): T => JSON.parse(readFileSync(inRoot("tests", "conformance", name), "utf8")) as T;

describe("the rows", () => {
  const rows = read<Row[]>("rows.json");

  it("are the 232 of the scheduler's contract and the 139 of the sidecar's, each once and with a title", () => {
    expect(rows.filter((row) => row.id.startsWith("S-"))).toHaveLength(232);
    expect(rows.filter((row) => row.id.startsWith("C-"))).toHaveLength(139);
    expect(new Set(rows.map((row) => row.id)).size).toBe(rows.length);
    for (const row of rows) {
      expect(idsIn(row.id)).toEqual([row.id]);
      expect(row.title).not.toBe("");
    }
  });

  it("that differ name their source and why", () => {
    const differences = read<Record<string, Difference>>("differs.json");
    expect(strangers(rows, [], differences)).toEqual([]);
    for (const difference of Object.values(differences)) {
      expect(difference.source).not.toBe("");
      expect(difference.why).not.toBe("");
    }
  });
});

describe("the state of a row", () => {
  const row: Row = { id: "S-DG-01", title: "t" };
  const difference: Difference = { source: "seed", why: "because" };
  const pass = { name: "handler > S-DG-01 S-DG-02 picks decode first", status: "pass" } as const;
  const fail = { name: "S-DG-01 in Envoy", status: "fail" } as const;

  it("is its tests': one failure fails it, none leaves it pending", () => {
    expect(rowLine(row, stateOf(row, [pass], undefined))).toBe("S-DG-01 pass");
    expect(rowLine(row, stateOf(row, [pass, fail], undefined))).toBe("S-DG-01 fail");
    expect(rowLine(row, stateOf(row, [{ name: "XS-DG-01 S-DG-011", status: "pass" }], undefined))).toBe("S-DG-01 pending");
  });

  it("is a difference only where it is tested or left out for good", () => {
    expect(rowLine(row, stateOf(row, [pass], difference))).toBe("S-DG-01 differs: seed: because");
    expect(rowLine(row, stateOf(row, [fail], difference))).toBe("S-DG-01 fail");
    expect(rowLine(row, stateOf(row, [], difference))).toBe("S-DG-01 pending");
    expect(rowLine(row, stateOf(row, [], { ...difference, leftOut: true }))).toBe("S-DG-01 differs: seed: because");
  });

  it("cannot come from a misspelt id unseen", () => {
    expect(strangers([row], [{ name: "S-DG-99 x", status: "pass" }], { "C-XX-01": difference })).toEqual(["C-XX-01", "S-DG-99"]);
  });

  it("reads ids of two and three letters, with digits", () => {
    expect(idsIn("S-P2-20, C-CFG-23 (C-HDR-01): S-RQ-1 s-RQ-01 X-C-NX-01")).toEqual(["S-P2-20", "C-CFG-23", "C-HDR-01"]);
  });
});

describe("reports", () => {
  it("of vitest: groups in front, skipped tests do not count, a file that broke is a failure", () => {
    const report = JSON.stringify({
      testResults: [
        { name: "a.spec.ts", status: "failed", assertionResults: [{ ancestorTitles: ["a", "b"], title: "c", status: "passed" }, { ancestorTitles: [], title: "d", status: "failed" }, { ancestorTitles: [], title: "e", status: "pending" }] },
        { name: "b.spec.ts", status: "failed", assertionResults: [] },
        { name: "c.spec.ts", status: "passed", assertionResults: [{ title: "f", status: "passed" }] },
      ],
    });
    expect(readVitest(report)).toEqual([
      { name: "a > b > c", status: "pass" },
      { name: "d", status: "fail" },
      { name: "b.spec.ts could not be run", status: "fail" },
      { name: "f", status: "pass" },
    ]);
  });

  it("of as-pect's verbose reporter, with and without colours", () => {
    const text = "[Describe]: selectors\n\n \u001b[32m[Success]: ✔\u001b[39m S-FL-05 matchLabels RTrace: +2\n  [Throws]: ✔ bad operator\n    [Fail]: ✖ S-FL-06 In\n  [Actual]: 1\n [Success]: ✔ \n\n    [File]: x\n";
    expect(readAspect(text)).toEqual([
      { name: "selectors > S-FL-05 matchLabels", status: "pass" },
      { name: "selectors > bad operator", status: "pass" },
      { name: "selectors > S-FL-06 In", status: "fail" },
      { name: "selectors > ", status: "pass" },
    ]);
  });

  it("of the case runner: pending cases are no tests", () => {
    const text = JSON.stringify([
      { name: "01-a", runs: [{ label: [], wrong: [] }], pending: [], error: null },
      { name: "02-b", runs: [{ label: [], wrong: ["x"] }], pending: [], error: null },
      { name: "03-c", runs: [], pending: [{ value: null, missing: ["zstd"] }], error: null },
      { name: "04-d", runs: [], pending: [], error: "unknown key" },
    ]);
    expect(readCases(text)).toEqual([
      { name: "case 01-a", status: "pass" },
      { name: "case 02-b", status: "fail" },
      { name: "case 04-d", status: "fail" },
    ]);
  });

  it("without a test are a failure, and so is a bad end after passed tests", () => {
    const none = readRunner("unit", "vitest", '{"testResults":[]}', 0);
    expect(none.problem).toBe("it ran no test");
    expect(readRunner("unit", "vitest", null, 1).problem).toBe("it ran no test");
    expect(readRunner("unit", "vitest", "{", 0).problem).toContain("cannot be read");
    const odd = readRunner("as-pect", "aspect", " [Success]: ✔ a\n", 1);
    expect(odd.problem).toContain("exit code 1");
    expect(readRunner("lint", "check", null, 1).tests).toEqual([{ name: "lint", status: "fail" }]);
    expect(totals([none, odd, readRunner("types", "check", null, 0)])).toEqual({ passed: 2, failed: 2 });
  });
});
