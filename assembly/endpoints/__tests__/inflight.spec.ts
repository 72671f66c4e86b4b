// What is in flight (DESIGN, Shapes; scheduler §5.3): one table, healed from one book per VM; right to the request over lost races, traps and hot swaps.
import { Space } from "../../store";
import { Fleet, InFlight } from "../index";
import { RETIRED_STALE_MS, STALE_MS } from "../inflight";
import { filled, random, RacingStore, seedRandom } from "./support";

const FLEET = new Fleet([1, 2, 3, 4, 5, 6, 7, 8]);
const requests = new StaticArray<i32>(8);
const tokens = new StaticArray<i32>(8);

/** A store as it is when the process's first VM has started. */
function started(): RacingStore {
  return new RacingStore();
}

function vm(store: RacingStore, nowMs: u64 = 1000, module: u32 = 1): InFlight {
  const v = new InFlight(store, module);
  v.join(nowMs);
  return v;
}

/** "requests/tokens" of endpoints 1 to 3. */
function seen(v: InFlight): string {
  v.read(FLEET, requests, tokens, u64.MAX_VALUE, 0);
  let out = "";
  for (let i = 0; i < 3; i++) out += (i ? " " : "") + requests[i].toString() + "/" + tokens[i].toString();
  return out;
}

function put(v: InFlight, id: u32, n: i32, t: i32, nowMs: u64 = 1000): void {
  v.change(id, n, t);
  v.flush(nowMs);
}

class Between {
  store: RacingStore | null = null;
  vm: InFlight | null = null;
  other: InFlight | null = null;
  healed: bool = false;
  nowMs: u64 = 0;
}
const BETWEEN = new Between();

/** The same as `put`, without hurry. */
function putSoon(v: InFlight, id: u32, n: i32, t: i32, nowMs: u64): void {
  v.change(id, n, t);
  v.flushSoon(nowMs);
}

describe("changes that wait for company", () => {
  it("with little traffic none does", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    for (let now: u64 = 1000; now < 1100; now += 5) {
      a.refresh(now);
      putSoon(a, 1, 1, 10, now + 1);
    }
    expect(seen(b)).toBe("20/200 0/0 0/0");
  });

  it("for five milliseconds: this VM knows them at once, another one then", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    a.refresh(1000);
    putSoon(a, 1, 1, 10, 1000);
    const writes = store.writes;
    for (let i = 0; i < 20; i++) {
      putSoon(a, 2, 1, 5, 1001);
      putSoon(a, 1, -1, -10, 1002);
      putSoon(a, 1, 1, 10, 1003);
      putSoon(a, 2, -1, -5, 1004);
    }
    putSoon(a, 3, 1, 7, 1004);
    expect(store.writes).toBe(writes);
    expect(seen(a)).toBe("1/10 0/0 1/7");
    expect(seen(b)).toBe("1/10 0/0 0/0");
    putSoon(a, 1, -1, -10, 1005);
    expect(seen(b)).toBe("0/0 0/0 1/7");
    expect(seen(a)).toBe("0/0 0/0 1/7");
  });

  it("where nothing follows, for the next tick", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    a.refresh(1000);
    putSoon(a, 1, 1, 10, 1001);
    putSoon(a, 1, -1, -10, 1002);
    expect(seen(b)).toBe("1/10 0/0 0/0");
    a.refresh(1250);
    expect(seen(b)).toBe("0/0 0/0 0/0");
  });

  it("not in a VM that has no ticks any more", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    a.refresh(1000);
    for (let i = 0; i < 3; i++) putSoon(a, 1, 1, 10, 2000);
    expect(seen(b)).toBe("3/30 0/0 0/0");
  });

  it("not when there are too many", () => {
    const store = started();
    const a = vm(store);
    a.refresh(1000);
    putSoon(a, 1, 1, 10, 1001);
    for (let id: u32 = 1000; id < 1200; id++) putSoon(a, id, 1, 1, 1001);
    a.refresh(1250);
    for (let id: u32 = 1000; id < 1200; id++) expect(a.requestsOf(id)).toBe(1, id.toString());
  });

  it("what was read for a decision is written on, unless another VM was in between", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    expect(seen(a)).toBe("0/0 0/0 0/0");
    put(b, 2, 1, 3);
    put(a, 1, 1, 10);
    expect(seen(a)).toBe("1/10 1/3 0/0");
    const reads = store.reads;
    put(a, 1, 1, 10);
    expect(store.reads).toBe(reads);
    expect(seen(b)).toBe("2/20 1/3 0/0");
  });
});

describe("in flight", () => {
  it("nothing at first", () => {
    const v = vm(started());
    expect(seen(v)).toBe("0/0 0/0 0/0");
    expect(v.vm).toBeGreaterThan(0);
  });

  it("what was sent, less what has ended", () => {
    const v = vm(started());
    v.change(1, 1, 100);
    v.change(2, 1, 40);
    v.flush(1000);
    expect(seen(v)).toBe("1/100 1/40 0/0");
    put(v, 1, 1, 7);
    expect(seen(v)).toBe("2/107 1/40 0/0");
    // The first response byte: the tokens, not the request.
    put(v, 1, 0, -100);
    expect(seen(v)).toBe("2/7 1/40 0/0");
    v.change(1, -1, 0);
    v.change(2, -1, -40);
    v.flush(1000);
    expect(seen(v)).toBe("1/7 0/0 0/0");
    put(v, 1, -1, -7);
    expect(seen(v)).toBe("0/0 0/0 0/0");
  });

  it("of all VMs together", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    expect(a.vm != b.vm).toBe(true);
    put(a, 1, 1, 10);
    put(b, 1, 1, 20);
    put(b, 3, 1, 5);
    expect(seen(a)).toBe("2/30 0/0 1/5");
    expect(seen(b)).toBe("2/30 0/0 1/5");
    put(a, 1, -1, -10);
    expect(seen(b)).toBe("1/20 0/0 1/5");
  });

  it("endpoints without an id, and those that are gone, are nobody", () => {
    const v = vm(started());
    put(v, 0, 1, 10);
    put(v, 99, 1, 10);
    expect(seen(v)).toBe("0/0 0/0 0/0");
  });

  it("no count goes below zero", () => {
    const v = vm(started());
    put(v, 1, -1, -10);
    expect(seen(v)).toBe("0/0 0/0 0/0");
    put(v, 1, 1, 10);
    put(v, 1, -2, -100);
    expect(seen(v)).toBe("0/0 0/0 0/0");
    put(v, 1, 1, 10);
    put(v, 1, 0, -20);
    put(v, 1, 1, 5);
    expect(seen(v)).toBe("2/5 0/0 0/0");
  });

  it("no count runs over into a negative one", () => {
    const v = vm(started());
    for (let i = 0; i < 20; i++) put(v, 1, 1, 0x40000000);
    v.read(FLEET, requests, tokens, u64.MAX_VALUE, 0);
    expect(requests[0]).toBe(20);
    expect(tokens[0]).toBeGreaterThan(0x40000000);
    for (let i = 0; i < 20; i++) put(v, 1, -1, -0x40000000);
    expect(seen(v)).toBe("0/0 0/0 0/0");
  });

  it("nothing to change writes nothing", () => {
    const store = started();
    const v = vm(store);
    const writes = store.writes;
    v.flush(1000);
    expect(store.writes).toBe(writes);
  });

  it("hundreds of endpoints", () => {
    const store = started();
    const v = vm(store);
    const ids = new StaticArray<u32>(700);
    for (let i = 0; i < 700; i++) {
      ids[i] = <u32>i + 1;
      put(v, ids[i], 1, i);
    }
    const fleet = new Fleet(ids);
    const r = new StaticArray<i32>(700);
    const t = new StaticArray<i32>(700);
    v.read(fleet, r, t, 1000, 0);
    for (let i = 0; i < 700; i++) if (r[i] != 1 || t[i] != i) expect(i).toBe(-1);
    // Healing makes it anew from the books, and finds it right.
    expect(v.heal(1000)).toBe(true);
    expect(v.healed).toBe(0);
    for (let i = 0; i < 700; i++) put(v, ids[(i * 37) % 700], -1, -((i * 37) % 700));
    v.read(fleet, r, t, 1000, 0);
    for (let i = 0; i < 700; i++) if (r[i] || t[i]) expect(i).toBe(-1);
    // And forgets who has nothing.
    store.get(Space.InFlight, 0);
    expect(store.size).toBe(8);
  });

  it("is read again when it is old, and its own changes are known at once", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    const fleet = new Fleet([1, 2]);
    const r = new StaticArray<i32>(2);
    const t = new StaticArray<i32>(2);
    put(b, 1, 1, 10);
    a.read(fleet, r, t, 1000, 5);
    expect(r[0]).toBe(1);
    put(b, 2, 1, 20);
    let reads = store.reads;
    a.change(1, 1, 7);
    a.read(fleet, r, t, 1004, 5);
    expect(store.reads).toBe(reads);
    expect(r[0]).toBe(2);
    expect(t[0]).toBe(17);
    expect(r[1]).toBe(0);
    a.read(fleet, r, t, 1005, 5);
    expect(store.reads).toBe(reads + 1);
    expect(r[0]).toBe(2);
    expect(r[1]).toBe(1);
    // What it has written itself it need not read.
    a.flush(1006);
    put(b, 2, 1, 20);
    reads = store.reads;
    a.read(fleet, r, t, 1008, 5);
    expect(store.reads).toBe(reads);
    expect(r[0]).toBe(2);
    expect(r[1]).toBe(1);
    // A clock that was set back does not keep it.
    a.read(fleet, r, t, 900, 5);
    expect(r[1]).toBe(2);
    put(b, 2, 1, 20);
    // A healing leaves nothing to go by.
    a.heal(1009);
    a.read(fleet, r, t, 1009, 5);
    expect(r[0]).toBe(2);
    expect(r[1]).toBe(3);
  });

  it("an encode stage's many endpoints in one step", () => {
    const v = vm(started());
    for (let round = 0; round < 3; round++) {
      for (let i: u32 = 1; i <= 18; i++) v.change((i % 8) + 1, 1, 3);
      v.flush(1000);
    }
    v.read(FLEET, requests, tokens, u64.MAX_VALUE, 0);
    let all = 0;
    for (let i = 0; i < 8; i++) all += requests[i];
    expect(all).toBe(54);
  });
});

describe("the first VMs of a process", () => {
  it("have numbers of their own, whoever writes the list first", () => {
    for (let before = 1; before <= 3; before++) {
      const store = started();
      BETWEEN.store = store;
      store.raceSpace = Space.Vms;
      store.race = (): void => {
        BETWEEN.other = vm(BETWEEN.store!);
      };
      store.countdown = before;
      const a = vm(store);
      const b = store.countdown ? vm(store) : BETWEEN.other!;
      store.countdown = 0;
      expect(a.vm).toBeGreaterThan(0);
      expect(b.vm).toBeGreaterThan(0);
      expect(a.vm != b.vm).toBe(true, before.toString());
      put(a, 1, 1, 10);
      put(b, 2, 1, 20);
      expect(a.heal(1000)).toBe(true);
      expect(seen(b)).toBe("1/10 1/20 0/0", before.toString());
    }
  });

  it("do not count twice, or wipe out what another has counted, where the table is not there yet", () => {
    const store = started();
    const a = new InFlight(store, 1);
    a.join(1000);
    put(a, 1, 1, 10);
    expect(seen(a)).toBe("1/10 0/0 0/0");
    const late = started();
    BETWEEN.store = late;
    late.raceSpace = Space.InFlight;
    late.race = (): void => {
      BETWEEN.other = vm(BETWEEN.store!);
      put(BETWEEN.other!, 2, 1, 20);
    };
    late.countdown = 1;
    const b = vm(late);
    put(b, 1, 1, 10);
    expect(seen(b)).toBe("1/10 1/20 0/0");
  });

  it("a VM keeps its number, and hundreds of them leave the list usable", () => {
    const store = started();
    const a = vm(store);
    const number = a.vm;
    a.join(1000);
    a.join(2000);
    expect(a.vm).toBe(number);
    let last: InFlight = a;
    for (let i = 0; i < 700; i++) last = vm(store);
    put(last, 1, 1, 10);
    expect(last.heal(1000)).toBe(true);
    expect(seen(last)).toBe("1/10 0/0 0/0");
  });
});

describe("healing", () => {
  it("drops the share of a VM that has trapped, and of no other", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    put(a, 1, 1, 10);
    put(b, 1, 1, 20);
    put(b, 2, 1, 5);
    // b traps; a ticks on.
    let now: u64 = 1000;
    for (; now <= 1000 + STALE_MS; now += 250) {
      a.refresh(now);
      a.heal(now);
      expect(seen(a)).toBe("2/30 1/5 0/0", now.toString());
    }
    now += 250;
    a.refresh(now);
    expect(a.heal(now)).toBe(true);
    expect(seen(a)).toBe("1/10 0/0 0/0");
    expect(a.healed).toBe(1);
    // The new VM in its place starts at nothing.
    const c = vm(store, now);
    put(c, 2, 1, 7, now);
    expect(a.heal(now)).toBe(true);
    expect(seen(a)).toBe("1/10 1/7 0/0");
  });

  it("mends what was lost in races", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    put(a, 1, 1, 10);
    store.lossPercent = 100;
    put(b, 1, 1, 20);
    put(a, 1, -1, -10);
    expect(b.lost).toBe(1);
    store.lossPercent = 0;
    expect(seen(a)).toBe("1/10 0/0 0/0");
    expect(a.heal(1000)).toBe(true);
    expect(seen(a)).toBe("1/20 0/0 0/0");
    put(b, 1, -1, -20);
    expect(seen(a)).toBe("0/0 0/0 0/0");
  });

  it("writes nothing where there is nothing to mend", () => {
    const store = started();
    const a = vm(store);
    put(a, 1, 1, 10);
    put(a, 2, 1, 10);
    const writes = store.writes;
    expect(a.heal(1000)).toBe(true);
    expect(store.writes).toBe(writes);
  });

  it("does nothing while another VM is between its book and the table", () => {
    const store = started();
    const a = vm(store);
    BETWEEN.vm = vm(store);
    put(a, 1, 1, 10);
    store.raceSpace = Space.InFlight;
    store.race = (): void => {
      BETWEEN.healed = BETWEEN.vm!.heal(1000);
    };
    store.countdown = 1;
    put(a, 1, 1, 20);
    expect(BETWEEN.healed).toBe(false);
    expect(seen(a)).toBe("2/30 0/0 0/0");
    expect(BETWEEN.vm!.heal(1000)).toBe(true);
    expect(seen(a)).toBe("2/30 0/0 0/0");
  });

  it("gives way to a change that comes while it reads", () => {
    const store = started();
    const a = vm(store);
    BETWEEN.other = vm(store);
    put(a, 1, 1, 10);
    // Something to mend: a change that was lost.
    store.lossPercent = 100;
    put(a, 2, 1, 5);
    store.lossPercent = 0;
    store.raceSpace = Space.InFlight;
    store.race = (): void => {
      put(BETWEEN.other!, 3, 1, 7);
    };
    store.countdown = 1;
    expect(a.heal(1000)).toBe(false);
    expect(seen(a)).toBe("1/10 0/0 1/7");
    expect(a.heal(1000)).toBe(true);
    expect(seen(a)).toBe("1/10 1/5 1/7");
  });

  it("a VM that trapped between its book and the table does not hold it up for ever", () => {
    const store = started();
    const a = vm(store);
    const b = vm(store);
    put(a, 1, 1, 10);
    put(b, 2, 1, 5);
    store.get(Space.VmShare, b.vm);
    const book = new StaticArray<u8>(store.size);
    memory.copy(changetype<usize>(book), store.at, store.size);
    book[0] |= 1;
    store.spoil(Space.VmShare, b.vm, book);
    a.refresh(1250);
    expect(a.heal(1250)).toBe(false);
    const later = 1250 + STALE_MS;
    a.refresh(later);
    expect(a.heal(later)).toBe(true);
    expect(seen(a)).toBe("1/10 0/0 0/0");
  });

  it("with a list, books and a table that are not ours, or short, never traps", () => {
    const spaces: StaticArray<Space> = [Space.Vms, Space.VmShare, Space.InFlight];
    for (let s = 0; s < 3; s++) {
      for (let size = 0; size < 80; size++) {
        for (let value = 0; value < 2; value++) {
          const store = started();
          const a = vm(store);
          put(a, 1, 1, 10);
          store.spoil(spaces[s], s == 1 ? a.vm : 0, filled(size, value ? 0xff : 0));
          seen(a);
          a.heal(1000);
          put(a, 1, -1, -10);
          a.refresh(6000);
          put(a, 1, 1, 10, 6000);
          const b = vm(store);
          put(b, 2, 1, 1);
          b.heal(20000);
          seen(b);
        }
      }
    }
    expect(true).toBe(true);
  });
});

describe("a VM of an earlier module", () => {
  it("lives on without ticks until its last stream ends, its share with it", () => {
    const store = started();
    const old = vm(store, 1000, 1);
    put(old, 1, 1, 10);
    put(old, 1, 1, 20);
    const a = vm(store, 1000, 2);
    put(a, 2, 1, 5);
    let now: u64 = 1000;
    for (; now < 600_000; now += 30_000) {
      a.refresh(now);
      expect(a.heal(now)).toBe(true);
      expect(seen(a)).toBe("2/30 1/5 0/0", now.toString());
    }
    // A release after ten minutes, and the share is what is left.
    put(old, 1, -1, -20, now);
    a.refresh(now);
    expect(a.heal(now)).toBe(true);
    expect(seen(a)).toBe("1/10 1/5 0/0");
    put(old, 1, -1, -10, now);
    expect(seen(a)).toBe("0/0 1/5 0/0");
    // With nothing in flight it is forgotten like any silent VM.
    now += STALE_MS + 1000;
    a.refresh(now);
    expect(a.heal(now)).toBe(true);
    store.get(Space.Vms, 0);
    expect(load<u32>(store.at, 4)).toBe(1);
  });

  it("that trapped is dropped in the end", () => {
    const store = started();
    const old = vm(store, 1000, 1);
    put(old, 1, 1, 10);
    const now = 1000 + RETIRED_STALE_MS + 1;
    const a = vm(store, now, 2);
    expect(a.heal(now)).toBe(true);
    expect(seen(a)).toBe("0/0 0/0 0/0");
  });

  it("whose share was dropped puts it back before it releases", () => {
    const store = started();
    const old = vm(store, 1000, 1);
    put(old, 1, 1, 10);
    put(old, 1, 1, 20);
    put(old, 2, 1, 3);
    let now = 1000 + RETIRED_STALE_MS + 1;
    const a = vm(store, now, 2);
    put(a, 1, 1, 100, now);
    expect(a.heal(now)).toBe(true);
    expect(seen(a)).toBe("1/100 0/0 0/0");
    now += 5000;
    a.refresh(now);
    put(old, 1, -1, -20, now);
    expect(seen(a)).toBe("2/110 1/3 0/0");
    a.refresh(now);
    expect(a.heal(now)).toBe(true);
    expect(seen(a)).toBe("2/110 1/3 0/0");
    put(old, 1, -1, -10, now + 1);
    put(old, 2, -1, -3, now + 2);
    expect(seen(a)).toBe("1/100 0/0 0/0");
    expect(a.heal(now + 3)).toBe(true);
    expect(seen(a)).toBe("1/100 0/0 0/0");
  });

  it("is not counted twice when a healing comes while it puts its share back", () => {
    for (let before = 1; before <= 8; before++) {
      const store = started();
      const old = vm(store, 1000, 1);
      put(old, 1, 2, 30);
      const now = 1000 + RETIRED_STALE_MS + 1;
      BETWEEN.vm = vm(store, now, 2);
      BETWEEN.nowMs = now + 5000;
      BETWEEN.vm!.heal(now);
      BETWEEN.vm!.refresh(now + 5000);
      // Before each write in turn, of whatever record.
      const spaces: StaticArray<Space> = [Space.Vms, Space.VmShare, Space.InFlight];
      store.raceSpace = spaces[before % 3];
      store.countdown = before / 3 + 1;
      store.race = (): void => {
        BETWEEN.vm!.heal(BETWEEN.nowMs);
      };
      put(old, 1, -1, -10, now + 5000);
      store.countdown = 0;
      expect(seen(old)).toBe("1/20 0/0 0/0", before.toString());
      BETWEEN.vm!.heal(now + 5001);
      expect(seen(old)).toBe("1/20 0/0 0/0", before.toString());
    }
  });
});

describe("a VM that was only slow", () => {
  it("comes back with its share, and stays", () => {
    const store = started();
    const slow = vm(store);
    const a = vm(store);
    put(slow, 1, 1, 10);
    put(slow, 2, 1, 5);
    let now: u64 = 1000 + STALE_MS + 1000;
    a.refresh(now);
    expect(a.heal(now)).toBe(true);
    expect(seen(a)).toBe("0/0 0/0 0/0");
    // Its next tick.
    slow.refresh(now + 100);
    expect(a.heal(now + 200)).toBe(true);
    expect(seen(a)).toBe("1/10 1/5 0/0");
    for (let i = 0; i < 100; i++) {
      now += 250;
      slow.refresh(now);
      a.refresh(now);
      a.heal(now);
    }
    expect(seen(a)).toBe("1/10 1/5 0/0");
    put(slow, 1, -1, -10, now);
    expect(seen(a)).toBe("0/0 1/5 0/0");
  });

  it("and speaks just as its share is dropped is not lost for good", () => {
    const where: StaticArray<Space> = [Space.InFlight, Space.VmShare, Space.Vms];
    for (let w = 0; w < 3; w++) {
      const store = started();
      BETWEEN.other = vm(store);
      const a = vm(store);
      put(BETWEEN.other!, 1, 1, 10);
      put(BETWEEN.other!, 1, 1, 20);
      let now: u64 = 1000 + STALE_MS + 1000;
      BETWEEN.nowMs = now;
      a.refresh(now);
      store.raceSpace = where[w];
      store.countdown = 1;
      store.race = (): void => {
        put(BETWEEN.other!, 1, -1, -20, BETWEEN.nowMs);
      };
      a.heal(now);
      expect(store.countdown).toBe(0);
      for (let i = 0; i < 40; i++) {
        now += 250;
        BETWEEN.other!.refresh(now);
        a.refresh(now);
        a.heal(now);
      }
      expect(seen(a)).toBe("1/10 0/0 0/0", w.toString());
      put(BETWEEN.other!, 1, -1, -10, now);
      expect(seen(a)).toBe("0/0 0/0 0/0", w.toString());
    }
  });
});

describe("a VM without ticks that speaks just as its share is dropped", () => {
  it("is put back on the list by itself, or by the one that took it off", () => {
    // Before the list is written, and between the list and its book.
    const where: StaticArray<Space> = [Space.Vms, Space.VmShare];
    for (let w = 0; w < 2; w++) {
      const store = started();
      BETWEEN.other = vm(store, 1000, 1);
      put(BETWEEN.other!, 1, 3, 60);
      let now: u64 = 1000 + RETIRED_STALE_MS + 1000;
      BETWEEN.nowMs = now;
      const a = vm(store, now, 2);
      store.raceSpace = where[w];
      store.countdown = 1;
      store.race = (): void => {
        put(BETWEEN.other!, 1, -1, -20, BETWEEN.nowMs);
      };
      a.heal(now);
      expect(store.countdown).toBe(0);
      for (let i = 0; i < 8; i++) {
        now += 1000;
        // It speaks often enough never to look whether it is on the list.
        put(BETWEEN.other!, 2, i & 1 ? -1 : 1, 0, now);
        a.refresh(now);
        a.heal(now);
      }
      expect(seen(a)).toBe("2/40 0/0 0/0", w.toString());
    }
  });
});

describe("ten thousand requests of two VMs", () => {
  it("sum up to the request, without healing, while no race is lost", () => {
    seedRandom(4);
    const store = started();
    const vms: InFlight[] = [vm(store), vm(store)];
    const open: StaticArray<i32>[] = [];
    const want = new StaticArray<i32>(8);
    const wantTokens = new StaticArray<i32>(8);
    for (let i = 0; i < 10000; i++) {
      if (random() & 1 || open.length == 0) {
        const r: StaticArray<i32> = [<i32>(random() & 1), <i32>(random() % 8), <i32>(random() % 1000)];
        open.push(r);
        put(vms[r[0]], <u32>r[1] + 1, 1, r[2]);
        want[r[1]] += 1;
        wantTokens[r[1]] += r[2];
      } else {
        const at = <i32>(random() % <u32>open.length);
        const r = open[at];
        open[at] = open[open.length - 1];
        open.pop();
        // Some release the tokens first, as a response does; some all at once, as an abort does.
        if (random() & 1) {
          put(vms[r[0]], <u32>r[1] + 1, 0, -r[2]);
          put(vms[r[0]], <u32>r[1] + 1, -1, 0);
        } else put(vms[r[0]], <u32>r[1] + 1, -1, -r[2]);
        want[r[1]] -= 1;
        wantTokens[r[1]] -= r[2];
      }
      store.release();
    }
    vms[0].read(FLEET, requests, tokens, u64.MAX_VALUE, 0);
    expect(requests).toStrictEqual(want);
    expect(tokens).toStrictEqual(wantTokens);
    expect(vms[0].heal(1000)).toBe(true);
    expect(vms[0].healed).toBe(0);
  });

  it("and after the next healing when many are", () => {
    seedRandom(6);
    const store = started();
    const vms: InFlight[] = [vm(store), vm(store)];
    store.lossPercent = 90;
    const open: StaticArray<i32>[] = [];
    const want = new StaticArray<i32>(8);
    const wantTokens = new StaticArray<i32>(8);
    for (let i = 0; i < 3000; i++) {
      if (random() & 1 || open.length == 0) {
        const r: StaticArray<i32> = [<i32>(random() & 1), <i32>(random() % 8), <i32>(random() % 1000)];
        open.push(r);
        put(vms[r[0]], <u32>r[1] + 1, 1, r[2]);
        want[r[1]] += 1;
        wantTokens[r[1]] += r[2];
      } else {
        const at = <i32>(random() % <u32>open.length);
        const r = open[at];
        open[at] = open[open.length - 1];
        open.pop();
        put(vms[r[0]], <u32>r[1] + 1, -1, -r[2]);
        want[r[1]] -= 1;
        wantTokens[r[1]] -= r[2];
      }
      if (i % 100 == 0) vms[1].heal(1000);
      store.release();
    }
    expect(vms[0].lost + vms[1].lost).toBeGreaterThan(0);
    store.lossPercent = 0;
    expect(vms[0].heal(1000)).toBe(true);
    vms[0].read(FLEET, requests, tokens, u64.MAX_VALUE, 0);
    expect(requests).toStrictEqual(want);
    expect(tokens).toStrictEqual(wantTokens);
  });
});
