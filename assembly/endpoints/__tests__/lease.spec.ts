// One VM of all works for the fleet.
import { Space } from "../../store";
import { holdLease } from "../index";
import { LEASE_MS } from "../lease";
import { filled, RacingStore } from "./support";

class Between {
  store: RacingStore | null = null;
  held: bool = false;
}
const BETWEEN = new Between();

describe("the lease", () => {
  it("is one VM's, who renews it, and nobody else's", () => {
    const store = new RacingStore();
    expect(holdLease(store, 1, false, 1000)).toBe(true);
    for (let now: u64 = 1000; now < 60000; now += 250) {
      expect(holdLease(store, 2, false, now)).toBe(false);
      expect(holdLease(store, 3, true, now)).toBe(false);
      expect(holdLease(store, 1, false, now)).toBe(true);
    }
  });

  it("passes on when its holder is silent", () => {
    const store = new RacingStore();
    holdLease(store, 1, false, 1000);
    expect(holdLease(store, 2, false, 1000 + LEASE_MS)).toBe(false);
    expect(holdLease(store, 2, false, 1001 + LEASE_MS)).toBe(true);
    expect(holdLease(store, 1, false, 1001 + LEASE_MS)).toBe(false);
  });

  it("prefers a VM that serves no stream", () => {
    const store = new RacingStore();
    expect(holdLease(store, 1, true, 1000)).toBe(true);
    expect(holdLease(store, 2, true, 1100)).toBe(false);
    expect(holdLease(store, 3, false, 1200)).toBe(true);
    expect(holdLease(store, 1, true, 1300)).toBe(false);
    expect(holdLease(store, 2, false, 1300)).toBe(false);
    // The holder that gets busy keeps it until an idle one asks.
    expect(holdLease(store, 3, true, 1400)).toBe(true);
    expect(holdLease(store, 1, true, 1500)).toBe(false);
    expect(holdLease(store, 2, false, 1500)).toBe(true);
  });

  it("is never two VMs', whoever asks first", () => {
    for (let existing = 0; existing < 2; existing++) {
      const store = new RacingStore();
      if (existing) holdLease(store, 9, false, 1);
      BETWEEN.store = store;
      store.raceSpace = Space.Lease;
      store.race = (): void => {
        BETWEEN.held = holdLease(BETWEEN.store!, 2, false, 10000);
      };
      store.countdown = 1;
      expect(holdLease(store, 1, false, 10000)).toBe(false);
      expect(BETWEEN.held).toBe(true);
      expect(holdLease(store, 2, false, 10001)).toBe(true);
    }
  });

  it("a VM without a number has none, and a record that is not ours is written over", () => {
    const store = new RacingStore();
    expect(holdLease(store, 0, false, 1000)).toBe(false);
    for (let size = 0; size < 16; size++) {
      store.spoil(Space.Lease, 0, filled(size, 0xff));
      expect(holdLease(store, 1, false, 1000)).toBe(true, size.toString());
    }
  });
});
