// The index beside an exact LRU on the two traces that DESIGN's Shapes name: slots, runs and generations together, in the memory that `indexBytes` gives them.
import { BLOCK_COST, Trace } from "./trace";

/** Within one point of what the engines hold. */
function near(told: f64, exact: f64, what: string): void {
  expect(abs(told - exact)).toBeLessThan(0.01, what);
}

describe("a hundred endpoints, four thousand conversations, system prompts that most of them share", () => {
  it("the told hit rate is within one point of the exact one, at three reads a look-up and in the bytes that a block is allowed", () => {
    const t = new Trace();
    t.endpoints = 100;
    t.capacity = 2000;
    t.requests = 24000;
    t.open = 4000;
    t.turn = 12;
    t.slots = (BLOCK_COST * 2000 * 100) / 4096;
    t.run(1);
    // The trace must press: neither everything nor nothing is a hit, and every cache is full.
    expect(t.exact).toBeGreaterThan(0.3);
    expect(t.exact).toBeLessThan(0.8);
    expect(t.full).toBe(100);
    near(t.told, t.exact, t.describe());
    expect(t.reads).toBeLessThan(3.2);
    expect(t.bytesPerBlock).toBeLessThan(<f64>BLOCK_COST + 0.5);
  });
});

function beside(together: bool): Trace {
  const t = new Trace();
  t.endpoints = 8;
  t.capacity = 5000;
  t.requests = 3000;
  t.open = 200;
  t.turn = 16;
  t.systems = 50;
  t.longs = 2;
  // 128k tokens in blocks of 64.
  t.longBlocks = 2048;
  t.longsTogether = together;
  t.slots = (BLOCK_COST * 5000 * 8) / 4096;
  t.run(2);
  return t;
}

describe("two conversations of 128k tokens that come back every second request", () => {
  it("each at an endpoint of its own: they and what is beside them are told within one point", () => {
    const t = beside(false);
    expect(t.longExact).toBeGreaterThan(0.98);
    near(t.longTold, t.longExact, t.describe());
    expect(t.besideExact).toBeLessThan(0.8);
    near(t.besideTold, t.besideExact, t.describe());
    near(t.told, t.exact, t.describe());
  });

  it("both at one endpoint, which has room for little else", () => {
    const t = beside(true);
    expect(t.longExact).toBeGreaterThan(0.98);
    near(t.longTold, t.longExact, t.describe());
    near(t.besideTold, t.besideExact, t.describe());
    near(t.told, t.exact, t.describe());
  });
});
