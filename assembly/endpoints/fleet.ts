// The living endpoint ids: where each stands in the table, and from which generation on its entries in the prefix index count.

/** Endpoint ids to table positions, by open addressing; built once per change of the fleet. */
export class Fleet {
  /** Oldest live generation by table position. */
  floors: StaticArray<u32>;
  private ids: StaticArray<u32>;
  private places: StaticArray<i32>;
  private mask: u32;

  /** `ids[i]` is the id of the endpoint at position i; 0: none yet. */
  constructor(ids: StaticArray<u32>) {
    let size: u32 = 16;
    while (size < <u32>ids.length << 1) size <<= 1;
    this.mask = size - 1;
    this.ids = new StaticArray<u32>(size);
    this.places = new StaticArray<i32>(size);
    this.floors = new StaticArray<u32>(ids.length);
    for (let i = 0; i < ids.length; i++) {
      const id = unchecked(ids[i]);
      if (!id) continue;
      let at = (id * 0x9e3779b1) & this.mask;
      while (unchecked(this.ids[at])) at = (at + 1) & this.mask;
      unchecked((this.ids[at] = id));
      unchecked((this.places[at] = i));
    }
  }

  /** Table position of endpoint `id`; -1 when it is not (or no longer) of the fleet. */
  place(id: u32): i32 {
    if (!id) return -1;
    let at = (id * 0x9e3779b1) & this.mask;
    while (true) {
      const held = unchecked(this.ids[at]);
      if (held == id) return unchecked(this.places[at]);
      if (!held) return -1;
      at = (at + 1) & this.mask;
    }
  }

  /** Table position when the entry (id, generation) counts, else -1. */
  // @ts-ignore: decorator
  @inline
  live(id: u32, generation: u32): i32 {
    const place = this.place(id);
    return place >= 0 && generation >= unchecked(this.floors[place]) ? place : -1;
  }
}
