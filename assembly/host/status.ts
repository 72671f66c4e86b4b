import * as abi from "@solo-io/proxy-runtime/assembly/imports";

/** Where host functions write what they return: an address, a size, a number. */
export const OUT = memory.data(64, 16);

export function outPtr(): usize {
  return <usize>load<u32>(OUT);
}
export function outSize(): u32 {
  return load<u32>(OUT, 4);
}

/** proxy-wasm's status codes that we tell apart. */
export const OK: u32 = 0;
export const NOT_FOUND: u32 = 1;
export const CAS_MISMATCH: u32 = 8;

/** Logging; the message is encoded only when it is called. */
export const enum LogLevel {
  Debug = 1,
  Info = 2,
  Warn = 3,
  Error = 4,
}

export function log(level: LogLevel, message: string): void {
  const bytes = String.UTF8.encode(message);
  abi.proxy_log(<u32>level, changetype<usize>(bytes), bytes.byteLength);
}
