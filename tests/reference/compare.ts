/** The scanner's view of a body beside the plain reader's: every field, and hashes by what they stand for. */
import type { MemberParent, NeverSplit, ScanError, ValueKind } from "../../sidecar/body/types.js";
import type { RawScanner } from "./raw-scanner.js";
import { Identities, type PlainView, type ReadOptions } from "./request-view.js";

// The order of the module's enumerations.
const ERRORS: readonly (ScanError | null)[] = [null, "empty", "invalid_json", "invalid_utf8", "truncated", "too_deep", "too_many_members"];
const KINDS: readonly ValueKind[] = ["null", "true", "false", "number", "string", "object", "array"];
const PARENTS: readonly MemberParent[] = ["", "vllm_xargs", "sampling_params", "sampling_params.extra_args"];
const WHOLE: readonly NeverSplit[] = ["", "multiple_prompts", "parallel_sampling", "prompt_logprobs", "stateful_response"];
const KEPT_MODEL = 256;

/** Compares views one after the other, and remembers which hash stood for what: in another body it has to stand for the same. */
export class Comparer {
  readonly identities = new Identities();
  private readonly hashes = new Map<number, number>();
  private readonly meanings = new Map<number, number>();

  constructor(private readonly scanner: RawScanner) {}

  /** From here on nothing is remembered. */
  forget(): void {
    this.identities.clear();
    this.hashes.clear();
    this.meanings.clear();
  }

  /** @returns what differs; null: nothing */
  compare(plain: PlainView, options: ReadOptions): string | null {
    const { scanner } = this;
    const error = ERRORS[scanner.field("error")];
    if (error !== plain.error) return differs("error", error, plain.error);
    if (error !== null) return scanner.field("errorOffset") === plain.errorOffset ? null : differs(`errorOffset of ${String(error)}`, scanner.field("errorOffset"), plain.errorOffset);

    const isObject = scanner.field("isObject") !== 0;
    if (isObject !== plain.isObject) return differs("isObject", isObject, plain.isObject);
    if (isObject && scanner.field("objectStart") !== plain.objectStart) return differs("objectStart", scanner.field("objectStart"), plain.objectStart);
    if (isObject && scanner.field("objectEnd") !== plain.objectEnd) return differs("objectEnd", scanner.field("objectEnd"), plain.objectEnd);
    const whole = WHOLE[scanner.field("whole")];
    if (whole !== plain.neverSplit) return differs("neverSplit", whole, plain.neverSplit);
    if ((scanner.field("stream") !== 0) !== plain.stream) return differs("stream", !plain.stream, plain.stream);
    if ((scanner.field("duplicates") !== 0) !== plain.duplicates) return differs("duplicates", !plain.duplicates, plain.duplicates);
    const model = scanner.latin1(scanner.field("model"), Math.min(scanner.field("modelSize"), KEPT_MODEL));
    if (model !== plain.model) return differs("model", model, plain.model);
    return this.members(plain) ?? this.media(plain) ?? this.prompt(plain, options) ?? this.strict(plain, options) ?? this.kept(plain);
  }

  /** `meaning` 0 goes with hash 0. */
  private same(what: string, hash: number, meaning: number): string | null {
    if (hash === 0 || meaning === 0) return hash === 0 && meaning === 0 ? null : differs(what, hash === 0 ? "none" : "some", meaning === 0 ? "none" : "some");
    const known = this.hashes.get(meaning);
    if (known === undefined) {
      const other = this.meanings.get(hash);
      if (other !== undefined) return `${what}: one hash for two things, ${this.meaning(meaning)} and ${this.meaning(other)}`;
      this.hashes.set(meaning, hash);
      this.meanings.set(hash, meaning);
      return null;
    }
    return known === hash ? null : `${what}: another hash for the same thing, ${this.meaning(meaning)}`;
  }

  private meaning(number: number): string {
    return `${String(number)} (${JSON.stringify(this.identities.textOf(number))})`;
  }

  private members(plain: PlainView): string | null {
    const { scanner } = this;
    const count = scanner.field("memberCount");
    if (count !== plain.members.length) return differs("members", count, plain.members.length);
    const size = scanner.field("memberSize");
    let at = scanner.field("members");
    for (const [index, member] of plain.members.entries()) {
      const seen = {
        name: scanner.names[scanner.byte(at)]?.replace(/^bootstrap_$/, "bootstrap"),
        parent: PARENTS[scanner.byte(at + 1)],
        kind: KINDS[scanner.byte(at + 2)],
        parentIndex: scanner.word(at + 4) | 0,
        start: scanner.word(at + 8),
        valueStart: scanner.word(at + 12),
        valueEnd: scanner.word(at + 16),
      };
      for (const field of ["name", "parent", "kind", "parentIndex", "start", "valueStart", "valueEnd"] as const) {
        if (seen[field] !== member[field]) return differs(`members[${String(index)}].${field}`, seen[field], member[field]);
      }
      at += size;
    }
    return null;
  }

  private media(plain: PlainView): string | null {
    const { scanner } = this;
    const count = scanner.field("mediaCount");
    if (count !== plain.media.length) return differs("media", count, plain.media.length);
    const size = scanner.field("mediaSize");
    let at = scanner.field("media");
    for (const [index, part] of plain.media.entries()) {
      const what = `media[${String(index)}]`;
      const type = scanner.names[scanner.word(at)];
      if (type !== part.type) return differs(`${what}.type`, type, part.type);
      if (scanner.word(at + 4) !== part.start) return differs(`${what}.start`, scanner.word(at + 4), part.start);
      if (scanner.word(at + 8) !== part.end) return differs(`${what}.end`, scanner.word(at + 8), part.end);
      if (scanner.word(at + 12) !== part.tokens) return differs(`${what}.tokens`, scanner.word(at + 12), part.tokens);
      const wrong = this.same(`${what}.key`, scanner.hash(at + 16), part.key);
      if (wrong !== null) return wrong;
      at += size;
    }
    const mmItems = scanner.field("mmItems");
    if (mmItems !== plain.mmItems) return differs("mmItems", mmItems, plain.mmItems);
    const distinct = scanner.field("distinct");
    if (distinct !== plain.mmDistinct) return differs("mmDistinct", distinct, plain.mmDistinct);
    at = scanner.field("items");
    for (const [index, item] of plain.items.entries()) {
      const what = `items[${String(index)}]`;
      if (scanner.word(at + 8) !== item.tokens) return differs(`${what}.tokens`, scanner.word(at + 8), item.tokens);
      const wrong = this.same(`${what}.key`, scanner.hash(at), item.key);
      if (wrong !== null) return wrong;
      at += 16;
    }
    return null;
  }

  private prompt(plain: PlainView, { blockTokens }: ReadOptions): string | null {
    const { scanner } = this;
    const hasTokens = scanner.field("hasTokens") !== 0;
    if (hasTokens !== plain.hasTokens) return differs("hasTokens", hasTokens, plain.hasTokens);
    if (scanner.field("tokens") !== plain.tokens) return differs("tokens", scanner.field("tokens"), plain.tokens);
    if (scanner.field("blockTokens") !== blockTokens) return differs("blockTokens", scanner.field("blockTokens"), blockTokens);
    const spans = scanner.field("spanCount");
    if (spans !== plain.spans.length) return differs("spans", spans, plain.spans.length);
    const size = scanner.field("spanSize");
    let at = scanner.field("spans");
    for (const [index, span] of plain.spans.entries()) {
      const seen = [0, 4, 8, 12, 16, 20, 24].map((place) => scanner.word(at + place));
      const wanted = [span.first, span.count, span.tokens, span.lead, span.frontBlocks, span.frontTail, span.partial ? 1 : 0];
      if (seen.some((value, place) => value !== wanted[place])) return differs(`spans[${String(index)}] (first, count, tokens, lead, frontBlocks, frontTail, partial)`, seen, wanted);
      at += size;
    }
    const keys = scanner.field("keyCount");
    if (keys !== plain.keys.length) return differs("keys", keys, plain.keys.length);
    at = scanner.field("keys");
    for (const [index, key] of plain.keys.entries()) {
      const wrong = this.same(`keys[${String(index)}]`, scanner.hash(at), key);
      if (wrong !== null) return wrong;
      at += 8;
    }
    return null;
  }

  private strict(plain: PlainView, { strict }: ReadOptions): string | null {
    // A body with two members of one name is refused before it is asked for a prompt.
    if (!strict || plain.duplicates) return null;
    const hasPrompt = this.scanner.field("hasPrompt") !== 0;
    return hasPrompt === plain.hasPrompt ? null : differs("hasPrompt", hasPrompt, plain.hasPrompt);
  }

  private kept(plain: PlainView): string | null {
    const low = this.scanner.field("keptForLow");
    const high = this.scanner.field("keptForHigh");
    return this.same("keptFor", (high & 0x1f_ffff) * 0x1_0000_0000 + low, plain.keptFor);
  }
}

function differs(what: string, scanner: unknown, plain: unknown): string {
  return `${what}: the scanner says ${JSON.stringify(scanner) ?? "nothing"}, the plain reader ${JSON.stringify(plain) ?? "nothing"}`;
}
