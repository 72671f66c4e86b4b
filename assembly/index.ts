// The ABI's exported functions, and nothing else: each resets the arena and hands over to the context. There is no response-body callback (DESIGN, decision 6), and none for
// what the end of a stream brings before its deletion: each costs an entry into the VM, and Envoy does without.
import { Factory } from "./filter";
import { unpack } from "./unpack";
import { createContext, deleteContext, malloc, resetArena, rootContext, streamContext, useContexts } from "./host";

export { malloc, unpack };

useContexts(new Factory());

export function proxy_abi_version_0_2_1(): void {}

export function proxy_on_vm_start(root: u32, size: u32): u32 {
  return 1;
}

export function proxy_on_context_create(id: u32, parent: u32): void {
  resetArena();
  createContext(id, parent);
}

/** The collector runs here and only here: between callbacks no managed object is on the stack, so the module needs no shadow stack (runtime `minimal`). */
function collect(): void {
  __collect();
}

/** Ticks between two collections. What a request leaves behind is next to nothing. */
const COLLECT_EVERY: u32 = 40;
let ticks: u32 = 0;

export function proxy_on_configure(root: u32, size: u32): u32 {
  resetArena();
  const context = rootContext(root);
  const accepted = context ? context.onConfigure(size) : false;
  collect();
  return accepted ? 1 : 0;
}

export function proxy_on_tick(root: u32): void {
  resetArena();
  const context = rootContext(root);
  if (context) context.onTick();
  if (++ticks % COLLECT_EVERY == 0) collect();
}

export function proxy_on_http_call_response(root: u32, token: u32, headers: u32, bodySize: u32, trailers: u32): void {
  resetArena();
  const context = rootContext(root);
  if (context) context.onHttpCallResponse(token, headers, bodySize);
}

export function proxy_on_request_headers(id: u32, headers: u32, endOfStream: u32): u32 {
  resetArena();
  const context = streamContext(id);
  return context ? context.onRequestHeaders(headers, endOfStream != 0) : 0;
}

export function proxy_on_request_body(id: u32, size: u32, endOfStream: u32): u32 {
  resetArena();
  const context = streamContext(id);
  return context ? context.onRequestBody(size, endOfStream != 0) : 0;
}

export function proxy_on_request_trailers(id: u32, trailers: u32): u32 {
  resetArena();
  const context = streamContext(id);
  if (context) context.onRequestTrailers();
  return 0;
}

export function proxy_on_response_headers(id: u32, headers: u32, endOfStream: u32): u32 {
  resetArena();
  const context = streamContext(id);
  if (context) context.onResponseHeaders(headers, endOfStream != 0);
  return 0;
}

export function proxy_on_delete(id: u32): void {
  resetArena();
  deleteContext(id);
}

/** What AssemblyScript calls when it cannot go on. No input reaches it (DESIGN, decision 10). */
export function abort_(message: string | null, fileName: string | null, line: u32, column: u32): void {
  unreachable();
}
