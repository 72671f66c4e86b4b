const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/**
 * Reads `250ms`, `20s`, `15m`, `1h`.
 *
 * @returns milliseconds
 * @throws Error naming the accepted forms
 */
export function parseDurationMs(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text);
  const unit = match?.[2] === undefined ? undefined : UNIT_MS[match[2]];
  const ms = unit === undefined ? Number.NaN : Math.round(Number(match?.[1]) * unit);
  if (!Number.isFinite(ms) || ms <= 0) throw new Error(`'${text}' is not a duration such as 250ms, 20s or 15m`);
  return ms;
}

/** Milliseconds in protobuf's JSON form of a duration (`1.5s`). */
export function protoDuration(ms: number): string {
  return `${String(ms / 1000)}s`;
}
