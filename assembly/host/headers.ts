// Headers of the current stream or call. Values stay in the arena until the callback ends.
import * as abi from "@solo-io/proxy-runtime/assembly/imports";
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
