/**
 * A plain reader of JSON (RFC 8259 in strict UTF-8, a BOM in front allowed): the whole text becomes a tree of spans. It looks at one byte at a time and keeps its own stack, so
 * that no body is too deep for it.
 */
import type { ScanError, ValueKind } from "../../sidecar/body/types.js";

/** One value. `members` is filled for objects, `items` for arrays. */
export interface Node {
  readonly kind: ValueKind;
  readonly start: number;
  end: number;
  readonly members: NamedNode[];
  readonly items: Node[];
}

export interface NamedNode {
  /** Escapes resolved: UTF-8 bytes as the characters 0 to 255. */
  readonly name: string;
  /** Of the opening quote. */
  readonly start: number;
  readonly value: Node;
}

export class ReadError extends Error {
  constructor(
    readonly error: ScanError,
    /** Of the byte at which the fault was seen; the body's length when it ended too early. */
    readonly offset: number,
  ) {
    super(`${error} at ${String(offset)}`);
  }
}

const NO_MEMBERS: NamedNode[] = [];
const NO_ITEMS: Node[] = [];
const BOM = [0xef, 0xbb, 0xbf] as const;

/**
 * @param maxDepth arrays and objects that may be open at once
 * @throws ReadError
 */
export function readTree(body: Buffer, maxDepth: number): Node {
  const { length } = body;
  let at = skipSpace(body, skipBom(body));
  if (at === length) throw new ReadError("empty", at);

  /** Open containers. */
  const open: Node[] = [];
  /** The member that waits for its value. */
  let name = "";
  let nameStart = -1;

  const place = (node: Node): void => {
    const parent = open.at(-1);
    if (parent === undefined) return;
    if (parent.kind === "array") parent.items.push(node);
    else parent.members.push({ name, start: nameStart, value: node });
  };

  /** Reads `"name":` and leaves `at` before the value. */
  const readName = (): void => {
    if (at === length) throw new ReadError("truncated", at);
    if (body[at] !== 0x22) throw new ReadError("invalid_json", at);
    const end = readString(body, at);
    name = decoded(body, at + 1, end - 1);
    nameStart = at;
    at = skipSpace(body, end);
    if (at === length) throw new ReadError("truncated", at);
    if (body[at] !== 0x3a) throw new ReadError("invalid_json", at);
    at = skipSpace(body, at + 1);
  };

  for (;;) {
    // A value is due at `at`.
    if (at === length) throw new ReadError("truncated", at);
    const byte = body[at] ?? 0;
    let ended: Node;
    if (byte === 0x7b || byte === 0x5b) {
      if (open.length >= maxDepth) throw new ReadError("too_deep", at);
      const isObject = byte === 0x7b;
      const node: Node = { kind: isObject ? "object" : "array", start: at, end: -1, members: isObject ? [] : NO_MEMBERS, items: isObject ? NO_ITEMS : [] };
      place(node);
      open.push(node);
      at = skipSpace(body, at + 1);
      if (at === length) throw new ReadError("truncated", at);
      if (body[at] !== (isObject ? 0x7d : 0x5d)) {
        if (isObject) readName();
        continue;
      }
      ended = node;
    } else {
      const start = at;
      const kind = scalarKind(body, at);
      if (kind === "string") at = readString(body, at);
      else if (kind === "number") at = readNumber(body, at);
      else at = readWord(body, at, kind);
      ended = { kind, start, end: at, members: NO_MEMBERS, items: NO_ITEMS };
      place(ended);
      at = skipSpace(body, at);
    }
    // A value has ended, or an empty container stands before its end: close what closes here.
    for (;;) {
      const top = open.at(-1);
      if (top === undefined) {
        if (at !== length) throw new ReadError("invalid_json", at);
        return ended;
      }
      if (at === length) throw new ReadError("truncated", at);
      const isArray = top.kind === "array";
      if (body[at] === (isArray ? 0x5d : 0x7d)) {
        at += 1;
        top.end = at;
        ended = top;
        open.pop();
        at = skipSpace(body, at);
        continue;
      }
      if (body[at] !== 0x2c) throw new ReadError("invalid_json", at);
      at = skipSpace(body, at + 1);
      if (!isArray) readName();
      break;
    }
  }
}

/** Only in front of everything; a part of one is an encoding fault. */
function skipBom(body: Buffer): number {
  if (body[0] !== BOM[0]) return 0;
  for (const [index, byte] of BOM.entries()) {
    if (index === body.length) throw new ReadError("truncated", index);
    if (body[index] !== byte) throw new ReadError("invalid_utf8", index);
  }
  return BOM.length;
}

function skipSpace(body: Buffer, at: number): number {
  for (;;) {
    const byte = body[at];
    if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d) return at;
    at += 1;
  }
}

function scalarKind(body: Buffer, at: number): Exclude<ValueKind, "object" | "array"> {
  const byte = body[at] ?? 0;
  if (byte === 0x22) return "string";
  if (byte === 0x2d || (byte >= 0x30 && byte <= 0x39)) return "number";
  if (byte === 0x74) return "true";
  if (byte === 0x66) return "false";
  if (byte === 0x6e) return "null";
  // Where a value may begin, a byte that is no ASCII tells of another encoding (UTF-16 with its mark, Latin-1).
  throw new ReadError(byte >= 0x80 ? "invalid_utf8" : "invalid_json", at);
}

function readWord(body: Buffer, at: number, word: string): number {
  for (let index = 0; index < word.length; index++) {
    if (at + index === body.length) throw new ReadError("truncated", at + index);
    if (body[at + index] !== word.charCodeAt(index)) throw new ReadError("invalid_json", at + index);
  }
  return at + word.length;
}

function isDigit(byte: number | undefined): boolean {
  return byte !== undefined && byte >= 0x30 && byte <= 0x39;
}

function readDigits(body: Buffer, at: number): number {
  if (at === body.length) throw new ReadError("truncated", at);
  if (!isDigit(body[at])) throw new ReadError("invalid_json", at);
  while (isDigit(body[at])) at += 1;
  return at;
}

function readNumber(body: Buffer, at: number): number {
  if (body[at] === 0x2d) at += 1;
  if (body[at] === 0x30) at += 1;
  else at = readDigits(body, at);
  if (body[at] === 0x2e) at = readDigits(body, at + 1);
  if (body[at] === 0x65 || body[at] === 0x45) {
    at += 1;
    if (body[at] === 0x2b || body[at] === 0x2d) at += 1;
    at = readDigits(body, at);
  }
  return at;
}

/** @returns the offset behind the closing quote */
function readString(body: Buffer, at: number): number {
  at += 1;
  while (at < body.length) {
    const byte = body[at] ?? 0;
    if (byte === 0x22) return at + 1;
    if (byte < 0x20) throw new ReadError("invalid_json", at);
    if (byte === 0x5c) at = readEscape(body, at);
    else if (byte < 0x80) at += 1;
    else at = readSequence(body, at);
  }
  throw new ReadError("truncated", at);
}

function readEscape(body: Buffer, at: number): number {
  if (at + 1 >= body.length) throw new ReadError("truncated", at + 1);
  const letter = String.fromCharCode(body[at + 1] ?? 0);
  if ('"\\/bfnrt'.includes(letter)) return at + 2;
  if (letter !== "u") throw new ReadError("invalid_json", at + 1);
  for (let index = at + 2; index < at + 6; index++) {
    if (index >= body.length) throw new ReadError("truncated", index);
    if (hexValue(body[index] ?? 0) < 0) throw new ReadError("invalid_json", index);
  }
  return at + 6;
}

function hexValue(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const letter = byte | 0x20;
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x57 : -1;
}

/** One multi-byte UTF-8 sequence: no overlong forms, no surrogates, nothing above U+10FFFF. A fault stands at the first byte that cannot go on with what is in front of it. */
function readSequence(body: Buffer, at: number): number {
  const first = body[at] ?? 0;
  let length = 0;
  let low = 0x80;
  let high = 0xbf;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  else if (first >= 0xe0 && first <= 0xef) {
    length = 3;
    if (first === 0xe0) low = 0xa0;
    if (first === 0xed) high = 0x9f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4;
    if (first === 0xf0) low = 0x90;
    if (first === 0xf4) high = 0x8f;
  } else {
    throw new ReadError("invalid_utf8", at);
  }
  for (let index = 1; index < length; index++) {
    if (at + index >= body.length) throw new ReadError("truncated", body.length);
    const byte = body[at + index] ?? 0;
    if (byte < (index === 1 ? low : 0x80) || byte > (index === 1 ? high : 0xbf)) throw new ReadError("invalid_utf8", at + index);
  }
  return at + length;
}

const PLAIN_ESCAPES: Readonly<Record<string, string>> = { b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

/**
 * The text between two quotes, escapes resolved, as UTF-8 bytes (the characters 0 to 255). A pair of escaped surrogates is one character; a lone one becomes its three bytes,
 * which no valid text contains.
 */
export function decoded(body: Buffer, from: number, to: number): string {
  const raw = body.toString("latin1", from, to);
  let slash = raw.indexOf("\\");
  if (slash < 0) return raw;
  let out = "";
  let at = 0;
  while (slash >= 0) {
    out += raw.slice(at, slash);
    const letter = raw.charAt(slash + 1);
    if (letter !== "u") {
      out += PLAIN_ESCAPES[letter] ?? letter;
      at = slash + 2;
    } else {
      let point = parseInt(raw.slice(slash + 2, slash + 6), 16);
      at = slash + 6;
      if (point >= 0xd800 && point < 0xdc00 && raw.startsWith("\\u", at)) {
        const next = parseInt(raw.slice(at + 2, at + 6), 16);
        if (next >= 0xdc00 && next < 0xe000) {
          point = 0x1_0000 + ((point - 0xd800) << 10) + (next - 0xdc00);
          at += 6;
        }
      }
      out += utf8(point);
    }
    slash = raw.indexOf("\\", at);
  }
  return out + raw.slice(at);
}

function utf8(point: number): string {
  if (point < 0x80) return String.fromCharCode(point);
  if (point < 0x800) return String.fromCharCode(0xc0 | (point >> 6), 0x80 | (point & 63));
  if (point < 0x1_0000) return String.fromCharCode(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63));
  return String.fromCharCode(0xf0 | (point >> 18), 0x80 | ((point >> 12) & 63), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63));
}
