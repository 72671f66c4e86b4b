// The compiler lays texts out as UTF-16, one data segment each, and that is a third of the module. assembly/pack.mjs replaces all segments by one, half as long, and has the
// module begin with this function.

/**
 * Lays out the static data that is packed at `from`: records of gap (u16, bytes of zeros behind the record before), size (15 bits, words of two bytes) with a mark (the top
 * bit: every word is below 256 and takes one byte), data; 0xffffffff ends them. Runs before anything else does: it uses no memory but that, and leaves zeros there, as the
 * heap expects.
 */
export function unpack(from: usize): void {
  const packed = from;
  let to: usize = 0;
  while (true) {
    const head = load<u32>(from);
    from += 4;
    if (head == 0xffffffff) break;
    to += head & 0xffff;
    for (let words = (head >> 16) & 0x7fff; words; words--) {
      if (head >> 31) store<u16>(to, load<u8>(from++));
      else {
        store<u16>(to, load<u16>(from));
        from += 2;
      }
      to += 2;
    }
  }
  memory.fill(packed, 0, from - packed);
}
