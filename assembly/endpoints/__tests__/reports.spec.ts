// Connect failures that any VM saw, told to the one that scrapes.
import { Space } from "../../store";
import { consumeReports, reportFailure } from "../index";
import { filled, RacingStore } from "./support";

class Between {
  store: RacingStore | null = null;
}
const BETWEEN = new Between();

describe("reports", () => {
  it("are consumed once, in order, each as often as it was made", () => {
    const store = new RacingStore();
    expect(consumeReports(store).length).toBe(0);
    reportFailure(store, 7);
    reportFailure(store, 8);
    reportFailure(store, 7);
    const ids = consumeReports(store);
    expect(ids).toStrictEqual([7, 8, 7] as u32[]);
    expect(consumeReports(store).length).toBe(0);
    reportFailure(store, 9);
    expect(consumeReports(store)).toStrictEqual([9] as u32[]);
  });

  it("are bounded", () => {
    const store = new RacingStore();
    for (let i: u32 = 1; i <= 1000; i++) reportFailure(store, i);
    expect(consumeReports(store).length).toBe(64);
    expect(store.bytes).toBeLessThan(300);
  });

  it("of two VMs at once are both kept, the first two of a process too", () => {
    for (let existing = 0; existing < 2; existing++) {
      const store = new RacingStore();
      if (existing) {
        reportFailure(store, 1);
        consumeReports(store);
      }
      BETWEEN.store = store;
      store.raceSpace = Space.Marks;
      store.race = (): void => reportFailure(BETWEEN.store!, 5);
      store.countdown = 1;
      reportFailure(store, 6);
      const ids = consumeReports(store);
      expect(ids).toStrictEqual([5, 6] as u32[]);
    }
  });

  it("that come in while they are read wait for the next time", () => {
    const store = new RacingStore();
    reportFailure(store, 5);
    BETWEEN.store = store;
    store.raceSpace = Space.Marks;
    store.race = (): void => reportFailure(BETWEEN.store!, 6);
    store.countdown = 1;
    expect(consumeReports(store).length).toBe(0);
    expect(consumeReports(store)).toStrictEqual([5, 6] as u32[]);
  });

  it("lost races end, and odd records are no trap", () => {
    const store = new RacingStore();
    store.loseWrites = 1000;
    reportFailure(store, 5);
    expect(1000 - store.loseWrites).toBeLessThan(20);
    store.loseWrites = 0;
    for (let size = 0; size < 400; size += 13) {
      store.spoil(Space.Marks, 1, filled(size, 1));
      expect(consumeReports(store).length).toBeLessThanOrEqual(64);
      store.spoil(Space.Marks, 1, filled(size, 1));
      reportFailure(store, 5);
    }
  });
});
