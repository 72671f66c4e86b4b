import { describe, expect, it } from "vitest";
import { EventReader, eventText, LatenessBook } from "./events.js";

function read(text: string, cut: number, nowMs: number): LatenessBook {
  const book = new LatenessBook();
  const reader = new EventReader(book);
  for (let at = 0; at < text.length; at += cut) reader.feed(text.slice(at, at + cut), nowMs);
  return book;
}

describe("EventReader", () => {
  const text = [0, 1, 2, 3].map((number) => eventText(number, 1000 + number)).join("") + "data: [DONE]\n\n";
  it.each([1, 7, 100, 10_000])("finds every event in pieces of %i", (cut) => {
    const { events, outOfOrder, late } = read(text, cut, 1010).result();
    expect(events).toBe(4);
    expect(outOfOrder).toBe(0);
    expect(late.max).toBeCloseTo(10, 3);
    expect(late.p50).toBeCloseTo(8.5, 3);
  });
  it("sees what comes in the wrong order, twice, or not at all", () => {
    expect(read(eventText(1, 0) + eventText(0, 0), 50, 0).result().outOfOrder).toBe(2);
    expect(read(eventText(0, 0) + eventText(0, 0), 50, 0).result().outOfOrder).toBe(1);
    expect(read(eventText(0, 0) + eventText(2, 0), 50, 0).result().outOfOrder).toBe(1);
  });
});
