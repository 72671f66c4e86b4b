// What a request was credited for in advance, kept until its answer says whether it was right. Credit is given when the request is sent, so that the next one with the same
// prompt finds it at once; it is taken back when the answer is no success, and moved when another pod than the picked one answered.
import { RequestView } from "../request";
import { copy } from "../words";
import { FilterRoot } from "./root";

/** Bytes of keys that all requests of a VM may keep; beyond it credit is not taken back. */
const MAX_RETAINED: u32 = 64 << 20;
/** A stream keeps its memory for the next one up to this size. */
const KEEP_ROOM: u32 = 16 << 10;

let retained: u32 = 0;

export class CreditTrail {
  private keys: usize = 0;
  private room: u32 = 0;
  private count: u32 = 0;
  private partial: bool = false;
  private decodeId: u32 = 0;
  private decodeHad: u32 = 0;
  private prefillId: u32 = 0;
  private prefillHad: u32 = 0;

  /**
   * Credits the endpoints at the table positions `decode` and `prefill` (-1: none) with the prompts of `view`. A list of prompts is credited for good: only the credit of a
   * single prompt is kept for taking it back.
   */
  give(root: FilterRoot, view: RequestView, decode: i32, prefill: i32, nowS: u32): void {
    const table = root.config!.endpoints;
    this.decodeId = table.id[decode];
    this.decodeHad = <u32>table.matchedBlocks[decode];
    this.prefillId = prefill < 0 ? 0 : table.id[prefill];
    this.prefillHad = prefill < 0 ? 0 : <u32>table.matchedBlocks[prefill];
    for (let k: u32 = 0; k < view.spanCount; k++) {
      const span = view.span(k);
      const keys = view.keys + (<usize>span.first << 3);
      credit(root, keys, span.count, span.partial != 0, decode, prefill, nowS);
    }
    this.count = 0;
    if (view.spanCount != 1) return;
    const span = view.span(0);
    const size = span.count << 3;
    if (size > this.room) {
      this.free();
      if (retained + size > MAX_RETAINED) return;
      this.keys = heap.alloc(size);
      this.room = size;
      retained += size;
    }
    copy(this.keys, view.keys + (<usize>span.first << 3), size);
    this.count = span.count;
    this.partial = span.partial != 0;
  }

  /** The answer is a success. `decode`, `prefill`: table positions of the pods that did it where they are not the picked ones, -1 otherwise; -2: nobody prefilled remotely. */
  confirm(root: FilterRoot, decode: i32, prefill: i32, nowS: u32): void {
    if (this.count) {
      root.index!.begin();
      if (decode >= 0) {
        root.index!.discredit(this.keys, this.count, this.decodeHad, this.decodeId);
        credit(root, this.keys, this.count, this.partial, decode, -1, nowS);
      }
      if (this.prefillId && prefill != -1) {
        root.index!.discredit(this.keys, this.count, this.prefillHad, this.prefillId);
        if (prefill >= 0) credit(root, this.keys, this.count, this.partial, prefill, -1, nowS);
      }
    }
    this.forget();
  }

  /** The request failed: nobody holds more of its prompt than before. */
  takeBack(root: FilterRoot): void {
    if (this.count) {
      root.index!.discredit(this.keys, this.count, this.decodeHad, this.decodeId);
      if (this.prefillId) root.index!.discredit(this.keys, this.count, this.prefillHad, this.prefillId);
    }
    this.forget();
  }

  /** Credit is given and not yet confirmed. */
  get open(): bool {
    return this.decodeId != 0;
  }

  forget(): void {
    this.count = 0;
    this.decodeId = 0;
    this.prefillId = 0;
    if (this.room > KEEP_ROOM) this.free();
  }

  private free(): void {
    if (!this.room) return;
    heap.free(this.keys);
    retained -= this.room;
    this.keys = 0;
    this.room = 0;
  }
}

/** Who computes the prompt will hold it (scheduler §4.3): the endpoint at table position `place`, and that at `second`, -1 for none. */
function credit(root: FilterRoot, keys: usize, count: u32, partial: bool, place: i32, second: i32, nowS: u32): void {
  const index = root.index!;
  const stats = root.vm!.stats;
  const ids = root.config!.endpoints.id;
  const capacity = root.capacity(place);
  // Engines with caches of different sizes hold different fronts of a prompt.
  const together = second >= 0 && root.capacity(second) == capacity;
  const evictions = index.evictions;
  const lost = index.lostWrites;
  // What is longer than the endpoint's cache is not held whole; an engine keeps the front.
  const held = min(count, capacity);
  index.creditBoth(keys, held, partial && held == count, ids[place], together ? ids[second] : 0, root.fleet, capacity, nowS);
  stats.evictions.add(index.evictions - evictions);
  stats.lostIndexWrites.add(index.lostWrites - lost);
  if (second >= 0 && !together) credit(root, keys, count, partial, second, -1, nowS);
}
