/** Who runs and who waits: first come, first served, as long as there is a place (`max_num_seqs`) and there are blocks. */

interface Waiter {
  /** Tries to start; false leaves it where it is. */
  start(): boolean;
}

export class Scheduler {
  running = 0;
  /** Requests whose KV is on its way from another engine: vLLM counts them as waiting, with reason `deferred`. */
  deferred = 0;
  private readonly queue: Waiter[] = [];

  constructor(private readonly maxRunning: number) {}

  get waitingForCapacity(): number {
    return this.queue.length;
  }

  get waiting(): number {
    return this.queue.length + this.deferred;
  }

  /**
   * Waits for a place and for what `claim` takes; the caller then runs until it calls {@link leave}.
   *
   * @throws the signal's reason
   */
  admit<T>(signal: AbortSignal, claim: () => T | null): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason as Error);
        return;
      }
      const onAbort = (): void => {
        const at = this.queue.indexOf(waiter);
        if (at >= 0) this.queue.splice(at, 1);
        reject(signal.reason as Error);
        this.kick();
      };
      const waiter: Waiter = {
        start: () => {
          if (this.running >= this.maxRunning) return false;
          const claimed = claim();
          if (claimed === null) return false;
          this.running += 1;
          signal.removeEventListener("abort", onAbort);
          resolve(claimed);
          return true;
        },
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.queue.push(waiter);
      this.kick();
    });
  }

  leave(): void {
    this.running -= 1;
    this.kick();
  }

  /** Runs `work` without a running place. */
  async whileDeferred<T>(work: () => Promise<T>): Promise<T> {
    this.running -= 1;
    this.deferred += 1;
    this.kick();
    try {
      return await work();
    } finally {
      this.deferred -= 1;
      this.running += 1;
    }
  }

  /** Starts whoever can start, in order. */
  kick(): void {
    while (this.queue.length > 0) {
      const head = this.queue[0];
      if (head?.start() !== true) return;
      this.queue.shift();
    }
  }
}
