/** The bytes of all request bodies that are held at once: the body limit bounds one of them, and a thousand clients may send as much each. */
export class BodyBudget {
  readonly #limitBytes: number;
  #held = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Bytes. */
  get held(): number {
    return this.#held;
  }

  /** The share of one body, empty. */
  open(): BodyShare {
    let share = 0;
    return {
      take: (bytes) => {
        if (this.#held + bytes > this.#limitBytes) return false;
        this.#held += bytes;
        share += bytes;
        return true;
      },
      giveBack: () => {
        this.#held -= share;
        share = 0;
      },
    };
  }
}

export interface BodyShare {
  /** @returns false: there is no room for them, and nothing was taken */
  take(bytes: number): boolean;
  /** All that was taken; nothing the second time. */
  giveBack(): void;
}
