// One VM of all works for the fleet: it scrapes, heals the in-flight table and walks the index. Who, is a lease in shared data that its holder renews on every tick.
import { CREATE, Space, Store } from "../store";

/** A holder that has not renewed for so long is gone (trapped, swapped out). */
export const LEASE_MS: u64 = 4_000;

@unmanaged
class Record {
  untilMs: u64;
  vm: u32;
  /** The holder serves streams: a VM that serves none (the main thread's) may take over. */
  busy: u32;
}

const SIZE: u32 = 16;
const mine = memory.data(SIZE, 8);

/** Takes or renews the lease for VM number `vm`. `busy`: this VM serves streams. True when this VM holds it. */
export function holdLease(from: Store, vm: u32, busy: bool, nowMs: u64): bool {
  if (!vm) return false;
  let cas: u32 = CREATE;
  if (from.get(Space.Lease, 0)) {
    cas = from.cas;
    if (from.size >= SIZE) {
      const held = changetype<Record>(from.at);
      const expired = nowMs > held.untilMs;
      if (held.vm != vm && !expired && !(held.busy && !busy)) return false;
    }
  }
  const record = changetype<Record>(mine);
  record.untilMs = nowMs + LEASE_MS;
  record.vm = vm;
  record.busy = <u32>busy;
  return from.set(Space.Lease, 0, mine, SIZE, cas);
}
