/** Defaults and checks of an engine's options; every error names the option. */

import { randomUUID } from "node:crypto";

import { EngineDirectory } from "./directory.js";
import type { EngineOptions } from "./types.js";

type Optional = "requireApiKey" | "tls";
export type ResolvedOptions = Required<Omit<EngineOptions, Optional>> & Pick<EngineOptions, Optional>;

export class OptionError extends Error {
  constructor(name: string, problem: string) {
    super(`option ${name}: ${problem}`);
    this.name = "OptionError";
  }
}

const INTEGERS = {
  port: [0, 65535],
  controlPort: [0, 65535],
  bootstrapPort: [0, 65535],
  blockSize: [1, 65536],
  numBlocks: [2, 16_777_216],
  maxNumSeqs: [1, 1_000_000],
  maxModelLen: [0, Number.MAX_SAFE_INTEGER],
  dataParallelSize: [1, 1024],
  embeddingDimensions: [1, 65536],
  maxRecords: [1, 10_000_000],
  maxRecordedBytes: [0, Number.MAX_SAFE_INTEGER],
} as const;
const DURATIONS = ["msPerPrefillToken", "msPerDecodeToken", "msPerMediaItem", "leaseMs", "handshakeTimeoutMs", "rendezvousTimeoutMs", "keepAliveMs"] as const;
const CHOICES = {
  role: ["prefill", "decode", "encode", "prefill-decode", "encode-prefill-decode"],
  kvLoadFailurePolicy: ["fail", "recompute"],
  kvConnector: ["nixl", "shared-storage", "sglang", "mooncake", "offloading", "none"],
  ecConnector: ["any", "ec-nixl", "ec-example"],
  strictness: ["strict", "real"],
  kvParamsDialect: ["seed", "v2", "any"],
  engineType: ["vllm", "sglang"],
} as const;

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

/** `host:port` or `[host]:port`, null when it is neither. */
export function splitHostPort(text: string): { host: string; port: number } | null {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  if (match === null) return null;
  const port = Number(match[3]);
  return port > 0 && port < 65536 ? { host: match[1] ?? match[2] ?? "", port } : null;
}

export function joinHostPort(host: string, port: number): string {
  return `${host.includes(":") ? `[${host}]` : host}:${String(port)}`;
}

/** @throws OptionError */
export function resolveOptions(options: EngineOptions): ResolvedOptions {
  const resolved: ResolvedOptions = {
    host: "127.0.0.1",
    port: 0,
    controlPort: 0,
    name: options.role,
    model: ["sim"],
    loraAdapters: [],
    strictModels: false,
    msPerPrefillToken: 0,
    msPerDecodeToken: 0,
    msPerMediaItem: 0,
    blockSize: 16,
    numBlocks: 4096,
    maxNumSeqs: 256,
    maxModelLen: 0,
    leaseMs: 30_000,
    handshakeTimeoutMs: 5_000,
    rendezvousTimeoutMs: 30_000,
    kvLoadFailurePolicy: "fail",
    kvConnector: "nixl",
    ecConnector: "any",
    encoders: [],
    kvStores: [],
    peers: new EngineDirectory(),
    strictness: "strict",
    kvParamsDialect: "any",
    dataParallelSize: 1,
    bootstrapPort: 0,
    keepAliveMs: 5_000,
    promptTokensDetails: true,
    scaleOut: true,
    responsesStore: false,
    embeddingDimensions: 64,
    engineType: "vllm",
    maxRecords: 20_000,
    maxRecordedBytes: 512 * 1024 * 1024,
    watchRefusals: true,
    scripts: {},
    ...options,
  };
  for (const [name, allowed] of Object.entries(CHOICES)) {
    const value = resolved[name as keyof typeof CHOICES];
    if (!(allowed as readonly string[]).includes(value)) throw new OptionError(name, `one of ${allowed.join(", ")} is wanted, not ${JSON.stringify(value)}`);
  }
  for (const [name, [least, most]] of Object.entries(INTEGERS)) {
    const value = resolved[name as keyof typeof INTEGERS];
    if (!Number.isInteger(value) || value < least || value > most) throw new OptionError(name, `an integer from ${String(least)} to ${String(most)} is wanted`);
  }
  for (const name of DURATIONS) if (!(resolved[name] >= 0) || !Number.isFinite(resolved[name])) throw new OptionError(name, "milliseconds, 0 or more, are wanted");
  if (!isLoopback(resolved.host)) throw new OptionError("host", "only a loopback address is allowed");
  if (resolved.model.length === 0) throw new OptionError("model", "at least one name is wanted");
  for (const name of ["encoders", "kvStores"] as const) {
    for (const address of resolved[name]) {
      const parsed = splitHostPort(address);
      if (parsed === null || !isLoopback(parsed.host)) throw new OptionError(name, `a loopback host:port is wanted, not ${JSON.stringify(address)}`);
    }
  }
  return resolved;
}

export function newEngineId(): string {
  return randomUUID();
}
