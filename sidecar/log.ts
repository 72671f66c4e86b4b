import { type Logger, pino } from "pino";

export type { Logger } from "pino";

/** JSON lines on stdout; bodies and values of control members are in none of them. */
export function makeLog(level: string): Logger {
  return pino({ level, base: { component: "sidecar" }, formatters: { level: (label) => ({ level: label }) }, timestamp: pino.stdTimeFunctions.isoTime });
}
