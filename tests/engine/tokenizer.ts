/**
 * The tokenizer of every simulated engine. It is no language model's, but it has what matters here: it is deterministic, the tokens of a text do
 * not depend on what follows it, and it can be undone.
 *
 * - A run of ASCII is cut into pieces of four characters, one token each (the last piece of a run may be shorter): about what English costs.
 * - Every other code point is one token.
 * - Special tokens (roles, begin, end) are ids below 1000; a text never gives one.
 * - Ids that a client makes up (`token_ids`, prompts as ids) are taken as they are.
 */

const ASCII_BASES = [0, 0x02000000, 0x04000000, 0x08000000, 0x10000000] as const;
const CODE_POINT_BASE = 0x01000000;
const MEDIA_BASE = 0x30000000;
/** First id that is outside of the vocabulary. */
export const VOCABULARY_END = 0x40000000;

export const Special = {
  begin: 1,
  system: 2,
  user: 3,
  assistant: 4,
  tool: 5,
  end: 6,
  tools: 7,
  toolCall: 8,
  developer: 9,
  otherRole: 10,
  media: 11,
  config: 12,
} as const;

/** A growing list of token ids. */
export class TokenBuffer {
  private ids = new Uint32Array(256);
  private count = 0;

  get length(): number {
    return this.count;
  }

  push(id: number): void {
    this.reserve(1);
    this.ids[this.count] = id;
    this.count += 1;
  }

  pushRepeated(id: number, times: number): void {
    this.reserve(times);
    this.ids.fill(id, this.count, this.count + times);
    this.count += times;
  }

  pushText(text: string): void {
    this.reserve(tokenCount(text));
    const { ids } = this;
    let index = 0;
    while (index < text.length) {
      let code = text.charCodeAt(index);
      if (code < 0x80) {
        let packed = 0;
        let length = 0;
        while (length < 4 && index < text.length && (code = text.charCodeAt(index)) < 0x80) {
          packed = packed * 128 + code;
          length += 1;
          index += 1;
        }
        ids[this.count] = (ASCII_BASES[length] ?? 0) + packed;
      } else {
        const point = text.codePointAt(index) ?? code;
        ids[this.count] = CODE_POINT_BASE + point;
        index += point > 0xffff ? 2 : 1;
      }
      this.count += 1;
    }
  }

  toArray(): Uint32Array {
    return this.ids.slice(0, this.count);
  }

  private reserve(more: number): void {
    if (this.count + more <= this.ids.length) return;
    const bigger = new Uint32Array(Math.max(this.ids.length * 2, this.count + more));
    bigger.set(this.ids.subarray(0, this.count));
    this.ids = bigger;
  }
}

/** How many tokens a text has. */
export function tokenCount(text: string): number {
  let count = 0;
  let run = 0;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code < 0x80) {
      if (run % 4 === 0) count += 1;
      run += 1;
      continue;
    }
    run = 0;
    count += 1;
    if ((text.codePointAt(index) ?? 0) > 0xffff) index += 1;
  }
  return count;
}

export function encode(text: string): Uint32Array {
  const buffer = new TokenBuffer();
  buffer.pushText(text);
  return buffer.toArray();
}

/** Token id of a media placeholder; it carries 28 bits of the item's identity, so that two prompts with different pictures differ. */
export function mediaToken(hash32: number): number {
  return MEDIA_BASE + (hash32 & 0x0fffffff);
}

/** Text of one token; ids without text (special, media, a client's own) as `<id>`. */
export function tokenText(id: number): string {
  for (let length = 4; length >= 1; length -= 1) {
    const base = ASCII_BASES[length] ?? 0;
    if (id >= base && id < base + 128 ** length) {
      let rest = id - base;
      let text = "";
      for (let char = 0; char < length; char += 1) {
        text = String.fromCharCode(rest % 128) + text;
        rest = Math.floor(rest / 128);
      }
      return text;
    }
  }
  const point = id - CODE_POINT_BASE;
  if (point >= 0x80 && point <= 0x10ffff) return String.fromCodePoint(point);
  return `<${String(id)}>`;
}

export function decode(ids: Iterable<number>): string {
  let text = "";
  for (const id of ids) text += tokenText(id);
  return text;
}
