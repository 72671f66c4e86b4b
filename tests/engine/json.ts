/**
 * A body as Python's `json.loads(bytes)` reads it, which is what a FastAPI server does: text encoding guessed from the first bytes, `NaN` and
 * infinities accepted, the last of two equal names wins, integers of any size exact (real-engine §4, "More doors to the same members").
 */

export type Json = null | boolean | number | bigint | string | Json[] | JsonObject;
export interface JsonObject {
  [name: string]: Json;
}

export class JsonError extends Error {
  constructor(
    message: string,
    /** Characters (not bytes) before the error; 0 when the text could not be decoded at all. */
    readonly offset: number,
    readonly kind: "encoding" | "syntax",
  ) {
    super(message);
    this.name = "JsonError";
  }
}

export type TextEncodingName = "utf-8" | "utf-16le" | "utf-16be" | "utf-32le" | "utf-32be";

/** The rule of Python's `json.detect_encoding`: byte order marks first, then where the null bytes of the first characters are. */
export function detectEncoding(body: Uint8Array): { encoding: TextEncodingName; bomBytes: number } {
  const at = (index: number): number => body[index] ?? -1;
  if (at(0) === 0 && at(1) === 0 && at(2) === 0xfe && at(3) === 0xff) return { encoding: "utf-32be", bomBytes: 4 };
  if (at(0) === 0xff && at(1) === 0xfe && at(2) === 0 && at(3) === 0) return { encoding: "utf-32le", bomBytes: 4 };
  if (at(0) === 0xfe && at(1) === 0xff) return { encoding: "utf-16be", bomBytes: 2 };
  if (at(0) === 0xff && at(1) === 0xfe) return { encoding: "utf-16le", bomBytes: 2 };
  if (at(0) === 0xef && at(1) === 0xbb && at(2) === 0xbf) return { encoding: "utf-8", bomBytes: 3 };
  if (body.length >= 4) {
    if (at(0) === 0) return { encoding: at(1) === 0 ? "utf-32be" : "utf-16be", bomBytes: 0 };
    if (at(1) === 0) return { encoding: at(2) === 0 && at(3) === 0 ? "utf-32le" : "utf-16le", bomBytes: 0 };
  } else if (body.length === 2) {
    if (at(0) === 0) return { encoding: "utf-16be", bomBytes: 0 };
    if (at(1) === 0) return { encoding: "utf-16le", bomBytes: 0 };
  }
  return { encoding: "utf-8", bomBytes: 0 };
}

function decodeUtf32(body: Uint8Array, littleEndian: boolean): string {
  if (body.length % 4 !== 0) throw new JsonError("truncated UTF-32 data", 0, "encoding");
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  let text = "";
  for (let offset = 0; offset < body.length; offset += 4) {
    const code = view.getUint32(offset, littleEndian);
    if (code > 0x10ffff) throw new JsonError("code point outside Unicode in UTF-32 data", 0, "encoding");
    text += String.fromCodePoint(code);
  }
  return text;
}

export function decodeText(body: Uint8Array): string {
  const { encoding, bomBytes } = detectEncoding(body);
  const rest = body.subarray(bomBytes);
  if (encoding === "utf-32le" || encoding === "utf-32be") return decodeUtf32(rest, encoding === "utf-32le");
  try {
    return new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(rest);
  } catch {
    throw new JsonError(`body is not ${encoding}`, 0, "encoding");
  }
}

/** Integers of 16 digits and more may not fit a double; a hit inside a string only costs the slower way. */
const MAYBE_LONG_INTEGER = /[:[,\s]-?\d{16}/;

/** @throws JsonError */
export function parseJsonBytes(body: Uint8Array): Json {
  return parseJsonText(decodeText(body));
}

/** @throws JsonError */
export function parseJsonText(text: string): Json {
  if (!MAYBE_LONG_INTEGER.test(text)) {
    try {
      return JSON.parse(text) as Json;
    } catch {
      // Not strict JSON, or nested too deeply for the built-in parser: the one below decides.
    }
  }
  return new Parser(text).parse();
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const SPACE = /[ \t\n\r]*/y;
const ESCAPES: Readonly<Record<string, string>> = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const WORDS: readonly (readonly [string, Json])[] = [
  ["null", null],
  ["true", true],
  ["false", false],
  ["NaN", Number.NaN],
  ["Infinity", Number.POSITIVE_INFINITY],
  ["-Infinity", Number.NEGATIVE_INFINITY],
];

type Frame = { readonly list: Json[] } | { readonly object: JsonObject; name: string };

/** Keeps its own stack, so that depth costs memory and not the process. */
class Parser {
  private at = 0;
  private readonly stack: Frame[] = [];

  constructor(private readonly text: string) {}

  parse(): Json {
    this.skipSpace();
    for (;;) {
      let value: Json;
      const char = this.text[this.at];
      if (char === "{" || char === "[") {
        this.at += 1;
        this.skipSpace();
        const close = char === "{" ? "}" : "]";
        const frame: Frame = char === "{" ? { object: {}, name: "" } : { list: [] };
        if (this.text[this.at] === close) {
          this.at += 1;
          value = "list" in frame ? frame.list : frame.object;
        } else {
          this.stack.push(frame);
          if ("object" in frame) frame.name = this.memberName();
          continue;
        }
      } else {
        value = this.scalar(char);
      }
      const done = this.close(value);
      if (done !== undefined) return done.value;
    }
  }

  /** Puts a finished value where it belongs and steps to the next one; the outermost value comes back when the text ends behind it. */
  private close(first: Json): { value: Json } | undefined {
    let value = first;
    for (;;) {
      this.skipSpace();
      const frame = this.stack.at(-1);
      if (frame === undefined) {
        if (this.at !== this.text.length) throw this.error("Extra data");
        return { value };
      }
      if ("list" in frame) frame.list.push(value);
      else Object.defineProperty(frame.object, frame.name, { value, writable: true, enumerable: true, configurable: true });
      const char = this.text[this.at];
      if (char === ",") {
        this.at += 1;
        this.skipSpace();
        if ("object" in frame) frame.name = this.memberName();
        return undefined;
      }
      if (char !== ("list" in frame ? "]" : "}")) throw this.error("Expecting ',' delimiter");
      this.at += 1;
      this.stack.pop();
      value = "list" in frame ? frame.list : frame.object;
    }
  }

  private memberName(): string {
    if (this.text[this.at] !== '"') throw this.error("Expecting property name enclosed in double quotes");
    const name = this.string();
    this.skipSpace();
    if (this.text[this.at] !== ":") throw this.error("Expecting ':' delimiter");
    this.at += 1;
    this.skipSpace();
    return name;
  }

  private scalar(char: string | undefined): Json {
    if (char === '"') return this.string();
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    NUMBER.lastIndex = this.at;
    const digits = NUMBER.exec(this.text)?.[0];
    if (digits === undefined) throw this.error("Expecting value");
    this.at += digits.length;
    const value = Number(digits);
    return /^-?\d+$/.test(digits) && !Number.isSafeInteger(value) ? BigInt(digits) : value;
  }

  private string(): string {
    const start = this.at;
    this.at += 1;
    let out = "";
    for (;;) {
      PLAIN.lastIndex = this.at;
      const plain = PLAIN.exec(this.text)?.[0] ?? "";
      out += plain;
      this.at += plain.length;
      const char = this.text[this.at];
      if (char === '"') {
        this.at += 1;
        return out;
      }
      if (char !== "\\") {
        if (char === undefined) {
          this.at = start;
          throw this.error("Unterminated string starting at");
        }
        throw this.error("Invalid control character at");
      }
      const escape = this.text[this.at + 1] ?? "";
      if (escape === "u") {
        const digits = this.text.slice(this.at + 2, this.at + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) throw this.error("Invalid \\uXXXX escape");
        out += String.fromCharCode(Number.parseInt(digits, 16));
        this.at += 6;
      } else {
        const resolved = ESCAPES[escape];
        if (resolved === undefined) throw this.error("Invalid \\escape");
        out += resolved;
        this.at += 2;
      }
    }
  }

  private skipSpace(): void {
    SPACE.lastIndex = this.at;
    SPACE.exec(this.text);
    this.at = SPACE.lastIndex;
  }

  private error(message: string): JsonError {
    return new JsonError(`${message}: char ${String(this.at)}`, this.at, "syntax");
  }
}

export function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The member's value, or undefined; members that JavaScript objects inherit do not count. */
export function member(object: JsonObject, name: string): Json | undefined {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

/** JSON text with big integers as digits. `NaN` and infinities become null, as a JSON answer cannot hold them. */
export function stringify(value: Json): string {
  try {
    return JSON.stringify(value);
  } catch {
    // A big integer in it, which the built-in one refuses.
    return stringifyParts(value);
  }
}

function stringifyParts(value: Json): string {
  if (typeof value === "bigint") return value.toString();
  if (Array.isArray(value)) return `[${value.map(stringifyParts).join(",")}]`;
  if (isObject(value)) {
    return `{${Object.entries(value)
      .map(([name, inner]) => `${JSON.stringify(name)}:${stringifyParts(inner)}`)
      .join(",")}}`;
  }
  return JSON.stringify(value);
}

/** JSON text with names in order, so that equal values have equal texts. */
export function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (isObject(value)) {
    return `{${Object.keys(value)
      .sort()
      .map((name) => `${JSON.stringify(name)}:${canonical(value[name] ?? null)}`)
      .join(",")}}`;
  }
  return stringify(value);
}
