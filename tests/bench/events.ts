/** Events of streamed answers that say when they were written, and what becomes of them on their way. */
import { type Latencies, latencies, Samples } from "./numbers.js";

/** How streamed answers are written. */
export interface Pace {
  perSecond: number;
  /** Events of one answer. */
  events: number;
}

const MARK = "@";

/** The text of event `number`, written at `atMs` of the clock that all processes share. */
export function eventText(number: number, atMs: number): string {
  return `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"bench-model","choices":[{"index":0,"delta":{"content":"${MARK}${number.toString()} ${atMs.toFixed(3)}${MARK}"},"finish_reason":null}]}\n\n`;
}

/** What came of many streams. */
export interface Lateness {
  events: number;
  /** Events that did not come at all. */
  lost: number;
  /** Streams that ended before their last event; its events are among the lost ones. */
  cut: number;
  /** Events that came behind a later one, or twice. */
  outOfOrder: number;
  /** From being written to being read, ms. */
  late: Latencies;
}

/** Collects lateness over streams. */
export class LatenessBook {
  private readonly samples = new Samples();
  private lost = 0;
  private cut = 0;
  private outOfOrder = 0;

  add(lateMs: number): void {
    this.samples.add(lateMs);
  }

  addDisorder(): void {
    this.outOfOrder++;
  }

  addLost(count: number): void {
    this.lost += count;
  }

  addCut(): void {
    this.cut++;
  }

  result(): Lateness {
    return { events: this.samples.length, lost: this.lost, cut: this.cut, outOfOrder: this.outOfOrder, late: latencies(this.samples.all()) };
  }
}

/** Reads the events of one stream, in whatever pieces they come. */
export class EventReader {
  private rest = "";
  private next = 0;
  /** Events that have come. */
  seen = 0;

  constructor(private readonly book: LatenessBook) {}

  feed(text: string, nowMs: number): void {
    this.rest += text;
    let at = 0;
    for (;;) {
      const from = this.rest.indexOf(MARK, at);
      const to = from < 0 ? -1 : this.rest.indexOf(MARK, from + 1);
      if (to < 0) {
        this.rest = from < 0 ? "" : this.rest.slice(from);
        return;
      }
      const [number, writtenMs] = this.rest.slice(from + 1, to).split(" ").map(Number);
      at = to + 1;
      this.seen++;
      if (number === this.next) this.next++;
      else {
        this.book.addDisorder();
        this.next = Math.max(this.next, (number ?? 0) + 1);
      }
      this.book.add(nowMs - (writtenMs ?? Number.NaN));
    }
  }
}
