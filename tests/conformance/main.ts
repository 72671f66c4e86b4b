/**
 * Adds the runners of ./scripts/test up, and lists the conformance rows.
 *
 *     node build/js/tests/conformance/main.js total FOLDER
 *     node build/js/tests/conformance/main.js list FOLDER
 *
 * FOLDER holds `runners.txt` (a line each: name, kind, report file or "-", exit code; separated by tabs) and the reports.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { inRoot } from "../fleet/root.js";
import { readRunner, totals, type RunnerKind, type RunnerResult } from "./results.js";
import { rowLine, stateOf, strangers, type Difference, type Row } from "./rows.js";

const KINDS: readonly RunnerKind[] = ["check", "vitest", "aspect", "cases"];

function readRunners(folder: string): RunnerResult[] {
  const list = join(folder, "runners.txt");
  if (!existsSync(list)) return [];
  return readFileSync(list, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [name = "", kindText = "", file = "-", code = "1"] = line.split("\t");
      const kind = KINDS.find((word) => word === kindText);
      if (kind === undefined) throw new Error(`runners.txt: ${name} has the unknown kind ${kindText}`);
      const path = join(folder, file);
      return readRunner(name, kind, file !== "-" && existsSync(path) ? readFileSync(path, "utf8") : null, Number(code));
    });
}

function json<T>(name: string): T {
  return JSON.parse(readFileSync(inRoot("tests", "conformance", name), "utf8")) as T;
}

function total(folder: string): number {
  const results = readRunners(folder);
  if (results.length === 0) throw new Error("no runner has run");
  for (const { runner, tests, problem } of results) {
    const failed = tests.filter((test) => test.status === "fail");
    process.stdout.write(`${runner}: ${(tests.length - failed.length).toString()} passed, ${failed.length.toString()} failed${problem === null ? "" : `; ${problem}`}\n`);
    for (const test of failed) process.stdout.write(`    failed: ${test.name}\n`);
  }
  const ids = strangers(
    json<Row[]>("rows.json"),
    results.flatMap((result) => result.tests),
    json<Record<string, Difference>>("differs.json"),
  );
  if (ids.length > 0) process.stdout.write(`conformance: no row is called ${ids.join(", ")}\n`);
  const { passed, failed } = totals(results);
  const all = failed + (ids.length > 0 ? 1 : 0);
  process.stdout.write(`${passed.toString()} passed, ${all.toString()} failed\n`);
  return all === 0 ? 0 : 1;
}

function list(folder: string): number {
  const tests = readRunners(folder).flatMap((result) => result.tests);
  if (tests.length === 0) process.stderr.write("no test has run yet: every row is pending until ./scripts/test has\n");
  const differences = json<Record<string, Difference>>("differs.json");
  for (const row of json<Row[]>("rows.json")) process.stdout.write(`${rowLine(row, stateOf(row, tests, differences[row.id]))}\n`);
  return 0;
}

const [verb = "", folder = ""] = process.argv.slice(2);
try {
  if (folder === "" || (verb !== "total" && verb !== "list")) throw new Error("usage: total FOLDER | list FOLDER");
  process.exitCode = verb === "total" ? total(folder) : list(folder);
} catch (error) {
  process.stderr.write(`conformance: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
}
