import { expect, it } from "vitest";
import { Rarely } from "./rare.js";

it("lets the first through, and others after a while", () => {
  let now = 5;
  const rarely = new Rarely(10, () => now);
  const seen = [rarely.due, rarely.due];
  now = 14.9;
  seen.push(rarely.due);
  now = 15;
  seen.push(rarely.due, rarely.due);
  expect(seen).toEqual([true, false, false, true, false]);
});
