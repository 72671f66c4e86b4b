import { describe, expect, it } from "vitest";
import { ALLOW_ALL, addHost, type AllowedPorts, allowlistOf, type AllowSource } from "./allowlist.js";

function source(hosts: Record<string, AllowedPorts>, ready = true): AllowSource {
  const made = new Map<string, AllowedPorts>();
  for (const [host, ports] of Object.entries(hosts)) addHost(made, host, ports);
  return { hosts: made, ready, close: () => undefined };
}

describe("allowlist", () => {
  const list = allowlistOf([source({ "10.0.0.1": new Set([8000]), "Pod-0": new Set([8000]), "fd00::1": new Set([8000]) }), source({ "10.0.0.9": "any" })], [8200]);

  it("C-SR-01: without a source everything is allowed", () => {
    for (const entry of ["evil:1", "no address", ""]) expect(ALLOW_ALL.allows(entry)).toBe(true);
  });

  it("C-SR-02: known hosts with their ports, and no other port of them", () => {
    for (const entry of ["10.0.0.1:8000", "http://10.0.0.1:8000", "pod-0:8000", "POD-0.:8000", "[fd00::1]:8000", "[FD00:0:0::1]:8000"]) expect([entry, list.allows(entry)]).toEqual([entry, true]);
    for (const entry of ["10.0.0.1:22", "pod-0:10250", "[fd00::1]:1"]) expect([entry, list.allows(entry)]).toEqual([entry, false]);
  });

  it("C-SR-03: no other host, in whatever spelling, and nothing that is no address", () => {
    for (const entry of ["10.0.0.2:8000", "10.0.0.01:8000", "0x0a000001:8000", "167772161:8000", "[::ffff:10.0.0.1]:8000", "pod-0.evil.test:8000", "pod-0", "", "10.0.0.1", "10.0.0.1:8000@evil:1", "evil/10.0.0.1:8000", "https://10.0.0.1:8000"]) {
      expect([entry, list.allows(entry)]).toEqual([entry, false]);
    }
  });

  it("extra ports are for every known host, a host without ports has all", () => {
    expect([list.allows("10.0.0.1:8200"), list.allows("10.0.0.2:8200"), list.allows("10.0.0.9:1"), list.size]).toEqual([true, false, true, 4]);
  });

  it("is ready when every source was heard, and lets nothing in before", () => {
    const empty = allowlistOf([source({}), source({}, false)], [8000]);
    expect([empty.ready, empty.allows("10.0.0.1:8000"), list.ready]).toEqual([false, false, true]);
  });
});

describe("addHost", () => {
  it("unites ports of one host, whatever its spelling", () => {
    const hosts = new Map<string, AllowedPorts>();
    addHost(hosts, "A", new Set([1]));
    addHost(hosts, "a.", new Set([2]));
    addHost(hosts, "b", "any");
    addHost(hosts, "b", new Set([1]));
    expect(hosts).toEqual(new Map<string, AllowedPorts>([["a", new Set([1, 2])], ["b", "any"]]));
  });
});
