/** What the runner saw of one run, as plain data: what `expect` is held against. */
import type { Policy } from "./features.js";

export type Role = "encode" | "prefill" | "decode";
export type HeaderLine = readonly [name: string, value: string];

/** The filter's decision record, as far as cases speak of it. */
export interface Decision {
  prefill: { reason: string; endpoint: string };
  encode: { reason: string; endpoints: string[] };
  decode: { reason: string; endpoint: string };
  model: string;
  mmItems: number;
  /** How often the filter says that it decided this request. */
  decisions: number;
}

/** How an answer ended: whole, cut off, or left by the client itself. */
export type AnswerEnd = "clean" | "broken" | "left";

export interface SendSeen {
  via: "envoy" | "sidecar";
  method: string;
  path: string;
  /** null: no status line came. */
  status: number | null;
  headers: HeaderLine[];
  body: Buffer;
  end: AnswerEnd;
  /** When the answer ended, or the client left. */
  endedAtMs: number;
  /** When the client left; null when it stayed. */
  leftAtMs: number | null;
  /** The decision record; null: Envoy answered the request itself. "missing": it went upstream (or nowhere) without a record. */
  decision: Decision | null | "missing";
  /** The request's head as the sidecar received it from Envoy; null when none came. */
  sidecarHead: HeaderLine[] | null;
  /** What the filter's counter of decisions grew by; null when other requests ran at the same time. */
  decisions: number | null;
  /** Envoy ended the request because the filter's VM had failed. */
  vmFailed: boolean;
}

/** One request at an engine, or a connection that its script refused or reset. */
export interface Leg {
  role: Role;
  /** The engine, by its address in the topology. */
  engine: string;
  method: string;
  /** With its query. */
  path: string;
  headers: HeaderLine[];
  body: Buffer;
  startedAtMs: number;
  /** null: still open when the counters were read. */
  endedAtMs: number | null;
  /** 0: no status line was sent. */
  status: number;
  /** When the engine saw its socket closed before it had answered; null: it did not. */
  abortedAtMs: number | null;
  /** The script refused the connection, or reset it instead of an answer; null: neither. */
  connectionFailure: "refused" | "reset" | null;
}

export interface StepSeen {
  sends: SendSeen[];
  /** The sends were open at the same time. */
  atOnce: boolean;
  /** The client's body before `encoding`; null: no body. */
  clientBody: Buffer | null;
  /** Requests that clients caused, in order of start; neither scrapes nor health checks. */
  legs: Leg[];
  /** What the filter's counter of decisions grew by; null when it could not be read. */
  decisions: number | null;
  /** What Envoy's wasm failure and restart counters grew by, and requests that a failed VM ended; null when there are no such counters. */
  traps: number | null;
  heldTransfers: number | null;
  unlistedConnections: number;
  /** Growth of the sidecars' counter; null when it could not be read. */
  handoffInvalid: number | null;
  /** Status of the sidecar's `/ready`; null when it was not asked. */
  readyStatus: number | null;
}

/** The answer of a sidecar to case 01's body at the end of the run. */
export interface AliveSeen {
  sidecar: string;
  sameProcess: boolean;
  status: number | null;
}

export interface RunSeen {
  policy: Policy;
  /** The case's first request, then its steps. */
  steps: StepSeen[];
  /** Empty when no key asked for it. */
  alive: AliveSeen[];
  /** What those counters grew by when, after the last step, further requests went through Envoy: a VM that failed is noticed by its next request only. */
  lateTraps: number | null;
  /** Processes that ended before the run did. */
  dead: string[];
  /** Expected texts name addresses of the topology: their loopback form. */
  map: (text: string) => string;
}
