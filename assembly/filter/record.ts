// The decision record: a line of words for the access log and, when it is asked for, a JSON text for the response header. Both are ASCII only. The log's has nothing that JSON
// escapes, because Envoy's JSON log escapes a text with quotes at ten times what the filter needs to write it (docs/performance.md).
import { Decision, DECISION_TYPES } from "../disagg/decision";
import { DECODE_REASONS, ENCODE_REASONS, PREFILL_REASONS } from "../disagg/reasons";
import { EndpointTable } from "../endpoints";
import { Bytes, Writer } from "../host";
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

const DECODE_WORDS = decodeWords();
const PREFILL_WORDS = stageWords(" prefill=", PREFILL_REASONS);
const ENCODE_WORDS = stageWords(" encode=", ENCODE_REASONS);
const MODEL = new Bytes(" model=");
const TOKENS = new Bytes(" tokens=");
const CACHED_TOKENS = new Bytes(" cachedTokens=");
const MM_ITEMS = new Bytes(" mmItems=");
const DECISIONS = new Bytes(" decisions=");

/** Indexed by decision type, and by reason within it. */
function decodeWords(): StaticArray<Bytes> {
  const n = DECODE_REASONS.length;
  const words = new StaticArray<Bytes>(DECISION_TYPES.length * n);
  for (let i = 0; i < words.length; i++) words[i] = new Bytes("decision=" + DECISION_TYPES[i / n] + " decode=" + DECODE_REASONS[i % n]);
  return words;
}

function stageWords(stage: string, reasons: StaticArray<string>): StaticArray<Bytes> {
  const words = new StaticArray<Bytes>(reasons.length);
  for (let i = 0; i < words.length; i++) words[i] = new Bytes(stage + reasons[i]);
  return words;
}

/**
 * `decision=TYPE decode=REASON@HOST:PORT prefill=… encode=REASON@HOST:PORT,HOST:PORT model=… tokens=N cachedTokens=N mmItems=N decisions=N`: always these words in this
 * order, a stage that does not run without `@`, one that was not looked at without a reason. Of the model the first 128 bytes, with spaces, quotes, `\\`, `%` and what is not
 * ASCII as `%XX`.
 */
export function writeLine(w: Writer, table: EndpointTable, decision: Decision, facts: RecordFacts): void {
  w.clear();
  word(w, DECODE_WORDS[decision.type * DECODE_REASONS.length + decision.decodeReason]);
  at(w, table, decision.decode, min(decision.decode.count, 1));
  word(w, PREFILL_WORDS[decision.prefillReason]);
  at(w, table, decision.prefill, min(decision.prefill.count, 1));
  word(w, ENCODE_WORDS[decision.encodeReason]);
  at(w, table, decision.encode, decision.encode.count);
  word(w, MODEL);
  w.percent(facts.modelAt, min(facts.modelSize, MODEL_SHOWN));
  word(w, TOKENS);
  w.number(facts.tokens);
  word(w, CACHED_TOKENS);
  w.number(facts.cachedTokens);
  word(w, MM_ITEMS);
  w.number(facts.mmItems);
  word(w, DECISIONS);
  w.number(facts.decisions);
}

function word(w: Writer, bytes: Bytes): void {
  w.bytes(bytes.at, bytes.size);
}

function at(w: Writer, table: EndpointTable, picks: Picks, count: i32): void {
  for (let i = 0; i < count; i++) {
    w.byte(i ? 0x2c : 0x40);
    w.text(table.hostPort[picks.list[i]]);
  }
}

/** The same as a JSON text. */
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
