/** Plain text tables. */

/** Columns as wide as their widest cell; the first `left` columns begin at their left edge, the others end at their right. */
export function table(head: readonly string[], rows: readonly (readonly string[])[], left: number): string[] {
  const widths = head.map((name, column) => Math.max(name.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => (column < left ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join("  ")
      .trimEnd();
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...rows.map(line)];
}

/** A number for a table; `-` where there is none. */
export function cell(value: number | null | undefined, digits: number): string {
  return value === null || value === undefined || !Number.isFinite(value) ? "-" : value.toFixed(digits);
}
