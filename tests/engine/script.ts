/** Scripted calls: the format of the cases, checked member by member, and the queue that hands its entries out. */

import type { Script, ScriptEntry, Stage } from "./types.js";

const TIMING_MEMBERS = ["delay_ms", "first_byte_delay_ms", "gap_ms", "close_idle_after_ms"] as const;
const BODY_MEMBERS = ["json", "text", "sse", "chunks"] as const;
const MEMBERS: readonly string[] = ["status", "headers", "tcp", "then", ...TIMING_MEMBERS, ...BODY_MEMBERS];
export const STAGES: readonly Stage[] = ["encode", "prefill", "decode"];

export class ScriptError extends Error {
  constructor(path: string, problem: string) {
    super(`${path}: ${problem}`);
    this.name = "ScriptError";
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function strings(value: unknown, path: string): string[] {
  if (!Array.isArray(value) || !value.every((item): item is string => typeof item === "string")) throw new ScriptError(path, "a list of strings is wanted");
  return value;
}

function parseHeaders(value: unknown, path: string): Record<string, string | string[]> {
  if (!isRecord(value)) throw new ScriptError(path, "an object is wanted");
  const headers: Record<string, string | string[]> = {};
  for (const [name, inner] of Object.entries(value)) headers[name] = typeof inner === "string" ? inner : strings(inner, `${path}.${name}`);
  return headers;
}

function parseChunks(value: unknown, path: string): (string | Uint8Array)[] {
  if (!Array.isArray(value)) throw new ScriptError(path, "a list is wanted");
  return value.map((piece: unknown, index) => {
    if (typeof piece === "string" || piece instanceof Uint8Array) return piece;
    if (isRecord(piece) && typeof piece["base64"] === "string" && Object.keys(piece).length === 1) return Buffer.from(piece["base64"], "base64");
    throw new ScriptError(`${path}[${String(index)}]`, 'a string or {"base64": string} is wanted');
  });
}

function parseEntry(value: unknown, path: string): ScriptEntry {
  if (!isRecord(value)) throw new ScriptError(path, "an object is wanted");
  const entry: ScriptEntry = {};
  for (const name of Object.keys(value)) if (!MEMBERS.includes(name)) throw new ScriptError(`${path}.${name}`, "unknown member");
  const bodies = BODY_MEMBERS.filter((name) => Object.hasOwn(value, name));
  if (bodies.length > 1) throw new ScriptError(path, `only one of ${bodies.join(", ")} may be given`);
  if (value["status"] !== undefined) {
    const status = value["status"];
    if (typeof status !== "number" || !Number.isInteger(status) || status < 200 || status > 599) throw new ScriptError(`${path}.status`, "an integer from 200 to 599 is wanted");
    entry.status = status;
  }
  if (value["headers"] !== undefined) entry.headers = parseHeaders(value["headers"], `${path}.headers`);
  if (Object.hasOwn(value, "json")) entry.json = value["json"];
  if (value["text"] !== undefined) {
    if (typeof value["text"] !== "string") throw new ScriptError(`${path}.text`, "a string is wanted");
    entry.text = value["text"];
  }
  if (value["sse"] !== undefined) entry.sse = strings(value["sse"], `${path}.sse`);
  if (value["chunks"] !== undefined) entry.chunks = parseChunks(value["chunks"], `${path}.chunks`);
  for (const name of TIMING_MEMBERS) {
    const ms = value[name];
    if (ms === undefined) continue;
    if (typeof ms !== "number" || !(ms >= 0) || !Number.isFinite(ms)) throw new ScriptError(`${path}.${name}`, "milliseconds, 0 or more, are wanted");
    entry[name] = ms;
  }
  if (value["tcp"] !== undefined) {
    if (value["tcp"] !== "refused" && value["tcp"] !== "reset") throw new ScriptError(`${path}.tcp`, "refused or reset is wanted");
    entry.tcp = value["tcp"];
  }
  if (value["then"] !== undefined) {
    if (value["then"] !== "reset") throw new ScriptError(`${path}.then`, "reset is wanted");
    entry.then = "reset";
  }
  return entry;
}

/**
 * @param path how errors name the script
 * @throws ScriptError that names the wrong member
 */
export function parseScript(value: unknown, path = "script"): Script {
  if (!Array.isArray(value)) return parseEntry(value, path);
  if (value.length === 0) throw new ScriptError(path, "at least one entry is wanted");
  return value.map((entry: unknown, index) => parseEntry(entry, `${path}[${String(index)}]`));
}

/** `{"prefill": …, "decode": …}` as one script per stage, anything else as one script for all of them. */
export function parseStageScripts(value: unknown): Partial<Record<Stage, Script>> | Script {
  if (isRecord(value) && Object.keys(value).some((name) => (STAGES as readonly string[]).includes(name))) {
    const scripts: Partial<Record<Stage, Script>> = {};
    for (const [name, script] of Object.entries(value)) {
      const stage = STAGES.find((known) => known === name);
      if (stage === undefined) throw new ScriptError(`script.${name}`, "unknown stage");
      scripts[stage] = parseScript(script, `script.${name}`);
    }
    return scripts;
  }
  return parseScript(value);
}

/** An entry that says something about the answer's content takes the place of the simulation; others only change its timing. */
export function replacesAnswer(entry: ScriptEntry): boolean {
  return entry.status !== undefined || entry.tcp !== undefined || BODY_MEMBERS.some((name) => Object.hasOwn(entry, name));
}

export interface ScriptTicket {
  readonly entry: ScriptEntry;
  /** 1 for the first call. */
  readonly call: number;
}

/** One role's script. Every engine of the role gets the same queue, so that calls are counted over all of them. */
export class ScriptQueue {
  private readonly entries: readonly ScriptEntry[];
  private call = 0;
  private readonly listeners = new Set<() => void>();

  /** @throws ScriptError */
  constructor(script: unknown) {
    const parsed = parseScript(script);
    this.entries = Array.isArray(parsed) ? parsed : [parsed];
  }

  /** The entry of the next call, without taking it. */
  peek(): ScriptEntry {
    const entry = this.entries[Math.min(this.call, this.entries.length - 1)];
    if (entry === undefined) throw new Error("a script has at least one entry");
    return entry;
  }

  take(): ScriptTicket {
    const entry = this.peek();
    this.call += 1;
    for (const listener of this.listeners) listener();
    return { entry, call: this.call };
  }

  get calls(): number {
    return this.call;
  }

  /** Called after each `take`; the returned function ends it. */
  onChange(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}
