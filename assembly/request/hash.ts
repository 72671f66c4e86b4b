// 64-bit hashing of byte streams that arrive in pieces. Speed is the point: four independent lanes, so that a 4 MiB data URL costs less than the copy that brought
// it here. Not cryptographic: what makes it safe to key shared slots with it is the secret seed (DESIGN, decision 1), without which nobody can aim at one.

import { copy } from "../words";

// Odd constants with well spread bits (the multipliers that the field's xx-family hashes use).
export const K1: u64 = 0x9e3779b185ebca87;
export const K2: u64 = 0xc2b2ae3d27d4eb4f;
export const K3: u64 = 0x165667b19e3779f9;
export const K4: u64 = 0x85ebca77c2b2ae63;
export const K5: u64 = 0x27d4eb2f165667c5;

/** One 8-byte step of a lane. */
// @ts-ignore: decorator
@inline
export function step(acc: u64, word: u64): u64 {
  return rotl<u64>(acc + word * K2, 31) * K1;
}

/** Spreads every input bit over the whole word. */
// @ts-ignore: decorator
@inline
export function avalanche(h: u64): u64 {
  h ^= h >> 33;
  h *= K2;
  h ^= h >> 29;
  h *= K3;
  return h ^ (h >> 32);
}

/** Order matters: `mix(a, b) != mix(b, a)`. */
// @ts-ignore: decorator
@inline
export function mix(h: u64, value: u64): u64 {
  return avalanche(rotl<u64>(h ^ (value * K2), 27) * K1 + K4);
}

/** Takes the stripes of 32 bytes from `from` up to `end` into the four lanes at `lanes`, u64 each. */
// @ts-ignore: decorator
@inline
export function stripes(lanes: usize, from: usize, end: usize): void {
  if (from == end) return;
  let a = load<u64>(lanes),
    b = load<u64>(lanes, 8),
    c = load<u64>(lanes, 16),
    d = load<u64>(lanes, 24);
  do {
    a = step(a, load<u64>(from));
    b = step(b, load<u64>(from, 8));
    c = step(c, load<u64>(from, 16));
    d = step(d, load<u64>(from, 24));
    from += 32;
  } while (from < end);
  store<u64>(lanes, a);
  store<u64>(lanes, b, 8);
  store<u64>(lanes, c, 16);
  store<u64>(lanes, d, 24);
}

/** The four lanes at `lanes` as one word. */
// @ts-ignore: decorator
@inline
export function folded(lanes: usize): u64 {
  return rotl<u64>(load<u64>(lanes), 1) + rotl<u64>(load<u64>(lanes, 8), 7) + rotl<u64>(load<u64>(lanes, 16), 12) + rotl<u64>(load<u64>(lanes, 24), 18);
}

/** A hash over bytes that arrive in pieces; the cuts do not matter. Lives in unmanaged memory inside its owner. */
@unmanaged
export class StreamHash {
  private lane0: u64;
  private lane1: u64;
  private lane2: u64;
  private lane3: u64;
  private hold0: u64;
  private hold1: u64;
  private hold2: u64;
  private hold3: u64;
  private seed: u64;
  /** Bytes so far. */
  length: u32;
  private held: u32;

  start(seed: u64): void {
    this.lane0 = seed + K1 + K2;
    this.lane1 = seed + K2;
    this.lane2 = seed;
    this.lane3 = seed - K1;
    this.seed = seed;
    this.length = 0;
    this.held = 0;
  }

  // @ts-ignore: decorator
  @inline
  private get lanes(): usize {
    return changetype<usize>(this) + offsetof<StreamHash>("lane0");
  }

  update(from: usize, size: u32): void {
    this.length += size;
    const hold = changetype<usize>(this) + offsetof<StreamHash>("hold0");
    let held = this.held;
    if (held) {
      const take = min<u32>(32 - held, size);
      copy(hold + held, from, take);
      held += take;
      if (held < 32) {
        this.held = held;
        return;
      }
      stripes(this.lanes, hold, hold + 32);
      from += take;
      size -= take;
    }
    const end = from + (size & ~31);
    stripes(this.lanes, from, end);
    size &= 31;
    if (size) copy(hold, end, size);
    this.held = size;
  }

  /** The hash of everything so far; does not change the state. */
  digest(): u64 {
    let h: u64 = this.seed + K5;
    if (this.length >= 32) h = folded(this.lanes);
    h += <u64>this.length;
    let at = changetype<usize>(this) + offsetof<StreamHash>("hold0");
    let left = this.held;
    for (; left >= 8; left -= 8, at += 8) h = rotl<u64>(h ^ step(0, load<u64>(at)), 27) * K1 + K4;
    if (left >= 4) {
      h = rotl<u64>(h ^ (<u64>load<u32>(at) * K1), 23) * K2 + K3;
      at += 4;
      left -= 4;
    }
    for (; left; left--, at++) h = rotl<u64>(h ^ (<u64>load<u8>(at) * K5), 11) * K1;
    return avalanche(h);
  }
}
