/** What a reader sees of the sidecar's bench. */
import type { SidecarBenchResult } from "./sidecar-bench.js";
import { cell, table } from "./table.js";

function mebibytes(bytes: number | null): string {
  return cell(bytes === null ? null : bytes / 2 ** 20, 0);
}

export function sidecarReport({ rows, streams, memoryAtStart, warnings }: SidecarBenchResult): string[] {
  const lines: string[] = [];
  if (rows.length > 0) {
    lines.push(
      "One connection, streamed answers of eight events at once; medians (ms). added: over the engine alone; best: of each one's best round.",
      "",
      ...table(
        ["stages", "body", "through", "engine first", "added", "best", "engine total", "added", "best", "sidecar CPU", "best", "Envoy CPU", "best", "others"],
        rows.map((row) => [
          row.stages,
          row.body,
          row.through,
          cell(row.engineFirstByteMs, 3),
          cell(row.addedFirstByteMs, 3),
          cell(row.best.addedFirstByteMs, 3),
          cell(row.engineTotalMs, 3),
          cell(row.addedTotalMs, 3),
          cell(row.best.addedTotalMs, 3),
          cell(row.sidecarCpuMs, 3),
          cell(row.best.sidecarCpuMs, 3),
          cell(row.envoyCpuMs, 3),
          cell(row.best.envoyCpuMs, 3),
          cell(row.othersCpus, 1),
        ]),
        3,
      ),
      "",
    );
  }
  if (streams.length > 0) {
    const [{ streams: count, eventsPerSecond, seconds } = { streams: 0, eventsPerSecond: 0, seconds: 0 }] = streams;
    lines.push(
      `Lateness of events: ${count.toString()} streams of ${eventsPerSecond.toString()} events a second for ${seconds.toString()} s (ms from being written to being read; memory in MiB)`,
      "",
      ...table(
        ["through", "events", "lost", "cut", "disorder", "p50", "added", "p99", "added", "max", "CPU ms/s", "memory before", "open", "after", "others"],
        streams.map((row) => [
          row.through,
          row.events.toString(),
          row.lost.toString(),
          row.cut.toString(),
          row.outOfOrder.toString(),
          cell(row.p50Ms, 2),
          cell(row.addedP50Ms, 2),
          cell(row.p99Ms, 2),
          cell(row.addedP99Ms, 2),
          cell(row.maxMs, 2),
          cell(row.cpuMsPerSecond, 0),
          mebibytes(row.memoryBefore),
          mebibytes(row.memoryOpen),
          mebibytes(row.memoryAfter),
          cell(row.othersCpus, 1),
        ]),
        1,
      ),
      "",
    );
  }
  lines.push(`Resident memory at the start: ${Object.entries(memoryAtStart).map(([name, bytes]) => `${name} ${mebibytes(bytes)} MiB`).join(", ")}`);
  for (const warning of warnings) lines.push("", `Note: ${warning}.`);
  return lines;
}
