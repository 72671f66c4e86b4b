/** What the bench computes from what it measured. */

/** The value below which a share `q` (0 to 1) of the ascending values lies, by linear interpolation; NaN of none. */
export function quantile(ascending: ArrayLike<number>, q: number): number {
  if (ascending.length === 0) return Number.NaN;
  const at = (ascending.length - 1) * Math.min(1, Math.max(0, q));
  const low = ascending[Math.floor(at)] ?? Number.NaN;
  const high = ascending[Math.ceil(at)] ?? Number.NaN;
  return low + (high - low) * (at - Math.floor(at));
}

function ascending(values: readonly number[]): number[] {
  return [...values].sort((a, b) => a - b);
}

/** NaN of none. */
export function median(values: readonly number[]): number {
  return quantile(ascending(values), 0.5);
}

/** A figure over the rounds: the median, and how far the rounds lie apart. */
export interface Figure {
  median: number;
  min: number;
  max: number;
}

/** All three NaN of no values. */
export function figure(values: readonly number[]): Figure {
  const sorted = ascending(values);
  return { median: quantile(sorted, 0.5), min: quantile(sorted, 0), max: quantile(sorted, 1) };
}

/**
 * Added cost over added cost: `(ours - plain) / (floor - plain)`. Null when the floor added nothing that could be measured (its figure is not above plain's), because
 * then the quotient says nothing.
 */
export function addedRatio(plain: number, floor: number, ours: number): number | null {
  const added = floor - plain;
  if (!(added > 0)) return null;
  const ratio = (ours - plain) / added;
  return Number.isFinite(ratio) ? ratio : null;
}

/** Times of one run of requests, in ms. */
export interface Latencies {
  p50: number;
  p90: number;
  p99: number;
  mean: number;
  max: number;
}

/** Sorts `times` in place. All NaN of none. */
export function latencies(times: Float64Array): Latencies {
  times.sort();
  let sum = 0;
  for (const time of times) sum += time;
  return { p50: quantile(times, 0.5), p90: quantile(times, 0.9), p99: quantile(times, 0.99), mean: sum / times.length, max: quantile(times, 1) };
}

/** Rounds to `digits` decimals for a report; what is no number becomes null, which JSON can hold. */
export function rounded(value: number | null, digits: number): number | null {
  if (value === null || !Number.isFinite(value)) return null;
  const factor = 10 ** digits;
  return Math.round(value * factor) / factor;
}

/** A list of numbers that grows without leaving garbage behind for each one. */
export class Samples {
  private values = new Float64Array(4096);
  private used = 0;

  add(value: number): void {
    if (this.used === this.values.length) {
      const larger = new Float64Array(this.used * 2);
      larger.set(this.values);
      this.values = larger;
    }
    this.values[this.used++] = value;
  }

  get length(): number {
    return this.used;
  }

  clear(): void {
    this.used = 0;
  }

  /** A copy of all values, in the order in which they came. */
  all(): Float64Array {
    return this.values.slice(0, this.used);
  }
}
