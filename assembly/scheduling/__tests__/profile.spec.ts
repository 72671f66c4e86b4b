import { hasWarning, list, loadPicker, mustLoad, pluginError, problemsText, Spy, table, tokens } from "../../config/__tests__/support";
import { LoadedConfig } from "../../config/document";
import { EndpointTable } from "../../endpoints/table";
import { Role } from "../../endpoints/labels";
import { RoleFilter } from "../filters/role";
import { MaxScorePicker } from "../pickers/max-score";
import { RandomPicker } from "../pickers/random";
import { WeightedRandomPicker } from "../pickers/weighted-random";
import { Pass, Picks } from "../pass";
import { Plugin, PluginKind } from "../plugin";
import { Profile } from "../profile";
import { Random } from "../random";

/** A scorer that says what it is told. */
class Fixed extends Plugin {
  constructor(private readonly scores: StaticArray<f64>) {
    super(PluginKind.Scorer);
  }

  score(pass: Pass): void {
    for (let i = 0; i < pass.count; i++) pass.raw[i] = this.scores[pass.candidates[i]];
  }
}

/** A filter that drops one endpoint and notes what it saw. */
class Drop extends Spy {
  constructor(private readonly endpoint: i32) {
    super();
  }

  keep(pass: Pass): void {
    super.keep(pass);
    let kept = 0;
    for (let i = 0; i < pass.count; i++) if (pass.candidates[i] != this.endpoint) pass.candidates[kept++] = pass.candidates[i];
    pass.count = kept;
  }
}

function fleet(count: i32): EndpointTable {
  return table("- ".repeat(count).trimEnd());
}

/** How often each of `scores.length` endpoints is picked first in 4,000 runs. */
function shares(picker: Plugin, scores: StaticArray<f64>): StaticArray<i32> {
  const endpoints = fleet(scores.length);
  const profile = new Profile("p");
  profile.add(new Fixed(scores), 1);
  profile.add(picker, 1);
  profile.prepare(endpoints);
  const pass = new Pass(endpoints, new Random(7));
  const picks = new Picks(scores.length);
  const out = new StaticArray<i32>(scores.length);
  for (let i = 0; i < 4000; i++) {
    profile.run(pass, picks);
    out[picks.first]++;
  }
  return out;
}

function run(picker: Plugin, scores: StaticArray<f64>, weight: f64 = 1): string {
  const endpoints = fleet(scores.length);
  const profile = new Profile("p");
  profile.add(new Fixed(scores), weight);
  profile.add(picker, 1);
  profile.prepare(endpoints);
  const picks = new Picks(scores.length);
  profile.run(new Pass(endpoints, new Random(3)), picks);
  return list(picks);
}

/** Candidates that a profile of this one plugin leaves, over these roles. */
function kept(plugin: string, config: LoadedConfig): string {
  const picks = config.scheduler.decide(tokens(100)).decode;
  return list(picks);
}

describe("a profile", () => {
  it("S-FL-15 filters run in their order, each sees what the one before left, and they stop when nothing is left", () => {
    const endpoints = fleet(2);
    const a = new Drop(0);
    const b = new Drop(1);
    const c = new Drop(1);
    const profile = new Profile("p");
    profile.add(a, 1);
    profile.add(b, 1);
    profile.add(c, 1);
    profile.add(new MaxScorePicker(1), 1);
    profile.prepare(endpoints);
    const picks = new Picks(2);
    expect(profile.run(new Pass(endpoints, new Random()), picks)).toBe(false);
    expect(a.seen.length).toBe(2);
    expect(b.seen.length).toBe(1);
    expect(b.seen[0]).toBe(1);
    expect(c.runs).toBe(0);
    expect(picks.count).toBe(0);
  });

  it("S-FL-16 a drained profile is a failure that its caller sees", () => {
    const config = mustLoad('{"plugins":[{"type":"decode-filter"},{"type":"max-score-picker"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"decode-filter"}]}]}', "prefill");
    expect(list(config.scheduler.decide(tokens(1)).decode)).toBe("");
  });

  it("label filters behind others run in their place", () => {
    const endpoints = table("decode prefill decode");
    const spy = new Spy();
    const role = new RoleFilter(Role.Decode);
    role.prepare(endpoints);
    const profile = new Profile("p");
    profile.add(spy, 1);
    profile.add(role, 1);
    profile.add(new MaxScorePicker(3), 1);
    profile.prepare(endpoints);
    const picks = new Picks(3);
    profile.run(new Pass(endpoints, new Random()), picks);
    expect(spy.seen.length).toBe(3);
    expect(picks.count).toBe(2);
    // Capable are those that pass the label filters, wherever they stand.
    const capable = profile.capable(endpoints);
    expect(capable[0] + capable[2]).toBe(2);
    expect(capable[1]).toBe(0);
  });

  it("S-SC-10 raw scores are clamped before they are weighted, and NaN counts as nothing", () => {
    const endpoints = fleet(4);
    const profile = new Profile("p");
    profile.add(new Fixed([-0.5, 1.5, 0.5, NaN]), 2);
    profile.add(new MaxScorePicker(4), 1);
    profile.prepare(endpoints);
    const pass = new Pass(endpoints, new Random());
    const picks = new Picks(4);
    profile.run(pass, picks);
    expect(pass.total[0]).toBe(0);
    expect(pass.total[1]).toBe(2);
    expect(pass.total[2]).toBe(1);
    expect(pass.total[3]).toBe(0);
  });

  it("weights of any sign, zero included", () => {
    expect(run(new MaxScorePicker(1), [0.1, 0.9], -1)).toBe("0");
    expect(run(new MaxScorePicker(3), [0.2, 0.9, 0.5])).toBe("1 2 0");
    const config = mustLoad(
      '{"plugins":[{"type":"queue-scorer"},{"type":"kv-cache-utilization-scorer"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer","weight":0},{"pluginRef":"kv-cache-utilization-scorer"}]}]}',
      "- -",
    );
    for (let i = 0; i < 2; i++) config.endpoints.known[i] = 7;
    config.endpoints.waiting[1] = 10;
    config.endpoints.kvUsage[0] = 0.9;
    expect(kept("", config)).toBe("1");
  });

  it("an empty fleet is drained", () => {
    const endpoints = fleet(0);
    const profile = new Profile("p");
    profile.add(new MaxScorePicker(1), 1);
    profile.prepare(endpoints);
    expect(profile.run(new Pass(endpoints, new Random()), new Picks(0))).toBe(false);
  });
});

describe("pickers", () => {
  it("S-SC-12 max-score: the best, any of equals, and no more than there are", () => {
    expect(run(new MaxScorePicker(1), [0.1, 0.9, 0.5])).toBe("1");
    const tied = shares(new MaxScorePicker(1), [0.5, 1, 1, 1]);
    expect(tied[0]).toBe(0);
    for (let i = 1; i < 4; i++) {
      expect(tied[i]).toBeGreaterThan(1150);
      expect(tied[i]).toBeLessThan(1520);
    }
    expect(run(new MaxScorePicker(10), [0.1, 0.9, 0.5, 0.7])).toBe("1 3 2 0");
    expect(run(new MaxScorePicker(2), [0.1, 0.9, 0.5, 0.7])).toBe("1 3");
  });

  it("max-score with several: equals in any order, each as likely first", () => {
    const first = shares(new MaxScorePicker(3), [1, 1, 1, 0]);
    for (let i = 0; i < 3; i++) {
      expect(first[i]).toBeGreaterThan(1150);
      expect(first[i]).toBeLessThan(1520);
    }
    expect(first[3]).toBe(0);
  });

  it("max-score sorts a long list", () => {
    const scores = new StaticArray<f64>(200);
    for (let i = 0; i < 200; i++) scores[i] = <f64>((i * 37) % 200) / 200;
    const words = run(new MaxScorePicker(200), scores).split(" ");
    expect(words.length).toBe(200);
    for (let i = 1; i < 200; i++) expect(scores[<i32>parseInt(words[i - 1])]).toBeGreaterThan(scores[<i32>parseInt(words[i])]);
  });

  it("S-SC-13 weighted random: equal scores evenly, 100:1 by far, zero never while others are above", () => {
    const even = shares(new WeightedRandomPicker(1), [0.4, 0.4, 0.4, 0.4]);
    for (let i = 0; i < 4; i++) {
      expect(even[i]).toBeGreaterThan(850);
      expect(even[i]).toBeLessThan(1150);
    }
    const uneven = shares(new WeightedRandomPicker(1), [1, 0.01]);
    expect(uneven[0]).toBeGreaterThan(3900);
    expect(uneven[1]).toBeGreaterThan(5);
    const zero = shares(new WeightedRandomPicker(1), [0, 0.5, 0.5]);
    expect(zero[0]).toBe(0);
    expect(zero[1]).toBeGreaterThan(1800);
    const none = shares(new WeightedRandomPicker(1), [0, 0]);
    expect(none[0]).toBeGreaterThan(1800);
    expect(none[1]).toBeGreaterThan(1800);
  });

  it("weighted random keeps 2:1, and puts zeros last in a list", () => {
    const thirds = shares(new WeightedRandomPicker(1), [1, 0.5]);
    expect(thirds[0]).toBeGreaterThan(2540);
    expect(thirds[0]).toBeLessThan(2790);
    expect(run(new WeightedRandomPicker(3), [0, 0.5, 0]).startsWith("1 ")).toBe(true);
  });

  it("S-SC-14 random: the whole list when it is shorter, each as likely", () => {
    expect(run(new RandomPicker(10), [1, 0, 0]).length).toBe(5);
    const any = shares(new RandomPicker(1), [1, 0, 0, 0]);
    for (let i = 0; i < 4; i++) {
      expect(any[i]).toBeGreaterThan(850);
      expect(any[i]).toBeLessThan(1150);
    }
  });

  it("maxNumOfEndpoints: 0 and less are 1, fractions are refused", () => {
    expect(problemsText(loadPicker('{"plugins":[{"type":"max-score-picker","parameters":{"maxNumOfEndpoints":-5}}]}').problems.errors)).toBe("");
    expect(pluginError('{"type":"random-picker","parameters":{"maxNumOfEndpoints":1.5}}', "plugins[0].parameters.maxNumOfEndpoints", "whole number")).toBe("");
    expect(pluginError('{"type":"weighted-random-picker","parameters":{"max":1}}', "plugins[0].parameters.max", "unknown field")).toBe("");
  });
});

describe("chance", () => {
  it("is the same for the same seed, and differs between seeds", () => {
    const a = new Random(1);
    const b = new Random(1);
    const c = new Random(2);
    let same = 0;
    for (let i = 0; i < 100; i++) {
      const value = a.next();
      expect(b.next()).toBe(value);
      if (c.next() == value) same++;
    }
    expect(same).toBeLessThan(3);
  });

  it("stays in its range for every seed, zero included", () => {
    const random = new Random(0);
    const counts = new StaticArray<i32>(5);
    for (let i = 0; i < 5000; i++) {
      counts[random.below(5)]++;
      const unit = random.unit();
      expect(unit > 0 && unit < 1).toBe(true);
    }
    for (let i = 0; i < 5; i++) expect(counts[i]).toBeGreaterThan(850);
    expect(random.below(0)).toBe(0);
    expect(random.below(1)).toBe(0);
    expect(random.below(-3)).toBe(0);
  });
});

describe("picks", () => {
  it("keep those of one group, in their order", () => {
    const picks = new Picks(5);
    const groups = new StaticArray<i32>(5);
    for (let i = 0; i < 5; i++) {
      picks.list[i] = 4 - i;
      groups[i] = i & 1;
    }
    picks.count = 5;
    picks.keepGroup(groups, 0);
    expect(list(picks)).toBe("4 2 0");
    expect(picks.has(4)).toBe(true);
    expect(picks.has(3)).toBe(false);
    picks.keepGroup(groups, 1);
    expect(picks.first).toBe(-1);
  });
});

describe("the built-in configuration", () => {
  it("is used without a picker document", () => {
    const config = mustLoad("null", "decode prefill");
    expect(config.scheduler.decodeCapable[1]).toBe(1);
    expect(hasWarning(loadPicker("{}"), "apiVersion", "missing")).toBe("");
  });
});
