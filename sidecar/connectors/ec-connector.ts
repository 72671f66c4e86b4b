import type { MemberSpan } from "../body/json-spans.js";
import type { EcConnectorName } from "../options.js";

/** What an encoder's answer hands over: members of `ec_transfer_params`, one per media hash, as spans of the answer's bytes. */
export type EcReading =
  | { readonly kind: "members"; readonly members: readonly MemberSpan[] }
  /** A good answer that hands nothing over. */
  | { readonly kind: "nothing" }
  /** An answer that cannot be one. */
  | { readonly kind: "unreadable" };

/** A way of moving embeddings from encoders to the engines that use them. */
export interface EcConnector {
  readonly name: EcConnectorName;
  /** Reads the body of a 2xx answer. */
  read(body: Buffer): EcReading;
}
