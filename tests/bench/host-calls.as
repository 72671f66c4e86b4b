// A filter that does nothing but measure: what each host call costs in this Envoy. One request with a body of 1 MiB is one measurement; the result is logged as JSON when
// the stream ends. Build: tests/bench/modules.ts.
import * as imports from "@solo-io/proxy-runtime/assembly/imports";

const OUT = memory.data(64, 16);
const arena: usize = memory.data(1 << 21, 16);
let top: usize = 0;
export function malloc(n: i32): usize {
  const p = arena + top;
  top += (n + 15) & ~15;
  return p;
}
export function proxy_abi_version_0_2_1(): void {}
export function proxy_on_vm_start(r: u32, n: u32): u32 {
  return 1;
}
const COUNTER = String.UTF8.encode("crosspoint.bench");
let metric: u32 = 0;
export function proxy_on_configure(r: u32, n: u32): u32 {
  imports.proxy_define_metric(0, changetype<usize>(COUNTER), COUNTER.byteLength, OUT);
  metric = load<u32>(OUT);
  return 1;
}
export function proxy_on_context_create(c: u32, r: u32): void {
  top = 0;
}

const VALUE = memory.data(1 << 17, 16);
const KEY = memory.data(16, 8);
let text = "";
let began: u64 = 0;

function now(): u64 {
  store<u64>(OUT + 32, 0);
  imports.proxy_get_current_time_nanoseconds(OUT + 32);
  return load<u64>(OUT + 32);
}
function begin(): void {
  top = 0;
  began = now();
}
function end(name: string, calls: u32): void {
  const ns = now() - began;
  text += (text.length ? "," : "") + '"' + name + '":' + (<f64>ns / <f64>calls).toString();
}

const CALLS: u32 = 2000;
const PATH = String.UTF8.encode(":path");
const ID = String.UTF8.encode("x-request-id");
const NONE = String.UTF8.encode("x-no-such-header");
const TO = String.UTF8.encode("x-gateway-destination-endpoint");
const HOST = String.UTF8.encode("127.0.0.1:12345");
const RECORD = String.UTF8.encode("crosspoint_bench");
const ATTEMPTS = String.UTF8.encode("upstream\0request_attempt_count");
const FLAGS = String.UTF8.encode("response\0flags");

function key(k: u64): void {
  store<u64>(KEY, k);
  store<u32>(KEY, 99, 8);
}

export function proxy_on_request_headers(c: u32, n: u32, e: u32): u32 {
  text = "";
  begin();
  for (let i: u32 = 0; i < CALLS; i++) imports.proxy_get_current_time_nanoseconds(OUT);
  end("clock", CALLS);
  const sizes: StaticArray<u32> = [16, 64, 256, 1024, 4096, 12000, 65536];
  for (let s = 0; s < sizes.length; s++) {
    const size = sizes[s];
    key(s + 1);
    begin();
    for (let i: u32 = 0; i < CALLS; i++) imports.proxy_set_shared_data(KEY, 12, VALUE, size, 0);
    end("set " + size.toString(), CALLS);
    begin();
    for (let i: u32 = 0; i < CALLS; i++) {
      top = 0;
      imports.proxy_get_shared_data(KEY, 12, OUT, OUT + 4, OUT + 8);
    }
    end("get " + size.toString(), CALLS);
  }
  key(1 << 40);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) imports.proxy_get_shared_data(KEY, 12, OUT, OUT + 4, OUT + 8);
  end("get missing", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) imports.proxy_increment_metric(metric, 1);
  end("increment metric", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) {
    top = 0;
    imports.proxy_get_header_map_value(0, changetype<usize>(PATH), PATH.byteLength, OUT, OUT + 4);
  }
  end("get :path", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) {
    top = 0;
    imports.proxy_get_header_map_value(0, changetype<usize>(ID), ID.byteLength, OUT, OUT + 4);
  }
  end("get x-request-id", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) {
    top = 0;
    imports.proxy_get_header_map_value(0, changetype<usize>(NONE), NONE.byteLength, OUT, OUT + 4);
  }
  end("get missing header", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) imports.proxy_replace_header_map_value(0, changetype<usize>(TO), TO.byteLength, changetype<usize>(HOST), HOST.byteLength);
  end("replace header", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) imports.proxy_remove_header_map_value(0, changetype<usize>(NONE), NONE.byteLength);
  end("remove missing header", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) imports.proxy_set_property(changetype<usize>(RECORD), RECORD.byteLength, VALUE, 290);
  end("set property 290", CALLS);
  return e ? 0 : 1;
}
export function proxy_on_request_body(c: u32, len: u32, e: u32): u32 {
  if (!e) return 1;
  for (let size: u32 = 1024; size <= 1 << 20; size <<= 2) {
    if (size > len) break;
    const calls: u32 = size > 65536 ? 20 : 500;
    begin();
    for (let i: u32 = 0; i < calls; i++) {
      top = 0;
      imports.proxy_get_buffer_bytes(0, 0, size, OUT, OUT + 4);
    }
    end("get body " + size.toString(), calls);
  }
  return 0;
}
export function proxy_on_response_headers(c: u32, n: u32, e: u32): u32 {
  return 0;
}
export function proxy_on_done(c: u32): u32 {
  return 1;
}
export function proxy_on_log(c: u32): void {
  begin();
  for (let i: u32 = 0; i < CALLS; i++) {
    top = 0;
    imports.proxy_get_property(changetype<usize>(FLAGS), FLAGS.byteLength, OUT, OUT + 4);
  }
  end("get property response.flags", CALLS);
  begin();
  for (let i: u32 = 0; i < CALLS; i++) {
    top = 0;
    imports.proxy_get_property(changetype<usize>(ATTEMPTS), ATTEMPTS.byteLength, OUT, OUT + 4);
  }
  end("get property upstream.request_attempt_count", CALLS);
  const line = String.UTF8.encode("host calls, ns: {" + text + "}");
  top = 0;
  imports.proxy_log(5, changetype<usize>(line), line.byteLength);
  text = "";
}
export function proxy_on_delete(c: u32): void {}
export function abort_(message: string | null, fileName: string | null, lineNumber: u32, columnNumber: u32): void {
  unreachable();
}
