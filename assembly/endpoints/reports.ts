// Connect failures that Envoy saw on the way to a picked pod, told by any VM to the lease holder, for whom each counts as a failed scrape.
import { CREATE, Space, Store } from "../store";

const MARK: u64 = 1;
const MAX: u32 = 64;
const RETRIES: i32 = 4;
const copy = memory.data(MAX * 4, 8);

/** Tells that endpoint `id` refused a connection. */
export function reportFailure(to: Store, id: u32): void {
  for (let attempt = 0; attempt < RETRIES; attempt++) {
    let n: u32 = 0;
    let cas: u32 = CREATE;
    if (to.get(Space.Marks, MARK)) {
      n = min<u32>(to.size >> 2, MAX);
      memory.copy(copy, to.at, n << 2);
      cas = to.cas;
    }
    if (n == MAX) return;
    store<u32>(copy + (n << 2), id);
    if (to.set(Space.Marks, MARK, copy, (n + 1) << 2, cas)) return;
  }
}

/** The ids reported since the last call, one by one; an id may stand there several times. */
export function consumeReports(from: Store): u32[] {
  const ids: u32[] = [];
  if (!from.get(Space.Marks, MARK) || !from.size) return ids;
  const n = min<u32>(from.size >> 2, MAX);
  for (let i: u32 = 0; i < n; i++) ids.push(load<u32>(from.at + (i << 2)));
  // Lost races leave them for the next tick.
  if (!from.set(Space.Marks, MARK, copy, 0, from.cas)) return [];
  return ids;
}
