/** What cases can need (README of the cases), and the one list of what this build has. */

export const FEATURES = [
  "retries",
  "stage-policy",
  "sidecar-metrics",
  "ready",
  "shared-storage",
  "sglang",
  "mooncake",
  "offloading",
  "ssrf",
  "strict",
  "trusted-opt-out",
  "responses",
  "messages",
  "generate",
  "embeddings",
  "token-ids",
  "cache-salt",
  "media-kwargs",
  "zstd",
  "encode-fan-out",
] as const;
export type Feature = (typeof FEATURES)[number];

/** The features of this build. A case that needs another one is pending, by name. */
export const BUILT: ReadonlySet<Feature> = new Set(FEATURES);

export const CONNECTORS = ["nixlv2", "shared-storage", "sglang", "mooncake", "offloading"] as const;
export type Connector = (typeof CONNECTORS)[number];

export const EC_CONNECTORS = ["ec-example", "ec-nixl"] as const;
export type EcConnector = (typeof EC_CONNECTORS)[number];

export const POLICIES = ["fail", "local"] as const;
export type Policy = (typeof POLICIES)[number];

/** The feature behind one value of a repeated key; null where every build has it. */
export function featureOfConnector(connector: Connector): Feature | null {
  return connector === "nixlv2" ? null : connector;
}

export function featureOfPolicy(policy: Policy): Feature | null {
  return policy === "local" ? "stage-policy" : null;
}
