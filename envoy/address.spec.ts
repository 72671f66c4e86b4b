import { describe, expect, it } from "vitest";
import { canonicalAddress, formatHostPort, isLoopback, parseHostPort } from "./address.js";

describe("canonicalAddress", () => {
  it.each([
    ["10.0.0.10", "10.0.0.10"],
    ["FD00::0010", "fd00::10"],
    ["fd00:0:0:1::20", "fd00:0:0:1::20"],
    ["fd00:0000:0000:0001:0000:0000:0000:0020", "fd00:0:0:1::20"],
    ["0:0:0:0:0:0:0:1", "::1"],
    ["[::1]", "::1"],
    ["1:0:0:2:0:0:0:3", "1:0:0:2::3"],
    ["1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7:0"],
  ])("%s is %s", (text, expected) => {
    expect(canonicalAddress(text)).toBe(expected);
  });

  it.each(["", "localhost", "d0.example.test", "10.0.0", "10.0.0.256", "010.0.0.1", "fe80::1%eth0", "[10.0.0.1]", "10.0.0.1:80", ":::", "1:2:3"])("%j is no address", (text) => {
    expect(canonicalAddress(text)).toBeNull();
  });
});

describe("host and port", () => {
  it.each(["127.0.0.1:8080", "[::1]:8080", "[fd00::10]:1", "0.0.0.0:65535"])("%s is read and written alike", (text) => {
    expect(formatHostPort(parseHostPort(text))).toBe(text);
  });

  it.each(["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:8x", "localhost:80", "::1:80", "[::1]", "127.0.0.1:+8"])("%j is refused, and named", (text) => {
    expect(() => parseHostPort(text)).toThrow(`'${text}'`);
  });

  it("knows loopback", () => {
    expect(["127.0.0.1", "127.8.8.8", "::1"].every(isLoopback)).toBe(true);
    expect(["0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "fd00::1"].some(isLoopback)).toBe(false);
  });
});
