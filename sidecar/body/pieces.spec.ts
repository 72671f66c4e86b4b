import { describe, expect, it } from "vitest";
import { PieceCollector, Pieces } from "./pieces.js";

describe("Pieces", () => {
  const text = "0123456789abcdef";

  it("reads and cuts over every division of a body", () => {
    for (let first = 0; first <= text.length; first++) {
      for (let second = first; second <= text.length; second++) {
        const pieces = new Pieces([text.slice(0, first), text.slice(first, second), text.slice(second)].map((piece) => Buffer.from(piece)));
        expect(pieces.length).toBe(text.length);
        for (let at = -1; at <= text.length; at++) expect(pieces.byteAt(at)).toBe(at < 0 || at === text.length ? -1 : text.charCodeAt(at));
        for (let end = 0; end <= text.length; end += 3) expect(Buffer.concat(pieces.slice(2, end)).toString()).toBe(text.slice(2, Math.max(2, end)));
      }
    }
  });

  it("copies nothing where the range lies in one piece", () => {
    const whole = Buffer.from(text);
    const view = new Pieces([whole]).join(3, 6);
    expect([view.toString(), view.buffer === whole.buffer]).toEqual(["345", true]);
    expect(new Pieces([Buffer.from("ab"), Buffer.from("cd")]).join(1, 3).toString()).toBe("bc");
  });

  it("gives its memory back", () => {
    const pieces = new Pieces([Buffer.from("abc")]);
    pieces.release();
    expect([pieces.list, pieces.slice(0, 3), pieces.byteAt(0), pieces.length]).toEqual([[], [], -1, 3]);
  });

  it("takes an empty body", () => {
    const empty = new Pieces([]);
    expect([empty.length, empty.byteAt(0), empty.slice(0, 0), empty.join(0, 0).length]).toEqual([0, -1, [], 0]);
  });
});

describe("PieceCollector", () => {
  it("gives a body that came in one piece as it lies, and holds nothing after that", () => {
    const collector = new PieceCollector();
    const piece = Buffer.from("abc");
    collector.push(piece);
    expect(collector.take().list[0]).toBe(piece);
    expect(collector.take().length).toBe(0);
  });

  it("keeps every byte in its place, whatever the sizes", () => {
    const whole = Buffer.from(Array.from({ length: 60_000 }, (_, index) => index & 0xff));
    for (const sizes of [[1], [1, 5000], [4095], [4096], [3, 0, 4000, 17_000], [16_384, 1]]) {
      const collector = new PieceCollector();
      for (let at = 0, turn = 0; at < whole.length; turn++) {
        const size = sizes[turn % sizes.length] ?? 1;
        collector.push(whole.subarray(at, at + size));
        at += size;
      }
      const body = collector.take();
      expect(body.join(0, body.length).equals(whole)).toBe(true);
      expect(body.list.length).toBeLessThan(60_000 / 1000 + 20);
    }
  });
});
