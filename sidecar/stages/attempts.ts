import { setTimeout as sleep } from "node:timers/promises";
import { type Candidate, parseCandidate } from "../candidates.js";
import type { Exchange } from "../exchange.js";

/** Why an attempt to prefill gave nothing. */
export interface PrefillFailure {
  /** A word for counters and logs. */
  readonly reason: string;
  /** A prefiller that is busy or gone for a moment, or another one, may do better. */
  readonly retried: boolean;
  /** The connection broke: the next attempt must not meet another that broke with it. */
  readonly broken: boolean;
  /** The client's own error, under either policy. */
  readonly final: boolean;
  /** Gives the client the failure. */
  readonly respond: () => void;
}

/**
 * The attempts of one request's prefill stage: `--prefill-max-retries` further ones, each at the next candidate of the header, all within the stage's deadline.
 * A candidate that was not asked yet is asked at once; who was asked before is given time.
 */
export class PrefillAttempts {
  readonly #exchange: Exchange;
  readonly #entries: readonly string[];
  readonly #endsAtMs: number;
  #attempt = 0;
  #fresh = false;

  /** @param entries of the routing header, one at least */
  constructor(exchange: Exchange, entries: readonly string[]) {
    const { prefillTimeoutMs, prefillMaxRetries } = exchange.services.options;
    // With further attempts an entry that names nobody is passed over; where there is one attempt, it is the picked entry's.
    const named = prefillMaxRetries > 0 ? entries.filter((entry) => parseCandidate(entry) !== null) : entries;
    this.#exchange = exchange;
    this.#entries = named.length > 0 ? named : entries.slice(0, 1);
    this.#endsAtMs = prefillTimeoutMs === 0 ? Number.POSITIVE_INFINITY : performance.now() + prefillTimeoutMs;
  }

  /** Who is asked now; null when the header does not name one. */
  get candidate(): Candidate | null {
    return parseCandidate(this.#entries[this.#attempt % this.#entries.length] ?? "");
  }

  /** On a connection that nothing used before. */
  get fresh(): boolean {
    return this.#fresh;
  }

  /** What is left of the deadline; 0: there is none. */
  get timeoutMs(): number {
    return this.#endsAtMs === Number.POSITIVE_INFINITY ? 0 : Math.max(1, Math.ceil(this.#endsAtMs - performance.now()));
  }

  /** Whether there is another attempt after that failure; resolves when it is due. */
  async again({ reason, retried, broken }: PrefillFailure): Promise<boolean> {
    const { options, metrics } = this.#exchange.services;
    const attempt = this.#attempt;
    if (!retried || attempt >= options.prefillMaxRetries || this.#exchange.gone.aborted) return false;
    // Spread, so that requests that failed together do not come back together.
    const askedBefore = attempt + 1 >= this.#entries.length;
    const waitMs = askedBefore ? options.prefillRetryBackoffMs * (0.5 + Math.random()) : 0;
    if (performance.now() + waitMs >= this.#endsAtMs) return false;
    try {
      if (waitMs > 0) await sleep(waitMs, undefined, { signal: this.#exchange.gone });
    } catch {
      return false;
    }
    this.#attempt = attempt + 1;
    this.#fresh = broken && askedBefore;
    metrics.retries.inc({ stage: "prefill", reason });
    this.#exchange.log.info({ requestId: this.#exchange.requestId, prefiller: this.candidate?.authority, reason, attempt: attempt + 1 }, "prefill is tried again");
    return true;
  }
}
