// LoRA adapters of the fleet (scheduler §5.1): which each endpoint has active or waiting, and how many it may have. A record of its own, read only where a scorer asks for it.
import { Space, Store } from "../store";
import { adapters, Exposition, MOST_ADAPTERS } from "./exposition";
import { Fleet } from "./fleet";

/** What an endpoint can do for a model. */
export const enum Adapter {
  /** It has said nothing of adapters. */
  Unknown,
  /** Full. */
  None,
  Waiting,
  /** It can load one more. */
  Room,
  Active,
}

// Head: id u32, most u16, active u8, waiting u8; then a hash (u32) per adapter, the active ones first.
const HEAD: u32 = 8;
const ENTRY: u32 = HEAD + MOST_ADAPTERS * 4;

/** The lease holder's copy, by table position. */
export class AdapterBook {
  private at: usize;
  private out: usize;

  constructor(private readonly count: i32) {
    this.at = heap.alloc(<u32>count * ENTRY);
    this.out = heap.alloc(<u32>count * ENTRY);
    memory.fill(this.at, 0, <u32>count * ENTRY);
  }

  dispose(): void {
    heap.free(this.at);
    heap.free(this.out);
  }

  /** Takes over what an answer of endpoint `i` said; under id 0 the endpoint is left out. */
  note(i: i32, id: u32, answer: Exposition): void {
    const at = this.at + <u32>i * ENTRY;
    const told = answer.adaptersAt == answer.adaptersAt;
    store<u32>(at, told ? id : 0);
    store<u16>(at, <u16>answer.mostAdapters, 4);
    store<u8>(at, <u8>answer.activeAdapters, 6);
    store<u8>(at, <u8>answer.waitingAdapters, 7);
    memory.copy(at + HEAD, adapters, MOST_ADAPTERS * 4);
  }

  write(to: Store): void {
    let size: u32 = 0;
    for (let i = 0; i < this.count; i++) {
      const at = this.at + <u32>i * ENTRY;
      if (!load<u32>(at)) continue;
      const n = sizeOf(at);
      memory.copy(this.out + size, at, n);
      size += n;
    }
    to.set(Space.Adapters, 0, this.out, size, 0);
  }
}

function sizeOf(at: usize): u32 {
  return HEAD + ((<u32>load<u8>(at, 6) + <u32>load<u8>(at, 7)) << 2);
}

/** Fills `out` by table position: what each endpoint can do for the model whose name has the hash `model`. */
export function readAdapters(from: Store, fleet: Fleet, model: u32, out: StaticArray<u8>): void {
  out.fill(0);
  if (!from.get(Space.Adapters, 0)) return;
  const end = from.at + from.size;
  for (let at = from.at; at + HEAD <= end; at += sizeOf(at)) {
    if (at + sizeOf(at) > end) return;
    const place = fleet.place(load<u32>(at));
    if (place < 0) continue;
    const active = <u32>load<u8>(at, 6);
    const n = active + <u32>load<u8>(at, 7);
    let found: Adapter = n < <u32>load<u16>(at, 4) ? Adapter.Room : Adapter.None;
    for (let k: u32 = 0; k < n; k++) {
      if (load<u32>(at + HEAD + (k << 2)) != model) continue;
      if (k < active) {
        found = Adapter.Active;
        break;
      }
      if (found == Adapter.None) found = Adapter.Waiting;
    }
    unchecked((out[place] = <u8>found));
  }
}
