import { describe, expect, it } from "vitest";
import { Pieces } from "./pieces.js";

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

  it("takes an empty body", () => {
    const empty = new Pieces([]);
    expect([empty.length, empty.byteAt(0), empty.slice(0, 0), empty.join(0, 0).length]).toEqual([0, -1, [], 0]);
  });
});
