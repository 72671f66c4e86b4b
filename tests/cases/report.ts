/** What the runner prints. */
import type { Pending } from "./plan.js";

export interface RunResult {
  /** The values of the repeated keys. */
  label: string[];
  /** Empty: passed. */
  wrong: string[];
}

export interface CaseResult {
  /** `NN-name`. */
  name: string;
  runs: RunResult[];
  pending: Pending[];
  /** The case could not be read, or not be planned. */
  error: string | null;
}

function bracketed(name: string, values: readonly string[]): string {
  return values.length === 0 ? name : `${name} [${values.join(", ")}]`;
}

/** A case failed when it is malformed or one of its runs is wrong; it passed when all of its runs are right. One without runs is only pending. */
export function verdict(result: CaseResult): "passed" | "failed" | "pending" {
  if (result.error !== null || result.runs.some((run) => run.wrong.length > 0)) return "failed";
  return result.runs.length === 0 ? "pending" : "passed";
}

/**
 * One line per case, one more per value that is pending on its own; below a failed case, indented, what was wrong in which run.
 */
export function caseLines(result: CaseResult): string[] {
  const lines: string[] = [];
  const word = verdict(result);
  if (result.error !== null) lines.push(`${result.name} failed: ${oneLine(result.error)}`);
  else if (word === "passed") lines.push(`${result.name} passed${result.runs.length > 1 ? ` (${result.runs.length.toString()} runs)` : ""}`);
  else if (word === "failed") {
    const bad = result.runs.filter((run) => run.wrong.length > 0);
    lines.push(`${result.name} failed${result.runs.length > 1 ? ` (${bad.length.toString()} of ${result.runs.length.toString()} runs)` : ""}`);
    for (const run of bad) for (const text of run.wrong) lines.push(`    ${run.label.length === 0 ? "" : `[${run.label.join(", ")}] `}${oneLine(text)}`);
  }
  for (const { value, missing } of result.pending) lines.push(`${bracketed(result.name, value === null ? [] : [value])} pending: ${missing.join(", ")}`);
  return lines;
}

function oneLine(text: string): string {
  return text.replace(/\s*\n\s*/g, " | ");
}

/** The last line. A value that is pending on its own counts as pending beside its case. */
export function countsLine(results: readonly CaseResult[]): { line: string; passed: number; failed: number; pending: number } {
  const passed = results.filter((result) => verdict(result) === "passed").length;
  const failed = results.filter((result) => verdict(result) === "failed").length;
  const pending = results.reduce((sum, result) => sum + result.pending.length, 0);
  return { line: `${passed.toString()} passed, ${failed.toString()} failed, ${pending.toString()} pending`, passed, failed, pending };
}
