import { isUtf8 } from "node:buffer";
import type { ValueKind } from "./types.js";

/**
 * Spans in the JSON that engines answer. What an engine hands over is spliced as the bytes that it sent (DESIGN, decision 8: number text, key order and
 * unknown members are its own), so answers are read for the places of their members and never parsed into values and written again.
 */
export interface Span {
  readonly kind: ValueKind;
  readonly start: number;
  readonly end: number;
}

export interface MemberSpan {
  /** Escapes resolved. */
  readonly name: string;
  /** Offset of the name's opening quote. */
  readonly start: number;
  readonly value: Span;
}

const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;

/** The one JSON value that `bytes` from `start` to `end` holds, white space around it aside; null when it is not valid JSON in UTF-8. */
export function readValue(bytes: Buffer, start = 0, end = bytes.length): Span | null {
  const at = skipSpace(bytes, start, end);
  const stop = skipValue(bytes, at, end);
  if (stop < 0 || skipSpace(bytes, stop, end) !== end || !isUtf8(bytes.subarray(at, stop))) return null;
  return spanAt(bytes, at, stop);
}

/** The members of an object that {@link readValue} found valid, in order, duplicates included. */
export function membersOf(bytes: Buffer, object: Span): MemberSpan[] {
  const members: MemberSpan[] = [];
  if (object.kind !== "object") return members;
  let at = skipSpace(bytes, object.start + 1, object.end);
  while (bytes[at] === QUOTE) {
    const nameEnd = skipString(bytes, at, object.end);
    const valueStart = skipSpace(bytes, skipSpace(bytes, nameEnd, object.end) + 1, object.end);
    const valueEnd = skipValue(bytes, valueStart, object.end);
    if (nameEnd < 0 || valueEnd < 0) break;
    members.push({ name: nameOf(bytes, at, nameEnd), start: at, value: spanAt(bytes, valueStart, valueEnd) });
    at = skipSpace(bytes, valueEnd, object.end);
    if (bytes[at] !== COMMA) break;
    at = skipSpace(bytes, at + 1, object.end);
  }
  return members;
}

/** The value of the last member of that name: the one that every engine takes. */
export function lastMember(bytes: Buffer, object: Span | null, name: string): Span | null {
  if (object?.kind !== "object") return null;
  return membersOf(bytes, object).findLast((member) => member.name === name)?.value ?? null;
}

/** The elements of an array that {@link readValue} found valid. */
export function elementsOf(bytes: Buffer, array: Span): Span[] {
  const elements: Span[] = [];
  if (array.kind !== "array") return elements;
  let at = skipSpace(bytes, array.start + 1, array.end);
  while (bytes[at] !== CLOSE_ARRAY) {
    const stop = skipValue(bytes, at, array.end);
    if (stop < 0) break;
    elements.push(spanAt(bytes, at, stop));
    at = skipSpace(bytes, stop, array.end);
    if (bytes[at] !== COMMA) break;
    at = skipSpace(bytes, at + 1, array.end);
  }
  return elements;
}

/** The span's own bytes, not copied. */
export function bytesOf(bytes: Buffer, span: Span): Buffer {
  return bytes.subarray(span.start, span.end);
}

/** The text of a string value, escapes resolved; null for other kinds. */
export function stringOf(bytes: Buffer, span: Span | null): string | null {
  return span?.kind === "string" ? nameOf(bytes, span.start, span.end) : null;
}

function nameOf(bytes: Buffer, start: number, end: number): string {
  return JSON.parse(bytes.toString("utf8", start, end)) as string;
}

function spanAt(bytes: Buffer, start: number, end: number): Span {
  return { kind: kindAt(bytes[start] ?? 0), start, end };
}

function kindAt(byte: number): ValueKind {
  switch (byte) {
    case OPEN_OBJECT:
      return "object";
    case OPEN_ARRAY:
      return "array";
    case QUOTE:
      return "string";
    case 0x74:
      return "true";
    case 0x66:
      return "false";
    case 0x6e:
      return "null";
    default:
      return "number";
  }
}

function skipSpace(bytes: Buffer, at: number, end: number): number {
  while (at < end) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
    at++;
  }
  return at;
}

/**
 * Steps over one value. Nesting is kept in a list of its own, so that no depth of an answer ends our stack.
 *
 * @returns the offset behind the value, or -1 when it is not valid JSON
 */
function skipValue(bytes: Buffer, at: number, end: number): number {
  const closers: number[] = [];
  for (;;) {
    const byte = at < end ? (bytes[at] ?? 0) : 0;
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      const closer = byte === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY;
      at = skipSpace(bytes, at + 1, end);
      if (at < end && bytes[at] === closer) {
        at++;
      } else {
        closers.push(closer);
        if (closer === CLOSE_OBJECT) at = skipName(bytes, at, end);
        if (at < 0) return -1;
        continue;
      }
    } else {
      at = skipScalar(bytes, at, end, byte);
      if (at < 0) return -1;
    }
    for (;;) {
      const closer = closers.at(-1);
      if (closer === undefined) return at;
      at = skipSpace(bytes, at, end);
      if (at >= end) return -1;
      if (bytes[at] === closer) {
        closers.pop();
        at++;
        continue;
      }
      if (bytes[at] !== COMMA) return -1;
      at = skipSpace(bytes, at + 1, end);
      if (closer === CLOSE_OBJECT) at = skipName(bytes, at, end);
      if (at < 0) return -1;
      break;
    }
  }
}

/** Steps over `"name" :` and the white space behind it. */
function skipName(bytes: Buffer, at: number, end: number): number {
  if (at >= end || bytes[at] !== QUOTE) return -1;
  at = skipString(bytes, at, end);
  if (at < 0) return -1;
  at = skipSpace(bytes, at, end);
  if (at >= end || bytes[at] !== COLON) return -1;
  return skipSpace(bytes, at + 1, end);
}

function skipScalar(bytes: Buffer, at: number, end: number, byte: number): number {
  switch (byte) {
    case QUOTE:
      return skipString(bytes, at, end);
    case 0x74:
      return skipWord(bytes, at, end, "true");
    case 0x66:
      return skipWord(bytes, at, end, "false");
    case 0x6e:
      return skipWord(bytes, at, end, "null");
    default:
      return skipNumber(bytes, at, end);
  }
}

function skipWord(bytes: Buffer, at: number, end: number, word: string): number {
  if (at + word.length > end) return -1;
  for (let index = 0; index < word.length; index++) if (bytes[at + index] !== word.charCodeAt(index)) return -1;
  return at + word.length;
}

function skipNumber(bytes: Buffer, at: number, end: number): number {
  if (at < end && bytes[at] === 0x2d) at++;
  if (at < end && bytes[at] === 0x30) at++;
  else at = skipDigits(bytes, at, end);
  if (at >= 0 && at < end && bytes[at] === 0x2e) at = skipDigits(bytes, at + 1, end);
  if (at >= 0 && at < end && (bytes[at] === 0x65 || bytes[at] === 0x45)) {
    at++;
    if (at < end && (bytes[at] === 0x2b || bytes[at] === 0x2d)) at++;
    at = skipDigits(bytes, at, end);
  }
  return at;
}

function skipDigits(bytes: Buffer, at: number, end: number): number {
  const start = at;
  while (at < end && isDigit(bytes[at] ?? 0)) at++;
  return at === start ? -1 : at;
}

function isDigit(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x39;
}

function skipString(bytes: Buffer, at: number, end: number): number {
  at++;
  while (at < end) {
    const byte = bytes[at] ?? 0;
    if (byte === QUOTE) return at + 1;
    if (byte < 0x20) return -1;
    if (byte !== BACKSLASH) {
      at++;
      continue;
    }
    const letter = at + 1 < end ? (bytes[at + 1] ?? 0) : 0;
    if (letter === 0x75) {
      for (let index = at + 2; index < at + 6; index++) {
        const digit = index < end ? (bytes[index] ?? 0) | 0x20 : 0;
        if (!isDigit(digit) && !(digit >= 0x61 && digit <= 0x66)) return -1;
      }
      at += 6;
    } else if (letter === QUOTE || letter === BACKSLASH || letter === 0x2f || letter === 0x62 || letter === 0x66 || letter === 0x6e || letter === 0x72 || letter === 0x74) {
      at += 2;
    } else {
      return -1;
    }
  }
  return -1;
}
