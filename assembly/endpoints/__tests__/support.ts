// What the specs of the endpoints' shared state have in common: a store that loses races, and in which another worker may come in between.
import { MemoryStore, Space } from "../../store";

export class RacingStore extends MemoryStore {
  /** Writes of `raceSpace` are counted down; before the last one `race` is called. 0: never. */
  countdown: i32 = 0;
  raceSpace: Space = Space.Ids;
  race: () => void = (): void => {};
  /** How many writes of every hundred lose their race, at random. Writes with `cas` 0 cannot lose one. */
  lossPercent: u32 = 0;

  set(space: Space, key: u64, at: usize, size: u32, cas: u32): bool {
    if (this.countdown && space == this.raceSpace && --this.countdown == 0) this.race();
    if (this.lossPercent && cas && random() % 100 < this.lossPercent) {
      this.writes++;
      return false;
    }
    return super.set(space, key, at, size, cas);
  }

  /** Overwrites a record with bytes that are not its owner's. */
  spoil(space: Space, key: u64, bytes: StaticArray<u8>): void {
    super.set(space, key, changetype<usize>(bytes), bytes.length, 0);
  }
}

let state: u32 = 1;

export function seedRandom(seed: u32): void {
  state = seed * 2654435761 + 1;
}

export function random(): u32 {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

export function filled(size: i32, value: u8): StaticArray<u8> {
  const out = new StaticArray<u8>(size);
  memory.fill(changetype<usize>(out), value, size);
  return out;
}
