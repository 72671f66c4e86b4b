/** A body as the list of buffers in which it arrived. Large bodies are never joined: edits cut views out of it (DESIGN, Speed). */
export class Pieces {
  #list: readonly Buffer[];
  /** In bytes. */
  readonly length: number;
  readonly #starts: readonly number[];

  constructor(list: readonly Buffer[]) {
    const starts: number[] = [];
    let length = 0;
    for (const piece of list) {
      starts.push(length);
      length += piece.length;
    }
    this.#list = list;
    this.length = length;
    this.#starts = starts;
  }

  get list(): readonly Buffer[] {
    return this.#list;
  }

  /** Gives the memory back. From then on there is nothing to cut out. */
  release(): void {
    this.#list = [];
  }

  /** The byte at an offset; -1 outside the body. */
  byteAt(offset: number): number {
    if (offset < 0 || offset >= this.length) return -1;
    const index = this.#indexOf(offset);
    return this.#list[index]?.[offset - (this.#starts[index] ?? 0)] ?? -1;
  }

  /** Views of the bytes from `start` to `end`, nothing copied. */
  slice(start: number, end: number): Buffer[] {
    const views: Buffer[] = [];
    if (start >= end) return views;
    for (let index = this.#indexOf(start); index < this.#list.length; index++) {
      const piece = this.#list[index];
      const base = this.#starts[index] ?? 0;
      if (piece === undefined || base >= end) break;
      const view = piece.subarray(Math.max(0, start - base), Math.min(piece.length, end - base));
      if (view.length > 0) views.push(view);
    }
    return views;
  }

  /** The bytes from `start` to `end` in one buffer; a view where they lie in one piece. */
  join(start: number, end: number): Buffer {
    const views = this.slice(start, end);
    return views.length === 1 && views[0] !== undefined ? views[0] : Buffer.concat(views);
  }

  #indexOf(offset: number): number {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/** Pieces below a quarter of this are gathered in blocks of it: a body may come one byte at a time, and a buffer costs a hundred bytes beside its own. */
const BLOCK_BYTES = 16 * 1024;

/** Collects a body as it arrives. */
export class PieceCollector {
  #list: Buffer[] = [];
  #bytes = 0;
  #block: Buffer | null = null;
  /** Bytes of the block that are taken. */
  #taken = 0;

  push(piece: Buffer): void {
    const first = this.#bytes === 0;
    this.#bytes += piece.length;
    // Most bodies come in one piece, which is kept as it lies.
    if (first || piece.length >= BLOCK_BYTES / 4) {
      this.#closeBlock();
      if (piece.length > 0) this.#list.push(piece);
      return;
    }
    if (this.#block === null || this.#block.length - this.#taken < piece.length) {
      this.#closeBlock();
      this.#block = Buffer.allocUnsafeSlow(Math.min(BLOCK_BYTES, Math.max(1024, this.#bytes)));
    }
    this.#taken += piece.copy(this.#block, this.#taken);
  }

  #closeBlock(): void {
    if (this.#block !== null) this.#list.push(this.#block.subarray(0, this.#taken));
    this.#block = null;
    this.#taken = 0;
  }

  /** The body; the collector is empty after it, so that who still holds that holds nothing. */
  take(): Pieces {
    this.#closeBlock();
    const list = this.#list;
    this.#list = [];
    this.#bytes = 0;
    return new Pieces(list);
  }
}
