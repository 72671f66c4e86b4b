import { lastMember, membersOf, readValue } from "../body/json-spans.js";
import type { EcConnector, EcReading } from "./ec-connector.js";

/** Embeddings are pulled from the encoder by the references that it answers (sidecar §5): an answer that cannot be read is a failed encode. */
export const ecNixl: EcConnector = {
  name: "ec-nixl",
  read: readEcParams,
};

/** The members of an answer's `ec_transfer_params`; absent, null, of another kind and empty are all "nothing" (EC-07). */
export function readEcParams(body: Buffer): EcReading {
  const root = readValue(body);
  if (root?.kind !== "object") return { kind: "unreadable" };
  const params = lastMember(body, root, "ec_transfer_params");
  const members = params === null ? [] : membersOf(body, params);
  return members.length === 0 ? { kind: "nothing" } : { kind: "members", members };
}
