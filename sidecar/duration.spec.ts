import { describe, expect, it } from "vitest";
import { formatDuration, parseDurationMs } from "./duration.js";

describe("parseDurationMs", () => {
  it.each([
    ["200ms", 200],
    ["1m30s", 90_000],
    ["1.5s", 1500],
    [".5s", 500],
    ["1h", 3_600_000],
    ["0", 0],
    ["0s", 0],
    ["-3s", -3000],
    ["+20ms", 20],
    ["1500us", 1.5],
  ])("reads %s", (text, ms) => {
    expect(parseDurationMs(text)).toBe(ms);
  });

  it.each(["", "5", "xx", "1 s", "s", "1d", "1s2", "--1s", "1e3s"])("refuses %j", (text) => {
    expect(parseDurationMs(text)).toBeNull();
  });

  it("writes durations back", () => {
    expect([formatDuration(200), formatDuration(300_000), formatDuration(0), formatDuration(1500)]).toEqual(["200ms", "300s", "0ms", "1500ms"]);
  });
});
