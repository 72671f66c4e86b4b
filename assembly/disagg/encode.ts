// Which encoder takes which media item. The sidecar sends item i (of the distinct ones, in the order of their appearance) to entry i mod N of the encoder list, so a list
// with one entry per item is the whole plan (scheduler §3.10, §12.1: "consider one per media item").
import { Pass, Picks } from "../scheduling/pass";
import { MOST_ITEMS } from "../scheduling/request";

/** Less than scorers differ by: it decides between equal scores only. */
const TIE: f64 = 1e-6;

/** Adds to equal scores what the encode stage itself knows: the fewer items are in flight at an encoder, and the fewer of this request's it has not encoded, the better. */
export function preferIdle(pass: Pass): void {
  const table = pass.table;
  const items = max(1, pass.facts.mmDistinct);
  for (let i = 0; i < pass.count; i++) {
    const e = unchecked(pass.candidates[i]);
    const work = <f64>unchecked(table.inflightRequests[e]) + <f64>(items - <i32>popcnt<u64>(unchecked(table.heldItems[e])));
    unchecked((pass.total[i] = pass.total[i] + TIE / (1 + work)));
  }
}

/**
 * Turns the encoders that were picked into a list with one entry per distinct item (at most {@link MOST_ITEMS}). An item that one of them has encoded goes there (of
 * several to the least loaded), any other to the one with the fewest items, those in flight and those of this request together; equal ones take turns.
 */
export function planItems(pass: Pass, picks: Picks): void {
  const n = picks.count;
  const items = min(pass.facts.mmDistinct, MOST_ITEMS);
  if (n < 2 || items < 1) return;
  const table = pass.table;
  // A picker has been: both arrays are free.
  const encoders = pass.candidates;
  const load = pass.order;
  for (let k = 0; k < n; k++) {
    encoders[k] = picks.list[k];
    load[k] = <u32>max(0, table.inflightRequests[encoders[k]]);
  }
  let turn = pass.random.below(n);
  for (let i = 0; i < items; i++) {
    let best = 0;
    let bestRank: u64 = u64.MAX_VALUE;
    for (let k = 0; k < n; k++) {
      const at = (turn + k) % n;
      const held = (table.heldItems[encoders[at]] >> i) & 1;
      const rank = ((1 - held) << 32) + load[at];
      if (rank < bestRank) {
        bestRank = rank;
        best = at;
      }
    }
    picks.list[i] = encoders[best];
    if (bestRank >> 32) {
      load[best]++;
      turn = (best + 1) % n;
    }
  }
  picks.count = items;
}

/** Items that entry `entry` of `entries` is sent when there are `items` distinct ones; at least 1, since a list is only made where there is an item. */
export function itemsOf(entry: i32, entries: i32, items: i32): i32 {
  return max(1, (items - entry + entries - 1) / entries);
}
