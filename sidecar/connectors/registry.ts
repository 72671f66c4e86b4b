import type { EcConnectorName, KvConnectorName } from "../options.js";
import type { KvConnector } from "./connector.js";
import type { EcConnector } from "./ec-connector.js";
import { ecExample } from "./ec-example.js";
import { ecNixl } from "./ec-nixl.js";
import { nixlv2 } from "./nixlv2.js";

/** One line per connector that this build carries. */
const KV_CONNECTORS: readonly KvConnector[] = [nixlv2];

const EC_CONNECTORS: readonly EcConnector[] = [ecExample, ecNixl];

/** The connector of that name; undefined when this build does not carry it (options.ts refuses those before). */
export function kvConnector(name: KvConnectorName): KvConnector | undefined {
  return KV_CONNECTORS.find((connector) => connector.name === name);
}

export function ecConnector(name: EcConnectorName | ""): EcConnector | null {
  return EC_CONNECTORS.find((connector) => connector.name === name) ?? null;
}
