import { StreamHash } from "../hash";
import { utf8 } from "./support";

const hash = changetype<StreamHash>(heap.alloc(offsetof<StreamHash>()));
const other = changetype<StreamHash>(heap.alloc(offsetof<StreamHash>()));
const bytes = utf8("The quick onyx goblin jumps over the lazy dwarf; sphinx of black quartz, judge my vow. 0123456789 and so on, and on");

function hashOf(from: i32, size: i32, seed: u64): u64 {
  hash.start(seed);
  hash.update(changetype<usize>(bytes) + from, size);
  return hash.digest();
}

describe("the stream hash", () => {
  it("does not depend on the pieces in which the bytes come", () => {
    for (let size = 0; size <= 110; size++) {
      const whole = hashOf(0, size, 5);
      for (let cut = 0; cut <= size; cut++) {
        hash.start(5);
        hash.update(changetype<usize>(bytes), cut);
        hash.update(changetype<usize>(bytes) + cut, size - cut);
        if (hash.digest() != whole) expect(cut).toBe(-1, "cut of " + size.toString());
      }
      hash.start(5);
      for (let i = 0; i < size; i++) hash.update(changetype<usize>(bytes) + i, 1);
      expect(hash.digest() == whole).toBe(true);
      expect(hash.length).toBe(size);
      // A digest does not end it.
      expect(hash.digest() == whole).toBe(true);
    }
  });

  it("does not depend on where the bytes lie or what was hashed before", () => {
    const word = utf8("abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc");
    other.start(1);
    other.update(changetype<usize>(word), 60);
    const first = other.digest();
    other.start(1);
    other.update(changetype<usize>(word) + 3, 60);
    expect(other.digest() == first).toBe(true);
  });

  it("differs by every bit of the bytes, by length and by seed", () => {
    const copy = utf8("0123456789012345678901234567890123456789012345678901234567890123456789");
    for (let size = 1; size <= copy.length; size++) {
      hash.start(9);
      hash.update(changetype<usize>(copy), size);
      const whole = hash.digest();
      for (let bit = 0; bit < size * 8; bit++) {
        copy[bit >> 3] ^= <u8>1 << (<u8>bit & 7);
        hash.start(9);
        hash.update(changetype<usize>(copy), size);
        if (hash.digest() == whole) expect(bit).toBe(-1);
        copy[bit >> 3] ^= <u8>1 << (<u8>bit & 7);
      }
      hash.start(10);
      hash.update(changetype<usize>(copy), size);
      expect(hash.digest() == whole).toBe(false);
      hash.start(9);
      hash.update(changetype<usize>(copy), size - 1);
      expect(hash.digest() == whole).toBe(false);
    }
    // Zeros count.
    const zeros = new StaticArray<u8>(80);
    let last: u64 = 0;
    for (let size = 0; size <= 80; size++) {
      hash.start(0);
      hash.update(changetype<usize>(zeros), size);
      expect(hash.digest() == last).toBe(false);
      last = hash.digest();
    }
  });
});
