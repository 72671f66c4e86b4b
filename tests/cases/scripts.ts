/** Scripts for the simulated engines, as the cases write them. */
import type { ScriptEntry as EngineScript } from "../engine/index.js";
import { compact, JsonNumber, mapStrings, toPlain, type Json, type JsonObject } from "./json.js";
import type { Role } from "./seen.js";

/** One call's script with the names of the cases; what stands here is checked, the engine gets it unchanged. */
export type ScriptEntry = JsonObject;
export type Scripts = Partial<Record<Role, ScriptEntry[]>>;

const ROLES: readonly Role[] = ["encode", "prefill", "decode"];
const CONTENT = ["json", "text", "sse", "chunks"] as const;
const KEYS: readonly string[] = ["status", "headers", ...CONTENT, "delay_ms", "first_byte_delay_ms", "tcp", "then", "close_idle_after_ms"];

function fail(path: string, message: string): never {
  throw new Error(`${path}: ${message}`);
}

function readEntry(value: Json, path: string): ScriptEntry {
  if (!(value instanceof Map)) fail(path, "has to be an object");
  for (const [name, member] of value) {
    const here = `${path}.${name}`;
    if (!KEYS.includes(name)) fail(here, "unknown key");
    switch (name) {
      case "status":
      case "delay_ms":
      case "first_byte_delay_ms":
      case "close_idle_after_ms":
        if (!(member instanceof JsonNumber) || !Number.isSafeInteger(Number(member.text)) || Number(member.text) < 0) fail(here, "has to be a whole number");
        break;
      case "headers":
        if (!(member instanceof Map) || [...member.values()].some((line) => typeof line !== "string" && !(Array.isArray(line) && line.every((one) => typeof one === "string")))) {
          fail(here, "has to be an object of texts");
        }
        break;
      case "text":
        if (typeof member !== "string") fail(here, "has to be a text");
        break;
      case "sse":
      case "chunks":
        if (!Array.isArray(member) || member.some((piece) => typeof piece !== "string")) fail(here, "has to be a list of texts");
        break;
      case "tcp":
        if (member !== "refused" && member !== "reset") fail(here, 'has to be "refused" or "reset"');
        break;
      case "then":
        if (member !== "reset") fail(here, 'has to be "reset"');
        break;
      default:
    }
  }
  const contents = CONTENT.filter((name) => value.has(name));
  if (contents.length > 1) fail(path, `has ${contents.join(" and ")}, only one can be answered`);
  if (value.has("tcp") && (contents.length > 0 || value.has("status"))) fail(`${path}.tcp`, "stands instead of an answer");
  return value;
}

/** Reads a script file. Throws an Error that names the place of what is not in the format. */
export function readScripts(file: JsonObject): Scripts {
  const scripts: Scripts = {};
  for (const [name, member] of file) {
    if (name === "kind") continue;
    const role = ROLES.find((word) => word === name);
    if (role === undefined) fail(name, "unknown key");
    const entries = Array.isArray(member) ? member : [member];
    if (entries.length === 0) fail(name, "has to be a script or a list of scripts");
    scripts[role] = entries.map((entry, at) => readEntry(entry, Array.isArray(member) ? `${name}.${at.toString()}` : name));
  }
  return scripts;
}

/** Some script sends `chunks`: the case is repeated with the whole cut at every byte. */
export function hasChunks(scripts: Scripts): boolean {
  return Object.values(scripts).some((entries) => entries.some((entry) => entry.has("chunks")));
}

/**
 * Some script refuses a connection and then goes on: the engine learns of refused connections from the machine's count of them, so no other run may have one
 * meanwhile.
 */
export function needsMachine(scripts: Scripts): boolean {
  return Object.values(scripts).some((entries) => entries.slice(0, -1).some((entry) => entry.get("tcp") === "refused"));
}

/** Header names of a script's answer, lower-cased. */
function names(headers: Json | undefined): string[] {
  return headers instanceof Map ? [...headers.keys()].map((name) => name.toLowerCase()) : [];
}

/**
 * A script entry as the engine takes it, its addresses mapped. Scripted JSON goes as its own text, so that no number passes through a double.
 *
 * @param everyByte `chunks` are sent byte by byte
 */
export function forEngine(entry: ScriptEntry, map: (text: string) => string, everyByte: boolean): EngineScript {
  const mapped = mapStrings(entry, map) as JsonObject;
  const script = toPlain(mapped) as EngineScript;
  if (mapped.has("json")) {
    script.text = compact(mapped.get("json") ?? null);
    delete script.json;
    if (!names(mapped.get("headers")).includes("content-type")) script.headers = { ...script.headers, "content-type": "application/json" };
  }
  if (everyByte && script.chunks !== undefined) {
    const whole = Buffer.concat(script.chunks.map((piece) => Buffer.from(piece)));
    script.chunks = Array.from(whole, (byte) => Buffer.from([byte]));
  }
  return script;
}
