import * as abi from "@solo-io/proxy-runtime/assembly/imports";
import { OUT } from "./status";

/** Milliseconds since 1970; the same clock in every VM of the process. */
export function nowMs(): u64 {
  store<u64>(OUT, 0);
  abi.proxy_get_current_time_nanoseconds(OUT);
  return load<u64>(OUT) / 1_000_000;
}

/** `tick` is called so often on this root context, on every worker and on the main thread. */
export function setTick(periodMs: u32): void {
  abi.proxy_set_tick_period_milliseconds(periodMs);
}

// @ts-ignore: decorator
@external("wasi_snapshot_preview1", "random_get")
declare function random_get(at: usize, size: usize): u32;

/** 64 random bits from the host. */
export function random64(): u64 {
  const at = memory.data(8, 8);
  random_get(at, 8);
  return load<u64>(at);
}
