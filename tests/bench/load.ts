/** What the load generator is asked for, and what it answers. */
import type { BodySpec } from "./bodies.js";
import type { Latencies } from "./numbers.js";

export interface LoadJob {
  host: string;
  port: number;
  body: BodySpec;
  /** Connections, each with one request at a time. */
  connections: number;
  /** New requests begin for so long; those that are open then are waited for. */
  durationMs: number;
  /** Requests on each connection before the time begins; they count for nothing but errors. */
  warmup: number;
  /** 0: no prompt comes twice. Otherwise so many prompts take turns, the same ones in every run. */
  prompts: number;
  /** A request without an answer for so long is an error. */
  timeoutMs: number;
}

export interface LoadResult {
  /** With status 200, within the time. */
  requests: number;
  /** From the first request's start to the last answer's end. */
  elapsedMs: number;
  /** From the start of a request to the last byte of its answer. */
  latency: Latencies;
  /** From the start of a request to the first byte of its answer's body. */
  firstByte: Latencies;
  errors: number;
  /** What the first errors were. */
  complaints: string[];
}

/** The two halves of a run: between them the one who asked reads the counters that he compares. */
export type LoadAsk = { prepare: LoadJob } | "go";
/** null: prepared and warm. */
export type LoadAnswer = LoadResult | null;
