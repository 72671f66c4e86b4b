// Clearing, copying and comparing a few bytes. The bulk instructions of WebAssembly are calls out of the module in V8, tens of nanoseconds each, and a request has dozens of
// small pieces; memory.compare goes byte by byte.

/** Above it the bulk instructions are as fast. */
const FEW: usize = 512;

/** Fills `[at, at+size)` with zeros. */
export function clear(at: usize, size: usize): void {
  if (size > FEW) {
    memory.fill(at, 0, size);
    return;
  }
  for (; size >= 16; size -= 16, at += 16) v128.store(at, i64x2.splat(0));
  if (size & 8) {
    store<u64>(at, 0);
    at += 8;
  }
  if (size & 4) {
    store<u32>(at, 0);
    at += 4;
  }
  for (size &= 3; size; size--) store<u8>(at++, 0);
}

/** Copies `[from, from+size)` to `to`. They may overlap only where `to` stands in front. */
export function copy(to: usize, from: usize, size: usize): void {
  if (size > FEW) {
    memory.copy(to, from, size);
    return;
  }
  for (; size >= 16; size -= 16, from += 16, to += 16) v128.store(to, v128.load(from));
  if (size & 8) {
    store<u64>(to, load<u64>(from));
    from += 8;
    to += 8;
  }
  if (size & 4) {
    store<u32>(to, load<u32>(from));
    from += 4;
    to += 4;
  }
  for (size &= 3; size; size--) store<u8>(to++, load<u8>(from++));
}

/** Whether the `size` bytes at `a` and `b` are the same. Whole words are read: up to 7 bytes behind both must be memory. */
export function same(a: usize, b: usize, size: usize): bool {
  for (; size >= 8; size -= 8, a += 8, b += 8) if (load<u64>(a) != load<u64>(b)) return false;
  return !size || ((load<u64>(a) ^ load<u64>(b)) & (((<u64>1) << (<u64>size << 3)) - 1)) == 0;
}
