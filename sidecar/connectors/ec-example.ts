import type { EcConnector } from "./ec-connector.js";
import { readEcParams } from "./ec-nixl.js";

/**
 * Embeddings lie in storage that all engines see, found by content; the answer's references are not needed but carried where they are given (sidecar §10.1,
 * real-engine §6). Only the status counts.
 */
export const ecExample: EcConnector = {
  name: "ec-example",
  read: (body) => {
    const reading = readEcParams(body);
    return reading.kind === "unreadable" ? { kind: "nothing" } : reading;
  },
};
