import type { Pieces } from "./pieces.js";
import type { BodyView, Member } from "./types.js";

interface Replacement {
  readonly start: number;
  readonly end: number;
  readonly parts: readonly Buffer[];
}

/** An object of the body into which members can be inserted. */
interface ObjectSpan {
  /** Offset of `{`. */
  readonly start: number;
  /** Offset behind `}`. */
  readonly end: number;
}

/**
 * Edits of one body, made from the scanner's spans and applied to the client's bytes: what no edit names goes out as it came, number text, key order, white
 * space and all (DESIGN, decision 2). Insertions stand at an object's end, behind everything that the client sent, so that they win whatever duplicates there are.
 */
export class BodyEditor {
  readonly #body: Pieces;
  readonly #view: BodyView;
  readonly #removed: Member[] = [];
  readonly #replaced: Replacement[] = [];
  readonly #inserted = new Map<number, { readonly object: ObjectSpan; readonly members: (readonly Buffer[])[] }>();

  constructor(body: Pieces, view: BodyView) {
    this.#body = body;
    this.#view = view;
  }

  /** Takes the member out, with the comma that its absence leaves over. */
  remove(member: Member): void {
    this.#removed.push(member);
  }

  /** Puts JSON text in the place of the member's value. */
  replaceValue(member: Member, json: string): void {
    this.#replaced.push({ start: member.valueStart, end: member.valueEnd, parts: [Buffer.from(json)] });
  }

  /** Adds a member at the end of the body's top level. `json` is its value's text or bytes. */
  insert(name: string, json: string | readonly Buffer[]): void {
    this.#insertInto({ start: this.#view.objectStart, end: this.#view.objectEnd }, name, json);
  }

  /** Adds a member at the end of an object that is itself a member. */
  insertInto(parent: Member, name: string, json: string): void {
    this.#insertInto({ start: parent.valueStart, end: parent.valueEnd }, name, json);
  }

  /** Adds an element at the end of an array that is a member and has elements. */
  append(array: Member, json: readonly Buffer[]): void {
    this.#replaced.push({ start: array.valueEnd - 1, end: array.valueEnd - 1, parts: [Buffer.from(","), ...json] });
  }

  #insertInto(object: ObjectSpan, name: string, json: string | readonly Buffer[]): void {
    const head = `${JSON.stringify(name)}:`;
    const parts = typeof json === "string" ? [Buffer.from(head + json)] : [Buffer.from(head), ...json];
    const entry = this.#inserted.get(object.start);
    if (entry === undefined) this.#inserted.set(object.start, { object, members: [parts] });
    else entry.members.push(parts);
  }

  /** The edited body as a list of buffers: views of the client's bytes with the new text between them. */
  apply(): Buffer[] {
    const cuts = this.#cuts();
    const edits = [...cuts, ...this.#replaced, ...this.#insertions(cuts)].sort((a, b) => a.start - b.start || a.end - b.end);
    const out: Buffer[] = [];
    let at = 0;
    for (const edit of edits) {
      // An edit inside a cut is gone with what it would have changed.
      if (edit.start < at) continue;
      out.push(...this.#body.slice(at, edit.start), ...edit.parts);
      at = edit.end;
    }
    out.push(...this.#body.slice(at, this.#body.length));
    return out;
  }

  /** The ranges that removed members leave out: each with the comma behind it or, where none follows, with the one before what is gone. */
  #cuts(): Replacement[] {
    const cuts: { start: number; end: number; parts: readonly Buffer[] }[] = [];
    const removed = [...this.#removed].sort((a, b) => a.start - b.start);
    for (const member of removed) {
      const previous = cuts.at(-1);
      if (previous !== undefined && member.start < previous.end) continue;
      const behind = this.#skipSpace(member.valueEnd);
      if (this.#body.byteAt(behind) === 0x2c) {
        cuts.push({ start: member.start, end: behind + 1, parts: [] });
        continue;
      }
      // The last member of its object: the comma before it goes, which may stand before members that went already.
      let start = member.start;
      for (;;) {
        const before = this.#skipSpaceBack(start);
        const earlier = cuts.at(-1);
        if (earlier?.end === before) {
          cuts.pop();
          start = earlier.start;
          continue;
        }
        if (this.#body.byteAt(before - 1) === 0x2c) start = before - 1;
        break;
      }
      cuts.push({ start, end: member.valueEnd, parts: [] });
    }
    return cuts;
  }

  #insertions(cuts: readonly Replacement[]): Replacement[] {
    return [...this.#inserted.values()].map(({ object, members }) => {
      const parts: Buffer[] = [];
      let comma = !this.#isEmptied(object, cuts);
      for (const member of members) {
        if (comma) parts.push(Buffer.from(","));
        parts.push(...member);
        comma = true;
      }
      return { start: object.end - 1, end: object.end - 1, parts };
    });
  }

  /** Whether nothing is left in the object once the cuts are made. */
  #isEmptied(object: ObjectSpan, cuts: readonly Replacement[]): boolean {
    let at = object.end - 1;
    for (;;) {
      at = this.#skipSpaceBack(at);
      if (at === object.start + 1) return true;
      const cut = cuts.find(({ end }) => end === at);
      if (cut === undefined) return false;
      at = cut.start;
    }
  }

  #skipSpace(at: number): number {
    while (isSpace(this.#body.byteAt(at))) at++;
    return at;
  }

  #skipSpaceBack(at: number): number {
    while (isSpace(this.#body.byteAt(at - 1))) at--;
    return at;
  }
}

function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}
