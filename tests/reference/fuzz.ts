/**
 * Feeds the scanner bodies that were never written down: those of the cases and generated ones, as they are, in other words, and with bytes changed, in random pieces; and
 * compares what it says with the plain reader. Everything follows from a seed: a batch can be run again by itself.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { inRoot } from "../fleet/root.js";
import { BodyWriter, NAMES, SHAPES } from "./body-writer.js";
import { Comparer } from "./compare.js";
import { Random } from "./random.js";
import { RawScanner } from "./raw-scanner.js";
import { DEFAULT_ESTIMATE, type Estimate, type PlainView, readRequest, type ReadOptions, type Shape, type WrongRule } from "./request-view.js";
import { respell } from "./respell.js";
import { type Node, readTree } from "./tree.js";

export interface Fault {
  seed: number;
  batch: number;
  /** Within the batch. */
  index: number;
  what: string;
  body: Buffer;
  cuts: readonly number[];
  options: ReadOptions;
}

/** Inputs of one batch. Hashes are compared within it. */
export const BATCH = 512;
/** Inputs made from one body. */
const FROM_ONE = 16;
/** Larger ones of the cases are left to the cases. */
const MOST_CASE_BYTES = 8 * 1024;
/** Deeper trees are not respelt: that is done on the stack. */
const MOST_RESPELT_DEPTH = 200;
const MAX_DEPTH = 8192;
const MAX_MEMBERS = 4096;

const BYTES = [...'"\\{}[],: \n\t0129-+.eEtfnu/az_'].map((letter) => letter.charCodeAt(0)).concat([0x00, 0x1f, 0x7f, 0x80, 0xbf, 0xc0, 0xc2, 0xe0, 0xed, 0xef, 0xbb, 0xf0, 0xf4, 0xf5, 0xff]);
const TOKENS = ["null", "true", "false", "0", "2", "-1", "1e9", '"', '""', "{}", "[]", "{", "}", "[", "]", ",", ":", "\\u0041", "\\ud83d", "\\ude00", "\\n", '"2"', "\u00e9", "\u{1F600}", "\ufeff", '"image_url"', '"http://x/a"', ...NAMES.map((name) => `"${name}":`), ...NAMES.slice(0, 40).map((name) => `"${name}":2,`)].map((text) => Buffer.from(text));

export function caseBodies(): Buffer[] {
  const folder = inRoot("tests", "cases", "data");
  const names = readdirSync(folder).filter((name) => name.endsWith(".json"));
  return names.sort().map((name) => readFileSync(join(folder, name))).filter((body) => body.length <= MOST_CASE_BYTES);
}

interface Base {
  body: Buffer;
  shape: Shape;
  /** Null when it is no JSON. */
  root: Node | null;
  nodes: Node[];
  depth: number;
}

export class Fuzz {
  private readonly scanner = new RawScanner();
  private readonly comparer = new Comparer(this.scanner);
  private readonly cases = caseBodies();
  inputs = 0;
  /** How many were read to their end. */
  valid = 0;

  constructor(
    private readonly seed: number,
    private readonly wrong: WrongRule | null = null,
  ) {}

  get memoryBytes(): number {
    return this.scanner.memoryBytes;
  }

  /** Runs a batch, up to its first fault or to `until`. */
  batch(number: number, until = BATCH): Fault | null {
    const random = new Random(this.seed, number);
    this.comparer.forget();
    const estimate = estimateOf(random);
    this.scanner.estimate(estimate);
    let base = this.base(random);
    let before: Buffer | null = null;
    for (let index = 0; index < until; index++) {
      if (index % FROM_ONE === 0) base = this.base(random);
      const options = this.options(random, base.shape, estimate);
      const [body, kin] = index % FROM_ONE === 0 ? [base.body, null] : this.mutant(random, base);
      const cuts = cutsOf(random, body.length);
      this.inputs++;
      const what = this.compare(body, cuts, options, random.oneIn(8) ? before : null, kin);
      if (what !== null) return { seed: this.seed, batch: number, index, what, body, cuts, options };
      before = body;
    }
    return null;
  }

  /** @param kin a body that says the same */
  private compare(body: Buffer, cuts: readonly number[], options: ReadOptions, beside: Buffer | null, kin: Buffer | null): string | null {
    let plain: PlainView;
    try {
      plain = readRequest(body, options, this.comparer.identities);
      if (plain.error === null) this.valid++;
    } catch (error) {
      return `the plain reader gave up: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
    }
    if (kin !== null) {
      const other = readRequest(kin, options, this.comparer.identities);
      const wrong = unlike(plain, other);
      if (wrong !== null) return `the plain reader's ${wrong} depends on how the body is spelt`;
    }
    try {
      this.scanner.scan(body, cuts, options, beside);
    } catch (error) {
      return `the scanner trapped: ${error instanceof Error ? error.message : String(error)}`;
    }
    return this.comparer.compare(plain, options);
  }

  private base(random: Random): Base {
    const shape = random.pick(SHAPES);
    const body = random.oneIn(5) ? random.pick(this.cases) : Buffer.from(new BodyWriter(random).body(shape));
    const base: Base = { body, shape: random.oneIn(8) ? random.pick(SHAPES) : shape, root: null, nodes: [], depth: 0 };
    try {
      base.root = readTree(body, MAX_DEPTH);
    } catch {
      return base;
    }
    const open: [Node, number][] = [[base.root, 1]];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const [node, depth] = next;
      base.nodes.push(node);
      base.depth = Math.max(base.depth, depth);
      for (const item of node.items) open.push([item, depth + 1]);
      for (const { value } of node.members) open.push([value, depth + 1]);
    }
    return base;
  }

  private options(random: Random, shape: Shape, estimate: Estimate): ReadOptions {
    return {
      shape,
      blockTokens: random.pick([0, 1, 1, 2, 4, 5, 16, 64]),
      maxBlocks: random.pick([0, 1, 2, 3, 8, 64, 256]),
      spans: !random.oneIn(4),
      strict: random.oneIn(4),
      estimate,
      maxDepth: MAX_DEPTH,
      maxMembers: MAX_MEMBERS,
      ...(this.wrong === null ? {} : { wrong: this.wrong }),
    };
  }

  /** A changed body, and one that it says the same as, where it does. */
  private mutant(random: Random, base: Base): [Buffer, Buffer | null] {
    const { root, nodes } = base;
    if (root !== null && random.oneIn(3)) {
      // Of two members that may hold the prompt the last one counts: their order says something.
      const ordered = base.shape === "embeddings" || base.shape === "sglang-generate";
      if (base.depth <= MOST_RESPELT_DEPTH && random.oneIn(3)) return [respell(base.body, root, random), ordered ? null : base.body];
      // One value in place of another: still JSON, and seldom what is due there.
      const to = random.pick(nodes);
      const from = random.pick(nodes);
      const text = random.oneIn(3) ? Buffer.from(new BodyWriter(random).scalar()) : base.body.subarray(from.start, from.end);
      const replaced = Buffer.concat([base.body.subarray(0, to.start), text, base.body.subarray(to.end)]);
      if (random.oneIn(2)) return [replaced, null];
      return [this.bytes(random, replaced), null];
    }
    return [this.bytes(random, base.body), null];
  }

  private bytes(random: Random, body: Buffer): Buffer {
    let out = body;
    for (let changes = random.pick([1, 1, 1, 2, 2, 3, 6]); changes > 0; changes--) {
      const at = random.below(out.length + 1);
      const to = Math.min(out.length, at + 1 + random.below(random.pick([1, 8, 64])));
      switch (random.below(9)) {
        case 0:
          out = splice(out, at, Math.min(out.length, at + 1), Buffer.from([random.below(256)]));
          break;
        case 1:
        case 2:
          out = splice(out, at, Math.min(out.length, at + 1), Buffer.from([random.pick(BYTES)]));
          break;
        case 3:
          out = splice(out, at, to, Buffer.alloc(0));
          break;
        case 4:
          out = splice(out, at, at, Buffer.from([random.pick(BYTES)]));
          break;
        case 5:
          out = splice(out, at, at, random.pick(TOKENS));
          break;
        case 6: {
          const place = random.below(out.length + 1);
          out = splice(out, place, place, out.subarray(at, to));
          break;
        }
        case 7:
          if (random.oneIn(3)) out = out.subarray(0, at);
          else {
            // Behind a brace or a comma a member may stand.
            const brace = out.indexOf(random.oneIn(2) ? 0x7b : 0x2c, at);
            if (brace >= 0) out = splice(out, brace + 1, brace + 1, Buffer.from(`"${random.pick(NAMES)}":${new BodyWriter(random).scalar()},`));
          }
          break;
        default: {
          const other = random.pick(this.cases);
          const from = random.below(other.length + 1);
          out = splice(out, at, to, other.subarray(from, from + 1 + random.below(64)));
          break;
        }
      }
    }
    return out;
  }
}

function splice(body: Buffer, from: number, to: number, piece: Uint8Array): Buffer {
  const out = Buffer.allocUnsafe(body.length - (to - from) + piece.length);
  body.copy(out, 0, 0, from);
  out.set(piece, from);
  body.copy(out, from + piece.length, to);
  return out;
}

function estimateOf(random: Random): Estimate {
  // A video's 4,500 place holders are many blocks: seldom.
  if (random.oneIn(8)) return DEFAULT_ESTIMATE;
  return { imageStatic: random.pick([0, 0, 0, 7]), imageFactor: random.pick([1024, 16_384, 100_000]), imagePixels: random.pick([640 * 360, 1]), videoTokens: random.pick([0, 1, 9, 33]) };
}

function cutsOf(random: Random, length: number): number[] {
  switch (random.below(10)) {
    case 0: {
      if (length > 300) return [];
      return Array.from({ length }, (_, index) => index + 1);
    }
    case 1: {
      const step = 1 + random.below(40);
      if (length / step > 200) return [];
      return Array.from({ length: Math.floor(length / step) }, (_, index) => (index + 1) * step);
    }
    case 2:
    case 3:
    case 4:
      return [];
    default:
      return random.list(4, () => random.below(length + 1)).sort((a, b) => a - b);
  }
}

/** What of two views that should be alike is not. (Tokens need not be: what a template renders counts as it is spelt.) */
function unlike(a: PlainView, b: PlainView): string | null {
  if (a.error !== b.error) return "error";
  if (a.neverSplit !== b.neverSplit) return "neverSplit";
  return a.mmDistinct === b.mmDistinct ? null : "mmDistinct";
}
