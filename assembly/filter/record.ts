// The decision record: one JSON text per request, for the access log and, when it is asked for, the response header. ASCII only, so that it is a legal header value.
import { Decision, DECISION_TYPES } from "../disagg/decision";
import { DECODE_REASONS, ENCODE_REASONS, PREFILL_REASONS } from "../disagg/reasons";
import { EndpointTable } from "../endpoints";
import { Writer } from "../host";
import { Picks } from "../scheduling/pass";

/** What the record says beside the decision. */
export class RecordFacts {
  modelAt: usize = 0;
  modelSize: u32 = 0;
  tokens: u32 = 0;
  /** Tokens of the prompt that the decode endpoint holds. */
  cachedTokens: u32 = 0;
  mmItems: u32 = 0;
  /** How often this request was decided; anything but 1 is a fault. */
  decisions: u32 = 0;
}

const MODEL_SHOWN: u32 = 128;

export function writeRecord(w: Writer, table: EndpointTable, decision: Decision, facts: RecordFacts): void {
  w.clear();
  w.text('{"decision":"');
  w.text(DECISION_TYPES[decision.type]);
  w.text('","decode":{"reason":"');
  w.text(DECODE_REASONS[decision.decodeReason]);
  w.text('","endpoint":');
  first(w, table, decision.decode);
  w.text('},"prefill":{"reason":"');
  w.text(PREFILL_REASONS[decision.prefillReason]);
  w.text('","endpoint":');
  first(w, table, decision.prefill);
  w.text('},"encode":{"reason":"');
  w.text(ENCODE_REASONS[decision.encodeReason]);
  w.text('","endpoints":[');
  for (let i = 0; i < decision.encode.count; i++) {
    if (i) w.byte(0x2c);
    quoted(w, table.hostPort[decision.encode.list[i]]);
  }
  w.text(']},"model":');
  w.jsonString(facts.modelAt, min(facts.modelSize, MODEL_SHOWN));
  w.text(',"tokens":');
  w.number(facts.tokens);
  w.text(',"cachedTokens":');
  w.number(facts.cachedTokens);
  w.text(',"mmItems":');
  w.number(facts.mmItems);
  w.text(',"decisions":');
  w.number(facts.decisions);
  w.byte(0x7d);
}

function first(w: Writer, table: EndpointTable, picks: Picks): void {
  quoted(w, picks.count ? table.hostPort[picks.list[0]] : "");
}

/** Addresses hold nothing that JSON escapes. */
function quoted(w: Writer, s: string): void {
  w.byte(0x22);
  w.text(s);
  w.byte(0x22);
}
