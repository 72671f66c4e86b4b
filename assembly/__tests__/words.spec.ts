import { clear, copy, same } from "../words";

const ROOM: usize = 2048;
const a = memory.data(2048 + 64, 16);
const b = memory.data(2048 + 64, 16);

function count(at: usize, size: usize): void {
  for (let i: usize = 0; i < size; i++) store<u8>(at + i, <u8>(i * 7 + 1));
}

describe("words", () => {
  it("clears exactly what it is told to, of any size and from any place", () => {
    for (let from: usize = 0; from < 9; from++) {
      for (let size: usize = 0; size < 600; size += size < 40 ? 1 : 37) {
        count(a, ROOM);
        clear(a + 32 + from, size);
        for (let i: usize = 0; i < 1000; i++) {
          const inside = i >= 32 + from && i < 32 + from + size;
          if (load<u8>(a + i) != (inside ? <u8>0 : <u8>(i * 7 + 1))) expect(<i32>i).toBe(-1);
        }
      }
    }
  });

  it("copies exactly what it is told to, also a little towards the front", () => {
    for (let from: usize = 0; from < 9; from++) {
      for (let size: usize = 0; size < 600; size += size < 40 ? 1 : 37) {
        count(a, ROOM);
        memory.fill(b, 0xee, ROOM);
        copy(b + 16, a + from, size);
        for (let i: usize = 0; i < size; i++) if (load<u8>(b + 16 + i) != <u8>((i + from) * 7 + 1)) expect(<i32>i).toBe(-1);
        expect(load<u8>(b + 15)).toBe(0xee);
        expect(load<u8>(b + 16 + size)).toBe(0xee);
        copy(a, a + from, size);
        for (let i: usize = 0; i < size; i++) if (load<u8>(a + i) != <u8>((i + from) * 7 + 1)) expect(<i32>i).toBe(-1);
      }
    }
  });

  it("tells every single difference, and none behind the end", () => {
    for (let size: usize = 0; size < 40; size++) {
      count(a, 64);
      memory.copy(b + 3, a, 64);
      store<u8>(b + 3 + size, 0);
      expect(same(a, b + 3, size)).toBe(true);
      for (let i: usize = 0; i < size; i++) {
        store<u8>(b + 3 + i, load<u8>(a + i) ^ 0x80);
        expect(same(a, b + 3, size)).toBe(false);
        store<u8>(b + 3 + i, load<u8>(a + i));
      }
    }
  });
});
