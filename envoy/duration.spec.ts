import { describe, expect, it } from "vitest";
import { parseDurationMs, protoDuration } from "./duration.js";

describe("durations", () => {
  it.each([
    ["250ms", 250, "0.25s"],
    ["20s", 20_000, "20s"],
    ["1.5s", 1_500, "1.5s"],
    ["15m", 900_000, "900s"],
    ["1h", 3_600_000, "3600s"],
  ])("%s is %i ms, and %s to Envoy", (text, ms, proto) => {
    expect(parseDurationMs(text)).toBe(ms);
    expect(protoDuration(ms)).toBe(proto);
  });

  it.each(["", "20", "0s", "-1s", "1d", "s", "1m30s", "0.2ms"])("%j is refused", (text) => {
    expect(() => parseDurationMs(text)).toThrow(`'${text}' is not a duration`);
  });
});
