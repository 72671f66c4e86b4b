// A value of the configuration together with its path. Every accessor answers with a usable value and reports what was wrong; none traps. `null` counts as
// absent, as the reference's decoder has it (`parameters:` with nothing behind it is common in YAML).
import { JsonDoc, Kind } from "./json";
import { Problems } from "./problems";

export class Node {
  constructor(
    private readonly doc: JsonDoc,
    /** Row in the document, -1 for a value that is not there. */
    private readonly row: i32,
    private readonly parent: Node | null,
    /** Name inside the parent; "" for an element of a list and for a root. */
    private readonly key: string,
    private readonly index: i32,
    readonly problems: Problems,
  ) {}

  /** A root whose children have the paths `prefix.child`, or `child` with an empty prefix. */
  static root(doc: JsonDoc, row: i32, prefix: string, problems: Problems): Node {
    return new Node(doc, row, null, prefix, -1, problems);
  }

  /** The same value, with its problems going to another list. */
  reportingTo(problems: Problems): Node {
    return new Node(this.doc, this.row, this.parent, this.key, this.index, problems);
  }

  /** The same value as a root: paths of what is inside start here. */
  asRoot(): Node {
    return Node.root(this.doc, this.row, "", this.problems);
  }

  path(): string {
    const parent = this.parent;
    const before = parent === null ? "" : parent.path();
    if (this.index >= 0) return before + "[" + this.index.toString() + "]";
    if (before.length == 0) return this.key;
    return this.key.length == 0 ? before : before + "." + this.key;
  }

  error(message: string): void {
    this.problems.error(this.path(), message);
  }

  warn(message: string): void {
    this.problems.warn(this.path(), message);
  }

  get present(): bool {
    return this.row >= 0 && this.doc.kind(this.row) != Kind.Null;
  }

  get isObject(): bool {
    return this.row >= 0 && this.doc.kind(this.row) == Kind.Object;
  }

  get isArray(): bool {
    return this.row >= 0 && this.doc.kind(this.row) == Kind.Array;
  }

  get isString(): bool {
    return this.row >= 0 && this.doc.kind(this.row) == Kind.String;
  }

  get isNumber(): bool {
    return this.row >= 0 && this.doc.kind(this.row) == Kind.Number;
  }

  /** Elements or members inside; 0 for anything that is no container. */
  get length(): i32 {
    return this.row >= 0 ? this.doc.count(this.row) : 0;
  }

  /** True for an object. Anything else that is present is reported; `null` and absence are not, except as an element of a list. */
  object(): bool {
    if (this.isObject) return true;
    if (this.present || this.index >= 0) this.error("must be an object");
    return false;
  }

  /** True for a list; as {@link object} otherwise. */
  array(): bool {
    if (this.isArray) return true;
    if (this.present) this.error("must be a list");
    return false;
  }

  /** As {@link object}; also reports members that are not in `known` (a warning only, with `tolerant`), and members given twice. */
  fields(known: StaticArray<string>, tolerant: bool = false): bool {
    if (!this.object()) return false;
    const seen = new StaticArray<bool>(known.length);
    for (let row = this.doc.first(this.row); row >= 0; row = this.doc.next(row)) {
      let k = 0;
      while (k < known.length && !this.doc.nameIs(row, known[k])) k++;
      if (k < known.length) {
        if (seen[k]) this.member(row, known[k]).error("given more than once");
        seen[k] = true;
      } else if (tolerant) this.member(row, this.doc.name(row)).warn("unknown field, ignored");
      else this.member(row, this.doc.name(row)).error("unknown field");
    }
    return true;
  }

  private member(row: i32, name: string): Node {
    return new Node(this.doc, row, this, name, -1, this.problems);
  }

  /** The member `name`; an absent node, with the path it would have, when there is none. Of duplicates the last. */
  get(name: string): Node {
    let found = -1;
    if (this.isObject) {
      for (let row = this.doc.first(this.row); row >= 0; row = this.doc.next(row)) {
        if (this.doc.nameIs(row, name)) found = row;
      }
    }
    return this.member(found, name);
  }

  /** True when the member is there and not null. */
  has(name: string): bool {
    return this.get(name).present;
  }

  /** All elements of a list, in order; none for anything else, which {@link array} reports. */
  elements(): Array<Node> {
    const out = new Array<Node>();
    if (!this.array()) return out;
    let i = 0;
    for (let row = this.doc.first(this.row); row >= 0; row = this.doc.next(row)) {
      out.push(new Node(this.doc, row, this, "", i++, this.problems));
    }
    return out;
  }

  /** All members of an object, in order. */
  members(): Array<Node> {
    const out = new Array<Node>();
    if (!this.isObject) return out;
    for (let row = this.doc.first(this.row); row >= 0; row = this.doc.next(row)) {
      out.push(this.member(row, this.doc.name(row)));
    }
    return out;
  }

  get name(): string {
    return this.key;
  }

  /** The string, or `fallback` when it is absent or of another type. */
  text(fallback: string): string {
    if (!this.present) return fallback;
    if (this.isString) return this.doc.string(this.row);
    this.error("must be a string");
    return fallback;
  }

  /** The number, or `fallback` when it is absent, of another type, not finite or outside [min, max]. */
  float(fallback: f64, min: f64, max: f64): f64 {
    if (!this.present) return fallback;
    if (!this.isNumber) {
      this.error("must be a number");
      return fallback;
    }
    const value = this.doc.number(this.row);
    if (value >= min && value <= max) return value;
    this.error(rangeText("must be a number", min, max));
    return fallback;
  }

  /** As {@link float} for whole numbers; `1e3` and `5.0` are whole. */
  whole(fallback: f64, min: f64, max: f64): f64 {
    if (!this.present) return fallback;
    const value = this.isNumber ? this.doc.number(this.row) : NaN;
    // The comparisons keep infinities and NaN away from floor().
    if (value >= min && value <= max && Math.floor(value) == value) return value;
    this.error(rangeText("must be a whole number", min, max));
    return fallback;
  }

  int(fallback: i32, min: i32, max: i32): i32 {
    return <i32>this.whole(<f64>fallback, <f64>min, <f64>max);
  }

  /** As {@link whole}, at least `min`; what does not fit 32 bits becomes their largest or smallest number. */
  count(fallback: i32, min: f64): i32 {
    const value = this.whole(<f64>fallback, min, MAX_SAFE);
    return <i32>Math.max(Math.min(value, <f64>i32.MAX_VALUE), <f64>i32.MIN_VALUE);
  }

  bool(fallback: bool): bool {
    if (!this.present) return fallback;
    const kind = this.doc.kind(this.row);
    if (kind == Kind.True) return true;
    if (kind == Kind.False) return false;
    this.error("must be true or false");
    return fallback;
  }

  // The same for a member, by name.

  textOf(name: string, fallback: string): string {
    return this.get(name).text(fallback);
  }

  boolOf(name: string, fallback: bool): bool {
    return this.get(name).bool(fallback);
  }

  intOf(name: string, fallback: i32, min: i32, max: i32): i32 {
    return this.get(name).int(fallback, min, max);
  }

  countOf(name: string, fallback: i32, min: f64): i32 {
    return this.get(name).count(fallback, min);
  }

  wholeOf(name: string, fallback: f64, min: f64, max: f64): f64 {
    return this.get(name).whole(fallback, min, max);
  }

  floatOf(name: string, fallback: f64, min: f64, max: f64): f64 {
    return this.get(name).float(fallback, min, max);
  }

  /** A list of strings; elements of another type are reported and left out. */
  texts(): Array<string> {
    const out = new Array<string>();
    const items = this.elements();
    for (let i = 0; i < items.length; i++) {
      if (items[i].isString) out.push(items[i].text(""));
      else items[i].error("must be a string");
    }
    return out;
  }

  /** One of the words, or the first of them when absent or another. */
  oneOf(words: StaticArray<string>): string {
    if (!this.present) return words[0];
    if (this.isString) {
      const value = this.doc.string(this.row);
      for (let i = 0; i < words.length; i++) if (words[i] == value) return value;
    }
    let list = words[0];
    for (let i = 1; i < words.length; i++) list += (i == words.length - 1 ? " or " : ", ") + words[i];
    this.error("must be " + list + this.got());
    return words[0];
  }

  /** `, got <source>` for messages; long values and containers are not repeated. */
  got(): string {
    if (this.row < 0 || this.isObject || this.isArray) return "";
    const source = this.doc.source(this.row);
    return source.length <= 64 ? ", got " + source : "";
  }
}

/** Largest whole number that a double holds exactly. */
export const MAX_SAFE: f64 = 9007199254740991;
/** Bound of numbers without one of their own; keeps sums of a few hundred of them finite. */
export const HUGE: f64 = 1e100;

/** For bounds, all of which are whole numbers. */
function numberText(value: f64): string {
  return (<i64>value).toString();
}

function rangeText(what: string, min: f64, max: f64): string {
  const low = min > -MAX_SAFE;
  const high = max < MAX_SAFE;
  if (low && high) return what + " between " + numberText(min) + " and " + numberText(max);
  if (low) return what + ", at least " + numberText(min);
  if (high) return what + ", at most " + numberText(max);
  return what;
}
