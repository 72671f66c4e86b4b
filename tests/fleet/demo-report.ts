/** What the demo prints and writes. */
import type { DecisionRecord } from "./access-log.js";

export interface DemoLeg {
  stage: "encode" | "prefill" | "decode";
  /** host:port of the pod. */
  endpoint: string;
  status: number;
  ms: number;
}

/** One request; the JSON of `--json` is a list of these. */
export interface DemoResult {
  name: string;
  decision: DecisionRecord["decision"];
  reasons: { decode: string; prefill: string; encode: string };
  /** host:port each; "" and an empty list where the stage did not run. */
  endpoints: { decode: string; prefill: string; encode: string[] };
  /** From the engines' own records, in order of start. */
  legs: DemoLeg[];
  status: number;
  ms: number;
}

/** Columns padded to their widest cell. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string[] {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => (row[column] ?? "").length)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd();
  return [line(head), widths.map((width) => "-".repeat(width)).join("  "), ...rows.map(line)];
}

/** @param names pod names by host:port */
export function demoTable(results: readonly DemoResult[], names: ReadonlyMap<string, string>): string[] {
  const name = (endpoint: string): string => names.get(endpoint) ?? endpoint;
  const stage = (reason: string, endpoints: readonly string[]): string => (endpoints.length === 0 ? reason : `${reason} ${endpoints.map(name).join(",")}`);
  return table(
    ["request", "decision", "decode", "prefill", "encode", "legs seen by the engines", "status", "time"],
    results.map((result) => [
      result.name,
      result.decision,
      stage(result.reasons.decode, result.endpoints.decode === "" ? [] : [result.endpoints.decode]),
      stage(result.reasons.prefill, result.endpoints.prefill === "" ? [] : [result.endpoints.prefill]),
      stage(result.reasons.encode, result.endpoints.encode),
      // The status where it is not the usual one: the table is wide enough.
      result.legs.map((leg) => `${leg.stage} ${name(leg.endpoint)} ${leg.status === 200 ? "" : `${leg.status.toString()} `}${leg.ms.toString()} ms`).join(", "),
      result.status.toString(),
      `${result.ms.toString()} ms`,
    ]),
  );
}
