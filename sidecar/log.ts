import { type Logger, pino } from "pino";

export type { Logger } from "pino";

/** JSON lines on stdout; bodies, and with them values of control members, are in none of them above the level trace. */
export function makeLog(level: string): Logger {
  return pino({ level, base: { component: "sidecar" }, formatters: { level: (label) => ({ level: label }) }, timestamp: pino.stdTimeFunctions.isoTime });
}

/** Of a body, for a person who reads along. */
const MAX_LOGGED = 16 * 1024;
/** Of a run of base64: enough to tell two pictures apart (sidecar §8.3). */
const MAX_BASE64 = 64;
/** Longer than any word or id. */
const BASE64_RUN = /[A-Za-z0-9+/_-]{257,}={0,2}/g;

/** A body as it stands in the log: data URLs and inline audio shortened to their beginning, cut at 16 KiB. Never parsed: it may be anything. */
export function bodyForLog(body: readonly Buffer[]): string {
  let text = "";
  // A long run that crosses two pieces is shortened in each: it is the length of the log that matters.
  for (const piece of body) {
    text += piece.toString("utf8").replace(BASE64_RUN, (run) => `${run.slice(0, MAX_BASE64)}...[${String(run.length - MAX_BASE64)} more]`);
    if (text.length > MAX_LOGGED) return `${text.slice(0, MAX_LOGGED)}...[cut]`;
  }
  return text;
}
