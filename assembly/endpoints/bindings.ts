// "What has this id is on that endpoint": responses that an engine keeps, and whatever else must come back to the pod that knows it. A fixed number of records in shared
// data; a full one drops what was bound the longest ago.
import { CREATE, Space, Store } from "../store";

/** Records of one kind of binding. */
const SLOTS: u64 = 1024;
/** Bindings in one record. */
const ROOM: u32 = 32;
const RETRIES: i32 = 4;

@unmanaged
class Binding {
  hash: u64;
  endpoint: u32;
  boundS: u32;
}
const SIZE: u32 = 16;

const copy = memory.data(512, 8);

/** Hash of an id, FNV-1a; never 0. */
export function idHash(at: usize, size: u32): u64 {
  let h: u64 = 0xcbf29ce484222325;
  for (let i: u32 = 0; i < size; i++) h = (h ^ <u64>load<u8>(at + i)) * 0x100000001b3;
  return h ? h : 1;
}

/** Binds `hash` to endpoint id `endpoint` at `nowS`, in place of what it was bound to. */
export function bind(to: Store, space: Space, hash: u64, endpoint: u32, nowS: u32): void {
  const slot = (hash ^ (hash >> 29)) % SLOTS;
  for (let attempt = 0; attempt < RETRIES; attempt++) {
    let n: u32 = 0;
    let cas: u32 = CREATE;
    if (to.get(space, slot)) {
      n = min<u32>(to.size / SIZE, ROOM);
      memory.copy(copy, to.at, n * SIZE);
      cas = to.cas;
    }
    let place = n;
    let oldest: u32 = 0;
    for (let i: u32 = 0; i < n; i++) {
      const b = changetype<Binding>(copy + i * SIZE);
      if (b.hash == hash) place = i;
      if (b.boundS < changetype<Binding>(copy + oldest * SIZE).boundS) oldest = i;
    }
    if (place == ROOM) place = oldest;
    const b = changetype<Binding>(copy + place * SIZE);
    if (place < n && b.hash == hash && b.endpoint == endpoint && b.boundS == nowS) return;
    b.hash = hash;
    b.endpoint = endpoint;
    b.boundS = nowS;
    if (to.set(space, slot, copy, max(n, place + 1) * SIZE, cas)) return;
  }
}

/** The endpoint id that `hash` is bound to, 0 for none. Bindings older than `ttlS` seconds do not count; 0: all do. */
export function boundTo(from: Store, space: Space, hash: u64, nowS: u32, ttlS: u32): u32 {
  if (!from.get(space, (hash ^ (hash >> 29)) % SLOTS)) return 0;
  for (let i: u32 = 0, n = from.size / SIZE; i < n; i++) {
    const b = changetype<Binding>(from.at + i * SIZE);
    if (b.hash == hash) return ttlS && nowS > b.boundS + ttlS ? 0 : b.endpoint;
  }
  return 0;
}
