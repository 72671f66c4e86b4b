import { describe, expect, it } from "vitest";
import { authorityOf, failoverOrder, isSameHost, listEntries, parseCandidate, pickPrefiller, unbracketed } from "./candidates.js";

const NAME = "x-prefiller-host-port";

describe("listEntries", () => {
  it("C-HDR-01: absent, empty and quoted-empty headers name nobody", () => {
    expect(listEntries([], NAME)).toEqual([]);
    expect(listEntries([NAME, ""], NAME)).toEqual([]);
    expect(listEntries([NAME, '"",""'], NAME)).toEqual([]);
    expect(listEntries([NAME, " , ,"], NAME)).toEqual([]);
  });

  it("C-HDR-08: several lines and lists in them are united, empties skipped", () => {
    expect(listEntries([NAME, "a:1,b:2", "x", "y", "X-Prefiller-Host-Port", " c:3 ,, "], NAME)).toEqual(["a:1", "b:2", "c:3"]);
  });

  it("keeps repeats", () => {
    expect(listEntries([NAME, "a:1,a:1"], NAME)).toEqual(["a:1", "a:1"]);
  });
});

describe("pickPrefiller", () => {
  it("C-HDR-02: the first, without sampling", () => {
    expect(pickPrefiller(["a", "b"], false)).toBe("a");
    expect(pickPrefiller([], false)).toBeUndefined();
    expect(pickPrefiller([], true)).toBeUndefined();
  });

  it("C-HDR-03 C-HDR-04: each is taken equally often, with sampling", () => {
    const taken = [0, 0.49, 0.5, 0.99].map((value) => pickPrefiller(["a", "b"], true, () => value));
    expect(taken).toEqual(["a", "a", "b", "b"]);
  });

  it("C-HDR-05: equal entries are one choice", () => {
    expect(pickPrefiller(["a", "a"], true)).toBe("a");
  });
});

describe("failoverOrder", () => {
  it("is the picked one, then the others as they stand, each address once", () => {
    expect(failoverOrder(["a:1", "b:1", "c:1"], "b:1")).toEqual(["b:1", "a:1", "c:1"]);
    expect(failoverOrder(["http://a:1", "a:1", "b:1"], "http://a:1")).toEqual(["http://a:1", "b:1"]);
    expect(failoverOrder(["[::1]:1", "[::1]:2"], "[::1]:2")).toEqual(["[::1]:2", "[::1]:1"]);
    expect(failoverOrder(["nowhere", "nowhere", "a:1"], "nowhere")).toEqual(["nowhere", "a:1"]);
  });
});

describe("authorityOf", () => {
  it("writes IPv6 in brackets, which unbracketed takes away", () => {
    expect([authorityOf("fd00::1", 8998), authorityOf("10.0.0.7", 8998), authorityOf("pod", 1)]).toEqual(["[fd00::1]:8998", "10.0.0.7:8998", "pod:1"]);
    expect(["[fd00::1]", "fd00::1", "10.0.0.7", "pod"].map(unbracketed)).toEqual(["fd00::1", "fd00::1", "10.0.0.7", "pod"]);
  });
});

describe("isSameHost", () => {
  it("compares names without case and IPv6 in any spelling", () => {
    expect([isSameHost("Pod-1", "pod-1"), isSameHost("fd00:0:0::10", "fd00::10"), isSameHost("10.0.0.1", "10.0.0.1"), isSameHost("10.0.0.1", "10.0.0.10"), isSameHost("::1", "127.0.0.1"), isSameHost("fe80::1%eth0", "fe80::1%eth0")]).toEqual([true, true, true, false, false, true]);
  });
});

describe("parseCandidate", () => {
  it.each([
    ["10.0.0.7:8000", "10.0.0.7:8000", "10.0.0.7"],
    ["pod-1.ns.svc:80", "pod-1.ns.svc:80", "pod-1.ns.svc"],
    ["[fd00::1]:8000", "[fd00::1]:8000", "fd00::1"],
    ["http://h:1", "h:1", "h"],
    ["http://[::1]:65535/", "[::1]:65535", "::1"],
  ])("C-HDR-07: reads %s", (entry, authority, host) => {
    expect(parseCandidate(entry)).toEqual({ authority, host, port: Number(authority.split(":").at(-1)) });
  });

  it.each(["h", "h:", ":80", "h:0", "h:65536", "h:8o", "https://h:1", "fd00::1:80", "[fd00::1]", "[zz]:1", "[1.2.3.4]:80", "u@h:1", "h:1/path", "h:1?x", "a b:1", "h:1#", "h:123456", "http://", "10.0.0.256:80", "1.2.3.4.5:80", "a.1x.09:80"])("refuses %s", (entry) => {
    expect(parseCandidate(entry)).toBeNull();
  });
});
