/** FNV-1a, 32 bits: what the field hashes request ids with (scheduler §3.9), and good enough to tell names apart. */
export function fnv1a32(at: usize, size: u32): u32 {
  let h: u32 = 0x811c9dc5;
  for (let i: u32 = 0; i < size; i++) h = (h ^ <u32>load<u8>(at + i)) * 0x01000193;
  return h;
}
