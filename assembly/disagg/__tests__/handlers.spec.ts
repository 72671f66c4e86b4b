import { hasWarning, list, loadPicker, mustLoad, oneError, problemsText, tokens } from "../../config/__tests__/support";
import { LoadedConfig } from "../../config/document";
import { DECODE_REASONS, PREFILL_REASONS } from "../reasons";
import { dataParallelHostPort } from "../headers";
import { destinations, hostPorts } from "./support";

const PLUGINS =
  '{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"encode-filter"},{"type":"always-disagg-pd-decider"},{"type":"always-disagg-multimodal-decider"},{"type":"prefix-based-pd-decider","parameters":{"nonCachedTokens":8}}';
const PROFILES =
  '"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"}]},{"name":"encode","plugins":[{"pluginRef":"encode-filter"}]}]';

/** A configuration with all deciders and three profiles whose handler has these parameters. The handler is plugins[6]. */
function withHandler(parameters: string, type: string = "disagg-profile-handler"): string {
  return '{"plugins":[' + PLUGINS + ',{"type":"' + type + '","parameters":' + parameters + "}]," + PROFILES + "}";
}

function load(parameters: string, type: string = "disagg-profile-handler"): LoadedConfig {
  return mustLoad(withHandler(parameters, type), "decode prefill encode");
}

function prefillWord(config: LoadedConfig, count: i32): string {
  return PREFILL_REASONS[config.scheduler.decide(tokens(count)).prefillReason];
}

function refused(parameters: string, path: string, fragment: string, type: string = "disagg-profile-handler"): string {
  return oneError(withHandler(parameters, type), "plugins[6].parameters" + path, fragment);
}

describe("disagg-profile-handler", () => {
  it("S-DP-01 no parameters: default names, decode first, no deciders", () => {
    const config = load("null");
    expect(prefillWord(config, 1000)).toBe("skip_no_decider");
    expect(list(config.scheduler.decide(tokens(1000)).decode)).toBe("0");
  });

  it("S-DP-02 nested parameters", () => {
    const config = load('{"profiles":{"decode":"prefill","prefill":"decode"},"deciders":{"prefill":"always-disagg-pd-decider"}}');
    const d = config.scheduler.decide(tokens(10));
    expect(list(d.decode)).toBe("1");
    expect(list(d.prefill)).toBe("0");
  });

  it("S-DP-03 flat parameters", () => {
    const text = withHandler('{"decodeProfile":"prefill","prefillProfile":"decode","encodeProfile":"encode","prefillDeciderPluginName":"always-disagg-pd-decider","encodeDeciderPluginName":"always-disagg-multimodal-decider"}');
    const d = mustLoad(text, "decode prefill encode").scheduler.decide(tokens(10));
    expect(list(d.decode)).toBe("1");
    expect(list(d.prefill)).toBe("0");
    expect(hasWarning(loadPicker(text), "plugins[6].parameters", "deprecated")).toBe("");
  });

  it("S-DP-04 deciderPluginName is the prefill decider", () => {
    expect(prefillWord(load('{"deciderPluginName":"always-disagg-pd-decider"}'), 1)).toBe("run_always");
  });

  it("S-DP-05 of both flat names the longer one wins", () => {
    expect(prefillWord(load('{"deciderPluginName":"always-disagg-pd-decider","prefillDeciderPluginName":"prefix-based-pd-decider"}'), 100)).toBe("run_uncached");
    expect(prefillWord(load('{"prefillDeciderPluginName":"prefix-based-pd-decider","deciderPluginName":"always-disagg-pd-decider"}'), 100)).toBe("run_uncached");
  });

  it("S-DP-06 mixed schemas are refused, both named", () => {
    expect(refused('{"decodeProfile":"decode","deciders":{"prefill":"always-disagg-pd-decider"}}', "", "nested schema (profiles, deciders)")).toBe("");
    expect(refused('{"profiles":{"decode":"decode"},"deciderPluginName":"always-disagg-pd-decider"}', "", "flat one (decodeProfile")).toBe("");
  });

  it("S-DP-07 primaryPort and prefixPluginType are unknown fields", () => {
    expect(refused('{"primaryPort":8000}', ".primaryPort", "unknown field")).toBe("");
    expect(refused('{"prefixPluginType":"x"}', ".prefixPluginType", "unknown field")).toBe("");
    expect(refused('{"decodeProfile":"decode","primaryPort":8000}', ".primaryPort", "unknown field")).toBe("");
  });

  it("S-DP-08 a decider that is not there, or is none", () => {
    expect(refused('{"deciders":{"prefill":"nobody"}}', ".deciders.prefill", "deciders.prefill plugin not found: nobody")).toBe("");
    expect(refused('{"deciders":{"encode":"nobody"}}', ".deciders.encode", "deciders.encode plugin not found: nobody")).toBe("");
    expect(refused('{"deciders":{"prefill":"nobody"}}', ".deciders.prefill", "a plugin has a dependency on the unregistered plugin nobody")).toBe("");
    expect(refused('{"deciders":{"prefill":"decode-filter"}}', ".deciders.prefill", "does not implement prefillDeciderPlugin")).toBe("");
    expect(refused('{"deciders":{"prefill":"always-disagg-multimodal-decider"}}', ".deciders.prefill", "does not implement prefillDeciderPlugin")).toBe("");
    expect(refused('{"deciders":{"encode":"always-disagg-pd-decider"}}', ".deciders.encode", "does not implement encodeDeciderPlugin")).toBe("");
    expect(refused('{"deciderPluginName":"nobody"}', ".deciderPluginName", "nobody")).toBe("");
  });

  it("S-DP-09 parameters that are no object, or are broken text", () => {
    expect(refused("[]", "", "must be an object")).toBe("");
    expect(refused('"decode"', "", "must be an object")).toBe("");
    expect(loadPicker(withHandler('{"profiles"}')).problems.errors[0].message.includes("not valid JSON")).toBe(true);
  });

  it("S-DP-10 every way to write the stage order", () => {
    const first: StaticArray<string> = ['"prefill-first"', '"PrefillFirst"', '"prefill_first"', '"PREFILL"'];
    for (let i = 0; i < first.length; i++) expect(prefillWord(load('{"stageOrder":' + first[i] + "}"), 1)).toBe("run_always");
    const decode: StaticArray<string> = ['"decode-first"', '"DecodeFirst"', '""', '"Decode"', "null"];
    for (let i = 0; i < decode.length; i++) expect(prefillWord(load('{"stageOrder":' + decode[i] + "}"), 1)).toBe("skip_no_decider");
  });

  it("S-DP-11 an unknown stage order names both legal ones", () => {
    expect(refused('{"stageOrder":"bogus"}', ".stageOrder", "decode-first or prefill-first")).toBe("");
  });

  it("S-DP-12 prefill-first with a prefill decider", () => {
    expect(refused('{"stageOrder":"prefill-first","deciders":{"prefill":"always-disagg-pd-decider"}}', ".deciders.prefill", "prefill decider is not supported")).toBe("");
    expect(refused('{"stageOrder":"prefill-first","deciderPluginName":"always-disagg-pd-decider"}', ".deciderPluginName", "prefill decider is not supported")).toBe("");
    expect(refused('{"stageOrder":"prefill-first","prefillDeciderPluginName":"always-disagg-pd-decider"}', ".prefillDeciderPluginName", "prefill decider is not supported")).toBe("");
  });

  it("S-DP-13 prefill-first with an encode decider is fine", () => {
    expect(prefillWord(load('{"stageOrder":"prefill-first","deciders":{"encode":"always-disagg-multimodal-decider"}}'), 1)).toBe("run_always");
  });

  it("a decode profile that does not exist is refused, a stage's without one is a warning", () => {
    expect(refused('{"profiles":{"decode":"nowhere"}}', ".profiles.decode", "no profile 'nowhere'")).toBe("");
    const result = loadPicker(withHandler('{"profiles":{"prefill":"nowhere"},"deciders":{"prefill":"always-disagg-pd-decider"}}'), "decode prefill");
    expect(problemsText(result.problems.errors)).toBe("");
    expect(hasWarning(result, "plugins[6].parameters.deciders.prefill", "never runs")).toBe("");
    expect(prefillWord(result.config!, 10)).toBe("skip_no_decider");
  });

  it("says no to unknown names inside profiles and deciders", () => {
    expect(refused('{"profiles":{"decoder":"decode"}}', ".profiles.decoder", "unknown field")).toBe("");
    expect(refused('{"deciders":{"decode":"x"}}', ".deciders.decode", "unknown field")).toBe("");
    expect(refused('{"profiles":{"decode":5}}', ".profiles.decode", "must be a string")).toBe("");
  });
});

describe("pd-profile-handler", () => {
  it("S-DP-14 primaryPort: what is a port, and 0", () => {
    const bad: StaticArray<string> = ["-10", "65536", "1.5", '"8000"'];
    for (let i = 0; i < bad.length; i++) expect(refused('{"primaryPort":' + bad[i] + "}", ".primaryPort", "between 0 and 65535", "pd-profile-handler")).toBe("");
    const good: StaticArray<string> = ["0", "1", "65535"];
    for (let i = 0; i < good.length; i++) {
      expect(problemsText(loadPicker(withHandler('{"primaryPort":' + good[i] + ',"decodeProfile":"","prefillProfile":""}', "pd-profile-handler")).problems.errors)).toBe("");
    }
  });

  it("S-DP-15 primaryPort 9000: the destination's port, and the rank in a header", () => {
    const config = load('{"primaryPort":9000}', "pd-profile-handler");
    const d = config.scheduler.decide(tokens(1));
    expect(config.scheduler.primaryPort).toBe(9000);
    expect(destinations(config.endpoints, d.decode, config.scheduler.primaryPort)).toBe("10.0.0.1:9000");
    expect(dataParallelHostPort(config.endpoints, d.decode, config.scheduler.primaryPort)).toBe("10.0.0.1:8000");
  });

  it("S-DP-16 primaryPort 0: the port stays, no such header", () => {
    const config = load('{"primaryPort":0}', "pd-profile-handler");
    const d = config.scheduler.decide(tokens(1));
    expect(destinations(config.endpoints, d.decode, config.scheduler.primaryPort)).toBe("10.0.0.1:8000");
    expect(dataParallelHostPort(config.endpoints, d.decode, config.scheduler.primaryPort)).toBe("");
  });

  it("S-DP-17 no prefill: decode alone", () => {
    const config = load("null", "pd-profile-handler");
    const d = config.scheduler.decide(tokens(1));
    expect(PREFILL_REASONS[d.prefillReason]).toBe("skip_short_prompt");
    expect(hostPorts(config.endpoints, d.decode)).toBe("10.0.0.1:8000");
    expect(hostPorts(config.endpoints, d.prefill)).toBe("");
  });

  it("asks prefix-based-pd-decider unless another is named", () => {
    expect(prefillWord(load("null", "pd-profile-handler"), 100)).toBe("run_uncached");
    expect(prefillWord(load('{"deciderPluginName":"always-disagg-pd-decider"}', "pd-profile-handler"), 1)).toBe("run_always");
    expect(refused('{"deciderPluginName":""}', ".deciderPluginName", "decider plugin name is not defined", "pd-profile-handler")).toBe("");
    expect(hasWarning(loadPicker(withHandler('{"prefixPluginType":"a","prefixPluginName":"b"}', "pd-profile-handler")), "plugins[6].parameters.prefixPluginName", "unused")).toBe("");
  });
});

describe("data-parallel-profile-handler", () => {
  it("takes one profile, and sends to the primary port", () => {
    const config = mustLoad('{"plugins":[{"type":"data-parallel-profile-handler"}],"schedulingProfiles":[{"name":"any"}]}', "-");
    const d = config.scheduler.decide(tokens(1));
    expect(DECODE_REASONS[d.decodeReason]).toBe("picked");
    expect(config.scheduler.primaryPort).toBe(8000);
    expect(
      oneError('{"plugins":[{"type":"data-parallel-profile-handler"}],"schedulingProfiles":[{"name":"a"},{"name":"b"}]}', "schedulingProfiles", "single scheduling profile"),
    ).toBe("");
    expect(
      oneError('{"plugins":[{"type":"data-parallel-profile-handler","parameters":{"primaryPort":70000}}]}', "plugins[0].parameters.primaryPort", "between 0 and 65535"),
    ).toBe("");
  });
});
