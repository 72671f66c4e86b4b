// Which encoder takes which item, and that it is a better rule than the reference's (scheduler §3.10, L8): there the encode profile's picker chooses without knowing of load or of
// what was encoded where, and the sidecar deals the items out in turn.
import { list, media, mustLoad, table } from "../../config/__tests__/support";
import { LoadedConfig } from "../../config/document";
import { EndpointTable } from "../../endpoints/table";
import { Pass, Picks } from "../../scheduling/pass";
import { Random } from "../../scheduling/random";
import { RequestFacts } from "../../scheduling/request";
import { itemsOf, planItems, preferIdle } from "../encode";

function picks(endpoints: StaticArray<i32>): Picks {
  const out = new Picks(48);
  for (let i = 0; i < endpoints.length; i++) out.list[i] = endpoints[i];
  out.count = endpoints.length;
  return out;
}

function plan(endpoints: EndpointTable, facts: RequestFacts, picked: StaticArray<i32>, seed: u64 = 1): string {
  const pass = new Pass(endpoints, new Random(seed));
  pass.facts = facts;
  const out = picks(picked);
  planItems(pass, out);
  return list(out);
}

/** The encode profile with a picker of `n`; e0 decodes, the others encode. */
function fleet(encoders: i32, n: i32): LoadedConfig {
  return mustLoad(
    '{"plugins":[{"type":"decode-filter"},{"type":"encode-filter"},{"type":"always-disagg-multimodal-decider"},{"type":"max-score-picker"},{"type":"max-score-picker","name":"many","parameters":{"maxNumOfEndpoints":' +
      n.toString() +
      '}},{"type":"disagg-profile-handler","parameters":{"deciders":{"encode":"always-disagg-multimodal-decider"}}}],' +
      '"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"},{"pluginRef":"max-score-picker"}]},{"name":"encode","plugins":[{"pluginRef":"encode-filter"},{"pluginRef":"many"}]}]}',
    "decode" + " encode".repeat(encoders),
  );
}

describe("the plan of items", () => {
  it("is one header entry per distinct item, each at an encoder of the list", () => {
    const endpoints = table("encode encode encode");
    const words = plan(endpoints, media(900, 4), [0, 2, 1]).split(" ");
    expect(words.length).toBe(4);
    // Idle encoders take turns: nobody has two before everybody has one.
    expect(words[0] != words[1] && words[1] != words[2] && words[0] != words[2]).toBe(true);
    expect(words[3]).toBe(words[0]);
  });

  it("one encoder stays one entry, and so does a request without items", () => {
    expect(plan(table("encode encode"), media(900, 4), [1])).toBe("1");
    expect(plan(table("encode encode"), media(10, 0), [1, 0])).toBe("1 0");
  });

  it("fewer items than encoders: as many entries as items", () => {
    expect(plan(table("encode encode encode"), media(300, 1), [0, 1, 2]).length).toBe(1);
  });

  it("an item goes where it was encoded, of several such encoders to the least loaded", () => {
    const endpoints = table("encode encode encode");
    endpoints.heldItems[0] = 0b001;
    endpoints.heldItems[1] = 0b101;
    endpoints.inflightRequests[1] = 7;
    endpoints.inflightRequests[0] = 3;
    // Item 0: encoder 0 has it and is less loaded than 1; item 1: nobody has it, encoder 2 is idle; item 2: only 1 has it.
    expect(plan(endpoints, media(900, 3), [0, 1, 2])).toBe("0 2 1");
  });

  it("other items go to whoever has the fewest, those of this request counted", () => {
    const endpoints = table("encode encode");
    endpoints.inflightRequests[0] = 2;
    expect(plan(endpoints, media(900, 4), [0, 1], 1)).toBe(plan(endpoints, media(900, 4), [0, 1], 1));
    const words = plan(endpoints, media(900, 4), [0, 1]).split(" ");
    let first = 0;
    for (let i = 0; i < 4; i++) if (words[i] == "0") first++;
    // 2 in flight and 0 in flight: the idle one takes two before they are equal, then each one.
    expect(words[0] + words[1]).toBe("11");
    expect(first).toBe(1);
  });

  it("is bounded: more items than are told apart are dealt out over the entries there are", () => {
    const words = plan(table("encode encode"), media(90000, 200), [0, 1]).split(" ");
    expect(words.length).toBe(48);
    let all = 0;
    for (let i = 0; i < 48; i++) all += itemsOf(i, 48, 200);
    expect(all).toBe(200);
  });

  it("items per entry add up to the items, as the sidecar deals them", () => {
    for (let items = 1; items < 30; items++) {
      for (let entries = 1; entries <= items; entries++) {
        let all = 0;
        for (let i = 0; i < entries; i++) all += itemsOf(i, entries, items);
        expect(all).toBe(items);
      }
    }
    // An encoder in the list is never taken to be idle.
    expect(itemsOf(2, 3, 1)).toBe(1);
  });
});

describe("equal scores", () => {
  it("go to the encoder with the least work, what it has encoded taken off", () => {
    const endpoints = table("encode encode encode");
    endpoints.inflightRequests[0] = 3;
    endpoints.inflightRequests[1] = 1;
    endpoints.inflightRequests[2] = 2;
    const pass = new Pass(endpoints, new Random());
    pass.facts = media(900, 2);
    pass.count = 3;
    for (let i = 0; i < 3; i++) pass.candidates[i] = i;
    preferIdle(pass);
    expect(pass.total[1]).toBeGreaterThan(pass.total[2]);
    expect(pass.total[2]).toBeGreaterThan(pass.total[0]);
    // With two items encoded already endpoint 2 has less to do than 1.
    endpoints.heldItems[2] = 0b11;
    pass.total.fill(0);
    preferIdle(pass);
    expect(pass.total[2]).toBeGreaterThan(pass.total[1]);
    // A score of any size comes first.
    for (let i = 0; i < 3; i++) pass.total[i] = i == 0 ? 0.01 : 0;
    preferIdle(pass);
    expect(pass.total[0]).toBeGreaterThan(pass.total[2]);
  });
});

// Arrivals at a constant rate; an encoder works its queue off one item at a time.
class Simulation {
  /** Ticks until each encoder is idle. */
  readonly busy: StaticArray<i32>;
  /** What each encoder has encoded. */
  readonly seen: Set<u64>[] = [];
  encoded: i32 = 0;
  /** Sum over requests of the ticks until the last item was ready. */
  waited: i64 = 0;

  constructor(readonly encoders: i32) {
    this.busy = new StaticArray<i32>(encoders + 1);
    for (let i = 0; i <= encoders; i++) this.seen.push(new Set<u64>());
  }

  /** An item arrives at an encoder; returns ticks until it is ready. */
  send(encoder: i32, item: u64, cost: i32): i32 {
    if (this.seen[encoder].has(item)) return this.busy[encoder];
    this.seen[encoder].add(item);
    this.encoded++;
    this.busy[encoder] = this.busy[encoder] + cost;
    return this.busy[encoder];
  }

  tick(): void {
    for (let i = 0; i <= this.encoders; i++) if (this.busy[i] > 0) this.busy[i] = this.busy[i] - 1;
  }
}

/**
 * 1000 requests of 1 to 6 items, of which some come back. `entries` is the picker's maxNumOfEndpoints. `ours`: by our rule; otherwise by the reference's: the encoders in random
 * order, because nothing scores them, and the items dealt out in turn.
 */
function simulate(ours: bool, entries: i32, returning: i32): Simulation {
  const encoders = 4;
  const config = fleet(encoders, entries);
  const endpoints = config.endpoints;
  const sim = new Simulation(encoders);
  const random = new Random(42);
  const bytes = new StaticArray<u8>(16 * 6);
  const costs = new StaticArray<i32>(6);
  const order: StaticArray<i32> = [1, 2, 3, 4];
  for (let r = 0; r < 1000; r++) {
    const n = 1 + random.below(6);
    const facts = media(n * 225, n);
    facts.items = changetype<usize>(bytes);
    for (let i = 0; i < n; i++) {
      const item = random.below(100) < returning ? <u64>(1 + random.below(60)) : <u64>(1000 + r * 10 + i);
      store<u64>(facts.items + <usize>i * 16, item);
      store<u32>(facts.items + <usize>i * 16 + 8, 225);
      // Most are pictures, one in ten is a video.
      costs[i] = random.below(10) == 0 ? 20 : 2;
    }
    for (let k = 3; k > 0; k--) {
      const at = random.below(k + 1);
      const other = order[at];
      order[at] = order[k];
      order[k] = other;
    }
    for (let e = 1; e <= encoders; e++) {
      // What the filter knows: how many items are in flight, not what they cost, and what it has sent where.
      endpoints.inflightRequests[e] = (sim.busy[e] + 3) / 4;
      let held: u64 = 0;
      for (let i = 0; i < n; i++) if (sim.seen[e].has(load<u64>(facts.items + <usize>i * 16))) held |= <u64>1 << i;
      endpoints.heldItems[e] = held;
    }
    const encode = ours ? config.scheduler.decide(facts).encode : null;
    let last = 0;
    for (let i = 0; i < n; i++) {
      const encoder = encode ? encode.list[i % encode.count] : order[i % entries];
      last = max(last, sim.send(encoder, load<u64>(facts.items + <usize>i * 16), costs[i]));
    }
    sim.waited += last;
    for (let t = 0; t < 4; t++) sim.tick();
  }
  return sim;
}

describe("against the reference's rule", () => {
  it("encode by load, one encoder per request: the wait for the last item is less than half as long", () => {
    const ours = simulate(true, 1, 0);
    const reference = simulate(false, 1, 0);
    expect(ours.encoded).toBe(reference.encoded);
    expect(<f64>ours.waited).toBeLessThan(0.5 * <f64>reference.waited);
  });

  it("encode by load, an entry per item: again less than half as long", () => {
    const ours = simulate(true, 4, 0);
    const reference = simulate(false, 4, 0);
    expect(ours.encoded).toBe(reference.encoded);
    expect(<f64>ours.waited).toBeLessThan(0.5 * <f64>reference.waited);
  });

  it("encode by media already encoded: of 60 returning items the reference encodes most at every encoder, we few twice", () => {
    const ours = simulate(true, 4, 50);
    const reference = simulate(false, 4, 50);
    // At most 180 encodes can be saved: each of the 60 items at three encoders.
    expect(reference.encoded - ours.encoded).toBeGreaterThanOrEqual(150);
    expect(<f64>ours.waited).toBeLessThan(0.6 * <f64>reference.waited);
  });

  it("one entry per distinct item: no encoder gets two items while another has none", () => {
    const config = fleet(4, 4);
    for (let r = 0; r < 50; r++) {
      const words = list(config.scheduler.decide(media(900, 4)).encode).split(" ");
      expect(words.length).toBe(4);
      for (let i = 0; i < 4; i++) for (let k = 0; k < i; k++) expect(words[i] != words[k]).toBe(true);
    }
  });
});
