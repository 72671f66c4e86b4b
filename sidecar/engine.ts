import type { Metrics } from "./metrics.js";
import { callForAnswer } from "./upstream/answer.js";
import type { Upstream } from "./upstream/pools.js";

const PROBE_TIMEOUT_MS = 2000;

/** An engine beside us, one per data-parallel rank: whether it is known to be away, and a question to find out. */
export class Engine {
  /** Its listener is so many ports above the base one. */
  readonly rank: number;
  readonly upstream: Upstream;
  readonly #metrics: Metrics;
  #away = false;
  #probing: Promise<boolean> | null = null;

  constructor(rank: number, upstream: Upstream, metrics: Metrics) {
    this.rank = rank;
    this.upstream = upstream;
    this.#metrics = metrics;
  }

  /** A call was refused: until one is answered again, no stage is spent on requests that would end here (a prefill that nobody decodes pins its blocks). */
  markAway(): void {
    this.#away = true;
  }

  markThere(): void {
    this.#away = false;
  }

  /** Whether a request may be begun: asks the engine only when it was away. */
  async mayServe(): Promise<boolean> {
    return !this.#away || this.ready();
  }

  /** Whether the engine answers its `/health` with 200 now. Questions at the same time share one call. */
  ready(): Promise<boolean> {
    this.#probing ??= this.#ask().finally(() => {
      this.#probing = null;
    });
    return this.#probing;
  }

  async #ask(): Promise<boolean> {
    const { outcome } = callForAnswer(
      { stage: "pass_through", upstream: this.upstream, method: "GET", target: "/health", headers: [], body: null, timeoutMs: PROBE_TIMEOUT_MS, timeoutUntil: "end", resendIfStale: true },
      this.#metrics,
    );
    const result = await outcome;
    const ready = result.kind === "answer" && result.answer.status === 200;
    if (ready) this.markThere();
    else if (result.kind === "failed" && result.error.failure === "refused") this.markAway();
    return ready;
  }
}
