/** Runs side by side, a few at a time. */

interface Waiting {
  alone: boolean;
  go: () => void;
}

export class Slots {
  private readonly limit: number;
  private running = 0;
  private aloneNow = false;
  private readonly queue: Waiting[] = [];

  /** @param limit how many tasks run at a time */
  constructor(limit: number) {
    this.limit = limit;
  }

  /**
   * Runs the task when its turn comes; turns come in the order of the calls.
   *
   * @param alone nothing else runs meanwhile
   */
  async run<T>(task: () => Promise<T>, alone = false): Promise<T> {
    await new Promise<void>((go) => {
      this.queue.push({ alone, go });
      this.next();
    });
    try {
      return await task();
    } finally {
      this.running -= 1;
      if (alone) this.aloneNow = false;
      this.next();
    }
  }

  private next(): void {
    for (;;) {
      const first = this.queue[0];
      if (first === undefined || this.aloneNow || this.running >= this.limit || (first.alone && this.running > 0)) return;
      this.queue.shift();
      this.running += 1;
      this.aloneNow = first.alone;
      first.go();
    }
  }
}
