import { describe, expect, it } from "vitest";
import { canMatch, openedControlPaths } from "./routes.js";

describe("allowPaths", () => {
  it("control paths that an entry opens are known", () => {
    expect(openedControlPaths("/sleep")).toEqual(["/sleep"]);
    expect(openedControlPaths("/inference/v1/*")).toEqual(["/inference/v1/abort_requests"]);
    expect(openedControlPaths("/v1/*")).toEqual(["/v1/load_lora_adapter", "/v1/unload_lora_adapter"]);
    expect(openedControlPaths("/*").length).toBeGreaterThan(10);
    expect(openedControlPaths("/sleepy")).toEqual([]);
    expect(openedControlPaths("/v1/audio/*")).toEqual([]);
  });

  it.each(["/a", "/a/*", "/a.b/c-d_e~f", "/a%20b", "/..a", "/a..", "/%c3%a9"])("%s can match", (path) => {
    expect(canMatch(path)).toBe(true);
  });

  it.each(["/a//b", "/a/./b", "/a/../b", "/a/..", "/%61", "/%2e%2e/x", "/a%2fb", "/a%5Cb", "/a\\b", "/a%7Eb", "/a%5fb"])("%s cannot", (path) => {
    expect(canMatch(path)).toBe(false);
  });
});
