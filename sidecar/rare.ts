/** Lets something through at most once in a while: what every request could say is worth a line of the log now and then, and a count each time. */
export class Rarely {
  readonly #everyMs: number;
  readonly #now: () => number;
  #nextAt = Number.NEGATIVE_INFINITY;

  constructor(everyMs: number, now: () => number = () => performance.now()) {
    this.#everyMs = everyMs;
    this.#now = now;
  }

  /** Whether its time has come. */
  get due(): boolean {
    const now = this.#now();
    if (now < this.#nextAt) return false;
    this.#nextAt = now + this.#everyMs;
    return true;
  }
}
