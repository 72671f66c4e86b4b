/** What the test runners wrote, read into one list of named results. */

export interface TestResult {
  /** With the names of its groups in front. */
  name: string;
  status: "pass" | "fail";
}

export interface RunnerResult {
  runner: string;
  tests: TestResult[];
  /** Why the runner as a whole is a failure, beside its failed tests: it ran no test, or it ended badly. */
  problem: string | null;
}

interface VitestReport {
  success?: boolean;
  testResults?: { name?: string; status?: string; message?: string; assertionResults?: { fullName?: string; ancestorTitles?: string[]; title?: string; status?: string }[] }[];
}

/** A report of vitest's JSON reporter. Tests that were skipped do not count; a file that could not be run is a failed test. */
export function readVitest(text: string): TestResult[] {
  const report = JSON.parse(text) as VitestReport;
  const tests: TestResult[] = [];
  for (const file of report.testResults ?? []) {
    const assertions = file.assertionResults ?? [];
    for (const test of assertions) {
      const name = [...(test.ancestorTitles ?? []), test.title ?? test.fullName ?? ""].join(" > ");
      if (test.status === "passed") tests.push({ name, status: "pass" });
      else if (test.status === "failed") tests.push({ name, status: "fail" });
    }
    const broken = file.status === "failed" && !assertions.some((test) => test.status === "failed");
    if (broken) tests.push({ name: `${file.name ?? "a file"} could not be run`, status: "fail" });
  }
  return tests;
}

const COLOURS = /\u001b\[[0-9;]*m/g;

/** The output of as-pect's verbose reporter. */
export function readAspect(text: string): TestResult[] {
  const tests: TestResult[] = [];
  let group = "";
  for (const raw of text.split("\n")) {
    const line = raw.replace(COLOURS, "");
    const describe = /^\s*\[Describe\]: (.*)$/.exec(line)?.[1];
    if (describe !== undefined) {
      group = describe.trim();
      continue;
    }
    const result = /^\s*\[(Success|Throws|Fail)\]: [✔✖] (.*?)(?: RTrace: [+-]\d+)?$/.exec(line);
    if (result === null) continue;
    const name = (result[2] ?? "").trim();
    tests.push({ name: group === "" ? name : `${group} > ${name}`, status: result[1] === "Fail" ? "fail" : "pass" });
  }
  return tests;
}

interface CaseReport {
  name: string;
  runs: { wrong: string[] }[];
  error: string | null;
}

/** The JSON of the case runner. A case that is only pending is no test. */
export function readCases(text: string): TestResult[] {
  return (JSON.parse(text) as CaseReport[])
    .filter((report) => report.error !== null || report.runs.length > 0)
    .map((report) => ({ name: `case ${report.name}`, status: report.error !== null || report.runs.some((run) => run.wrong.length > 0) ? "fail" : "pass" }));
}

export type RunnerKind = "check" | "vitest" | "aspect" | "cases";

/**
 * One runner's result.
 *
 * @param report what it wrote; null: nothing
 * @param exitCode of the runner
 */
export function readRunner(runner: string, kind: RunnerKind, report: string | null, exitCode: number): RunnerResult {
  if (kind === "check") return { runner, tests: [{ name: runner, status: exitCode === 0 ? "pass" : "fail" }], problem: null };
  let tests: TestResult[];
  try {
    tests = report === null ? [] : { vitest: readVitest, aspect: readAspect, cases: readCases }[kind](report);
  } catch (error) {
    return { runner, tests: [], problem: `its report cannot be read: ${error instanceof Error ? error.message : String(error)}` };
  }
  if (tests.length === 0) return { runner, tests, problem: "it ran no test" };
  // A runner that ends badly with every test passed hides something: an unhandled rejection, a file that did not compile.
  if (exitCode !== 0 && tests.every((test) => test.status === "pass")) return { runner, tests, problem: `it ended with exit code ${exitCode.toString()} although every test passed` };
  return { runner, tests, problem: null };
}

export interface Totals {
  passed: number;
  failed: number;
}

/** A runner's problem counts as one failure. */
export function totals(results: readonly RunnerResult[]): Totals {
  let passed = 0;
  let failed = 0;
  for (const { tests, problem } of results) {
    passed += tests.filter((test) => test.status === "pass").length;
    failed += tests.filter((test) => test.status === "fail").length + (problem === null ? 0 : 1);
  }
  return { passed, failed };
}
