/** What a reader sees of the filter's bench. */
import type { FilterBenchResult } from "./filter-bench.js";
import type { Row } from "./rows.js";
import { cell, table } from "./table.js";

const HEAD = ["body", "pods", "prompt", "block", "plain", "floor", "ours", "×floor", "best", "plain", "floor", "ours", "×floor", "best", "conns", "plain", "floor", "ours", "×floor", "split", "others"];

function added(value: number | null, plain: number | null): string {
  const text = cell((value ?? Number.NaN) - (plain ?? Number.NaN), 3);
  return text === "-" || text.startsWith("-") ? text : `+${text}`;
}

function line(row: Row, several: boolean): string[] {
  return [
    several ? `${row.body} ${row.filter}` : row.body,
    row.endpoints.toString(),
    row.prompt,
    `${row.blockTokens.toString()}×${row.maxBlocks.toString()}`,
    cell(row.plainP50Ms, 3),
    added(row.floorP50Ms, row.plainP50Ms),
    added(row.p50Ms, row.plainP50Ms),
    cell(row.p50RatioToFloor, 2),
    cell(row.best.p50RatioToFloor, 2),
    cell(row.plainCpuMs, 3),
    added(row.floorCpuMs, row.plainCpuMs),
    added(row.cpuMs, row.plainCpuMs),
    cell(row.cpuRatioToFloor, 2),
    cell(row.best.cpuRatioToFloor, 2),
    row.connections.toString(),
    cell(row.plainRps, 0),
    cell(row.floorRps, 0),
    cell(row.rps, 0),
    cell(row.busyCpuRatioToFloor, 2),
    cell((row.decisions["prefill-decode"] ?? 0) * 100, 0),
    cell(row.othersCpus, 1),
  ];
}

export function filterReport({ rows, fleetCosts, warnings }: FilterBenchResult): string[] {
  const several = new Set(rows.map(({ filter }) => filter)).size > 1;
  const lines = [
    "One connection: median time of a request (ms), then CPU time of Envoy per request (ms); then requests per second over many connections.",
    "floor, ours: what they add to plain. ×floor: added by ours over added by the floor (of the medians, and of each one's best round); for many connections: of CPU time.",
    "split: % of prompts sent to prefill. others: CPUs kept busy by other programs.",
    "",
    ...table(HEAD, rows.map((row) => line(row, several)), 4),
  ];
  if (fleetCosts.length > 0) {
    lines.push(
      "",
      `What the larger fleet costs: added by ours with ${fleetCosts[0]?.to.toString() ?? ""} endpoints, less that with ${fleetCosts[0]?.from.toString() ?? ""} (ms)`,
      "",
      ...table(
        ["body", "prompt", "block", "p50", "best p50", "CPU"],
        fleetCosts.map((cost) => [several ? `${cost.body} ${cost.filter}` : cost.body, cost.prompt, cost.blockTokens.toString(), cell(cost.moreP50Ms, 3), cell(cost.moreP50BestMs, 3), cell(cost.moreCpuMs, 3)]),
        3,
      ),
    );
  }
  for (const warning of warnings) lines.push("", `Note: ${warning}.`);
  return lines;
}
