import type { EcConnectorName, KvConnectorName } from "../options.js";
import type { KvConnector } from "./connector.js";
import type { EcConnector } from "./ec-connector.js";
import { ecExample } from "./ec-example.js";
import { ecNixl } from "./ec-nixl.js";
import { mooncake } from "./mooncake.js";
import { MooncakeRanks } from "./mooncake-ranks.js";
import { nixlv2 } from "./nixlv2.js";
import { offloading } from "./offloading.js";
import { sglang } from "./sglang.js";
import { sharedStorage } from "./shared-storage.js";

/** One line per connector. A function makes one: what it keeps between requests is one sidecar's. */
const KV_CONNECTORS: Readonly<Record<KvConnectorName, () => KvConnector>> = {
  nixlv2: () => nixlv2,
  "shared-storage": () => sharedStorage,
  sglang: () => sglang,
  mooncake: () => mooncake(new MooncakeRanks()),
  offloading: () => offloading,
};

const EC_CONNECTORS: readonly EcConnector[] = [ecExample, ecNixl];

export function kvConnector(name: KvConnectorName): KvConnector {
  return KV_CONNECTORS[name]();
}

export function ecConnector(name: EcConnectorName | ""): EcConnector | null {
  return EC_CONNECTORS.find((connector) => connector.name === name) ?? null;
}
