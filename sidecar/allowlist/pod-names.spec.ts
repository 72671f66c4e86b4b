import { describe, expect, it } from "vitest";
import { clusterDomainIn, podNames, type PodView, readPod } from "./pod-names.js";

const POD: PodView = { name: "p-0", namespace: "ns", phase: "Running", ips: ["10.0.0.1"], hostname: "", subdomain: "" };
const names = (change: Partial<PodView> = {}, domain = "cluster.local"): string[] => podNames({ ...POD, ...change }, domain);

describe("podNames", () => {
  it("are address, bare name and the DNS name of the address", () => {
    expect(names()).toEqual(["p-0", "10.0.0.1", "10-0-0-1.ns.pod", "10-0-0-1.ns.pod.cluster.local"]);
    expect(names({ ips: ["10.0.0.1", "fd00::1"] }, "k8s.test")).toEqual(["p-0", "10.0.0.1", "fd00::1", "10-0-0-1.ns.pod", "10-0-0-1.ns.pod.k8s.test", "fd00--1.ns.pod", "fd00--1.ns.pod.k8s.test"]);
  });

  it("are those of a headless service too, by host name or pod name", () => {
    expect(names({ subdomain: "svc-1" }).slice(4)).toEqual(["p-0.svc-1", "p-0.svc-1.ns", "p-0.svc-1.ns.svc", "p-0.svc-1.ns.svc.cluster.local"]);
    expect(names({ subdomain: "s", hostname: "h" })).toContain("h.s.ns.svc.cluster.local");
  });

  it("are none for a pod without an address, and for one that has ended: another may have its address", () => {
    expect(names({ ips: [] })).toEqual([]);
    expect([names({ phase: "Failed" }), names({ phase: "Succeeded" })]).toEqual([[], []]);
    expect([names({ phase: "Pending" }).length, names({ phase: "" }).length]).toEqual([4, 4]);
  });
});

describe("readPod", () => {
  it("reads what the API gives, and nothing where there is nothing", () => {
    const pod = { metadata: { name: "p", namespace: "n" }, spec: { hostname: "h", subdomain: "s" }, status: { phase: "Running", podIP: "10.0.0.1", podIPs: [{ ip: "10.0.0.1" }, { ip: "fd00::1" }] } };
    expect(readPod(pod)).toEqual({ name: "p", namespace: "n", phase: "Running", ips: ["10.0.0.1", "fd00::1"], hostname: "h", subdomain: "s" });
    for (const odd of [{}, null, { metadata: { name: 1 }, status: { podIP: "", podIPs: [{}, 3] } }]) expect(readPod(odd)).toEqual({ name: "", namespace: "", phase: "", ips: [], hostname: "", subdomain: "" });
  });
});

it("the cluster's domain is the one behind svc. in the search list", () => {
  expect(clusterDomainIn("nameserver 10.0.0.10\nsearch ns.svc.k8s.test svc.k8s.test k8s.test\noptions ndots:5\n")).toBe("k8s.test");
  for (const other of ["", "search example.com\n", "search svc.\n"]) expect(clusterDomainIn(other)).toBe("cluster.local");
});
