import type { ApiShape } from "../body/types.js";
import { USAGE_MARK, withCachedTokens } from "./usage-edit.js";

/** Rewrites an answer's body as it passes. Both methods give what can be sent on now. */
export interface Rewriter {
  push(chunk: Buffer): readonly Buffer[];
  end(): readonly Buffer[];
}

const LF = 0x0a;
const CR = 0x0d;
const DATA = Buffer.from("data:");

/**
 * Server-sent events (sidecar §4.7): works line by line over any cut of the stream, holds back nothing but an unfinished line, and touches no byte but the
 * number in `data:` lines that hold usage. The last line may lack its end; one that does not end within `limitBytes` goes on unread, and so does what follows.
 */
export class EventStreamRewriter implements Rewriter {
  readonly #shape: ApiShape;
  readonly #cachedTokens: string;
  readonly #limitBytes: number;
  readonly #onTooLarge: () => void;
  /** The unfinished line. */
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #passing = false;

  constructor(shape: ApiShape, cachedTokens: string, limitBytes: number, onTooLarge: () => void) {
    this.#shape = shape;
    this.#cachedTokens = cachedTokens;
    this.#limitBytes = limitBytes;
    this.#onTooLarge = onTooLarge;
  }

  push(chunk: Buffer): readonly Buffer[] {
    if (this.#passing) return [chunk];
    const lineEnd = Math.max(chunk.lastIndexOf(LF), chunk.lastIndexOf(CR)) + 1;
    if (lineEnd === 0) return this.#hold(chunk);
    let complete = chunk;
    if (lineEnd < chunk.length) complete = chunk.subarray(0, lineEnd);
    if (this.#pending.length > 0) {
      complete = Buffer.concat([...this.#pending, complete]);
      this.#pending = [];
      this.#pendingBytes = 0;
    }
    const rewritten = this.#rewrite(complete);
    return lineEnd < chunk.length ? [...rewritten, ...this.#hold(chunk.subarray(lineEnd))] : rewritten;
  }

  /** Keeps the beginning of a line; gives it out when it is too long to be kept. */
  #hold(part: Buffer): readonly Buffer[] {
    if (part.length > 0) this.#pending.push(part);
    this.#pendingBytes += part.length;
    if (this.#pendingBytes <= this.#limitBytes) return [];
    this.#passing = true;
    this.#onTooLarge();
    const pending = this.#pending;
    this.#pending = [];
    return pending;
  }

  end(): readonly Buffer[] {
    if (this.#pending.length === 0) return [];
    const rest = Buffer.concat(this.#pending);
    this.#pending = [];
    return this.#rewrite(rest);
  }

  #rewrite(lines: Buffer): readonly Buffer[] {
    // Nearly every event has no usage: one search, and the bytes go on as they are.
    if (lines.indexOf(USAGE_MARK) < 0) return [lines];
    const out: Buffer[] = [];
    let at = 0;
    let kept = 0;
    while (at < lines.length) {
      const end = lineEndAt(lines, at);
      if (lines.subarray(at, at + DATA.length).equals(DATA)) {
        const payload = lines.subarray(at + DATA.length, end);
        const edited = payload.indexOf(USAGE_MARK) < 0 ? null : withCachedTokens(payload, this.#shape, this.#cachedTokens);
        if (edited !== null) {
          out.push(lines.subarray(kept, at + DATA.length), ...edited);
          kept = end;
        }
      }
      at = end + 1;
    }
    out.push(lines.subarray(kept));
    return out;
  }
}

/** The offset of the line's terminator, or the end. */
function lineEndAt(bytes: Buffer, at: number): number {
  const lf = bytes.indexOf(LF, at);
  const cr = bytes.indexOf(CR, at);
  if (lf < 0) return cr < 0 ? bytes.length : cr;
  return cr < 0 ? lf : Math.min(lf, cr);
}

/**
 * A whole JSON answer of any size (NX-23): kept until it is complete, since the count stands where the engine puts it. Beyond `limitBytes` the answer goes
 * on unread, so that no answer can take more memory than a request's body may.
 */
export class JsonRewriter implements Rewriter {
  readonly #shape: ApiShape;
  readonly #cachedTokens: string | null;
  readonly #limitBytes: number;
  readonly #onTooLarge: () => void;
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #passing = false;

  /** @param cachedTokens null: the answer is only kept until it is whole */
  constructor(shape: ApiShape, cachedTokens: string | null, limitBytes: number, onTooLarge: () => void) {
    this.#shape = shape;
    this.#cachedTokens = cachedTokens;
    this.#limitBytes = limitBytes;
    this.#onTooLarge = onTooLarge;
  }

  push(chunk: Buffer): readonly Buffer[] {
    if (this.#passing) return [chunk];
    this.#kept.push(chunk);
    this.#keptBytes += chunk.length;
    if (this.#keptBytes <= this.#limitBytes) return [];
    this.#passing = true;
    this.#onTooLarge();
    const kept = this.#kept;
    this.#kept = [];
    return kept;
  }

  end(): readonly Buffer[] {
    if (this.#passing || this.#kept.length === 0) return [];
    const whole = Buffer.concat(this.#kept);
    this.#kept = [];
    return (this.#cachedTokens === null ? null : withCachedTokens(whole, this.#shape, this.#cachedTokens)) ?? [whole];
  }
}
