/** The registry: a new connector is one file and one line here. */

import type { EngineServices } from "../core/services.js";
import type { KvConnectorName } from "../types.js";
import { MooncakeConnector } from "./mooncake.js";
import { NixlConnector } from "./nixl.js";
import { NoConnector } from "./none.js";
import { OffloadingConnector } from "./offloading.js";
import { SglangConnector } from "./sglang.js";
import { SharedStorageConnector } from "./shared-storage.js";
import type { KvConnector } from "./types.js";

const CONNECTORS: Readonly<Record<KvConnectorName, new (services: EngineServices) => KvConnector>> = {
  nixl: NixlConnector,
  "shared-storage": SharedStorageConnector,
  sglang: SglangConnector,
  mooncake: MooncakeConnector,
  offloading: OffloadingConnector,
  none: NoConnector,
};

export function makeConnector(name: KvConnectorName, services: EngineServices): KvConnector {
  return new CONNECTORS[name](services);
}
