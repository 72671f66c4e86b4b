/** The conformance rows (contracts: scheduler §11 as S-…, sidecar §9 as C-…) and what the last run's tests say about each. */
import type { TestResult } from "./results.js";

export interface Row {
  id: string;
  title: string;
}

/** A row that we do not follow to the letter. */
export interface Difference {
  /** The document that says so. */
  source: string;
  why: string;
  /** The behaviour is left out for good, so there is no test to wait for. */
  leftOut?: boolean;
}

export type RowState = { word: "pass" | "fail" | "pending" } | { word: "differs"; difference: Difference };

/** The ids that a test's name carries. */
export function idsIn(name: string): string[] {
  return name.match(/(?<![A-Za-z0-9-])[SC]-[A-Z][A-Z0-9]{1,2}-[0-9]{2}(?![0-9])/g) ?? [];
}

/**
 * The state of a row: failed as soon as one of its tests failed; pending while it has none.
 */
export function stateOf(row: Row, results: readonly TestResult[], difference: Difference | undefined): RowState {
  const own = results.filter((result) => idsIn(result.name).includes(row.id));
  if (own.some((result) => result.status === "fail")) return { word: "fail" };
  if (difference !== undefined && (own.length > 0 || difference.leftOut === true)) return { word: "differs", difference };
  return { word: own.length > 0 ? "pass" : "pending" };
}

export function rowLine(row: Row, state: RowState): string {
  return state.word === "differs" ? `${row.id} differs: ${state.difference.source}: ${state.difference.why}` : `${row.id} ${state.word}`;
}

/** Ids in tests or differences that no row has: misspelt, and so never counted. */
export function strangers(rows: readonly Row[], results: readonly TestResult[], differences: Readonly<Record<string, Difference>>): string[] {
  const known = new Set(rows.map((row) => row.id));
  const named = [...results.flatMap((result) => idsIn(result.name)), ...Object.keys(differences)];
  return [...new Set(named)].filter((id) => !known.has(id)).sort();
}
