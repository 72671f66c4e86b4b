// The prompt as blocks of tokens: content hashes of fixed-size blocks, made while the text streams through.
//
// A token is four bytes of decoded text (scheduler §4.1), or one id where the client sent ids. Content hashes do not depend on what stands before a block; the chain
// that makes them prefix keys is laid over them when the body has ended (view.ts), because what is mixed into it (model, salt, tools, roles) may stand behind the text.
import { folded, K1, K2, K3, step, stripes } from "./hash";

/** One prompt: `completions` may carry several, each hashed and matched on its own (scheduler PX-15). */
@unmanaged
export class Segment {
  firstBlock: u32;
  /** Bytes of this prompt, four per token. */
  bytes: u32;
}

/** A message's share in the chain: everything of it that is not text. */
@unmanaged
export class Salt {
  /** The block in which the message begins. */
  block: u32;
  private pad: u32;
  value: u64;
}

/** What `BlockSink.save` keeps, so that a duplicate member can start its value anew (the last one wins). */
@unmanaged
export class SinkMark {
  blocks: u32;
  salts: u32;
  filled: u32;
  position: u32;
  wordSize: u32;
  lane: u32;
  word: u64;
  lane0: u64;
  lane1: u64;
  lane2: u64;
  lane3: u64;
}

/** Prompts of one body that are keyed; further ones are counted only. */
export const MAX_SEGMENTS: u32 = 64;
const MAX_SALTS: u32 = 65536;
/** Bytes of a block from which on its words take turns on several lanes. */
const WIDE: u32 = 64;
/** Place holders end here: a picture's header may claim any size, and no count is to overflow because of it. */
const MAX_BYTES: u32 = 1 << 26;

@unmanaged
export class BlockSink {
  /** u64 content hashes, one per block. */
  hashes: usize;
  blocks: u32;
  private hashRoom: u32;
  salts: usize;
  saltCount: u32;
  private saltRoom: u32;
  segments: usize;
  /** Prompts before the current one. */
  segmentCount: u32;
  private segmentRoom: u32;
  /** Tokens of the prompts beyond MAX_SEGMENTS. */
  furtherTokens: u32;
  blockBytes: u32;
  /** Blocks of one prompt that are keyed. */
  maxBlocks: u32;
  /** The same, 0 for the prompts beyond MAX_SEGMENTS. */
  private limit: u32;
  private seed: u64;
  // Words of a block take turns on four lanes, so that one need not wait for the other's multiplication; a small block is one lane's, since putting four together costs more.
  private lane0: u64;
  private lane1: u64;
  private lane2: u64;
  private lane3: u64;
  /** Whose turn it is, and 3 or 0. */
  private lane: u32;
  private lanes: u32;
  private word: u64;
  private wordSize: u32;
  /** Bytes in the block that is being filled. */
  private filled: u32;
  /** Bytes of the current prompt. */
  position: u32;
  /** First block of the current prompt. */
  private firstBlock: u32;

  /** For a new body. `blockTokens` 0 counts only. Memory of the last body is used again. */
  start(seed: u64, blockTokens: u32, maxBlocks: u32): void {
    this.seed = seed;
    this.blockBytes = blockTokens << 2;
    this.lanes = this.blockBytes >= WIDE ? 3 : 0;
    this.maxBlocks = blockTokens ? maxBlocks : 0;
    this.reset();
  }

  /** Forgets all text: a second `messages` or `prompt` starts anew. */
  reset(): void {
    this.blocks = 0;
    this.saltCount = 0;
    this.segmentCount = 0;
    this.furtherTokens = 0;
    this.limit = this.maxBlocks;
    this.position = 0;
    this.firstBlock = 0;
    this.restart();
  }

  private restart(): void {
    this.lane0 = this.seed;
    this.lane1 = this.seed + K1;
    this.lane2 = this.seed + K2;
    this.lane3 = this.seed + K3;
    this.lane = 0;
    this.word = 0;
    this.wordSize = 0;
    this.filled = 0;
  }

  /** Gives memory back that only a huge prompt needs, so that one such request does not raise a VM's floor for ever. */
  shrink(): void {
    if (this.hashRoom > 16384) {
      heap.free(this.hashes);
      this.hashes = 0;
      this.hashRoom = 0;
    }
    if (this.saltRoom > 1024) {
      heap.free(this.salts);
      this.salts = 0;
      this.saltRoom = 0;
    }
  }

  dispose(): void {
    if (this.hashes) heap.free(this.hashes);
    if (this.salts) heap.free(this.salts);
    if (this.segments) heap.free(this.segments);
    this.hashes = 0;
    this.salts = 0;
    this.segments = 0;
    this.hashRoom = 0;
    this.saltRoom = 0;
    this.segmentRoom = 0;
  }

  /** The current prompt ends here; the next byte belongs to another one. An empty prompt leaves nothing (scheduler PX-19). */
  endSegment(): void {
    if (!this.position) return;
    if (this.segmentCount == MAX_SEGMENTS) {
      this.furtherTokens += (this.position + 3) >> 2;
      this.position = 0;
      return;
    }
    this.endTail();
    if (this.segmentCount == this.segmentRoom) {
      this.segmentRoom = this.segmentRoom ? this.segmentRoom << 1 : 4;
      this.segments = heap.realloc(this.segments ? this.segments : heap.alloc(16), this.segmentRoom * offsetof<Segment>());
    }
    const s = changetype<Segment>(this.segments + this.segmentCount++ * offsetof<Segment>());
    s.firstBlock = this.firstBlock;
    s.bytes = this.position;
    this.position = 0;
    this.firstBlock = this.blocks;
    if (this.segmentCount == MAX_SEGMENTS) this.limit = 0;
  }

  /** The partial last block counts as a block of its own tokens (scheduler §4.2, L6). */
  private endTail(): void {
    if (this.filled && this.blocks - this.firstBlock < this.limit) this.endBlock();
    this.restart();
  }

  // @ts-ignore: decorator
  @inline
  private get lanesAt(): usize {
    return changetype<usize>(this) + offsetof<BlockSink>("lane0");
  }

  /** A word for the lane whose turn it is. */
  // @ts-ignore: decorator
  @inline
  private push(word: u64): void {
    const at = this.lanesAt + (<usize>this.lane << 3);
    store<u64>(at, step(load<u64>(at), word));
    this.lane = (this.lane + 1) & this.lanes;
  }

  private endBlock(): void {
    let h = this.lanes ? folded(this.lanesAt) : this.lane0;
    if (this.wordSize) h = step(h, this.word);
    h = (h ^ (<u64>this.filled * K3)) * K1;
    h ^= h >> 32;
    this.makeRoom(this.blocks + 1);
    store<u64>(this.hashes + (<usize>this.blocks << 3), h * K2);
    this.blocks++;
    this.restart();
  }

  /** Appends decoded text. */
  text(from: usize, size: u32): void {
    this.position += size;
    while (size) {
      if (this.blocks - this.firstBlock >= this.limit) return;
      if (!this.filled && !this.lanes && size >= this.blockBytes) {
        const done = this.smallBlocks(from, size);
        from += done;
        size -= done;
        continue;
      }
      const take = min<u32>(size, this.blockBytes - this.filled);
      this.absorb(from, take);
      from += take;
      size -= take;
      if (this.filled == this.blockBytes) this.endBlock();
    }
  }

  /** Whole blocks of one lane, at a block's start: the same hashes as `absorb` and `endBlock` make, without keeping anything between words. Returns the bytes done. */
  private smallBlocks(from: usize, size: u32): u32 {
    const bytes = this.blockBytes;
    const count = min(size / bytes, this.limit - (this.blocks - this.firstBlock));
    this.makeRoom(this.blocks + count);
    const length = <u64>bytes * K3;
    const seed = this.seed;
    let out = this.hashes + (<usize>this.blocks << 3);
    for (let n = count; n; n--) {
      let h = seed;
      const end = from + bytes;
      for (; from + 8 <= end; from += 8) h = step(h, load<u64>(from));
      // Blocks are of whole tokens: what is left is nothing or one.
      if (from < end) {
        h = step(h, <u64>load<u32>(from));
        from = end;
      }
      h = (h ^ length) * K1;
      h ^= h >> 32;
      store<u64>(out, h * K2);
      out += 8;
    }
    this.blocks += count;
    return count * bytes;
  }

  private makeRoom(blocks: u32): void {
    if (blocks <= this.hashRoom) return;
    this.hashRoom = max<u32>(this.hashRoom, 32);
    while (this.hashRoom < blocks) this.hashRoom <<= 1;
    this.hashes = heap.realloc(this.hashes ? this.hashes : heap.alloc(64), <usize>this.hashRoom << 3);
  }

  private absorb(from: usize, size: u32): void {
    this.filled += size;
    let held = this.wordSize;
    if (held) {
      let word = this.word;
      while (size && held < 8) {
        word |= <u64>load<u8>(from++) << (<u64>held << 3);
        held++;
        size--;
      }
      if (held < 8) {
        this.word = word;
        this.wordSize = held;
        return;
      }
      this.push(word);
    }
    if (this.lanes) {
      for (; this.lane && size >= 8; size -= 8, from += 8) this.push(load<u64>(from));
      const end = from + (size & ~31);
      stripes(this.lanesAt, from, end);
      from = end;
      size &= 31;
    }
    for (; size >= 8; size -= 8, from += 8) this.push(load<u64>(from));
    let word: u64 = 0;
    for (held = 0; held < size; held++) word |= <u64>load<u8>(from + held) << (<u64>held << 3);
    this.word = word;
    this.wordSize = size;
  }

  /** Appends one token id. */
  id(value: u32): void {
    const held = this.wordSize;
    if (!(held & 3) && this.blocks - this.firstBlock < this.limit) {
      // The common case: ids only, so that a word holds two of them.
      this.position += 4;
      this.filled += 4;
      if (held) {
        this.push(this.word | (<u64>value << 32));
        this.word = 0;
        this.wordSize = 0;
      } else {
        this.word = value;
        this.wordSize = 4;
      }
      if (this.filled == this.blockBytes) this.endBlock();
      return;
    }
    store<u32>(changetype<usize>(this) + offsetof<BlockSink>("scratch"), value);
    this.text(changetype<usize>(this) + offsetof<BlockSink>("scratch"), 4);
  }
  private scratch: u64;

  /** Up to the next token's start: media begins at one (scheduler §4.1). */
  align(): void {
    const over = this.position & 3;
    if (over) this.room(4 - over);
  }

  /** Appends `count` equal tokens: a media item's place holders. */
  repeat(value: u32, count: u32): void {
    count = min(count, (MAX_BYTES - min(this.position, MAX_BYTES)) >> 2);
    // By runs of 64 until the keyed blocks are full; further ones only count.
    const run = memory.data(256, 8);
    for (let i: u32 = 0; i < 64 && i < count; i++) store<u32>(run + (i << 2), value);
    while (count && this.blocks - this.firstBlock < this.limit) {
      const take = min<u32>(count, 64);
      this.text(run, take << 2);
      count -= take;
    }
    this.position += count << 2;
  }

  /** Appends `size` bytes whose content stands in the message's salt: they count, and have no content of their own. */
  room(size: u32): void {
    this.position += size;
    while (size) {
      if (this.blocks - this.firstBlock >= this.limit) return;
      const take = min<u32>(size, this.blockBytes - this.filled);
      if (this.wordSize) {
        this.push(this.word);
        this.word = 0;
        this.wordSize = 0;
      }
      this.push(K2 ^ take);
      this.filled += take;
      size -= take;
      if (this.filled == this.blockBytes) this.endBlock();
    }
  }

  /** `value` is mixed into the chain in front of block `block`, which is of the current message. Salts stand in the order of their blocks. */
  salt(block: u32, value: u64): void {
    // Beyond any real conversation: fold into the last one, so that the key still depends on it.
    if (this.saltCount == MAX_SALTS) {
      const last = changetype<Salt>(this.salts + (MAX_SALTS - 1) * offsetof<Salt>());
      last.value = step(last.value, value);
      return;
    }
    if (this.saltCount == this.saltRoom) {
      this.saltRoom = this.saltRoom ? this.saltRoom << 1 : 16;
      this.salts = heap.realloc(this.salts ? this.salts : heap.alloc(16), <usize>this.saltRoom * offsetof<Salt>());
    }
    let s = changetype<Salt>(this.salts + <usize>this.saltCount * offsetof<Salt>());
    // What a message says of itself is known at its end, and belongs in front of what its parts have left.
    for (let i = this.saltCount; i; i--) {
      const before = changetype<Salt>(this.salts + <usize>(i - 1) * offsetof<Salt>());
      if (before.block <= block) break;
      memory.copy(changetype<usize>(s), changetype<usize>(before), offsetof<Salt>());
      s = before;
    }
    this.saltCount++;
    s.block = block;
    s.value = value;
  }

  save(mark: SinkMark): void {
    mark.blocks = this.blocks;
    mark.salts = this.saltCount;
    mark.filled = this.filled;
    mark.position = this.position;
    mark.wordSize = this.wordSize;
    mark.word = this.word;
    mark.lane = this.lane;
    mark.lane0 = this.lane0;
    mark.lane1 = this.lane1;
    mark.lane2 = this.lane2;
    mark.lane3 = this.lane3;
  }

  /** Back to `mark`, which this sink saved in the same segment. */
  restore(mark: SinkMark): void {
    this.blocks = mark.blocks;
    this.saltCount = mark.salts;
    this.filled = mark.filled;
    this.position = mark.position;
    this.wordSize = mark.wordSize;
    this.word = mark.word;
    this.lane = mark.lane;
    this.lane0 = mark.lane0;
    this.lane1 = mark.lane1;
    this.lane2 = mark.lane2;
    this.lane3 = mark.lane3;
  }
}
