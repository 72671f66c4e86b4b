// The floor: what any in-line filter must pay. It reads the body piece by piece as it arrives, looks at every byte once with SIMD, hashes every byte once,
// makes six shared-data reads of 4 KiB and three writes, and sets two headers. It decides nothing. A filter that decides should cost little more.
// Build: tests/bench/modules.ts, with asc floor.ts -o floor.wasm --use abort=floor/abort_ -O3 --runtime incremental --exportRuntime --enable simd
// Load it like any filter, with allow_on_headers_stop_iteration: true.
import * as imports from "@solo-io/proxy-runtime/assembly/imports";
const scratch = memory.data(64, 16);
const arena: usize = memory.data(1 << 23, 16);
let top: usize = 0;
export function malloc(n: i32): usize { const p = arena + top; top += (n + 15) & ~15; return p; }
export function proxy_abi_version_0_2_1(): void {}
export function proxy_on_vm_start(r: u32, n: u32): u32 { return 1; }
export function proxy_on_configure(r: u32, n: u32): u32 { return 1; }
export function proxy_on_context_create(c: u32, r: u32): void { top = 0; }
const seen = new StaticArray<u32>(4096); let h: u64 = 0; let q: u32 = 0; // bytes read so far, by context id
const K = String.UTF8.encode("x-prefiller-host-port"); const V = String.UTF8.encode("127.0.0.1:12345");
const K2 = String.UTF8.encode("x-gateway-destination-endpoint"); const V2 = String.UTF8.encode("127.0.0.1:12345");
const SK = String.UTF8.encode("page1"); const SV = new ArrayBuffer(4096);
export function proxy_on_request_headers(c: u32, n: u32, e: u32): u32 { top = 0; seen[c & 4095] = 0; return e ? 0 : 1; }
export function proxy_on_request_body(c: u32, len: u32, end: u32): u32 {
  top = 0;
  const from = seen[c & 4095];
  if (len > from) {
    imports.proxy_get_buffer_bytes(0, from, len - from, scratch, scratch + 4);
    let p = <usize>load<u32>(scratch); const l = <usize>load<u32>(scratch + 4);
    const e = p + l; const Q = i8x16.splat(0x22); const B = i8x16.splat(0x5c);
    let s = p;
    for (; s + 16 <= e; s += 16) { const v = v128.load(s); const m = i8x16.bitmask(v128.or(i8x16.eq(v, Q), i8x16.eq(v, B))); if (m) q += popcnt(m); }
    for (s = p; s + 8 <= e; s += 8) { h ^= load<u64>(s); h *= 0x9E3779B185EBCA87; h = rotl<u64>(h, 31); }
    seen[c & 4095] = len;
  }
  if (!end) return 1;
  for (let i = 0; i < 6; i++) { top = 0; imports.proxy_get_shared_data(changetype<usize>(SK), SK.byteLength, scratch, scratch + 4, scratch + 8); }
  imports.proxy_set_shared_data(changetype<usize>(SK), SK.byteLength, changetype<usize>(SV), SV.byteLength, 0);
  imports.proxy_set_shared_data(changetype<usize>(SK), SK.byteLength, changetype<usize>(SV), 64, 0);
  imports.proxy_replace_header_map_value(0, changetype<usize>(K), K.byteLength, changetype<usize>(V), V.byteLength);
  imports.proxy_replace_header_map_value(0, changetype<usize>(K2), K2.byteLength, changetype<usize>(V2), V2.byteLength);
  return 0;
}
export function proxy_on_response_headers(c: u32, n: u32, e: u32): u32 { return 0; }
export function proxy_on_done(c: u32): u32 { return 1; }
export function proxy_on_log(c: u32): void { imports.proxy_set_shared_data(changetype<usize>(SK), SK.byteLength, changetype<usize>(SV), 4096, 0); }
export function proxy_on_delete(c: u32): void {}
export function abort_(message: string | null, fileName: string | null, lineNumber: u32, columnNumber: u32): void { unreachable(); }
