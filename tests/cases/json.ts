/**
 * A JSON reader of the runner's own, so that it does not judge a leg's body with the scanner or with the doubles that it is there to check: numbers keep
 * their text, the last of two equal names wins, each top-level member's bytes are known, and depth is bounded by memory and not by the stack.
 */

/** A number by its text: `9007199254740993` and `1e400` survive, `1.0` equals `1`. */
export class JsonNumber {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

export type Json = null | boolean | string | JsonNumber | Json[] | JsonObject;
/** Members in order of first appearance; the last value of a repeated name wins (what Python, Go and JavaScript engines read). */
export type JsonObject = Map<string, Json>;

/** `offset`: the byte of the text at which it stopped being JSON. */
export class JsonError extends Error {
  readonly offset: number;
  constructor(message: string, offset: number) {
    super(`${message} at byte ${offset.toString()}`);
    this.name = "JsonError";
    this.offset = offset;
  }
}

export type TokenKind = "{" | "}" | "[" | "]" | ":" | "," | "string" | "number" | "word" | "end";

export interface Token {
  kind: TokenKind;
  /** First byte. */
  start: number;
  /** The byte after the last one. */
  end: number;
}

/** One `"name": value` of the outermost object, duplicates included; the spans hold no white space around them. */
export interface Member {
  name: string;
  nameStart: number;
  nameEnd: number;
  valueStart: number;
  valueEnd: number;
}

export interface Parsed {
  value: Json;
  /** null when the outermost value is no object. */
  members: Member[] | null;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$/;

function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function isNumberByte(byte: number): boolean {
  return (byte >= 0x30 && byte <= 0x39) || byte === 0x2b || byte === 0x2d || byte === 0x2e || byte === 0x45 || byte === 0x65;
}

/** The end of the string that opens at `start`: the byte after its closing quote. */
function stringEnd(bytes: Buffer, start: number): number {
  let from = start + 1;
  for (;;) {
    const quote = bytes.indexOf(0x22, from);
    if (quote < 0) throw new JsonError("string without an end", start);
    let escapes = 0;
    for (let at = quote - 1; at > start && bytes[at] === 0x5c; at--) escapes++;
    if (escapes % 2 === 0) return quote + 1;
    from = quote + 1;
  }
}

/** The token at or after `at`; `end` when only white space is left. A string's inside is not looked at here. */
export function tokenAt(bytes: Buffer, at: number): Token {
  let start = at;
  while (start < bytes.length && isSpace(bytes[start] ?? 0)) start++;
  if (start >= bytes.length) return { kind: "end", start, end: start };
  const byte = bytes[start] ?? 0;
  switch (byte) {
    case 0x7b:
      return { kind: "{", start, end: start + 1 };
    case 0x7d:
      return { kind: "}", start, end: start + 1 };
    case 0x5b:
      return { kind: "[", start, end: start + 1 };
    case 0x5d:
      return { kind: "]", start, end: start + 1 };
    case 0x3a:
      return { kind: ":", start, end: start + 1 };
    case 0x2c:
      return { kind: ",", start, end: start + 1 };
    case 0x22:
      return { kind: "string", start, end: stringEnd(bytes, start) };
    default:
  }
  let end = start;
  if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) {
    while (end < bytes.length && isNumberByte(bytes[end] ?? 0)) end++;
    return { kind: "number", start, end };
  }
  while (end < bytes.length && (bytes[end] ?? 0) >= 0x61 && (bytes[end] ?? 0) <= 0x7a) end++;
  if (end === start) throw new JsonError("unexpected byte", start);
  return { kind: "word", start, end };
}

const ESCAPES: Readonly<Record<string, string>> = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

function decodeString(bytes: Buffer, token: Token): string {
  let text: string;
  try {
    text = utf8.decode(bytes.subarray(token.start + 1, token.end - 1));
  } catch {
    throw new JsonError("string is not UTF-8", token.start);
  }
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) < 0x20) throw new JsonError("control character in a string", token.start);
  if (!text.includes("\\")) return text;
  return text.replace(/\\(?:u([0-9a-fA-F]{4})|([\s\S]))/g, (_whole, hex: string | undefined, short: string | undefined) => {
    if (hex !== undefined) return String.fromCharCode(Number.parseInt(hex, 16));
    const plain = ESCAPES[short ?? ""];
    if (plain === undefined) throw new JsonError(`unknown escape \\${short ?? ""}`, token.start);
    return plain;
  });
}

function scalar(bytes: Buffer, token: Token): Json {
  if (token.kind === "string") return decodeString(bytes, token);
  const text = bytes.toString("latin1", token.start, token.end);
  if (token.kind === "number") {
    if (!NUMBER.test(text)) throw new JsonError("bad number", token.start);
    return new JsonNumber(text);
  }
  if (text === "true") return true;
  if (text === "false") return false;
  if (text === "null") return null;
  throw new JsonError("unknown word", token.start);
}

/**
 * Reads one JSON text (RFC 8259, UTF-8 without a byte order mark). Throws {@link JsonError}.
 */
export function parse(text: Buffer | string): Parsed {
  const bytes = typeof text === "string" ? Buffer.from(text) : text;
  const open: { container: Json[] | JsonObject; name: string | null }[] = [];
  const members: Member[] = [];
  let pending: Member | null = null;
  let root: Json | undefined;
  let at = 0;

  const next = (): Token => {
    const token = tokenAt(bytes, at);
    at = token.end;
    return token;
  };
  // Puts a finished value where it belongs.
  const place = (value: Json): void => {
    const top = open.at(-1);
    if (top === undefined) root = value;
    else if (Array.isArray(top.container)) top.container.push(value);
    else if (top.name !== null) top.container.set(top.name, value);
  };
  const readName = (top: { container: Json[] | JsonObject; name: string | null }, token: Token): void => {
    if (token.kind !== "string") throw new JsonError(token.kind === "end" ? "the text ends early" : "expected a member name", token.start);
    top.name = decodeString(bytes, token);
    if (open.length === 1) pending = { name: top.name, nameStart: token.start, nameEnd: token.end, valueStart: -1, valueEnd: -1 };
    const colon = next();
    if (colon.kind !== ":") throw new JsonError("expected ':'", colon.start);
  };

  let token = next();
  for (;;) {
    // `token` is the first token of a value.
    if (open.length === 1 && pending !== null) (pending as Member).valueStart = token.start;
    let done = false;
    if (token.kind === "{" || token.kind === "[") {
      const container: Json[] | JsonObject = token.kind === "{" ? new Map<string, Json>() : [];
      place(container);
      const entry = { container, name: null };
      open.push(entry);
      const first = next();
      if (first.kind === (token.kind === "{" ? "}" : "]")) {
        open.pop();
        done = true;
      } else if (token.kind === "{") {
        readName(entry, first);
        token = next();
      } else {
        token = first;
      }
    } else if (token.kind === "string" || token.kind === "number" || token.kind === "word") {
      place(scalar(bytes, token));
      done = true;
    } else {
      throw new JsonError(token.kind === "end" ? "the text ends early" : `unexpected '${token.kind}'`, token.start);
    }
    if (!done) continue;
    // A value has ended: close what ends with it, or go to the next one.
    let more = false;
    while (!more) {
      if (open.length === 1 && pending !== null) {
        (pending as Member).valueEnd = at;
        members.push(pending);
        pending = null;
      }
      const top = open.at(-1);
      const after = next();
      if (top === undefined) {
        if (after.kind !== "end") throw new JsonError("text after the value", after.start);
        return { value: root ?? null, members: root instanceof Map ? members : null };
      }
      if (after.kind === ",") {
        const first = next();
        if (top.container instanceof Map) {
          readName(top, first);
          token = next();
        } else {
          token = first;
        }
        more = true;
      } else if (after.kind === (top.container instanceof Map ? "}" : "]")) {
        open.pop();
      } else {
        throw new JsonError(after.kind === "end" ? "the text ends early" : `unexpected '${after.kind}'`, after.start);
      }
    }
  }
}

/** {@link parse}'s value alone. */
export function parseValue(text: Buffer | string): Json {
  return parse(text).value;
}

/** Compact JSON; numbers as they were written. */
export function compact(value: Json): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (value instanceof JsonNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map(compact).join(",")}]`;
  return `{${[...value].map(([name, member]) => `${JSON.stringify(name)}:${compact(member)}`).join(",")}}`;
}

/** Equal numbers have equal keys: `1`, `1.0` and `10e-1` are one, 2^53 and 2^53 + 1 are two. */
export function numberKey(text: string): string {
  const match = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/.exec(text);
  if (match === null) return `?${text}`;
  const fraction = match[3] ?? "";
  let digits = ((match[2] ?? "") + fraction).replace(/^0+/, "");
  let exponent = BigInt(match[4] ?? "0") - BigInt(fraction.length);
  const trimmed = digits.replace(/0+$/, "");
  exponent += BigInt(digits.length - trimmed.length);
  digits = trimmed;
  return digits === "" ? "0" : `${match[1] ?? ""}${digits}e${exponent.toString()}`;
}

/** Equality as JSON: member order does not count, numbers by value. */
export function equal(left: Json, right: Json): boolean {
  if (left === right) return true;
  if (left instanceof JsonNumber) return right instanceof JsonNumber && numberKey(left.text) === numberKey(right.text);
  if (Array.isArray(left)) return Array.isArray(right) && left.length === right.length && left.every((item, index) => equal(item, right[index] ?? null));
  if (left instanceof Map) {
    if (!(right instanceof Map) || left.size !== right.size) return false;
    for (const [name, value] of left) {
      const other = right.get(name);
      if (other === undefined || !equal(value, other)) return false;
    }
    return true;
  }
  return false;
}

/** A plain value (from `JSON.parse` or a record of ours) as {@link Json}; undefined members are left out. */
export function fromPlain(value: unknown): Json {
  if (value === null || value === undefined) return null;
  if (typeof value === "boolean" || typeof value === "string") return value;
  if (typeof value === "number") return new JsonNumber(JSON.stringify(value));
  if (Array.isArray(value)) return value.map(fromPlain);
  if (typeof value === "object") {
    return new Map(
      Object.entries(value)
        .filter(([, member]) => member !== undefined)
        .map(([name, member]) => [name, fromPlain(member)]),
    );
  }
  throw new TypeError(`no JSON for a ${typeof value}`);
}

/** The way back, for documents that others read (YAML, scripts): numbers become doubles. */
export function toPlain(value: Json): unknown {
  if (value instanceof JsonNumber) return Number(value.text);
  if (Array.isArray(value)) return value.map(toPlain);
  if (value instanceof Map) return Object.fromEntries([...value].map(([name, member]) => [name, toPlain(member)]));
  return value;
}

/** Every string of the value (member names not), replaced. */
export function mapStrings(value: Json, change: (text: string) => string): Json {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, change));
  if (value instanceof Map) return new Map([...value].map(([name, member]) => [name, mapStrings(member, change)]));
  return value;
}
