/** Milliseconds of one unit of a Go duration string. */
const UNIT_MS: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, "µs": 1e-3, "μs": 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** The longest delay that a Node timer can hold: anything above fires at once. */
export const MAX_TIMER_MS = 2_147_483_647;

/**
 * Reads a duration as the reference's flags take it (Go's `time.ParseDuration`): a sequence of decimal numbers with units, like `1m30s`, `1.5s`
 * or `200ms`; a bare `0` needs no unit.
 *
 * @returns milliseconds, or null when the text is no duration
 */
export function parseDurationMs(text: string): number | null {
  const signed = /^([+-]?)(.*)$/s.exec(text.trim());
  const rest = signed?.[2] ?? "";
  if (rest === "0") return 0;
  if (!/^(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+$/.test(rest)) return null;
  let totalMs = 0;
  for (const [, amount, unit] of rest.matchAll(/(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g)) {
    totalMs += Number(amount) * (UNIT_MS[unit ?? ""] ?? Number.NaN);
  }
  if (!Number.isFinite(totalMs)) return null;
  return signed?.[1] === "-" ? -totalMs : totalMs;
}

/** A duration as a person would write it: `200ms`, `300s`. */
export function formatDuration(ms: number): string {
  return ms !== 0 && ms % 1000 === 0 ? `${String(ms / 1000)}s` : `${String(ms)}ms`;
}
