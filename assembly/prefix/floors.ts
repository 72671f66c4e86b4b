// The oldest generation that counts, by endpoint: one record for all, so that a look-up knows them without a reading of its own.
import { CREATE, Space, Store } from "../store";
import { Fleet } from "../endpoints/fleet";

/** Retries of a write that lost its race against another worker; the next one who drops a range tries again. */
const RETRIES: i32 = 4;
const FLOORS_MAX: u32 = 16384;
const floorsAt = memory.data(FLOORS_MAX * 8, 8);

/** Writes `floor` into the record of oldest live generations, never a lower one than is there. */
export function raiseFloor(to: Store, id: u32, floor: u32): void {
  for (let attempt = 0; attempt < RETRIES; attempt++) {
    let n: u32 = 0;
    let cas: u32 = CREATE;
    if (to.get(Space.PrefixFloors, 0)) {
      n = min<u32>(to.size >> 3, FLOORS_MAX - 1);
      memory.copy(floorsAt, to.at, n << 3);
      cas = to.cas;
    }
    let i: u32 = 0;
    while (i < n && load<u32>(floorsAt + (i << 3)) != id) i++;
    const at = floorsAt + (i << 3);
    if (i < n && load<u32>(at, 4) >= floor) return;
    store<u32>(at, id);
    store<u32>(at, floor, 4);
    if (i == n) n++;
    if (to.set(Space.PrefixFloors, 0, floorsAt, n << 3, cas)) return;
  }
}

/** Fills `fleet.floors` from the record; called when the fleet changes and on every tick. */
export function readFloors(from: Store, fleet: Fleet): void {
  if (!from.get(Space.PrefixFloors, 0)) return;
  for (let i: u32 = 0, n = from.size >> 3; i < n; i++) {
    const place = fleet.place(load<u32>(from.at + (i << 3)));
    if (place >= 0) unchecked((fleet.floors[place] = load<u32>(from.at + (i << 3) + 4)));
  }
}

/** Forgets the floors of ids that are gone, so that the record stays as long as the fleet. Done by the lease holder when endpoints leave. */
export function pruneFloors(from: Store, fleet: Fleet): void {
  if (!from.get(Space.PrefixFloors, 0)) return;
  const cas = from.cas;
  let kept: u32 = 0;
  const n = min<u32>(from.size >> 3, FLOORS_MAX);
  for (let i: u32 = 0; i < n; i++) {
    const at = from.at + (i << 3);
    if (fleet.place(load<u32>(at)) < 0) continue;
    memory.copy(floorsAt + (kept << 3), at, 8);
    kept++;
  }
  if (kept < n) from.set(Space.PrefixFloors, 0, floorsAt, kept << 3, cas);
}
