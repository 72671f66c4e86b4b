// Prompts that nobody holds, by turns. The order is in shared data, where a second worker finds it.
import { holds, pluginError, problemsText, loadPicker, table, tokens } from "../../../config/__tests__/support";
import { Build } from "../../../config/build";
import { JsonDoc } from "../../../config/json";
import { Node } from "../../../config/node";
import { Problems } from "../../../config/problems";
import { Fleet } from "../../../endpoints/fleet";
import { EndpointTable } from "../../../endpoints/table";
import { MemoryStore, Space, Store } from "../../../store";
import { Pass, PassStage, Picks } from "../../pass";
import { Plugin } from "../../plugin";
import { Random } from "../../random";
import { createPlugin } from "../../../config/registry";

/** One worker with a scorer of its own over shared data that may be others' as well. */
class Worker {
  readonly scorer: Plugin;
  readonly pass: Pass;

  constructor(
    readonly endpoints: EndpointTable,
    store: Store,
    parameters: string = "null",
    name: string = "no-hit-lru-scorer",
  ) {
    const ids = new StaticArray<u32>(endpoints.count);
    for (let i = 0; i < ids.length; i++) {
      ids[i] = 101 + i;
      endpoints.id[i] = ids[i];
    }
    const scorer = createPlugin("no-hit-lru-scorer", Node.root(JsonDoc.parse(parameters), 0, "", new Problems()), new Build(new Problems()))!;
    scorer.name = name;
    scorer.prepare(endpoints);
    this.scorer = scorer;
    this.pass = new Pass(endpoints, new Random());
    this.pass.facts = tokens(100);
    this.pass.store = store;
    this.pass.fleet = new Fleet(ids);
  }

  /** Raw scores of the candidates, joined by spaces. */
  scores(stage: PassStage, candidates: StaticArray<i32>): string {
    const pass = this.pass;
    pass.stage = stage;
    pass.count = candidates.length;
    for (let i = 0; i < candidates.length; i++) pass.candidates[i] = candidates[i];
    this.scorer.score(pass);
    let out = "";
    for (let i = 0; i < candidates.length; i++) out += (i > 0 ? " " : "") + pass.raw[i].toString();
    return out;
  }

  /** A cold request: scored for both stages, and picked so (-1: no such pick). */
  request(decode: i32, prefill: i32 = -1): void {
    this.scorer.produce(this.pass);
    this.scores(PassStage.Decode, [0, 1, 2]);
    if (prefill >= 0) this.scores(PassStage.Prefill, [0, 1, 2]);
    this.scorer.record(this.pass, picked(decode), picked(prefill), picked(-1));
  }
}

function picked(endpoint: i32): Picks {
  const picks = new Picks(1);
  picks.list[0] = endpoint;
  picks.count = endpoint < 0 ? 0 : 1;
  return picks;
}

const ALL: StaticArray<i32> = [0, 1, 2];

describe("no-hit-lru-scorer", () => {
  it("S-SC-06 three endpoints that were never used: 1, 0.5, 0 by their order", () => {
    const w = new Worker(table("- - -"), new MemoryStore());
    w.scorer.produce(w.pass);
    expect(w.scores(PassStage.Decode, ALL)).toBe("1.0 0.5 0.0");
    expect(w.scores(PassStage.Decode, [2])).toBe("1.0");
  });

  it("S-SC-07 anybody holds a block: 0.5 each, and the pick is no cold one", () => {
    const store = new MemoryStore();
    const w = new Worker(table("- - -"), store);
    holds(w.endpoints, 1, 20);
    w.scorer.produce(w.pass);
    expect(w.scores(PassStage.Decode, ALL)).toBe("0.5 0.5 0.5");
    // What somebody holds who is no candidate does not count.
    expect(w.scores(PassStage.Decode, [0, 2])).toBe("1.0 0.0");
    const warm = new Worker(table("- - -"), store);
    holds(warm.endpoints, 1, 20);
    warm.request(1);
    expect(store.get(Space.ColdOrder, 0)).toBe(false);
    expect(store.writes).toBe(0);
  });

  it("S-SC-08 after cold picks the least recently used comes first, and prefill's picks are apart from decode's", () => {
    const store = new MemoryStore();
    const w = new Worker(table("- - -"), store);
    w.request(0, 2);
    // Endpoint 0 has decoded, so it comes behind the two that have not; for prefill that is endpoint 2.
    expect(w.scores(PassStage.Decode, ALL)).toBe("0.0 1.0 0.5");
    expect(w.scores(PassStage.Prefill, ALL)).toBe("1.0 0.5 0.0");
    w.request(1);
    w.request(2);
    expect(w.scores(PassStage.Decode, ALL)).toBe("1.0 0.5 0.0");
    w.request(0);
    expect(w.scores(PassStage.Decode, ALL)).toBe("0.0 1.0 0.5");
    expect(w.scores(PassStage.Prefill, ALL)).toBe("1.0 0.5 0.0");
    // Ranks are ranks among the candidates.
    expect(w.scores(PassStage.Decode, [0, 2])).toBe("0.0 1.0");
  });

  it("the workers of a process share one order, two instances do not", () => {
    const store = new MemoryStore();
    const a = new Worker(table("- - -"), store);
    const b = new Worker(table("- - -"), store);
    const other = new Worker(table("- - -"), store, "null", "another");
    a.request(0);
    b.scorer.produce(b.pass);
    expect(b.scores(PassStage.Decode, ALL)).toBe("0.0 1.0 0.5");
    other.scorer.produce(other.pass);
    expect(other.scores(PassStage.Decode, ALL)).toBe("1.0 0.5 0.0");
  });

  it("remembers lruSize picks, and no endpoint that is gone", () => {
    const store = new MemoryStore();
    const w = new Worker(table("- - -"), store, '{"lruSize":1}');
    w.request(0);
    w.request(1);
    // Endpoint 0 is forgotten: it counts as never used.
    expect(w.scores(PassStage.Decode, ALL)).toBe("1.0 0.0 0.5");
    const later = new Worker(table("- - -"), store, '{"lruSize":1}');
    const ids: StaticArray<u32> = [101, 202, 103];
    later.pass.fleet = new Fleet(ids);
    later.endpoints.id[1] = 202;
    later.scorer.produce(later.pass);
    expect(later.scores(PassStage.Decode, ALL)).toBe("1.0 0.5 0.0");
  });

  it("a race that is lost is run again; one that is lost each time costs the note and nothing else", () => {
    const store = new MemoryStore();
    const w = new Worker(table("- - -"), store);
    store.loseWrites = 2;
    w.request(0);
    expect(w.scores(PassStage.Decode, ALL)).toBe("0.0 1.0 0.5");
    store.loseWrites = 100;
    w.request(1);
    expect(w.scores(PassStage.Decode, ALL)).toBe("0.0 1.0 0.5");
  });

  it("takes its old parameters and a size of 0, and no others", () => {
    expect(problemsText(loadPicker('{"plugins":[{"type":"no-hit-lru-scorer","parameters":{"lruSize":0,"prefixPluginType":"a","prefixPluginName":"b"}}]}').problems.errors)).toBe("");
    expect(pluginError('{"type":"no-hit-lru-scorer","parameters":{"lruSize":"all"}}', "plugins[0].parameters.lruSize", "whole number")).toBe("");
    expect(pluginError('{"type":"no-hit-lru-scorer","parameters":{"size":1}}', "plugins[0].parameters.size", "unknown field")).toBe("");
  });
});
