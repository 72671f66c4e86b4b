// Endpoint ids (DESIGN, Shapes): from a counter that never goes back, in one record with a revision that only grows.
import { Space } from "../../store";
import { EndpointIds } from "../index";
import { filled, random, RacingStore, seedRandom } from "./support";

class Given {
  ids: StaticArray<u32>;
  done: bool;
  constructor(store: RacingStore, keys: StaticArray<u64>, revision: u64) {
    this.ids = new StaticArray<u32>(keys.length);
    this.done = new EndpointIds(store).assign(keys, revision, this.ids);
  }
}

function give(store: RacingStore, keys: StaticArray<u64>, revision: u64): StaticArray<u32> {
  return new Given(store, keys, revision).ids;
}

class Other {
  store: RacingStore | null = null;
  keys: StaticArray<u64> = [];
  revision: u64 = 0;
  ids: StaticArray<u32> = [];
}
const OTHER = new Other();

describe("ids", () => {
  it("are given once, from 1 on, and are the same for every worker that asks", () => {
    const store = new RacingStore();
    const a = give(store, [10, 20, 30], 1);
    expect(a).toStrictEqual([1, 2, 3] as StaticArray<u32>);
    const writes = store.writes;
    for (let i = 0; i < 5; i++) expect(give(store, [10, 20, 30], 1)).toStrictEqual([1, 2, 3] as StaticArray<u32>);
    expect(store.writes).toBe(writes);
    // In another order, or only some of them, in the same revision: a worker that lists them otherwise.
    expect(give(store, [30, 10], 1)).toStrictEqual([3, 1] as StaticArray<u32>);
    expect(store.writes).toBe(writes);
  });

  it("of a higher revision: what stays keeps its id, what is new gets a new one, what has left loses it", () => {
    const store = new RacingStore();
    give(store, [10, 20, 30], 1);
    expect(give(store, [20, 40, 10], 2)).toStrictEqual([2, 4, 1] as StaticArray<u32>);
    // Removed and added again: a new id, for credit and load start at nothing.
    expect(give(store, [20, 30], 3)).toStrictEqual([2, 5] as StaticArray<u32>);
    expect(give(store, [10, 20, 30], 4)).toStrictEqual([6, 2, 5] as StaticArray<u32>);
  });

  it("are never given twice, however many endpoints come and go", () => {
    seedRandom(3);
    const store = new RacingStore();
    const owner = new Map<u32, u64>();
    let before = new Map<u64, u32>();
    for (let revision: u64 = 1; revision < 200; revision++) {
      const keys: u64[] = [];
      for (let k: u64 = 1; k <= 30; k++) if (random() & 1) keys.push(k * 7919);
      const list = new StaticArray<u64>(keys.length);
      for (let i = 0; i < keys.length; i++) list[i] = keys[i];
      const ids = give(store, list, revision);
      const now = new Map<u64, u32>();
      for (let i = 0; i < ids.length; i++) {
        let right = ids[i] != 0;
        if (before.has(list[i])) right = right && ids[i] == before.get(list[i]);
        else {
          right = right && !owner.has(ids[i]);
          owner.set(ids[i], list[i]);
        }
        if (!right) expect(ids[i]).toBe(0, "revision " + revision.toString());
        now.set(list[i], ids[i]);
      }
      before = now;
    }
  });

  it("a lower revision reads what there is and changes nothing", () => {
    const store = new RacingStore();
    give(store, [10, 20], 5);
    const writes = store.writes;
    const old = new Given(store, [10, 30, 20], 4);
    expect(old.done).toBe(true);
    expect(old.ids).toStrictEqual([1, 0, 2] as StaticArray<u32>);
    expect(store.writes).toBe(writes);
    expect(give(store, [10, 20], 5)).toStrictEqual([1, 2] as StaticArray<u32>);
  });

  it("a higher revision with the same endpoints is noted, so that a lower one cannot bring old ones back", () => {
    const store = new RacingStore();
    give(store, [10, 20], 1);
    give(store, [10, 20], 7);
    expect(give(store, [10, 20, 30], 6)).toStrictEqual([1, 2, 0] as StaticArray<u32>);
    expect(give(store, [10, 20, 30], 8)).toStrictEqual([1, 2, 3] as StaticArray<u32>);
  });

  it("no endpoints at all", () => {
    const store = new RacingStore();
    expect(new Given(store, [], 1).done).toBe(true);
    expect(give(store, [10], 2)).toStrictEqual([1] as StaticArray<u32>);
    expect(new Given(store, [], 3).done).toBe(true);
    expect(give(store, [10], 4)).toStrictEqual([2] as StaticArray<u32>);
  });

  it("a thousand endpoints, whatever their keys are", () => {
    const store = new RacingStore();
    const keys = new StaticArray<u64>(1000);
    // All in one place of any table that takes the middle bits, and then not.
    for (let i = 0; i < 1000; i++) keys[i] = i & 1 ? <u64>i << 50 : <u64>i * 0x9e3779b97f4a7c15;
    keys[0] = 5;
    const ids = give(store, keys, 1);
    const seen = new Map<u32, bool>();
    for (let i = 0; i < 1000; i++) seen.set(ids[i], true);
    expect(seen.size).toBe(1000);
    const again = give(store, keys, 1);
    const read = new StaticArray<u32>(1000);
    expect(new EndpointIds(store).read(keys, read)).toBe(true);
    for (let i = 0; i < 1000; i++) if (again[i] != ids[i] || read[i] != ids[i]) expect(i).toBe(-1);
  });
});

describe("races for ids", () => {
  it("the first creation: another worker is there first, and both have the same", () => {
    const store = new RacingStore();
    OTHER.store = store;
    OTHER.keys = [30, 20, 10];
    OTHER.revision = 1;
    store.race = (): void => {
      OTHER.ids = give(OTHER.store!, OTHER.keys, OTHER.revision);
    };
    store.countdown = 1;
    const mine = give(store, [10, 20, 30], 1);
    expect(mine).toStrictEqual(give(store, [10, 20, 30], 1));
    expect([OTHER.ids[2], OTHER.ids[1], OTHER.ids[0]] as StaticArray<u32>).toStrictEqual(mine);
  });

  it("a higher revision that comes in between stays", () => {
    const store = new RacingStore();
    give(store, [10], 1);
    OTHER.store = store;
    OTHER.keys = [10, 40];
    OTHER.revision = 3;
    store.race = (): void => {
      OTHER.ids = give(OTHER.store!, OTHER.keys, OTHER.revision);
    };
    store.countdown = 1;
    expect(give(store, [10, 20], 2)).toStrictEqual([1, 0] as StaticArray<u32>);
    expect(give(store, [10, 40], 3)).toStrictEqual([1, 2] as StaticArray<u32>);
  });

  it("lost again and again: given up, without an id that is not in the record", () => {
    const store = new RacingStore();
    give(store, [10], 1);
    store.loseWrites = 1000;
    const lost = new Given(store, [10, 20], 2);
    expect(lost.done).toBe(false);
    expect(lost.ids[1]).toBe(0);
    expect(1000 - store.loseWrites).toBeLessThan(30);
    store.loseWrites = 3;
    expect(give(store, [10, 20], 2)).toStrictEqual([1, 2] as StaticArray<u32>);
  });
});

describe("an endpoint that was restarted in place", () => {
  it("has a new id at once, and the others keep theirs", () => {
    const store = new RacingStore();
    give(store, [10, 20, 30], 1);
    const ids = new EndpointIds(store);
    expect(ids.renew(20, 2)).toBe(4);
    expect(give(store, [10, 20, 30], 1)).toStrictEqual([1, 4, 3] as StaticArray<u32>);
    expect(give(store, [10, 20, 30, 40], 2)).toStrictEqual([1, 4, 3, 5] as StaticArray<u32>);
  });

  it("is renewed once, whoever saw it", () => {
    const store = new RacingStore();
    give(store, [10, 20], 1);
    const ids = new EndpointIds(store);
    expect(ids.renew(20, 2)).toBe(3);
    expect(ids.renew(20, 2)).toBe(0);
    expect(ids.renew(20, 3)).toBe(4);
    expect(ids.renew(99, 1)).toBe(0);
    expect(ids.renew(10, 0)).toBe(0);
    OTHER.store = store;
    store.race = (): void => {
      new EndpointIds(OTHER.store!).renew(10, 1);
    };
    store.countdown = 1;
    expect(ids.renew(10, 1)).toBe(0);
    expect(give(store, [10, 20], 1)).toStrictEqual([5, 4] as StaticArray<u32>);
  });

  it("with no record, or when every race is lost: nothing", () => {
    const store = new RacingStore();
    expect(new EndpointIds(store).renew(10, 1)).toBe(0);
    give(store, [10], 1);
    store.loseWrites = 100;
    expect(new EndpointIds(store).renew(10, 1)).toBe(0);
    store.loseWrites = 0;
    expect(give(store, [10], 1)).toStrictEqual([1] as StaticArray<u32>);
  });
});

describe("a record that is not ours", () => {
  it("is a cold start or is read as far as it goes, never a trap", () => {
    seedRandom(9);
    for (let size = 0; size < 120; size++) {
      for (let value = 0; value < 3; value++) {
        const store = new RacingStore();
        store.spoil(Space.Ids, 0, filled(size, value == 0 ? 0 : value == 1 ? 0xff : 7));
        const ids = new StaticArray<u32>(3);
        new EndpointIds(store).assign([10, 20, 30], 1, ids);
        new EndpointIds(store).read([10, 20, 30], ids);
        new EndpointIds(store).renew(10, 1);
      }
    }
    const store = new RacingStore();
    store.spoil(Space.Ids, 0, filled(7, 0xff));
    expect(give(store, [10, 20], 1)).toStrictEqual([1, 2] as StaticArray<u32>);
    const none = new StaticArray<u32>(1);
    expect(new EndpointIds(new RacingStore()).read([10], none)).toBe(false);
  });
});
