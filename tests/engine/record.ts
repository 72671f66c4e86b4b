/** What this engine saw, request by request, byte for byte. */

import type { EngineRecord, Stage } from "./types.js";

/** Milliseconds of a clock that all processes of one machine share, with a fraction, so that records of several engines can be merged. */
export function clockMs(): number {
  return performance.timeOrigin + performance.now();
}

/** `rawHeaders` of node:http as pairs. */
export function headerPairs(raw: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let index = 0; index + 1 < raw.length; index += 2) pairs.push([raw[index] ?? "", raw[index + 1] ?? ""]);
  return pairs;
}

export interface RecordStart {
  stage: Stage;
  modelCall: boolean;
  method: string;
  path: string;
  rawHeaders: [string, string][];
}

export class Recorder {
  private records: EngineRecord[] = [];
  private nextSeq = 1;
  private bodyBytes = 0;
  private oldestWithBody = 0;
  /** Open model calls. */
  private inFlight = 0;
  private peak = 0;

  constructor(
    private readonly engine: string,
    private readonly maxRecords: number,
    private readonly maxBodyBytes: number,
  ) {}

  begin(start: RecordStart): EngineRecord {
    const record: EngineRecord = {
      seq: this.nextSeq,
      engine: this.engine,
      ...start,
      rawTrailers: [],
      body: Buffer.alloc(0),
      bodyDropped: false,
      startedAtMs: clockMs(),
      readAtMs: null,
      firstByteAtMs: null,
      endedAtMs: null,
      status: 0,
      aborted: false,
      abortedAtMs: null,
      open: true,
      scripted: false,
      error: null,
      controlMembers: [],
      json: undefined,
      handoff: null,
      media: [],
      promptTokens: 0,
      cachedTokens: 0,
      completionTokens: 0,
      outbound: [],
    };
    this.nextSeq += 1;
    this.records.push(record);
    if (this.records.length > this.maxRecords) this.dropOldest();
    return record;
  }

  /** The request's body is complete. */
  setBody(record: EngineRecord, body: Buffer): void {
    record.body = body;
    record.readAtMs = clockMs();
    this.bodyBytes += body.length;
    while (this.bodyBytes > this.maxBodyBytes && this.oldestWithBody < this.records.length) {
      const old = this.records[this.oldestWithBody];
      if (old === undefined || old === record) break;
      this.forgetBody(old);
      this.oldestWithBody += 1;
    }
  }

  /** A model call that was not answered by a listener: the connection was refused (scripts, `tcp: refused`). */
  refused(stage: Stage): void {
    const record = this.begin({ stage, modelCall: false, method: "", path: "", rawHeaders: [] });
    record.scripted = true;
    record.error = "tcp: refused";
    record.open = false;
    record.endedAtMs = record.startedAtMs;
  }

  callStarted(): void {
    this.inFlight += 1;
    this.peak = Math.max(this.peak, this.inFlight);
  }

  callEnded(): void {
    this.inFlight -= 1;
  }

  get maxInFlight(): number {
    return this.peak;
  }

  get openRequests(): number {
    return this.records.reduce((sum, record) => sum + (record.open ? 1 : 0), 0);
  }

  /** Model calls whose body was read, by stage. */
  calls(): Record<Stage, number> {
    const calls: Record<Stage, number> = { encode: 0, prefill: 0, decode: 0 };
    for (const record of this.records) if (record.modelCall && record.readAtMs !== null) calls[record.stage] += 1;
    return calls;
  }

  list(): EngineRecord[] {
    return [...this.records];
  }

  clear(): void {
    this.records = [];
    this.nextSeq = 1;
    this.bodyBytes = 0;
    this.oldestWithBody = 0;
    this.peak = this.inFlight;
  }

  private dropOldest(): void {
    const old = this.records.shift();
    if (old === undefined) return;
    if (!old.bodyDropped) this.bodyBytes -= old.body.length;
    this.oldestWithBody = Math.max(0, this.oldestWithBody - 1);
  }

  private forgetBody(record: EngineRecord): void {
    if (record.bodyDropped) return;
    this.bodyBytes -= record.body.length;
    record.body = Buffer.alloc(0);
    record.bodyDropped = true;
    record.json = undefined;
  }
}

/** The HTTP form of a record: everything but `json`, the body as base64. */
export function recordToJson(record: EngineRecord, withBody = true): Record<string, unknown> {
  const rest: Partial<EngineRecord> = { ...record };
  delete rest.body;
  delete rest.json;
  return withBody ? { ...rest, bodyBase64: record.body.toString("base64") } : { ...rest, bodyBytes: record.body.length };
}
