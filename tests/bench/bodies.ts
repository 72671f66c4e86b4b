/** The requests of the bench: chat completions of an exact size whose prompt differs in a few bytes at its start, and nowhere else. */

/** `text`: one user message; `image`: a short text and an image as a data URL, which makes up the size. */
export type BodyKind = "text" | "image";

export interface BodySpec {
  kind: BodyKind;
  /** Of the request's body. */
  bytes: number;
  /** `"stream": true`. */
  stream: boolean;
  /** Further header lines, as `name: value`. */
  headers: readonly string[];
}

export interface RequestBytes {
  /** Head and body. */
  bytes: Buffer;
  /** Where the {@link NONCE_BYTES} bytes stand that make a prompt unique. */
  nonceAt: number;
}

export const NONCE_BYTES = 16;
const NONCE = "n".repeat(NONCE_BYTES);
export const MODEL = "bench-model";

/** A generator of its own, so that every process builds the same bytes. */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const WORDS = "disaggregated inference serving with paged attention moves key value blocks between prefill and decode workers while an encoder reads each picture once".split(" ");

/** Words with blanks between, exactly so long; no character that JSON escapes. */
export function words(length: number, seed: number): string {
  const next = random(seed);
  const parts: string[] = [];
  let have = 0;
  while (have < length) {
    const word = WORDS[Math.floor(next() * WORDS.length)] ?? "";
    parts.push(word);
    have += word.length + 1;
  }
  return parts.join(" ").padEnd(length, "x").slice(0, length);
}

const BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** Characters of base64, exactly so many. */
export function base64(length: number, seed: number): string {
  const next = random(seed);
  const bytes = Buffer.alloc(length);
  for (let i = 0; i < length; i++) bytes[i] = BASE64.charCodeAt(Math.floor(next() * 64));
  return bytes.toString("latin1");
}

/** The JSON text, `fill` characters in the part that makes up its size. */
function json(spec: BodySpec, fill: (length: number) => string, length: number): string {
  const content =
    spec.kind === "text"
      ? `${NONCE} ${fill(length)}`
      : [
          { type: "text", text: `${NONCE} What is in this picture? Name every object that you can see, from left to right.` },
          { type: "image_url", image_url: { url: `data:image/png;base64,${fill(length)}` } },
        ];
  return JSON.stringify({ model: MODEL, messages: [{ role: "user", content }], max_tokens: 32, temperature: 0.7, ...(spec.stream ? { stream: true } : {}) });
}

/** Throws an Error when `bytes` leaves no room for a prompt. */
export function chatBody(spec: BodySpec): { body: Buffer; nonceAt: number } {
  const room = spec.bytes - json(spec, () => "", 0).length;
  if (room < 1) throw new Error(`a ${spec.kind} body of ${spec.bytes.toString()} bytes has no room for a prompt`);
  const body = Buffer.from(json(spec, (length) => (spec.kind === "text" ? words(length, 7) : base64(length, 11)), room), "latin1");
  return { body, nonceAt: body.indexOf(NONCE) };
}

/** A whole HTTP/1.1 request. */
export function chatRequest(spec: BodySpec): RequestBytes {
  const { body, nonceAt } = chatBody(spec);
  const lines = ["POST /v1/chat/completions HTTP/1.1", "host: bench", "content-type: application/json", `content-length: ${body.length.toString()}`, ...spec.headers];
  const head = Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
  return { bytes: Buffer.concat([head, body]), nonceAt: head.length + nonceAt };
}

/** The nonce of request `number` of a run: {@link NONCE_BYTES} letters and digits. `salt` sets runs apart. */
export function nonce(salt: number, number: number): string {
  return (salt >>> 0).toString(16).padStart(8, "0") + (number >>> 0).toString(16).padStart(8, "0");
}
