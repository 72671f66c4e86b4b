// How much of each endpoint the index can remember in the memory that it is given.

/**
 * Bytes of shared data that a block which an endpoint is credited with is allowed. Long runs take less than five; on the traces of traces.spec, where conversations take turns of a
 * dozen blocks, slots of five bytes a block lose more than half a point of the hit rate to full ones, and with eight none is full.
 */
export const BLOCK_COST: u32 = 8;

/** Blocks that each of `endpoints` endpoints can be credited with in `indexBytes` bytes. */
export function fairCapacity(indexBytes: i32, endpoints: i32): i32 {
  return <i32>(<i64>indexBytes / (<i64>BLOCK_COST * <i64>max(1, endpoints)));
}
