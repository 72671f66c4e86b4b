// Requests of negative priority and a saturated fleet (scheduler §2.6, §6.1).
import { mustLoad, oneError, tokens } from "../../config/__tests__/support";
import { LoadedConfig } from "../../config/document";
import { RequestFacts } from "../../scheduling/request";
import { Outcome } from "../decision";
import { DecodeReason } from "../reasons";

function saturated(plugins: string): LoadedConfig {
  const config = mustLoad('{"plugins":[' + plugins + '{"type":"random-picker"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"random-picker"}]}]}', "- -");
  for (let i = 0; i < 2; i++) {
    config.endpoints.known[i] = 7;
    config.endpoints.waiting[i] = 50;
    config.endpoints.kvUsage[i] = 0.99;
  }
  return config;
}

function sheddable(priority: i32): RequestFacts {
  const facts = tokens(10);
  facts.priority = priority;
  return facts;
}

/** Requests of 1000 that are refused. */
function refused(config: LoadedConfig, priority: i32): i32 {
  let count = 0;
  for (let i = 0; i < 1000; i++) if (config.scheduler.decide(sheddable(priority)).outcome == Outcome.Saturated) count++;
  return count;
}

describe("admission", () => {
  it("S-RQ-15 under saturation a negative priority is refused, others pass", () => {
    const config = saturated("");
    expect(refused(config, -1)).toBe(1000);
    expect(refused(config, 0)).toBe(0);
    expect(refused(config, 100)).toBe(0);
    for (let i = 0; i < 2; i++) {
      config.endpoints.waiting[i] = 1;
      config.endpoints.kvUsage[i] = 0.1;
    }
    expect(refused(config, -1)).toBe(0);
  });

  it("a request that is decided by load alone has its priority too, but for one without a body", () => {
    const config = saturated("");
    expect(config.scheduler.decideByLoad(sheddable(-1), DecodeReason.UnknownPath).outcome).toBe(Outcome.Saturated);
    expect(config.scheduler.decideByLoad(sheddable(-1), DecodeReason.UndecidedBody).outcome).toBe(Outcome.Saturated);
    expect(config.scheduler.decideByLoad(sheddable(-1), DecodeReason.NoBody).outcome).toBe(Outcome.Ok);
    expect(config.scheduler.decideByLoad(sheddable(0), DecodeReason.UnknownPath).outcome).toBe(Outcome.Ok);
  });

  it("S-RQ-14 an admitter's refusal keeps its kind: too many requests, no fault of ours (scheduler L11)", () => {
    const config = saturated('{"type":"probabilistic-admitter","parameters":{"power":1,"k":0.5}},');
    for (let i = 0; i < 2; i++) {
      config.endpoints.waiting[i] = 3;
      config.endpoints.kvUsage[i] = 0.1;
    }
    // Saturation 3 / 5, times 0.5: three in ten, while the detector sees no saturation yet.
    const some = refused(config, -1);
    expect(some).toBeGreaterThan(250);
    expect(some).toBeLessThan(350);
    expect(refused(config, 0)).toBe(0);
  });

  it("the default admitter lets an idle fleet's requests pass and sheds at the threshold", () => {
    const config = saturated('{"type":"probabilistic-admitter"},');
    for (let i = 0; i < 2; i++) {
      config.endpoints.waiting[i] = 0;
      config.endpoints.kvUsage[i] = 0;
    }
    expect(refused(config, -1)).toBe(0);
    // 0.4 ^ 5 x 300 is above 1: everything goes, and 0.2 ^ 5 x 300 is a tenth.
    for (let i = 0; i < 2; i++) config.endpoints.waiting[i] = 2;
    expect(refused(config, -1)).toBe(1000);
    for (let i = 0; i < 2; i++) config.endpoints.waiting[i] = 1;
    const some = refused(config, -1);
    expect(some).toBeGreaterThan(60);
    expect(some).toBeLessThan(135);
  });

  it("objectives are names with whole numbers", () => {
    const config = mustLoad("null", "-", '{"objectives":{"batch":-10,"chat":5}}');
    expect(config.options.objectives.length).toBe(2);
    expect(config.options.objectives[0].name).toBe("batch");
    expect(config.options.objectives[0].priority).toBe(-10);
    expect(oneError("null", "options.objectives.batch", "whole number", '{"objectives":{"batch":"low"}}')).toBe("");
    expect(oneError("null", "options.objectives.batch", "whole number", '{"objectives":{"batch":1.5}}')).toBe("");
    expect(oneError("null", "options.objectives.batch", "", '{"objectives":{"batch":3000000000}}')).toBe("");
    expect(oneError("null", "options.objectives", "object", '{"objectives":[]}')).toBe("");
    expect(oneError("null", "options.objectives", "1 to 256", '{"objectives":{"":1}}')).toBe("");
  });
});
