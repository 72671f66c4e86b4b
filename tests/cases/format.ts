/**
 * Reads cases: `NN-name.json` (a body, or a script for the engines) and the two blocks of `NN-name.md`. Whatever is not in the format is an error that names
 * its place.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ENCODINGS, type Encoding } from "./encodings.js";
import { readExpect, type Expectation } from "./expect.js";
import { CONNECTORS, EC_CONNECTORS, FEATURES, POLICIES, type Connector, type EcConnector, type Feature, type Policy } from "./features.js";
import { JsonError, JsonNumber, parseValue, type Json, type JsonObject } from "./json.js";
import { readScripts, type Scripts } from "./scripts.js";

export class FormatError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "FormatError";
  }
}

export type Stages = "d" | "pd" | "epd" | "e-p-d";
export type Topology = "default" | "ipv6";

export type BodySource =
  /** The case's own file, byte for byte. */
  | { kind: "file" }
  /** The file of another case. */
  | { kind: "case"; number: number }
  /** Sent as compact JSON. */
  | { kind: "value"; value: Json }
  | { kind: "none" };

export interface Send {
  times: number;
  /** All of them open at the same time. */
  atOnce: boolean;
  /** Between the end of one and the start of the next. */
  gapMs: number;
}

/** What is sent: given's request, or a step's with what it replaces. */
export interface RequestPlan {
  via: "envoy" | "sidecar";
  method: string;
  path: string;
  /** Header lines as spelt. */
  headers: [name: string, value: string][];
  body: BodySource;
  set: [path: string, value: Json][];
  encoding: Encoding | undefined;
  send: Send;
}

export interface Step extends RequestPlan {
  /** Bytes before `encoding`; null: the run's value of given's `pad_to`. */
  padTo: number | null;
}

export interface Given {
  request: RequestPlan;
  /** Repeated: one run per value. */
  padTo: number[];
  connectors: Connector[];
  ecConnectors: EcConnector[];
  policies: Policy[];
  stages: Stages;
  /** Sidecar flags, and settings of the filter under `filter.`. */
  flags: [name: string, value: Json][];
  encoders: number;
  topology: Topology;
  abortAfterMs: number | null;
  steps: Step[];
  needs: Feature[];
}

export interface Case {
  /** `NN-name`. */
  name: string;
  number: number;
  folder: string;
  given: Given;
  expect: Expectation;
  /** The two blocks as they stand, for the addresses in them. */
  texts: { given: Json; expect: Json };
  /** The file, where it is a request body. */
  body: Buffer | null;
  /** The scripts, where it is one; {} otherwise. */
  scripts: Scripts;
}

const GIVEN_KEYS: readonly string[] = [
  "via",
  "method",
  "path",
  "headers",
  "body",
  "encoding",
  "pad_to",
  "stages",
  "connector",
  "ec",
  "flags",
  "on_stage_failure",
  "encoders",
  "topology",
  "send",
  "abort_after_ms",
  "then",
  "needs",
];
const STEP_KEYS: readonly string[] = ["via", "method", "path", "headers", "body", "encoding", "pad_to", "send", "set"];

function asObject(value: Json, path: string): JsonObject {
  if (!(value instanceof Map)) throw new FormatError(`${path}: has to be an object`);
  return value;
}

function asText(value: Json, path: string): string {
  if (typeof value !== "string" || value === "") throw new FormatError(`${path}: has to be a text`);
  return value;
}

function asWhole(value: Json, path: string, least: number): number {
  const number = value instanceof JsonNumber ? Number(value.text) : Number.NaN;
  if (!Number.isSafeInteger(number) || number < least) throw new FormatError(`${path}: has to be an integer of at least ${least.toString()}`);
  return number;
}

function oneOf<T extends string>(value: Json, path: string, allowed: readonly T[]): T {
  const found = allowed.find((word) => word === value);
  if (found === undefined) throw new FormatError(`${path}: has to be one of ${allowed.join(", ")}`);
  return found;
}

function listOf<T>(value: Json, path: string, read: (item: Json, path: string) => T): T[] {
  if (!Array.isArray(value) || value.length === 0) throw new FormatError(`${path}: has to be a list that is not empty`);
  return value.map((item, at) => read(item, `${path}.${at.toString()}`));
}

function checkKeys(object: JsonObject, path: string, allowed: readonly string[]): void {
  for (const name of object.keys()) if (!allowed.includes(name)) throw new FormatError(`${path}.${name}: unknown key`);
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

function readHeaders(value: Json, path: string): [string, string][] {
  return [...asObject(value, path)].flatMap(([name, lines]) => {
    const here = `${path}.${name}`;
    if (!TOKEN.test(name)) throw new FormatError(`${here}: is no header name`);
    const values = Array.isArray(lines) ? lines : [lines];
    return values.map((line): [string, string] => {
      if (typeof line !== "string") throw new FormatError(`${here}: has to be a text or a list of texts`);
      if (/[\r\n\0]/.test(line)) throw new FormatError(`${here}: a header value holds no line end`);
      return [name, line];
    });
  });
}

function readSend(value: Json, path: string): Send {
  if (value instanceof Map) {
    checkKeys(value, path, ["times", "gap_ms"]);
    return { times: asWhole(value.get("times") ?? null, `${path}.times`, 1), atOnce: false, gapMs: asWhole(value.get("gap_ms") ?? null, `${path}.gap_ms`, 0) };
  }
  switch (oneOf(value, path, ["once", "twice", "twice-at-once"])) {
    case "once":
      return { times: 1, atOnce: false, gapMs: 0 };
    case "twice":
      return { times: 2, atOnce: false, gapMs: 0 };
    case "twice-at-once":
      return { times: 2, atOnce: true, gapMs: 0 };
  }
}

function readPath(value: Json, path: string): string {
  const text = asText(value, path);
  if (!text.startsWith("/") || /[\s\0]/.test(text)) throw new FormatError(`${path}: has to be a path that starts with /`);
  return text;
}

function readMethod(value: Json, path: string): string {
  const text = asText(value, path);
  if (!TOKEN.test(text)) throw new FormatError(`${path}: is no method`);
  return text;
}

function readStep(value: Json, path: string, given: RequestPlan): Step {
  const step = asObject(value, path);
  checkKeys(step, path, STEP_KEYS);
  const own = <T>(name: string, read: (value: Json, path: string) => T, otherwise: T): T => {
    const member = step.get(name);
    return member === undefined ? otherwise : read(member, `${path}.${name}`);
  };
  const readBody = (body: Json, here: string): BodySource => {
    if (body === null) return { kind: "none" };
    if (body instanceof Map) return { kind: "value", value: body };
    if (body instanceof JsonNumber) return { kind: "case", number: asWhole(body, here, 0) };
    throw new FormatError(`${here}: has to be the number of a case, an object or null`);
  };
  const body = own("body", readBody, given.body);
  const set = own("set", (members, here) => [...asObject(members, here)], []);
  if (set.length > 0 && body.kind === "none") throw new FormatError(`${path}.set: there is no body to change`);
  return {
    via: own("via", (via, here) => oneOf(via, here, ["envoy", "sidecar"]), given.via),
    method: own("method", readMethod, given.method),
    path: own("path", readPath, given.path),
    headers: own("headers", readHeaders, given.headers),
    body,
    set,
    encoding: own("encoding", (encoding, here) => oneOf(encoding, here, ENCODINGS), given.encoding),
    send: own("send", readSend, given.send),
    padTo: own<number | null>(
      "pad_to",
      (size, here) => {
        // "one value": a list of one, or the value itself.
        if (Array.isArray(size) && size.length !== 1) throw new FormatError(`${here}: a step has one value`);
        return asWhole(Array.isArray(size) ? (size[0] ?? null) : size, here, 0);
      },
      null,
    ),
  };
}

/** Reads a `given` block. Throws {@link FormatError}. */
export function readGiven(value: Json): Given {
  const given = asObject(value, "given");
  checkKeys(given, "given", GIVEN_KEYS);
  const own = <T>(name: string, read: (value: Json, path: string) => T, otherwise: T): T => {
    const member = given.get(name);
    return member === undefined ? otherwise : read(member, `given.${name}`);
  };
  const path = given.get("path");
  if (path === undefined) throw new FormatError("given.path: is missing");
  const request: RequestPlan = {
    via: own("via", (via, here) => oneOf(via, here, ["envoy", "sidecar"]), "envoy"),
    method: own("method", readMethod, "POST"),
    path: readPath(path, "given.path"),
    headers: own("headers", readHeaders, []),
    body: own<BodySource>("body", (body, here) => ({ kind: "case", number: asWhole(body, here, 0) }), { kind: "file" }),
    set: [],
    encoding: own<Encoding | undefined>("encoding", (encoding, here) => oneOf(encoding, here, ENCODINGS), undefined),
    send: own("send", readSend, { times: 1, atOnce: false, gapMs: 0 }),
  };
  const topology = own("topology", (name, here) => oneOf(name, here, ["default", "ipv6"] as const), "default");
  return {
    request,
    padTo: own("pad_to", (sizes, here) => listOf(sizes, here, (size, at) => asWhole(size, at, 0)), [0]),
    connectors: own("connector", (names, here) => listOf(names, here, (name, at) => oneOf(name, at, CONNECTORS)), ["nixlv2"]),
    ecConnectors: own("ec", (names, here) => listOf(names, here, (name, at) => oneOf(name, at, EC_CONNECTORS)), ["ec-example"]),
    policies: own("on_stage_failure", (names, here) => listOf(names, here, (name, at) => oneOf(name, at, POLICIES)), ["fail"]),
    stages: own("stages", (name, here) => oneOf(name, here, ["d", "pd", "epd", "e-p-d"] as const), "e-p-d"),
    flags: own("flags", (flags, here) => [...asObject(flags, here)].map(([name, flag]) => readFlag(name, flag, here)), []),
    encoders: own("encoders", (number, here) => asWhole(number, here, 1), 1),
    topology,
    abortAfterMs: own<number | null>("abort_after_ms", (time, here) => asWhole(time, here, 0), null),
    steps: own("then", (steps, here) => {
      if (!Array.isArray(steps)) throw new FormatError(`${here}: has to be a list`);
      return steps.map((step, at) => readStep(step, `${here}.${at.toString()}`, request));
    }, []),
    needs: own("needs", (names, here) => {
      if (!Array.isArray(names)) throw new FormatError(`${here}: has to be a list`);
      return names.map((name, at) => oneOf(name, `${here}.${at.toString()}`, FEATURES));
    }, []),
  };
}

function readFlag(name: string, value: Json, path: string): [string, Json] {
  const here = `${path}.${name}`;
  if (!/^(?:filter\.[A-Za-z0-9.]+|[a-z0-9]+(?:-[a-z0-9]+)*)$/.test(name)) throw new FormatError(`${here}: is no flag's name (without dashes in front)`);
  if (name === "allow-endpoints") listOf(value, here, (item, at) => asText(item, at));
  else if (!name.startsWith("filter.") && Array.isArray(value)) listOf(value, here, (item, at) => readScalar(item, at));
  else if (!name.startsWith("filter.")) readScalar(value, here);
  return [name, value];
}

function readScalar(value: Json, path: string): void {
  if (typeof value !== "string" && typeof value !== "boolean" && !(value instanceof JsonNumber)) throw new FormatError(`${path}: has to be a text, a number or true or false`);
}

/** The one fenced block `json name` of a case's text. */
function block(markdown: string, name: string): Json {
  const found = [...markdown.matchAll(/^```[ \t]*json[ \t]+([a-z]+)[ \t]*\r?\n([\s\S]*?)^```[ \t]*\r?$/gm)].filter((match) => match[1] === name);
  const text = found[0]?.[2];
  if (text === undefined) throw new FormatError(`there is no block "json ${name}"`);
  if (found.length > 1) throw new FormatError(`there are ${found.length.toString()} blocks "json ${name}"`);
  try {
    return parseValue(text);
  } catch (error) {
    if (error instanceof JsonError) throw new FormatError(`the block "json ${name}" is no JSON: ${error.message}`);
    throw error;
  }
}

/** The scripts in a file; null where the file is a request body. */
function scriptsIn(file: Buffer): Scripts | null {
  let value: Json;
  try {
    value = parseValue(file);
  } catch (error) {
    // Case 16 is no JSON on purpose: a body.
    if (error instanceof JsonError) return null;
    throw error;
  }
  if (!(value instanceof Map) || !value.has("kind")) return null;
  if (value.get("kind") !== "backend-script") throw new FormatError(`the file's kind has to be "backend-script"`);
  return readScripts(value);
}

const CASE_FILE = /^([0-9]+)-.+\.json$/;

/** The names (`NN-name`) of a folder's cases, in order. */
export function caseNames(folder: string): string[] {
  const files = readdirSync(folder);
  const names = new Set(
    files.filter((file) => /^[0-9]+-.+\.(?:json|md)$/.test(file)).map((file) => file.replace(/\.(?:json|md)$/, "")),
  );
  return [...names].sort((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10) || (a < b ? -1 : 1));
}

/** Reads the case `NN-name` of the folder. Throws an Error that says what is not in the format. */
export function readCase(folder: string, name: string): Case {
  const file = readFileSync(join(folder, `${name}.json`));
  const markdown = readFileSync(join(folder, `${name}.md`), "utf8");
  const givenBlock = block(markdown, "given");
  const expectBlock = block(markdown, "expect");
  const given = readGiven(givenBlock);
  const scripts = scriptsIn(file);
  if (scripts !== null && given.request.body.kind === "file") {
    if (given.request.method !== "GET" && given.request.method !== "HEAD") throw new FormatError("given.body: is missing, and the case's own file is a script");
    given.request.body = { kind: "none" };
    for (const step of given.steps) if (step.body.kind === "file") step.body = { kind: "none" };
  }
  return {
    name,
    number: Number.parseInt(name, 10),
    folder,
    given,
    expect: readExpect(expectBlock, given.steps.length, given.policies),
    texts: { given: givenBlock, expect: expectBlock },
    body: scripts === null ? file : null,
    scripts: scripts ?? {},
  };
}

/** The body of case `number`: looked up in the folder at hand, then in the shared set. Throws FormatError when neither has it or it is a script. */
export function bodyOfCase(number: number, folder: string, shared: string): Buffer {
  for (const place of [folder, shared]) {
    const file = readdirSync(place).find((entry) => CASE_FILE.test(entry) && Number.parseInt(entry, 10) === number);
    if (file === undefined) continue;
    const bytes = readFileSync(join(place, file));
    if (scriptsIn(bytes) !== null) throw new FormatError(`case ${number.toString()} is a script, no body`);
    return bytes;
  }
  throw new FormatError(`there is no case ${number.toString()}`);
}
