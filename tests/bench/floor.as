// The floor: a filter that decides nothing and pays what every filter that reads bodies must pay. Every byte of the body comes into the module as it arrives, is compared with
// two characters and goes into a hash; when the body has ended there are six reads of shared data of 4 KiB, two writes and two headers, and one more write when the stream ends.
// What a deciding filter costs is told as a multiple of this.
//
// No TypeScript to tsc (`memory.data`, `v128`), hence the name; tests/bench/modules.ts compiles it. Envoy's configuration is the filter's own, with
// allow_on_headers_stop_iteration: true.
import * as host from "@solo-io/proxy-runtime/assembly/imports";

const CONTINUE: u32 = 0;
const STOP_AND_BUFFER: u32 = 1;
const REQUEST_BODY: u32 = 0;
const REQUEST_HEADERS: u32 = 0;
const RECORD_BYTES: i32 = 4096;
const READS: i32 = 6;

/** What the host gives back lies here until the next callback. */
const ARENA_BYTES: i32 = 8 << 20;
const arena = memory.data(8388608, 16);
let used: usize = 0;
/** Where the host writes addresses, sizes and versions. */
const out = memory.data(64, 16);

/** Bytes of each stream's body that have been read, by the last bits of its id. */
const STREAMS: u32 = 4096;
const read = new StaticArray<u32>(4096);
/** Kept, so that no work is left out by the compiler. */
let found: u32 = 0;
let hash: u64 = 0;

const DECODE = String.UTF8.encode("x-gateway-destination-endpoint");
const PREFILL = String.UTF8.encode("x-prefiller-host-port");
const ADDRESS = String.UTF8.encode("127.0.0.1:12345");
const KEY = String.UTF8.encode("floor");
const RECORD = new ArrayBuffer(RECORD_BYTES);

export function malloc(size: i32): usize {
  const at = arena + used;
  used += (size + 15) & ~15;
  // Never the case with bodies of the bench; a wrong address would go unseen.
  if (used > <usize>ARENA_BYTES) unreachable();
  return at;
}

/** Looks for quotes and backslashes, sixteen bytes at a time. */
function search(from: usize, end: usize): void {
  const quote = i8x16.splat(0x22);
  const slash = i8x16.splat(0x5c);
  let count: u32 = 0;
  for (let at = from; at + 16 <= end; at += 16) {
    const bytes = v128.load(at);
    const mask = i8x16.bitmask(v128.or(i8x16.eq(bytes, quote), i8x16.eq(bytes, slash)));
    if (mask) count += popcnt(mask);
  }
  found += count;
}

/** One multiplication and one rotation for eight bytes. */
function absorb(from: usize, end: usize): void {
  let h = hash;
  for (let at = from; at + 8 <= end; at += 8) h = rotl<u64>((h ^ load<u64>(at)) * 0x9e3779b185ebca87, 31);
  hash = h;
}

function writeRecord(size: i32): void {
  host.proxy_set_shared_data(changetype<usize>(KEY), KEY.byteLength, changetype<usize>(RECORD), size, 0);
}

function setHeader(name: ArrayBuffer): void {
  host.proxy_replace_header_map_value(REQUEST_HEADERS, changetype<usize>(name), name.byteLength, changetype<usize>(ADDRESS), ADDRESS.byteLength);
}

function decide(): void {
  for (let i = 0; i < READS; i++) {
    used = 0;
    host.proxy_get_shared_data(changetype<usize>(KEY), KEY.byteLength, out, out + 4, out + 8);
  }
  writeRecord(RECORD_BYTES);
  writeRecord(64);
  setHeader(PREFILL);
  setHeader(DECODE);
}

export function proxy_abi_version_0_2_1(): void {}
export function proxy_on_vm_start(root: u32, size: u32): u32 {
  return 1;
}
export function proxy_on_configure(root: u32, size: u32): u32 {
  return 1;
}
export function proxy_on_context_create(id: u32, root: u32): void {
  used = 0;
}

export function proxy_on_request_headers(id: u32, headers: u32, end: u32): u32 {
  used = 0;
  read[id & (STREAMS - 1)] = 0;
  return end ? CONTINUE : STOP_AND_BUFFER;
}

export function proxy_on_request_body(id: u32, size: u32, end: u32): u32 {
  used = 0;
  const before = read[id & (STREAMS - 1)];
  if (size > before) {
    host.proxy_get_buffer_bytes(REQUEST_BODY, before, size - before, out, out + 4);
    const from = <usize>load<u32>(out);
    const to = from + <usize>load<u32>(out, 4);
    search(from, to);
    absorb(from, to);
    read[id & (STREAMS - 1)] = size;
  }
  if (!end) return STOP_AND_BUFFER;
  decide();
  return CONTINUE;
}

export function proxy_on_response_headers(id: u32, headers: u32, end: u32): u32 {
  return CONTINUE;
}
export function proxy_on_done(id: u32): u32 {
  return 1;
}
export function proxy_on_log(id: u32): void {
  writeRecord(RECORD_BYTES);
}
export function proxy_on_delete(id: u32): void {}

export function abort_(message: string | null, file: string | null, line: u32, column: u32): void {
  unreachable();
}
