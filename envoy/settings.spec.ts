import { expect, it } from "vitest";
import { checkSettings, DEFAULT_SETTINGS } from "./settings.js";

it("the defaults are sound", () => {
  expect(checkSettings(DEFAULT_SETTINGS)).toEqual([]);
});

it("admin and state stay on loopback, and ports differ", () => {
  expect(checkSettings({ ...DEFAULT_SETTINGS, admin: { host: "0.0.0.0", port: 1 }, state: { host: "::", port: 2 } })).toEqual([
    expect.stringMatching(/^admin: 0\.0\.0\.0:1 is not a loopback address/),
    expect.stringMatching(/^state: \[::\]:2 is not a loopback address/),
  ]);
  expect(checkSettings({ ...DEFAULT_SETTINGS, state: DEFAULT_SETTINGS.admin })).toHaveLength(1);
});
