// Headers of the current stream or call. Values stay in the arena until the callback ends.
import * as abi from "@solo-io/proxy-runtime/assembly/imports";
import { same } from "../words";
import { Bytes } from "./bytes";
import { OK, OUT, outPtr, outSize } from "./status";

export const enum HeaderMap {
  Request = 0,
  Response = 2,
  CallResponse = 6,
}

/** Where the last value read by `getHeader` stands. */
export let valueAt: usize = 0;
export let valueSize: u32 = 0;

/** False: the header is not there. Several lines of one name are joined with commas, as Envoy joins them. */
export function getHeader(map: HeaderMap, name: Bytes): bool {
  if (abi.proxy_get_header_map_value(map, name.at, name.size, OUT, OUT + 4) != OK) return false;
  valueAt = outPtr();
  valueSize = outSize();
  return true;
}

// pairs:  count u32 | count x (size of name u32, size of value u32) | count x (name, 0, value, 0)
let pairsAt: usize = 0;
let pairs: u32 = 0;

/**
 * Reads a whole map in one call, for {@link findHeader}: of a few headers this is cheaper than one look-up of a name that Envoy keeps no place for, at which it builds a hash
 * table of the map (envoy/source/common/http/header_map_impl.cc). False: there is none.
 */
export function readMap(map: HeaderMap): bool {
  pairs = 0;
  if (abi.proxy_get_header_map_pairs(map, OUT, OUT + 4) != OK) return false;
  pairsAt = outPtr();
  const size = outSize();
  if (size >= 4) pairs = min(load<u32>(pairsAt), (size - 4) >> 3);
  return pairs > 0;
}

/** Like {@link getHeader}, in the map that was read in this callback; of several lines of one name the first one. */
export function findHeader(name: Bytes): bool {
  let text = pairsAt + 4 + (<usize>pairs << 3);
  for (let i: u32 = 0, sizes = pairsAt + 4; i < pairs; i++, sizes += 8) {
    const n = load<u32>(sizes);
    const v = load<u32>(sizes, 4);
    if (n == name.size && same(text, name.at, n)) {
      valueAt = text + n + 1;
      valueSize = v;
      return true;
    }
    text += <usize>n + v + 2;
  }
  return false;
}

/** Sets a header to one value, in place of whatever was there. A failure leaves it as it was: the stream is gone. */
export function setHeader(map: HeaderMap, name: Bytes, at: usize, size: u32): void {
  abi.proxy_replace_header_map_value(map, name.at, name.size, at, size);
}

export function removeHeader(map: HeaderMap, name: Bytes): void {
  abi.proxy_remove_header_map_value(map, name.at, name.size);
}

/** The value just read, as a number; -1 when it is none. */
export function valueNumber(): i32 {
  let n: i32 = valueSize ? 0 : -1;
  for (let i: u32 = 0; i < valueSize; i++) {
    const c = <u32>load<u8>(valueAt + i);
    if (c - 0x30 > 9 || n > 99_999_999) return -1;
    n = n * 10 + <i32>(c - 0x30);
  }
  return n;
}
