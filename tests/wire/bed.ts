/**
 * What the wire scenarios run on: doors to knock at and the engines behind them. Nothing here knows of a test runner, and nothing of what kind of engine it is:
 * a simulated one also tells what reached it and plays scripts, a real one has its metrics only.
 */
import type { Sample } from "../fleet/admin.js";
import type { Engine } from "../engine/index.js";

/** Flags of the sidecars that scenarios ask for, beside a bed's own. Each name is a door of the bed. */
export const SETTINGS = {
  /** As a user gets it. */
  fail: [],
  local: ["--on-stage-failure=local"],
  retry: ["--prefill-max-retries=2", "--prefill-retry-backoff=5ms"],
  deadline: ["--prefill-timeout=250ms", "--encode-timeout=250ms", "--decode-first-byte-timeout=250ms"],
  "deadline-local": ["--on-stage-failure=local", "--prefill-timeout=250ms", "--encode-timeout=250ms"],
  small: ["--body-limit=20000"],
} as const satisfies Record<string, readonly string[]>;
export type Setting = keyof typeof SETTINGS;
export const SETTING_NAMES = Object.keys(SETTINGS) as Setting[];

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** What only a simulated engine has. */
export type Simulated = Pick<Engine, "records" | "setScript" | "state" | "idle">;

export interface EngineFace {
  readonly name: string;
  /** `host:port` as a routing header names it. */
  readonly address: string;
  /** Null: a real one. */
  readonly sim: Simulated | null;
  /** What its `/metrics` says now. */
  metrics(): Promise<readonly Sample[]>;
}

/** What a scenario cannot do without. */
export type Need =
  /** Engines that tell what reached them and play scripts. */
  | "sim"
  /** The door is a sidecar's own: routing headers are ours to set. */
  | "sidecar"
  /** Encoders, and a model that takes pictures. */
  | "encoders";

export interface Bed {
  /** Behind a gateway the filter sets the routing headers, and those of a client never arrive. */
  readonly via: "sidecar" | "gateway";
  readonly doors: Readonly<Partial<Record<Setting, Address>>>;
  /** Name of the model to ask for. */
  readonly model: string;
  readonly prefill: EngineFace;
  readonly decode: EngineFace;
  readonly encode: readonly EngineFace[];
  /** How long an answer may take before a scenario calls it lost. */
  readonly patienceMs: number;
  /** Forgets what the last scenario left behind: records, scripts, hand-offs. A real engine keeps what it has. */
  clear(): Promise<void>;
}

export function facesOf(bed: Bed): EngineFace[] {
  return [...bed.encode, bed.prefill, bed.decode];
}

/** A scenario says what it saw wrong, in words; it never throws. */
export interface Scenario {
  readonly name: string;
  /** Conformance rows that it shows (`C-NX-01`). */
  readonly rows: readonly string[];
  readonly setting: Setting;
  readonly needs: readonly Need[];
  run(bed: Bed): Promise<readonly string[]>;
}

/** Why a bed cannot run a scenario; null when it can. */
export function lacks(bed: Bed, { needs, setting }: Scenario): string | null {
  if (bed.doors[setting] === undefined) return `no door "${setting}"`;
  if (needs.includes("sidecar") && bed.via !== "sidecar") return "not the sidecar's own door";
  if (needs.includes("encoders") && bed.encode.length < 2) return "fewer than two encoders";
  if (needs.includes("sim") && facesOf(bed).some(({ sim }) => sim === null)) return "engines that keep no records";
  return null;
}
