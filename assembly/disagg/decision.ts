// What was decided for one request.
import { Picks } from "../scheduling/pass";
import { MOST_ITEMS } from "../scheduling/request";
import { DecodeReason, EncodeReason, PrefillReason } from "./reasons";

export const enum Outcome {
  /** Forward the request. */
  Ok,
  /** No endpoint is known: 503 (scheduler §3.6). */
  NoCandidates,
  /** Endpoints are known, none may decode: FilterOptions.noDecodeStatus. */
  NoDecodeEndpoint,
  /** {@link Decision.missing} is wanted, has no endpoint, and onMissingStage is `fail`: 503. */
  MissingStage,
  /** Sheddable and the fleet is saturated, or an admitter refused: 429. */
  Saturated,
  /** `Prefer: if-available` and the decode endpoint holds nothing of the prompt: 412 (scheduler §3.8). */
  NotAvailable,
}

export const enum Stage {
  None,
  Decode,
  Prefill,
  Encode,
}

export const enum DecisionType {
  DecodeOnly,
  PrefillDecode,
  EncodeDecode,
  EncodePrefillDecode,
}

/** Indexed by {@link DecisionType} (scheduler DC-22). */
export const DECISION_TYPES: StaticArray<string> = ["decode-only", "prefill-decode", "encode-decode", "encode-prefill-decode"];

/** Made once per scheduler and filled anew by each decision. */
export class Decision {
  outcome: Outcome = Outcome.Ok;
  /** The stage that {@link Outcome.MissingStage} speaks of. */
  missing: Stage = Stage.None;

  decodeReason: DecodeReason = DecodeReason.None;
  prefillReason: PrefillReason = PrefillReason.None;
  encodeReason: EncodeReason = EncodeReason.None;

  /** Endpoint indices, best first; the others are what to try after it. Empty where the stage does not run. */
  readonly decode: Picks;
  readonly prefill: Picks;
  /** The encoders: one for all items, or one per distinct item (disagg/encode). */
  readonly encode: Picks;

  /** Endpoint whose cached prefix the computing pod may pull, -1 for none (scheduler §3.9). */
  kvSource: i32 = -1;

  constructor(endpoints: i32) {
    this.decode = new Picks(endpoints);
    this.prefill = new Picks(endpoints);
    this.encode = new Picks(max(endpoints, MOST_ITEMS));
  }

  reset(): void {
    this.outcome = Outcome.Ok;
    this.missing = Stage.None;
    this.decodeReason = DecodeReason.None;
    this.prefillReason = PrefillReason.None;
    this.encodeReason = EncodeReason.None;
    this.decode.count = 0;
    this.prefill.count = 0;
    this.encode.count = 0;
    this.kvSource = -1;
  }

  get type(): DecisionType {
    return <DecisionType>((this.prefill.count > 0 ? 1 : 0) | (this.encode.count > 0 ? 2 : 0));
  }
}
