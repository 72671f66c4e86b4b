/** `pad_to`: the body at an exact size. */
import { parse, tokenAt } from "./json.js";

interface Span {
  start: number;
  end: number;
}

/** The inside of the longest string value (member names do not count), by its bytes. */
function longestString(body: Buffer): Span | null {
  parse(body);
  let longest: Span | null = null;
  let at = 0;
  for (;;) {
    const token = tokenAt(body, at);
    if (token.kind === "end") return longest;
    at = token.end;
    if (token.kind !== "string" || tokenAt(body, at).kind === ":") continue;
    if (longest === null || token.end - token.start > longest.end - longest.start + 2) longest = { start: token.start + 1, end: token.end - 1 };
  }
}

/** A string's characters as they stand in the text: an escape is one (a surrogate pair's two escapes too), so is a UTF-8 sequence. */
function characters(inside: Buffer): Buffer[] {
  const out: Buffer[] = [];
  let at = 0;
  const escapeLength = (from: number): number => (inside[from + 1] === 0x75 ? 6 : 2);
  while (at < inside.length) {
    const byte = inside[at] ?? 0;
    let length = 1;
    if (byte === 0x5c) {
      length = escapeLength(at);
      const high = /^\\u[dD][89abAB]/.test(inside.toString("latin1", at, at + 6));
      if (high && /^\\u[dD][c-fC-F]/.test(inside.toString("latin1", at + 6, at + 12))) length = 12;
    } else if (byte >= 0xf0) length = 4;
    else if (byte >= 0xe0) length = 3;
    else if (byte >= 0xc0) length = 2;
    out.push(inside.subarray(at, at + length));
    at += length;
  }
  return out;
}

/** `length` bytes of `unit` repeated. */
function repeated(unit: Buffer, length: number): Buffer {
  const out = Buffer.allocUnsafe(length);
  for (let filled = 0; filled < length; filled += unit.length) unit.copy(out, filled, 0, Math.min(unit.length, length - filled));
  return out;
}

/**
 * Lengthens the longest string by repeating its own characters (of a data URL: those after the last comma) until the body has `bytes` bytes; 0 leaves it.
 * Throws an Error when the body is no JSON, has no string, is longer already, or when its characters cannot fill the rest exactly.
 */
export function padTo(body: Buffer, bytes: number): Buffer {
  if (bytes === 0) return body;
  if (body.length > bytes) throw new Error(`pad_to ${bytes.toString()}: the body has ${body.length.toString()} bytes already`);
  const span = longestString(body);
  if (span === null || span.end === span.start) throw new Error(`pad_to ${bytes.toString()}: the body has no string to lengthen`);
  const inside = body.subarray(span.start, span.end);
  const comma = inside.subarray(0, 5).toString("latin1") === "data:" ? inside.lastIndexOf(0x2c) : -1;
  const unit = inside.subarray(comma + 1);
  if (unit.length === 0) throw new Error(`pad_to ${bytes.toString()}: the data URL has no characters to repeat`);
  const missing = bytes - body.length;
  const units = characters(unit);
  // Whole rounds first, then whole characters; what is then left is filled by characters that fit.
  const rounds = Math.floor(missing / unit.length) * unit.length;
  const rest: Buffer[] = [];
  let left = missing - rounds;
  for (const character of units) {
    if (character.length > left) break;
    rest.push(character);
    left -= character.length;
  }
  while (left > 0) {
    const fitting = units.find((character) => character.length <= left && left % character.length === 0) ?? units.find((character) => character.length <= left);
    if (fitting === undefined) throw new Error(`pad_to ${bytes.toString()}: the string's own characters cannot fill the last ${left.toString()} bytes`);
    rest.push(fitting);
    left -= fitting.length;
  }
  return Buffer.concat([body.subarray(0, span.end), repeated(unit, rounds), ...rest, body.subarray(span.end)]);
}
