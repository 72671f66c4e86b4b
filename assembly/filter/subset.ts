// The endpoints that a filter ahead allows for a request: dynamic metadata `envoy.lb.subset_hint`, the list `x-gateway-destination-endpoint-subset` of addresses (scheduler §6.1, 7).
// Read only where FilterOptions.subsetHint says that such a filter is there.
import { EndpointTable } from "../endpoints";
import { Bytes, getProperty, isText, propertyAt, propertySize } from "../host";

const HINT = new Bytes("metadata\0filter_metadata\0envoy.lb.subset_hint\0x-gateway-destination-endpoint-subset");

let subset: StaticArray<u8> = new StaticArray<u8>(0);

/** 1 for each endpoint whose address is in the list (ports do not matter); null when there is no list. An empty list allows nobody. */
export function readSubset(table: EndpointTable): StaticArray<u8> | null {
  if (!getProperty(HINT)) return null;
  if (subset.length != table.count) subset = new StaticArray<u8>(table.count);
  subset.fill(0);
  markSubset(table, propertyAt, propertySize, subset);
  return subset;
}

/**
 * Marks the endpoints that the value names: the host's form of a list (count, then two sizes per entry, then each entry and an empty text, NUL behind both), or a text with
 * commas. What is neither names nobody.
 */
export function markSubset(table: EndpointTable, at: usize, size: u32, out: StaticArray<u8>): void {
  const count = size >= 4 ? load<u32>(at) : 0;
  // Addresses are text, and four bytes of text are a large number.
  if (size >= 4 && <u64>4 + <u64>count * 10 <= <u64>size) {
    let p = at + 4 + (<usize>count << 3);
    for (let i: u32 = 0; i < count; i++) {
      const n = load<u32>(at + 4 + (<usize>i << 3));
      if (<usize>n > at + size - p) return;
      mark(table, p, n, out);
      p += n + 1 + load<u32>(at + 8 + (<usize>i << 3)) + 1;
      if (p > at + size) return;
    }
    return;
  }
  const end = at + size;
  while (at < end) {
    let p = at;
    while (p < end && load<u8>(p) != 0x2c) p++;
    mark(table, at, <u32>(p - at), out);
    at = p + 1;
  }
}

/** `address`, `address:port` or `[address]:port`. */
function mark(table: EndpointTable, at: usize, size: u32, out: StaticArray<u8>): void {
  while (size && load<u8>(at) <= 0x20) {
    at++;
    size--;
  }
  while (size && load<u8>(at + size - 1) <= 0x20) size--;
  if (!size) return;
  let colons = 0;
  let last: u32 = 0;
  for (let i: u32 = 0; i < size; i++) {
    if (load<u8>(at + i) != 0x3a) continue;
    colons++;
    last = i;
  }
  if (load<u8>(at) == 0x5b) {
    let close: u32 = 1;
    while (close < size && load<u8>(at + close) != 0x5d) close++;
    at++;
    size = close - 1;
  } else if (colons == 1) size = last;
  for (let e = 0; e < table.count; e++) if (isText(unchecked(table.address[e]), at, size)) unchecked((out[e] = 1));
}
