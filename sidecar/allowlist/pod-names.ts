import { readFileSync } from "node:fs";
import { isIPv4, isIPv6 } from "node:net";

const DEFAULT_CLUSTER_DOMAIN = "cluster.local";

/** What is read of a pod. */
export interface PodView {
  readonly name: string;
  readonly namespace: string;
  readonly phase: string;
  /** All that it has; empty before it has one. */
  readonly ips: readonly string[];
  /** `""`: none of its own. */
  readonly hostname: string;
  readonly subdomain: string;
}

/**
 * The names by which routing headers may mean a pod: its addresses, its bare name (sidecar §6), and the names that cluster DNS has for it: `1-2-3-4.NS.pod`, and with a
 * headless service `HOST.SUBDOMAIN` up to the cluster's domain. Nothing for a pod that has ended: its address may be another's by now.
 */
export function podNames({ name, namespace, phase, ips, hostname, subdomain }: PodView, clusterDomain: string): string[] {
  if (ips.length === 0 || phase === "Succeeded" || phase === "Failed") return [];
  const names = [name, ...ips];
  const inCluster = (...parts: string[]): void => {
    for (const end of ["", `.${clusterDomain}`]) names.push(`${parts.join(".")}${end}`);
  };
  for (const ip of ips) {
    if (isIPv4(ip)) inCluster(ip.replaceAll(".", "-"), namespace, "pod");
    else if (isIPv6(ip)) inCluster(ip.replaceAll(":", "-"), namespace, "pod");
  }
  if (subdomain !== "") {
    const host = hostname === "" ? name : hostname;
    names.push(`${host}.${subdomain}`, `${host}.${subdomain}.${namespace}`);
    inCluster(host, subdomain, namespace, "svc");
  }
  return names;
}

/** The domain behind `svc.` in the resolver's search list, which the kubelet writes into every pod. */
export function clusterDomainIn(resolvConf: string): string {
  const domains = /^\s*search\s+(.*)$/m.exec(resolvConf)?.[1]?.split(/\s+/) ?? [];
  const found = domains.find((domain) => domain.startsWith("svc.") && domain.length > "svc.".length);
  return found === undefined ? DEFAULT_CLUSTER_DOMAIN : found.slice("svc.".length).replace(/\.$/, "");
}

export function clusterDomain(): string {
  try {
    return clusterDomainIn(readFileSync("/etc/resolv.conf", "utf8"));
  } catch {
    return DEFAULT_CLUSTER_DOMAIN;
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (Reflect.get(value, name) as unknown) : undefined;
}

/** A pod as the API gives it. */
export function readPod(object: unknown): PodView {
  const metadata = field(object, "metadata");
  const status = field(object, "status");
  const spec = field(object, "spec");
  const listed = field(status, "podIPs");
  const ips = [field(status, "podIP"), ...(Array.isArray(listed) ? listed.map((entry) => field(entry, "ip")) : [])].map(text).filter((ip) => ip !== "");
  return {
    name: text(field(metadata, "name")),
    namespace: text(field(metadata, "namespace")),
    phase: text(field(status, "phase")),
    ips: [...new Set(ips)],
    hostname: text(field(spec, "hostname")),
    subdomain: text(field(spec, "subdomain")),
  };
}
