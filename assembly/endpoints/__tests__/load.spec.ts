// Scraped load and health: one record, written by the lease holder, read once per request (scheduler §5.2, §12.3 L10).
import { Space } from "../../store";
import { DRAINING, EndpointTable, Fleet, KNOWN_KV_USAGE, KNOWN_RUNNING, KNOWN_WAITING, LoadBook, readLoad, reportedBlockTokens, SCRAPED, UNREACHABLE } from "../index";
import { filled, RacingStore } from "./support";

const IDS: StaticArray<u32> = [11, 12, 13];

function book(): LoadBook {
  return new LoadBook(IDS);
}

describe("scraped load", () => {
  it("is what the holder wrote, as long as it is fresh", () => {
    const store = new RacingStore();
    const b = book();
    const e = b.entry(1);
    e.waiting = 3;
    e.running = 5;
    e.kvUsage = 0.25;
    e.scrapedMs = 10_000;
    e.setKnown(KNOWN_WAITING);
    e.setKnown(KNOWN_KV_USAGE);
    e.blockTokens = 16;
    e.blocks = 1000;
    b.write(store);
    const fleet = new Fleet(IDS);
    const table = new EndpointTable(3);
    expect(readLoad(store, fleet, table, 12_000, 2000)).toBe(0);
    expect(table.known[0]).toBe(0);
    expect(table.known[1]).toBe(KNOWN_WAITING | KNOWN_KV_USAGE);
    expect(table.waiting[1]).toBe(3);
    expect(table.kvUsage[1]).toBe(0.25);
    expect(table.cacheTokens[1]).toBe(16000);
    expect(table.usable[1]).toBe(1);
    // Older than that it is not known: neutral, not zero.
    readLoad(store, fleet, table, 12_001, 2000);
    expect(table.known[1]).toBe(0);
    // What the engine's cache holds does not age.
    expect(table.cacheTokens[1]).toBe(16000);
    expect(reportedBlockTokens(store, fleet)).toBe(16);
  });

  it("a value that was not in the last answer is not known", () => {
    const e = book().entry(0);
    e.setKnown(KNOWN_WAITING);
    e.setKnown(KNOWN_RUNNING);
    e.flags |= SCRAPED | DRAINING;
    e.clearKnown();
    e.setKnown(KNOWN_RUNNING);
    expect(e.known(KNOWN_WAITING)).toBe(false);
    expect(e.known(KNOWN_RUNNING)).toBe(true);
    expect(e.flags & (SCRAPED | DRAINING | UNREACHABLE)).toBe(SCRAPED | DRAINING);
  });

  it("endpoints that cannot be reached or are draining are left out, and counted", () => {
    const store = new RacingStore();
    const b = book();
    b.entry(0).flags |= UNREACHABLE;
    b.entry(2).flags |= DRAINING;
    b.write(store);
    const table = new EndpointTable(3);
    expect(readLoad(store, new Fleet(IDS), table, 0, 2000)).toBe(2);
    expect(table.usable).toStrictEqual([0, 1, 0] as StaticArray<u8>);
    b.entry(0).flags &= ~UNREACHABLE;
    b.write(store);
    expect(readLoad(store, new Fleet(IDS), table, 0, 2000)).toBe(1);
    expect(table.usable).toStrictEqual([1, 1, 0] as StaticArray<u8>);
  });

  it("before the first record, and with a short one, everything is usable and nothing known", () => {
    const store = new RacingStore();
    const table = new EndpointTable(3);
    table.usable[1] = 0;
    table.known[1] = 7;
    expect(readLoad(store, new Fleet(IDS), table, 0, 2000)).toBe(0);
    expect(table.usable[1]).toBe(1);
    expect(table.known[1]).toBe(0);
    for (let size = 0; size < 300; size += 3) {
      store.spoil(Space.Load, 0, filled(size, 0xff));
      readLoad(store, new Fleet(IDS), table, 0, 2000);
      reportedBlockTokens(store, new Fleet(IDS));
      book().adopt(store, new Fleet(IDS));
    }
  });

  it("goes with the id, not with the place: another configuration's order, endpoints that it lacks", () => {
    const store = new RacingStore();
    const b = book();
    for (let i = 0; i < 3; i++) {
      b.entry(i).waiting = <f32>i;
      b.entry(i).scrapedMs = 100;
      b.entry(i).setKnown(KNOWN_WAITING);
    }
    b.write(store);
    const table = new EndpointTable(3);
    readLoad(store, new Fleet([13, 99, 11]), table, 100, 2000);
    expect(table.waiting[0]).toBe(2);
    expect(table.known[1]).toBe(0);
    expect(table.waiting[2]).toBe(0);
    expect(table.known[2]).toBe(KNOWN_WAITING);
  });

  it("of an endpoint without an id is nobody's", () => {
    const store = new RacingStore();
    const b = new LoadBook([0, 12]);
    b.entry(0).flags |= UNREACHABLE;
    b.write(store);
    const table = new EndpointTable(2);
    expect(readLoad(store, new Fleet([11, 12]), table, 0, 2000)).toBe(0);
    expect(table.usable).toStrictEqual([1, 1] as StaticArray<u8>);
    expect(readLoad(store, new Fleet([0, 12]), table, 0, 2000)).toBe(0);
    expect(table.usable).toStrictEqual([1, 1] as StaticArray<u8>);
  });

  it("the next holder takes over what is known of the same endpoints", () => {
    const store = new RacingStore();
    const b = book();
    b.entry(1).counter = 500;
    b.entry(1).startTime = 1.5;
    b.entry(1).failures = 1;
    b.write(store);
    expect(b.dirty).toBe(false);
    const ids: StaticArray<u32> = [12, 14];
    const next = new LoadBook(ids);
    next.adopt(store, new Fleet(ids));
    expect(next.entry(0).counter).toBe(500);
    expect(next.entry(0).startTime).toBe(1.5);
    expect(next.entry(0).failures).toBe(1);
    expect(next.entry(0).id).toBe(12);
    expect(next.entry(1).counter).toBe(0);
    expect(next.entry(1).id).toBe(14);
    next.dispose();
    b.dispose();
  });

  it("an endpoint that was restarted in place begins at nothing, but for what tells the next restart", () => {
    const b = book();
    const e = b.entry(1);
    e.waiting = 3;
    e.flags = SCRAPED | DRAINING;
    e.setKnown(KNOWN_WAITING);
    e.scrapedMs = 5;
    e.blocks = 7;
    e.startTime = 100;
    e.counter = 9;
    b.renew(1, 40);
    expect(e.id).toBe(40);
    expect(e.flags).toBe(0);
    expect(e.waiting).toBe(0);
    expect(e.blocks).toBe(0);
    expect(e.scrapedMs == 0).toBe(true);
    expect(e.startTime).toBe(100);
    expect(e.counter).toBe(9);
    expect(b.dirty).toBe(true);
  });
});
