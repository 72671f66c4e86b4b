import { JsonDoc } from "../json";
import { Build } from "../build";
import { Node } from "../node";
import { PickerConfig, readPicker } from "../picker";
import { Problems } from "../problems";
import { hasWarning, loadPicker, oneError, pluginError, problemsText } from "./support";

/** A picker document that must be good, read without endpoints. */
function read(picker: string, allowAlpha: bool = false): PickerConfig {
  const problems = new Problems();
  const config = readPicker(Node.root(JsonDoc.parse(picker), 0, "", problems), new Build(problems), allowAlpha);
  assert(problems.errors.length == 0, problemsText(problems.errors));
  return config;
}

/** All profiles as `name: filters | scorers | picker`. */
function profiles(config: PickerConfig): string {
  let out = "";
  for (let i = 0; i < config.profiles.length; i++) out += (i > 0 ? "; " : "") + config.profiles[i].name + ": " + config.profiles[i].describe();
  return out;
}

const FULL: string =
  '"kind":"EndpointPickerConfig","plugins":[{"name":"d","type":"decode-filter"},{"type":"queue-scorer"},{"name":"p","type":"max-score-picker"},{"type":"single-profile-handler"}],' +
  '"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"d"},{"pluginRef":"queue-scorer","weight":50},{"pluginRef":"p"}]}],"featureGates":["haPopulateNonLeaderDatastore"],"flowControl":{"saturationDetector":{"pluginRef":"utilization-detector"}}}';

describe("loading", () => {
  it("S-CF-01 a full config, the old API group, no profiles, nothing at all", () => {
    expect(profiles(read('{"apiVersion":"llm-d.ai/v1alpha1",' + FULL))).toBe("default: d | queue-scorer*50.0 | p");
    const old = loadPicker('{"apiVersion":"inference.networking.x-k8s.io/v1alpha1",' + FULL);
    expect(problemsText(old.problems.errors)).toBe("");
    expect(hasWarning(old, "apiVersion", "deprecated")).toBe("");
    expect(profiles(read('{"plugins":[{"type":"decode-filter"},{"type":"queue-scorer"}]}'))).toBe("default: decode-filter | queue-scorer*1.0 | max-score-picker");
    expect(profiles(read("null"))).toBe("default: | queue-scorer*2.0 kv-cache-utilization-scorer*2.0 prefix-cache-scorer*3.0 | max-score-picker");
    expect(profiles(read("{}"))).toBe("default: | | max-score-picker");
  });

  it("S-CF-02 plugins may be declared after those that name them", () => {
    const config = read(
      '{"plugins":[{"type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"a","encode":"b"}}},{"name":"b","type":"always-disagg-multimodal-decider"},{"name":"a","type":"always-disagg-pd-decider"},{"type":"decode-filter"}],' +
        '"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill"},{"name":"encode"}]}',
    );
    expect(config.prefillDecider!.name).toBe("a");
    expect(config.encodeDecider!.name).toBe("b");
  });

  it("S-CF-03 a handler that names itself, and two that name each other", () => {
    // No decider takes references, so the reference's loop of deciders cannot be written; a loop over handlers can.
    const self = loadPicker('{"plugins":[{"name":"h","type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"h"}}}],"schedulingProfiles":[{"name":"decode"},{"name":"prefill"}]}');
    expect(problemsText(self.problems.errors)).toBe("plugins[0].parameters.deciders.prefill: plugin h does not implement prefillDeciderPlugin");
    const two = loadPicker(
      '{"plugins":[{"name":"h","type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"g"}}},{"name":"g","type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"h"}}}],"schedulingProfiles":[{"name":"decode"},{"name":"prefill"}]}',
    );
    expect(two.config === null).toBe(true);
    expect(pluginError('{"type":"prefix-based-pd-decider","parameters":{"deciders":{"prefill":"x"}}}', "plugins[0].parameters.deciders", "unknown field")).toBe("");
  });

  it("S-CF-04 the deprecated top-level detector and parser are moved", () => {
    const config = read('{"plugins":[{"name":"c","type":"concurrency-detector"},{"name":"o","type":"openai-parser"}],"schedulingProfiles":[{"name":"default"}],"saturationDetector":{"pluginRef":"c"},"parser":{"pluginRef":"o"}}');
    expect(config.saturationDetector!.name).toBe("c");
    expect(config.parsers.join(" ")).toBe("openai-parser");
    const both = read(
      '{"plugins":[{"name":"c","type":"concurrency-detector"},{"name":"u","type":"utilization-detector"}],"schedulingProfiles":[{"name":"default"}],"saturationDetector":{"pluginRef":"c"},"flowControl":{"saturationDetector":{"pluginRef":"u"}},"parser":{"pluginRef":"openai-parser"},"requestHandler":{"parsers":[{"pluginRef":"anthropic-parser"}]}}',
    );
    expect(both.saturationDetector!.name).toBe("u");
    expect(both.parsers.join(" ")).toBe("anthropic-parser");
    expect(hasWarning(loadPicker('{"saturationDetector":{"pluginRef":"utilization-detector"}}'), "saturationDetector", "deprecated")).toBe("");
    expect(hasWarning(loadPicker('{"parser":{"pluginRef":"openai-parser"}}'), "parser", "deprecated")).toBe("");
  });

  it("S-CF-05 broken text, an unknown gate, a bad gate value", () => {
    expect(loadPicker('{"plugins":[').problems.errors[0].message.includes("not valid JSON")).toBe(true);
    expect(oneError('{"featureGates":["dataLayer"]}', "featureGates[0]", "feature gate 'dataLayer' is unknown or unregistered")).toBe("");
    expect(oneError('{"featureGates":["flowControl=maybe"]}', "featureGates[0]", "maybe is not a valid value for the feature gate flowControl")).toBe("");
    expect(oneError('{"featureGates":"flowControl"}', "featureGates", "must be a list")).toBe("");
    expect(oneError('{"featureGates":[1]}', "featureGates[0]", "must be a string")).toBe("");
    expect(oneError('{"featureGates":["haPopulateNonLeaderDatastore=true","flowControl"]}', "featureGates[1]", "known, not supported in-line")).toBe("");
    expect(loadPicker('{"featureGates":["flowControl=false"]}').problems.errors.length).toBe(0);
  });

  it("S-CF-06 missing type, unknown type, bad parameters, duplicate name", () => {
    expect(pluginError('{"name":"x"}', "plugins[0].type", "plugin 'x' is missing a type")).toBe("");
    expect(pluginError('{"type":""}', "plugins[0].type", "is missing a type")).toBe("");
    expect(pluginError('{"type":"quue-scorer"}', "plugins[0].type", "plugin type 'quue-scorer' is not registered")).toBe("");
    expect(pluginError('{"type":"load-aware-scorer","parameters":{"treshold":5}}', "plugins[0].parameters.treshold", "unknown field")).toBe("");
    expect(pluginError('{"type":"load-aware-scorer","parameters":5}', "plugins[0].parameters", "must be an object")).toBe("");
    expect(pluginError('{"type":"queue-scorer"},{"type":"queue-scorer"}', "plugins[1].type", "duplicate plugin name 'queue-scorer'")).toBe("");
    expect(pluginError('{"type":"queue-scorer","name":"a"},{"type":"decode-filter","name":"a"}', "plugins[1].name", "duplicate plugin name 'a'")).toBe("");
    expect(pluginError('{"type":5}', "plugins[0].type", "must be a string")).toBe("");
    expect(pluginError('{"type":"queue-scorer","paramters":{}}', "plugins[0].paramters", "unknown field")).toBe("");
    expect(pluginError("5", "plugins[0]", "must be an object")).toBe("");
    expect(pluginError("null", "plugins[0]", "must be an object")).toBe("");
    expect(oneError('{"plugins":{}}', "plugins", "must be a list")).toBe("");
  });

  it("S-CF-07 a profile unnamed, twice, with an empty and a dangling reference", () => {
    const plugins = '{"plugins":[{"type":"queue-scorer"},{"type":"disagg-profile-handler"}],"schedulingProfiles":[{"name":"decode"},';
    expect(oneError(plugins + '{"plugins":[]}]}', "schedulingProfiles[1].name", "schedulingProfiles[1] is missing a name")).toBe("");
    expect(oneError(plugins + '{"name":"decode"}]}', "schedulingProfiles[1].name", "has duplicate name 'decode'")).toBe("");
    expect(oneError(plugins + '{"name":"p","plugins":[{"weight":1}]}]}', "schedulingProfiles[1].plugins[0].pluginRef", "schedulingProfiles[p].plugins[0] is missing a 'pluginRef'")).toBe("");
    expect(oneError(plugins + '{"name":"p","plugins":[{"pluginRef":"x"}]}]}', "schedulingProfiles[1].plugins[0].pluginRef", "schedulingProfiles[p] references undefined plugin 'x'")).toBe("");
    expect(oneError(plugins + '{"name":"p","plugins":[{"pluginRef":"queue-scorer","weight":"2"}]}]}', "schedulingProfiles[1].plugins[0].weight", "must be a number")).toBe("");
    expect(oneError(plugins + '{"name":"p","plugins":[{"pluginRef":"queue-scorer","weight":1e400}]}]}', "schedulingProfiles[1].plugins[0].weight", "must be a number")).toBe("");
    expect(oneError(plugins + '{"name":"p","scorers":[]}]}', "schedulingProfiles[1].scorers", "unknown field")).toBe("");
    expect(oneError(plugins + '7]}', "schedulingProfiles[1]", "must be an object")).toBe("");
  });

  it("S-CF-08 two pickers, two handlers, no handler for two profiles, the single handler for two", () => {
    const two = '"schedulingProfiles":[{"name":"a"},{"name":"b"}]}';
    expect(
      oneError('{"plugins":[{"type":"max-score-picker"},{"type":"random-picker"}],"schedulingProfiles":[{"name":"a","plugins":[{"pluginRef":"max-score-picker"},{"pluginRef":"random-picker"}]}]}', "schedulingProfiles[0].plugins[1].pluginRef", "failed to set 'random-picker' as picker, already have a registered picker plugin 'max-score-picker'"),
    ).toBe("");
    expect(oneError('{"plugins":[{"type":"single-profile-handler"},{"type":"single-profile-handler","name":"x"}]}', "plugins[1].type", "multiple profile handlers found ('single-profile-handler', 'x')")).toBe("");
    expect(oneError('{"plugins":[{"type":"queue-scorer"}],' + two, "plugins", "no profile handler configured")).toBe("");
    expect(oneError('{"plugins":[{"type":"single-profile-handler"}],' + two, "schedulingProfiles", "SingleProfileHandler cannot support multiple scheduling profiles")).toBe("");
  });

  it("S-CF-09 a scorer without a weight weighs 1", () => {
    expect(profiles(read('{"plugins":[{"type":"queue-scorer"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer"}]}]}'))).toBe("default: | queue-scorer*1.0 | max-score-picker");
    expect(profiles(read('{"plugins":[{"type":"queue-scorer"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer","weight":0}]}]}'))).toBe("default: | queue-scorer*0.0 | max-score-picker");
  });

  it("S-CF-10 one profile without a handler and without a picker gets both", () => {
    const config = read('{"plugins":[{"type":"queue-scorer"}],"schedulingProfiles":[{"name":"any","plugins":[{"pluginRef":"queue-scorer"}]}]}');
    expect(config.handler!.type).toBe("single-profile-handler");
    expect(profiles(config)).toBe("any: | queue-scorer*1.0 | max-score-picker");
  });

  it("a profile without a picker gets the same one each time: the first max-score-picker, or the first picker (scheduler L12)", () => {
    const profilesOf = '"schedulingProfiles":[{"name":"decode"},{"name":"prefill"}]}';
    expect(profiles(read('{"plugins":[{"type":"random-picker"},{"name":"m","type":"max-score-picker"},{"name":"n","type":"max-score-picker"},{"type":"disagg-profile-handler"}],' + profilesOf))).toBe("decode: | | m; prefill: | | m");
    expect(profiles(read('{"plugins":[{"type":"weighted-random-picker"},{"type":"random-picker"},{"type":"disagg-profile-handler"}],' + profilesOf))).toBe("decode: | | weighted-random-picker; prefill: | | weighted-random-picker");
  });

  it("S-CF-11 a picker may stand before a scorer", () => {
    expect(profiles(read('{"plugins":[{"type":"max-score-picker"},{"type":"queue-scorer"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"max-score-picker"},{"pluginRef":"queue-scorer"}]}]}'))).toBe(
      "default: | queue-scorer*1.0 | max-score-picker",
    );
  });

  it("S-CF-12 data layer: defaults, none, and defaults beside another source", () => {
    expect(read('{"dataLayer":{}}').metrics.enabled).toBe(true);
    expect(read('{"plugins":[]}').metrics.source.path).toBe("/metrics");
    const off = loadPicker('{"dataLayer":{"injectDefaults":false}}');
    expect(hasWarning(off, "dataLayer", "metrics collection is disabled")).toBe("");
    expect(read('{"dataLayer":{"injectDefaults":false}}').metrics.enabled).toBe(false);
    const other = read('{"plugins":[{"name":"m","type":"metrics-data-source","parameters":{"path":"/m","port":9}}],"dataLayer":{"sources":[{"pluginRef":"m"}]}}');
    expect(other.metrics.source.path).toBe("/m");
    expect(other.metrics.source.port).toBe(9);
    // Additive: the source that is there reads with the default extractor.
    expect(other.metrics.extractor.defaultEngine).toBe("vllm");
    expect(other.metrics.extractor.engines.length).toBe(5);
  });

  it("S-CF-13 a source or extractor that is not there, or is of another kind", () => {
    expect(oneError('{"dataLayer":{"sources":[{"pluginRef":"x"}]}}', "dataLayer.sources[0].pluginRef", "the plugin x is not registered")).toBe("");
    expect(oneError('{"plugins":[{"type":"queue-scorer"}],"dataLayer":{"sources":[{"pluginRef":"queue-scorer"}]}}', "dataLayer.sources[0].pluginRef", "the plugin queue-scorer is not a fwkdl.DataSource")).toBe("");
    expect(
      oneError('{"plugins":[{"type":"metrics-data-source"}],"dataLayer":{"sources":[{"pluginRef":"metrics-data-source","extractors":[{"pluginRef":"x"}]}]}}', "dataLayer.sources[0].extractors[0].pluginRef", "the plugin x is not registered"),
    ).toBe("");
    expect(
      oneError(
        '{"plugins":[{"type":"metrics-data-source"}],"dataLayer":{"sources":[{"pluginRef":"metrics-data-source","extractors":[{"pluginRef":"metrics-data-source"}]}]}}',
        "dataLayer.sources[0].extractors[0].pluginRef",
        "is not a fwkdl.Extractor",
      ),
    ).toBe("");
    expect(oneError('{"dataLayer":{"discovery":{"pluginRef":"x"}}}', "dataLayer.discovery.pluginRef", "not registered")).toBe("");
    expect(oneError('{"dataLayer":{"crossReplicaSyncerPluginRef":"x"}}', "dataLayer.crossReplicaSyncerPluginRef", "known, not supported in-line")).toBe("");
  });

  it("S-CF-14 parsers: the default list, and a list as it is", () => {
    expect(read("{}").parsers.join(" ")).toBe("openai-parser anthropic-parser vllmhttp-parser passthrough-parser");
    expect(read('{"plugins":[{"name":"s","type":"sglanghttp-parser"}],"requestHandler":{"parsers":[{"pluginRef":"s"},{"pluginRef":"openai-parser"}]}}').parsers.join(" ")).toBe("sglanghttp-parser openai-parser");
  });

  it("S-CF-15 a parser reference of another kind, or to nothing", () => {
    expect(oneError('{"plugins":[{"type":"queue-scorer"}],"requestHandler":{"parsers":[{"pluginRef":"queue-scorer"}]}}', "requestHandler.parsers[0].pluginRef", "is not a parser plugin")).toBe("");
    expect(oneError('{"requestHandler":{"parsers":[{"pluginRef":"x"}]}}', "requestHandler.parsers[0].pluginRef", "parser references undefined plugin 'x'")).toBe("");
    expect(oneError('{"parser":{"pluginRef":"x"}}', "parser.pluginRef", "parser references undefined plugin 'x'")).toBe("");
    expect(oneError('{"requestHandler":{"parsers":[{"pluginRef":"vllmgrpc-parser"}]}}', "requestHandler.parsers[0].pluginRef", "known, not supported in-line")).toBe("");
  });

  it("S-CF-16 flowControl with its gate off: a warning, and the detector counts", () => {
    const result = loadPicker('{"plugins":[{"type":"concurrency-detector"}],"flowControl":{"maxBytes":"1Gi","saturationDetector":{"pluginRef":"concurrency-detector"}}}');
    expect(problemsText(result.problems.errors)).toBe("");
    expect(hasWarning(result, "flowControl", "ignored")).toBe("");
    expect(read('{"plugins":[{"type":"concurrency-detector"}],"flowControl":{"maxBytes":"1Gi","saturationDetector":{"pluginRef":"concurrency-detector"}}}').saturationDetector!.type).toBe("concurrency-detector");
    expect(loadPicker('{"flowControl":{"saturationDetector":{"pluginRef":"utilization-detector"}}}').problems.warnings.length).toBe(2); // apiVersion and kind
    expect(oneError('{"flowControl":{"saturationDetector":{"pluginRef":""}}}', "flowControl.saturationDetector.pluginRef", "plugin reference is empty")).toBe("");
    expect(oneError('{"flowControl":{"saturationDetector":{"pluginRef":"x"}}}', "flowControl.saturationDetector.pluginRef", "references undefined plugin 'x'")).toBe("");
    expect(oneError('{"plugins":[{"type":"queue-scorer"}],"flowControl":{"saturationDetector":{"pluginRef":"queue-scorer"}}}', "flowControl.saturationDetector.pluginRef", "is not a fwkfc.SaturationDetector")).toBe("");
    expect(read('{"flowControl":{"saturationDetector":{}}}').saturationDetector!.type).toBe("utilization-detector");
  });

  it("S-CF-17 quantities: 1Gi, zero, negative", () => {
    expect(read('{"flowControl":{"maxBytes":"1Gi","maxRequests":0}}').flowControl.maxBytes).toBe(1073741824);
    expect(read('{"flowControl":{"maxBytes":"0"}}').flowControl.maxBytes).toBe(0);
    expect(oneError('{"flowControl":{"maxBytes":"-1"}}', "flowControl.maxBytes", "must be non-negative")).toBe("");
    expect(oneError('{"flowControl":{"maxRequests":-1}}', "flowControl.maxRequests", "must be non-negative")).toBe("");
    expect(oneError('{"flowControl":{"priorityBands":[{"priority":1},{"maxBytes":"-5"}]}}', "flowControl.priorityBands[1].maxBytes", "must be non-negative")).toBe("");
    expect(oneError('{"flowControl":{"maxBytes":"1Gb"}}', "flowControl.maxBytes", "must be a quantity")).toBe("");
  });

  it("S-CF-18 an alpha plugin without the switch", () => {
    expect(
      pluginError('{"type":"p2p-source-producer"}', "plugins[0].type", "plugin 'p2p-source-producer' (type: 'p2p-source-producer') has Alpha stability level, but command line flag --allow-experimental-plugins is not set"),
    ).toBe("");
    expect(problemsText(loadPicker('{"plugins":[{"type":"p2p-source-producer"}]}', "decode", '{"allowExperimentalPlugins":true}').problems.errors)).toBe("");
  });

  it("S-CF-19 without noEndpointRequestTTL the default TTL counts", () => {
    expect(read('{"flowControl":{"defaultRequestTTL":"5m"}}').flowControl.noEndpointRequestTtlMs).toBe(300000);
    expect(read('{"flowControl":{"defaultRequestTTL":"0s"}}').flowControl.noEndpointRequestTtlMs).toBe(0);
    expect(read('{"flowControl":{"defaultRequestTTL":"5m","noEndpointRequestTTL":"1m"}}').flowControl.noEndpointRequestTtlMs).toBe(60000);
    expect(read("{}").flowControl.noEndpointRequestTtlMs).toBe(60000);
    expect(oneError('{"flowControl":{"defaultRequestTTL":60}}', "flowControl.defaultRequestTTL", "must be a duration")).toBe("");
  });
});

describe("envelope", () => {
  it("other versions and kinds are refused, missing ones taken as ours", () => {
    expect(oneError('{"apiVersion":"llm-d.ai/v2"}', "apiVersion", "must be llm-d.ai/v1alpha1")).toBe("");
    expect(oneError('{"apiVersion":1}', "apiVersion", "must be a string")).toBe("");
    expect(oneError('{"kind":"Config"}', "kind", "must be EndpointPickerConfig")).toBe("");
    expect(oneError('{"plugin":[]}', "plugin", "unknown field")).toBe("");
    expect(oneError('{"plugins":[],"plugins":[]}', "plugins", "given more than once")).toBe("");
    expect(oneError("[]", "picker", "must be an object")).toBe("");
    expect(oneError('"x"', "picker", "must be an object")).toBe("");
  });
});

describe("plugins that are not built in", () => {
  it("are named as known, with the reason", () => {
    const types: StaticArray<string> = [
      "precise-prefix-cache-producer", "precise-prefix-cache-scorer", "burst-prefix-cache-producer", "predicted-latency-producer", "latency-scorer", "latency-slo-admitter", "slo-headroom-tier-filter",
      "endpoint-attribute-filter", "endpoint-attribute-scorer", "dcgm-data-source", "dcgm-extractor", "models-data-source", "models-data-extractor", "header-label-affinity-scorer", "header-profile-handler",
      "vllmgrpc-parser", "vertexai-parser", "fcfs-ordering-policy", "edf-ordering-policy", "slo-deadline-ordering-policy", "global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness",
      "static-usage-limit-policy", "priority-holdback-policy", "soft-reflective-ceiling-policy", "sheddable-eviction-filter", "priority-then-time-eviction-order-policy", "k8s-notification-source",
      "endpoint-notification-source", "multicluster-file-discovery", "request-attribute-reporter", "agent-identity", "disaggregatedset-rollout-screener",
    ];
    for (let i = 0; i < types.length; i++) expect(pluginError('{"type":"' + types[i] + '"}', "plugins[0].type", "known, not supported in-line: ")).toBe("", types[i]);
  });

  it("what only looks like one is not registered", () => {
    const types: StaticArray<string> = ["fcfs-ordering", "fcfs-ordering-policy edf-ordering-policy", " dcgm-extractor", " ", "DCGM-extractor"];
    for (let i = 0; i < types.length; i++) expect(pluginError('{"type":"' + types[i] + '"}', "plugins[0].type", "is not registered")).toBe("", types[i]);
  });

  it("may be referred to without a second error", () => {
    expect(
      oneError('{"plugins":[{"type":"no-such-scorer"},{"type":"single-profile-handler"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"no-such-scorer"}]}]}', "plugins[0].type", "is not registered"),
    ).toBe("");
    expect(oneError('{"plugins":[{"type":"header-profile-handler"}],"schedulingProfiles":[{"name":"a"},{"name":"b"}]}', "plugins[0].type", "known")).toBe("");
  });
});

describe("deprecated names", () => {
  it("work, with a warning that names the new one", () => {
    const result = loadPicker('{"plugins":[{"type":"by-label","parameters":{"label":"a","allowsNoLabel":true}},{"type":"by-label-selector"},{"type":"tokenizer"},{"type":"disagg-headers-handler"},{"type":"prefill-header-handler"}]}');
    expect(problemsText(result.problems.errors)).toBe("");
    expect(hasWarning(result, "plugins[0].type", "label-selector-filter")).toBe("");
    expect(hasWarning(result, "plugins[1].type", "label-selector-filter")).toBe("");
    expect(hasWarning(result, "plugins[2].type", "token-producer")).toBe("");
    expect(hasWarning(result, "plugins[3].type", "disagg-profile-handler")).toBe("");
    expect(hasWarning(result, "plugins[4].type", "disagg-profile-handler")).toBe("");
  });
});

describe("profiles", () => {
  it("without profiles all filters, scorers and pickers are one, in the order of the file", () => {
    expect(profiles(read('{"plugins":[{"type":"queue-scorer"},{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"random-picker"},{"type":"load-aware-scorer"},{"type":"openai-parser"}]}'))).toBe(
      "default: decode-filter prefill-filter | queue-scorer*1.0 load-aware-scorer*1.0 | random-picker",
    );
  });

  it("a plugin that has no place in a profile is pointed out", () => {
    const result = loadPicker('{"plugins":[{"type":"single-profile-handler"}],"schedulingProfiles":[{"name":"a","plugins":[{"pluginRef":"single-profile-handler"}]}]}');
    expect(problemsText(result.problems.errors)).toBe("");
    expect(hasWarning(result, "schedulingProfiles[0].plugins[0].pluginRef", "no effect")).toBe("");
  });

  it("parameters of a plugin without any are pointed out", () => {
    const result = loadPicker('{"plugins":[{"type":"single-profile-handler","parameters":{"x":1}}]}');
    expect(problemsText(result.problems.errors)).toBe("");
    expect(hasWarning(result, "plugins[0].parameters", "takes no parameters")).toBe("");
  });

  it("an instance may be filter and scorer at once", () => {
    expect(profiles(read('{"plugins":[{"type":"context-length-aware"}]}'))).toBe("default: context-length-aware | context-length-aware*1.0 | max-score-picker");
  });
});
