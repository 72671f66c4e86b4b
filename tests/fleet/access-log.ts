/** Envoy's access log as the rendered bootstrap writes it: one JSON object a line, the filter's decision record inside. */
import { closeSync, openSync, readSync } from "node:fs";

/** The filter's decision record. `endpoint` is "" where the stage does not run; a stage that was not looked at has reason "". */
export interface DecisionRecord {
  decision: "decode-only" | "prefill-decode" | "encode-decode" | "encode-prefill-decode";
  decode: { reason: string; endpoint: string };
  prefill: { reason: string; endpoint: string };
  encode: { reason: string; endpoints: string[] };
  model: string;
  tokens: number;
  cachedTokens: number;
  mmItems: number;
  decisions: number;
}

export interface AccessLine {
  requestId: string | null;
  method: string;
  path: string;
  status: number;
  flags: string;
  details: string;
  /** host:port that the request was sent to; null: it was not. */
  upstream: string | null;
  decision: DecisionRecord | null;
  durationMs: number;
}

interface RawLine {
  request_id?: string | null;
  method?: string;
  path?: string;
  status?: number;
  flags?: string | null;
  details?: string | null;
  upstream?: string | null;
  decision?: string | null;
  duration_ms?: number;
}

/** "-" is Envoy's word for nothing. */
function textOrNull(value: string | null | undefined): string | null {
  return value === undefined || value === null || value === "" || value === "-" ? null : value;
}

const RECORD = /^decision=(\S+) decode=(\S*) prefill=(\S*) encode=(\S*) model=(\S*) tokens=(\d+) cachedTokens=(\d+) mmItems=(\d+) decisions=(\d+)$/;

/** A stage's word, `REASON@HOST:PORT,HOST:PORT`. */
function stageOf(word: string): { reason: string; endpoints: string[] } {
  const [reason = "", endpoints] = word.split("@");
  return { reason, endpoints: endpoints === undefined ? [] : endpoints.split(",") };
}

/** Bytes that are no UTF-8 become U+FFFD, as in the response header. */
function textOfWord(word: string): string {
  return Buffer.from(word.replace(/%([0-9A-F]{2})/g, (_all, hex: string) => String.fromCharCode(parseInt(hex, 16))), "latin1").toString("utf8");
}

/** Reads the line of words that the filter hands to the log (docs/filter.md). Throws when it is not one. */
export function readDecision(text: string): DecisionRecord {
  const [, decision, decode = "", prefill = "", encode = "", model = "", ...numbers] = RECORD.exec(text) ?? [];
  if (decision === undefined) throw new Error(`no decision record: ${text}`);
  const one = (word: string): { reason: string; endpoint: string } => ({ reason: stageOf(word).reason, endpoint: stageOf(word).endpoints[0] ?? "" });
  const [tokens = 0, cachedTokens = 0, mmItems = 0, decisions = 0] = numbers.map(Number);
  return { decision: decision as DecisionRecord["decision"], decode: one(decode), prefill: one(prefill), encode: stageOf(encode), model: textOfWord(model), tokens, cachedTokens, mmItems, decisions };
}

/** Reads one line. Throws when it is not what the bootstrap writes. */
export function readAccessLine(line: string): AccessLine {
  const raw = JSON.parse(line) as RawLine;
  const decision = textOrNull(raw.decision);
  return {
    requestId: textOrNull(raw.request_id),
    method: raw.method ?? "",
    path: raw.path ?? "",
    status: raw.status ?? 0,
    flags: textOrNull(raw.flags) ?? "",
    details: textOrNull(raw.details) ?? "",
    upstream: textOrNull(raw.upstream),
    decision: decision === null ? null : readDecision(decision),
    durationMs: raw.duration_ms ?? 0,
  };
}

/** Reads a log that grows. */
export class AccessLog {
  private readonly path: string;
  private offset = 0;
  private rest = "";
  private readonly found: AccessLine[] = [];

  constructor(path: string) {
    this.path = path;
  }

  /** All lines so far. */
  lines(): readonly AccessLine[] {
    let file: number;
    try {
      file = openSync(this.path, "r");
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return this.found;
      throw error;
    }
    try {
      const piece = Buffer.alloc(64 * 1024);
      for (;;) {
        const length = readSync(file, piece, 0, piece.length, this.offset);
        if (length === 0) break;
        this.offset += length;
        this.rest += piece.toString("utf8", 0, length);
      }
    } finally {
      closeSync(file);
    }
    const lines = this.rest.split("\n");
    this.rest = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") this.found.push(readAccessLine(line));
    return this.found;
  }
}
