// What one body says to the scheduler, when it has been read to its end: counts, keys, and why it must not be split.
import { MAX_SEGMENTS, Salt, Segment } from "./blocks";
import { mix } from "./hash";
import { Name } from "./names";
import { Kind, ScanError, Scanner } from "./scanner";
import { SideSlot } from "./reader";
import { ShapeId } from "./shape";

/** Distinct media items that are told apart; the number is the scheduler's. */
const MOST_ITEMS: u32 = 48;

/** Why a request is never split (DESIGN, decision 8); the numbers are those of the scheduler's `NeverSplit`. */
export const enum Whole {
  No = 0,
  MultiplePrompts = 1,
  ParallelSampling = 2,
  PromptLogprobs = 3,
  StatefulResponse = 4,
}

/** One prompt's part of the keys. */
@unmanaged
export class KeySpan {
  /** Index of its first key. */
  first: u32;
  /** Keys, the partial last block's included. */
  count: u32;
  /** Tokens in front of and inside these blocks and behind them: all of the prompt. */
  tokens: u32;
  /** Tokens that count with the first block: `tools` (DESIGN, decision 1). */
  lead: u32;
  /** Blocks of the text in front (system, instructions) and the tokens of its partial last one. */
  frontBlocks: u32;
  frontTail: u32;
  /** The last block is a partial one. */
  partial: u32;
}

export class RequestView {
  error: ScanError = ScanError.None;
  shape: u32 = 0;
  /** False: no prompt that could be counted. */
  hasTokens: bool = false;
  tokens: u32 = 0;
  blockTokens: u32 = 0;
  /** u64 chain hashes: key i stands for everything up to and with block i of its prompt. */
  keys: usize = 0;
  keyCount: u32 = 0;
  private keyRoom: u32 = 0;
  private spansAt: usize = heap.alloc(MAX_SEGMENTS * offsetof<KeySpan>());
  spanCount: u32 = 0;
  mmItems: u32 = 0;
  mmDistinct: u32 = 0;
  /** The first {@link MOST_ITEMS} distinct ones, in the order of their appearance: 16 bytes each, key (0: like no other) and place holders. */
  readonly items: usize = heap.alloc(MOST_ITEMS << 4);
  whole: Whole = Whole.No;
  duplicates: bool = false;
  stream: bool = false;
  /** Hash of the id that it goes on with, 0 for none (endpoints/bindings). */
  keptFor: u64 = 0;

  span(i: u32): KeySpan {
    return changetype<KeySpan>(this.spansAt + i * offsetof<KeySpan>());
  }

  /** A request without a body that could be read. */
  clear(): void {
    this.error = ScanError.Empty;
    this.shape = ShapeId.Other;
    this.hasTokens = false;
    this.tokens = 0;
    this.keyCount = 0;
    this.spanCount = 0;
    this.mmItems = 0;
    this.mmDistinct = 0;
    this.whole = Whole.No;
    this.duplicates = false;
    this.stream = false;
    this.keptFor = 0;
  }

  /** Takes over what `s` read; call once, after the last piece. The scanner may be used for the next body afterwards. */
  take(s: Scanner): void {
    this.clear();
    const r = s.reader;
    this.error = s.finish();
    this.shape = r.shape;
    if (this.error != ScanError.None) return;
    this.duplicates = r.duplicates != 0;
    this.stream = r.kindOf(Name.Stream) == Kind.True + 1;
    this.keptFor = r.keptFor;
    this.whole = wholeOf(s);
    this.mmItems = r.mediaCount + r.features;
    this.mmDistinct = (r.mediaCount ? this.distinct(s) : 0) + r.features;
    // Nothing tells one feature from another.
    for (let i = this.mmDistinct - r.features; i < min(this.mmDistinct, MOST_ITEMS); i++) this.noteItem(i, 0, 1);
    this.blockTokens = r.main.blockBytes >> 2;
    if (r.shape == ShapeId.Other || !r.isObject) return;
    this.hasTokens = !r.strange;
    if (this.hasTokens) this.count(s);
  }

  private count(s: Scanner): void {
    const r = s.reader;
    const main = r.main;
    const front = r.front;
    main.endSegment();
    front.endSegment();
    const frontBytes = front.segmentCount ? changetype<Segment>(front.segments).bytes : 0;
    const need = front.blocks + main.blocks;
    if (need > this.keyRoom) {
      if (this.keys) heap.free(this.keys);
      this.keyRoom = max<u32>(256, need + (need >> 2));
      this.keys = heap.alloc(<usize>this.keyRoom << 3);
    }
    let seed = mix(r.seed, r.modelHash);
    for (let i: u32 = 0; i < <u32>SideSlot.COUNT; i++) {
      const side = load<u64>(r.sides + (<usize>i << 3));
      if (side) seed = mix(seed + i, side);
    }
    // The text in front is its own run of blocks, so that all conversations with one system prompt share its keys.
    let h = chain(front.hashes, 0, front.blocks, front.salts, front.saltCount, 0, seed, this.keys);
    let keys = front.blocks;
    const segments = max<u32>(main.segmentCount, frontBytes || r.toolsBytes ? 1 : 0);
    for (let i: u32 = 0; i < segments; i++) {
      let bytes: u32 = 0;
      let first: u32 = 0;
      let last: u32 = 0;
      if (i < main.segmentCount) {
        const segment = changetype<Segment>(main.segments + i * offsetof<Segment>());
        bytes = segment.bytes;
        first = segment.firstBlock;
        last = i + 1 < main.segmentCount ? changetype<Segment>(main.segments + (i + 1) * offsetof<Segment>()).firstBlock : main.blocks;
      }
      const lead = i == 0 ? (r.toolsBytes + 3) >> 2 : 0;
      const tokens = i == 0 ? (r.toolsBytes + frontBytes + bytes + 3) >> 2 : (bytes + 3) >> 2;
      this.tokens += tokens;
      if (i) h = seed;
      // The cap is the prompt's, the text in front included.
      else last = min(last, first + main.maxBlocks - min(front.blocks, main.maxBlocks));
      chain(main.hashes, first, last, main.salts, main.saltCount, first, h, this.keys + (<usize>keys << 3));
      const span = this.span(i);
      span.first = i == 0 ? 0 : keys;
      span.frontBlocks = i == 0 ? front.blocks : 0;
      span.frontTail = i == 0 && front.blocks ? ((frontBytes + 3) >> 2) - min((front.blocks - 1) * this.blockTokens, (frontBytes + 3) >> 2) : 0;
      span.count = last - first + span.frontBlocks;
      span.tokens = tokens;
      span.lead = lead;
      span.partial = <u32>(bytes < (last - first) * main.blockBytes);
      keys += last - first;
      this.spanCount = i + 1;
    }
    this.keyCount = keys;
    this.tokens += main.furtherTokens;
  }

  private noteItem(i: u32, key: u64, tokens: u32): void {
    if (i >= MOST_ITEMS) return;
    const at = this.items + (<usize>i << 4);
    store<u64>(at, key);
    store<u32>(at, tokens, 8);
  }

  /** Media items without those that equal an earlier one. */
  private distinct(s: Scanner): u32 {
    const r = s.reader;
    const n = r.mediaCount;
    let size: u32 = 16;
    while (size < n << 1) size <<= 1;
    const table = heap.alloc(<usize>size << 3);
    memory.fill(table, 0, <usize>size << 3);
    let count: u32 = 0;
    for (let i: u32 = 0; i < n; i++) {
      const key = r.mediaAt(i).key;
      let at = <u32>(key >> 20) & (size - 1);
      let held: u64 = 0;
      if (key) {
        while (true) {
          held = load<u64>(table + (<usize>at << 3));
          if (held == key || !held) break;
          at = (at + 1) & (size - 1);
        }
        store<u64>(table + (<usize>at << 3), key);
      }
      if (!held) this.noteItem(count++, key, r.mediaAt(i).tokens);
    }
    heap.free(table);
    return count;
  }

  /** Tokens that an endpoint holds which has the first `blocks` blocks of prompt `i` (a partial block has its own tokens only: scheduler L6). */
  tokensOf(i: u32, blocks: u32): u32 {
    if (!blocks) return 0;
    const span = this.span(i);
    let tokens = span.lead;
    const inFront = min(blocks, span.frontBlocks);
    if (inFront) tokens += inFront == span.frontBlocks ? (inFront - 1) * this.blockTokens + min(span.frontTail, this.blockTokens) : inFront * this.blockTokens;
    tokens += (blocks - inFront) * this.blockTokens;
    return min(tokens, span.tokens);
  }
}

/** Chain hashes of blocks `[first, last)`, salts of messages that begin in them mixed in; writes them to `out`, returns the last. */
function chain(hashes: usize, first: u32, last: u32, salts: usize, saltCount: u32, from: u32, h: u64, out: usize): u64 {
  let s: u32 = 0;
  // Salts stand in the order of their blocks: find the first of this segment.
  while (s < saltCount && changetype<Salt>(salts + <usize>s * offsetof<Salt>()).block < from) s++;
  for (let i = first; i < last; i++) {
    while (s < saltCount) {
      const salt = changetype<Salt>(salts + <usize>s * offsetof<Salt>());
      if (salt.block > i) break;
      h = mix(h, salt.value);
      s++;
    }
    h = mix(h, load<u64>(hashes + (<usize>i << 3)));
    store<u64>(out, h);
    out += 8;
  }
  return h;
}

function wholeOf(s: Scanner): Whole {
  const r = s.reader;
  if (r.prompts > 1) return Whole.MultiplePrompts;
  if (r.choices > 1) return Whole.ParallelSampling;
  if (r.has(Name.PromptLogprobs) || r.samplingKindOf(Name.PromptLogprobs) > Kind.Null + 1) return Whole.PromptLogprobs;
  if (set(r.kindOf(Name.Echo)) && set(r.kindOf(Name.Logprobs))) return Whole.PromptLogprobs;
  if (r.has(Name.PromptEmbeds) || r.has(Name.PreviousResponseId) || r.has(Name.Conversation) || set(r.kindOf(Name.Background))) return Whole.StatefulResponse;
  return Whole.No;
}

/** Neither absent, null nor false. */
function set(kind: i32): bool {
  return kind > Kind.Null + 1 && kind != Kind.False + 1;
}
