// The filter's counters: by stage, reason, role and kind only. Envoy cannot remove a metric, so nothing here is named after an endpoint, a model or anything else that a
// client or an operator can make more of. The names are turned into labels by the bootstrap's stats_tags.
import { Counter, Gauge } from "../host";
import { DECISION_TYPES } from "../disagg/decision";
import { DECODE_REASONS, ENCODE_REASONS, PREFILL_REASONS } from "../disagg/reasons";

function perReason(stage: string, reasons: StaticArray<string>): StaticArray<Counter | null> {
  const out = new StaticArray<Counter | null>(reasons.length);
  for (let i = 0; i < reasons.length; i++) if (reasons[i].length) out[i] = new Counter("crosspoint.reasons.stage." + stage + ".reason." + reasons[i]);
  return out;
}

export class Stats {
  readonly decode: StaticArray<Counter | null> = perReason("decode", DECODE_REASONS);
  readonly prefill: StaticArray<Counter | null> = perReason("prefill", PREFILL_REASONS);
  readonly encode: StaticArray<Counter | null> = perReason("encode", ENCODE_REASONS);
  readonly decisions: StaticArray<Counter>;
  readonly requests: Counter = new Counter("crosspoint.requests_decided");
  readonly rejected: Counter = new Counter("crosspoint.requests_rejected");
  readonly neutral: Counter = new Counter("crosspoint.load_values_unknown");
  readonly evictions: Counter = new Counter("crosspoint.prefix_slot_evictions");
  readonly lostIndexWrites: Counter = new Counter("crosspoint.prefix_lost_writes");
  readonly lostFlightWrites: Counter = new Counter("crosspoint.inflight_lost_writes");
  readonly healed: Counter = new Counter("crosspoint.inflight_healed");
  readonly scrapes: Counter = new Counter("crosspoint.scrapes.result.ok");
  readonly scrapeFailures: Counter = new Counter("crosspoint.scrapes.result.failed");
  readonly scrapeTruncated: Counter = new Counter("crosspoint.scrapes.result.truncated");
  readonly renewed: Counter = new Counter("crosspoint.endpoints_renewed");
  readonly connectFailures: Counter = new Counter("crosspoint.decode_connect_failures");
  readonly hitTokens: Counter = new Counter("crosspoint.prefix_hit_tokens");
  readonly promptTokens: Counter = new Counter("crosspoint.prompt_tokens");
  readonly outDecode: Gauge = new Gauge("crosspoint.endpoints_out.role.decode");
  readonly outPrefill: Gauge = new Gauge("crosspoint.endpoints_out.role.prefill");
  readonly outEncode: Gauge = new Gauge("crosspoint.endpoints_out.role.encode");
  readonly capacity: Gauge = new Gauge("crosspoint.prefix_capacity_blocks");

  constructor() {
    const decisions = new StaticArray<Counter>(DECISION_TYPES.length);
    for (let i = 0; i < DECISION_TYPES.length; i++) decisions[i] = new Counter("crosspoint.decisions.decision_type." + DECISION_TYPES[i]);
    this.decisions = decisions;
  }
}
