import { endpointsJson, list, loadPicker, pluginError, problemsText, tokens } from "../../../config/__tests__/support";
import { loadDocument, LoadedConfig } from "../../../config/document";

const ALL_ROLES = "encode prefill decode encode-prefill encode-decode prefill-decode both encode-prefill-decode - other";

/** A configuration of one filter and a picker that takes all. */
function config(filter: string, endpoints: string): LoadedConfig {
  const result = loadDocument(
    '{"revision":1,"options":{"allowExperimentalPlugins":true},"picker":{"plugins":[' +
      filter +
      ',{"type":"max-score-picker","parameters":{"maxNumOfEndpoints":100}}]},"endpoints":' +
      endpoints +
      "}",
  );
  assert(result.config !== null, problemsText(result.problems.errors));
  return result.config!;
}

/** Endpoints that the filter leaves, in the order of the table. */
function kept(config: LoadedConfig, count: i32 = 100): string {
  const picks = config.scheduler.decide(tokens(count)).decode;
  let out = "";
  for (let i = 0; i < config.endpoints.count; i++) if (picks.has(i)) out += (out.length > 0 ? " " : "") + i.toString();
  return out;
}

function byRole(type: string): string {
  return kept(config('{"type":"' + type + '"}', endpointsJson(ALL_ROLES)));
}

/** Endpoints with the labels given, each an object's inside. */
function labelled(labels: Array<string>): string {
  let out = "[";
  for (let i = 0; i < labels.length; i++) out += (i > 0 ? "," : "") + '{"name":"e' + i.toString() + '","address":"10.0.0.' + (i + 1).toString() + '","port":80,"labels":{' + labels[i] + "}}";
  return out + "]";
}

const TIERS = labelled(['"app":"web","tier":"frontend"', '"app":"web","tier":"backend"', '"app":"db","tier":"system"', '"app":"web"', ""]);

function bySelector(selector: string): string {
  return kept(config('{"type":"label-selector-filter","parameters":' + selector + "}", TIERS));
}

function selectorError(selector: string, path: string, fragment: string): string {
  return pluginError('{"type":"label-selector-filter","parameters":' + selector + "}", "plugins[0].parameters" + path, fragment);
}

describe("role filters", () => {
  it("S-FL-01 decode-filter", () => {
    // Of ALL_ROLES: decode, encode-decode (the seed's), prefill-decode, both, encode-prefill-decode, unlabelled.
    expect(byRole("decode-filter")).toBe("2 4 5 6 7 8");
  });

  it("S-FL-02 prefill-filter", () => {
    expect(byRole("prefill-filter")).toBe("1 3 5 6 7");
  });

  it("S-FL-03 encode-filter", () => {
    expect(byRole("encode-filter")).toBe("0 3 4 7");
  });

  it("S-FL-04 an empty list stays empty", () => {
    expect(kept(config('{"type":"decode-filter"}', "[]"))).toBe("");
    expect(kept(config('{"type":"encode-filter"}', "[]"))).toBe("");
    expect(kept(config('{"type":"prefill-filter"}', "[]"))).toBe("");
  });
});

describe("label-selector-filter", () => {
  it("S-FL-05 matchLabels: one key, and two that must both hold", () => {
    expect(bySelector('{"matchLabels":{"app":"web"}}')).toBe("0 1 3");
    expect(bySelector('{"matchLabels":{"app":"web","tier":"backend"}}')).toBe("1");
  });

  it("S-FL-06 In: the values listed, not a missing label", () => {
    expect(bySelector('{"matchExpressions":[{"key":"tier","operator":"In","values":["frontend","backend"]}]}')).toBe("0 1");
  });

  it("S-FL-07 NotIn: the others, and those without the label", () => {
    expect(bySelector('{"matchExpressions":[{"key":"tier","operator":"NotIn","values":["system"]}]}')).toBe("0 1 3 4");
  });

  it("S-FL-08 Exists and DoesNotExist", () => {
    expect(bySelector('{"matchExpressions":[{"key":"tier","operator":"Exists"}]}')).toBe("0 1 2");
    expect(bySelector('{"matchExpressions":[{"key":"tier","operator":"DoesNotExist","values":[]}]}')).toBe("3 4");
  });

  it("S-FL-09 labels and expressions together", () => {
    expect(bySelector('{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"Exists"},{"key":"tier","operator":"NotIn","values":["backend"]}]}')).toBe("0");
  });

  it("S-FL-10 an empty selector and no parameters keep everything", () => {
    expect(bySelector("{}")).toBe("0 1 2 3 4");
    expect(bySelector('{"matchLabels":{},"matchExpressions":[]}')).toBe("0 1 2 3 4");
    expect(kept(config('{"type":"label-selector-filter"}', TIERS))).toBe("0 1 2 3 4");
  });

  it("S-FL-11 what is no selector is refused", () => {
    expect(selectorError('{"matchExpressions":[{"key":"a","operator":"Equals","values":["x"]}]}', ".matchExpressions[0].operator", "not a valid label selector operator")).toBe("");
    expect(selectorError('{"matchExpressions":[{"key":"a","values":["x"]}]}', ".matchExpressions[0].operator", "not a valid label selector operator")).toBe("");
    expect(selectorError('{"allowsNoLabel":true}', ".allowsNoLabel", "unknown field")).toBe("");
    expect(selectorError('{"label":"a"}', ".label", "unknown field")).toBe("");
    expect(selectorError('{"validValues":["a"]}', ".validValues", "unknown field")).toBe("");
    expect(loadPicker('{"plugins":[{"type":"label-selector-filter","parameters":{').problems.errors[0].message.includes("not valid JSON")).toBe(true);
    expect(selectorError('{"matchExpressions":[{"key":"a","operator":"In","values":[]}]}', ".matchExpressions[0].values", "must not be empty")).toBe("");
    expect(selectorError('{"matchExpressions":[{"key":"a","operator":"NotIn"}]}', ".matchExpressions[0].values", "must not be empty")).toBe("");
    expect(selectorError('{"matchExpressions":[{"key":"a","operator":"Exists","values":["x"]}]}', ".matchExpressions[0].values", "must be empty")).toBe("");
    expect(selectorError('{"matchExpressions":[{"operator":"Exists"}]}', ".matchExpressions[0].key", "is required")).toBe("");
    expect(selectorError('{"matchExpressions":[{"key":"a b","operator":"Exists"}]}', ".matchExpressions[0].key", "not a valid label key")).toBe("");
    expect(selectorError('{"matchExpressions":{"key":"a"}}', ".matchExpressions", "must be a list")).toBe("");
    expect(selectorError('{"matchExpressions":[5]}', ".matchExpressions[0]", "must be an object")).toBe("");
    expect(selectorError('{"matchLabels":{"a":5}}', ".matchLabels.a", "must be a string")).toBe("");
    expect(selectorError('{"matchLabels":{"a":"x y"}}', ".matchLabels.a", "not a valid label value")).toBe("");
    expect(selectorError('{"matchLabels":["a"]}', ".matchLabels", "must be an object")).toBe("");
    expect(selectorError('"role=decode"', "", "must be an object")).toBe("");
  });

  it("S-FL-12 a selector that needs a label drops the unlabelled pod", () => {
    expect(bySelector('{"matchLabels":{"tier":"frontend"}}')).toBe("0");
    expect(bySelector('{"matchLabels":{"tier":""}}')).toBe("");
  });

  it("has an older name", () => {
    expect(kept(config('{"type":"by-label-selector","parameters":{"matchLabels":{"app":"db"}}}', TIERS))).toBe("2");
  });
});

describe("by-label", () => {
  it("S-FL-13 without label, without values, with wrong types: refused", () => {
    expect(pluginError('{"type":"by-label","parameters":{"validValues":["a"]}}', "plugins[0].parameters.label", "is required")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":"","validValues":["a"]}}', "plugins[0].parameters.label", "is required")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":"a"}}', "plugins[0].parameters.validValues", "must not be empty")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":"a","validValues":[]}}', "plugins[0].parameters.validValues", "must not be empty")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":5,"validValues":["a"]}}', "plugins[0].parameters.label", "must be a string")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":"a","validValues":"b"}}', "plugins[0].parameters.validValues", "must be a list")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":"a","validValues":[1]}}', "plugins[0].parameters.validValues[0]", "must be a string")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":"a","validValues":["b"],"allowsNoLabel":"yes"}}', "plugins[0].parameters.allowsNoLabel", "true or false")).toBe("");
    expect(pluginError('{"type":"by-label","parameters":{"label":"a","validValues":["b"],"matchLabels":{}}}', "plugins[0].parameters.matchLabels", "unknown field")).toBe("");
  });

  it("S-FL-14 allowsNoLabel without values keeps the unlabelled only", () => {
    expect(kept(config('{"type":"by-label","parameters":{"label":"tier","allowsNoLabel":true}}', TIERS))).toBe("3 4");
  });

  it("keeps the values, and with allowsNoLabel also those without the label; an empty value is a value", () => {
    expect(kept(config('{"type":"by-label","parameters":{"label":"tier","validValues":["frontend","system"]}}', TIERS))).toBe("0 2");
    expect(kept(config('{"type":"by-label","parameters":{"label":"tier","validValues":["system"],"allowsNoLabel":true}}', TIERS))).toBe("2 3 4");
    expect(kept(config('{"type":"by-label","parameters":{"label":"a","validValues":["x"],"allowsNoLabel":true}}', labelled(['"a":""', ""])))).toBe("1");
  });
});

const CONDITIONS = '{"type":"utilization-filter","parameters":{"conditions":[{"metric":"waiting-queue","maxValue":5},{"metric":"kv-cache-utilization","maxValue":0.8}]';

describe("utilization-filter", () => {
  it("keeps what is under every cap; an unknown value is no reason to drop", () => {
    const c = config(CONDITIONS + "}}", endpointsJson("- - - -"));
    for (let i = 0; i < 3; i++) c.endpoints.known[i] = 7;
    c.endpoints.waiting[0] = 5;
    c.endpoints.waiting[1] = 6;
    c.endpoints.kvUsage[2] = 0.81;
    c.endpoints.waiting[3] = 1000;
    expect(kept(c)).toBe("0 3");
  });

  it("may drain, or fall back", () => {
    const drained = config(CONDITIONS + "}}", endpointsJson("- -"));
    const open = config(CONDITIONS + ',"fallbackOnEmpty":true}}', endpointsJson("- -"));
    for (let i = 0; i < 2; i++) {
      drained.endpoints.known[i] = open.endpoints.known[i] = 7;
      drained.endpoints.waiting[i] = open.endpoints.waiting[i] = 9;
    }
    expect(kept(drained)).toBe("");
    expect(kept(open)).toBe("0 1");
  });

  it("reads requests in flight and running", () => {
    const c = config('{"type":"utilization-filter","parameters":{"conditions":[{"metric":"active-requests","maxValue":2},{"metric":"running-requests","maxValue":3}]}}', endpointsJson("- - -"));
    for (let i = 0; i < 3; i++) c.endpoints.known[i] = 7;
    c.endpoints.inflightRequests[0] = 3;
    c.endpoints.running[1] = 4;
    c.endpoints.running[2] = 3;
    expect(kept(c)).toBe("2");
  });

  it("refuses conditions that are none", () => {
    const options = '{"allowExperimentalPlugins":true}';
    expect(pluginError('{"type":"utilization-filter"}', "plugins[0].parameters.conditions", "at least one", options)).toBe("");
    expect(pluginError('{"type":"utilization-filter","parameters":{"conditions":[]}}', "plugins[0].parameters.conditions", "at least one", options)).toBe("");
    expect(pluginError('{"type":"utilization-filter","parameters":{"conditions":[{"metric":"queue","maxValue":1}]}}', "plugins[0].parameters.conditions[0].metric", "must be active-requests", options)).toBe("");
    expect(pluginError('{"type":"utilization-filter","parameters":{"conditions":[{"metric":"waiting-queue"}]}}', "plugins[0].parameters.conditions[0].maxValue", "is required", options)).toBe("");
    expect(pluginError('{"type":"utilization-filter","parameters":{"conditions":[{"metric":"waiting-queue","maxValue":-1}]}}', "plugins[0].parameters.conditions[0].maxValue", "at least 0", options)).toBe("");
    expect(pluginError('{"type":"utilization-filter","parameters":{"conditions":[{"metric":"kv-cache-utilization","maxValue":1.5}]}}', "plugins[0].parameters.conditions[0].maxValue", "between 0 and 1", options)).toBe("");
  });
});

function warm(): LoadedConfig {
  const c = config('{"type":"prefix-cache-affinity-filter"}', endpointsJson("- - -"));
  // Of 7 blocks: 6, 5 and none.
  c.endpoints.matchedBlocks[0] = 6;
  c.endpoints.matchedBlocks[1] = 5;
  return c;
}

describe("prefix-cache-affinity-filter", () => {
  it("keeps those that hold 80 % of the prompt", () => {
    expect(kept(warm())).toBe("0");
  });

  it("keeps all when none does", () => {
    const c = warm();
    c.endpoints.matchedBlocks[0] = 5;
    expect(kept(c)).toBe("0 1 2");
  });

  it("opens when the warm ones are that much busier", () => {
    const c = warm();
    c.endpoints.inflightTokens[0] = 286705; // 18,000.1 ms at 15,928 tokens per second.
    expect(kept(c)).toBe("0 1 2");
    c.endpoints.inflightTokens[0] = 286700; // 17,999.7 ms.
    expect(kept(c)).toBe("0");
  });

  it("explores as often as it is told", () => {
    const c = config('{"type":"prefix-cache-affinity-filter","parameters":{"explorationProbability":0.5}}', endpointsJson("- - -"));
    c.endpoints.matchedBlocks[0] = 7;
    let open = 0;
    for (let i = 0; i < 1000; i++) if (c.scheduler.decide(tokens(100)).decode.count == 3) open++;
    expect(open).toBeGreaterThan(420);
    expect(open).toBeLessThan(580);
  });

  it("checks its parameters", () => {
    expect(pluginError('{"type":"prefix-cache-affinity-filter","parameters":{"affinityThreshold":1.1}}', "plugins[0].parameters.affinityThreshold", "at most 1")).toBe("");
    expect(pluginError('{"type":"prefix-cache-affinity-filter","parameters":{"explorationProbability":2}}', "plugins[0].parameters.explorationProbability", "between 0 and 1")).toBe("");
    expect(pluginError('{"type":"prefix-cache-affinity-filter","parameters":{"ttftSource":"latencyPredictor"}}', "plugins[0].parameters.ttftSource", "known, not supported in-line")).toBe("");
    expect(pluginError('{"type":"prefix-cache-affinity-filter","parameters":{"peakPrefillThroughput":0}}', "plugins[0].parameters.peakPrefillThroughput", "greater than 0")).toBe("");
  });
});

const RANGES = labelled(['"llm-d.ai/context-length-range":"0-100"', '"llm-d.ai/context-length-range":"101-1000"', "", '"llm-d.ai/context-length-range":"x"']);

describe("context-length-aware", () => {
  it("filters by the range in the label when it is told to", () => {
    const c = config('{"type":"context-length-aware","parameters":{"enableFiltering":true}}', RANGES);
    expect(kept(c, 100)).toBe("0 2");
    expect(kept(c, 101)).toBe("1 2");
    expect(kept(c, 2000)).toBe("2");
    expect(kept(config('{"type":"context-length-aware"}', RANGES), 100)).toBe("0 1 2 3");
  });

  it("scores: inside tight ranges first, outside by distance, no label in the middle, a broken one last", () => {
    const c = config('{"type":"context-length-aware"}', RANGES);
    expect(list(c.scheduler.decide(tokens(50)).decode)).toBe("0 2 1 3");
    // 0.3 + 0.7 * (0.7 / (1 + 0.01) + 0.3 * 0.5) = 0.8901 inside, 0.3 / (1 + 0.051) outside.
    expect(list(c.scheduler.decide(tokens(500)).decode)).toBe("1 2 0 3");
  });
});

const PLACES = labelled([
  '"llm-d.ai/role":"decode","kubernetes.io/hostname":"h1","topology.kubernetes.io/zone":"z1"',
  '"llm-d.ai/role":"prefill","kubernetes.io/hostname":"h1","topology.kubernetes.io/zone":"z1"',
  '"llm-d.ai/role":"prefill","kubernetes.io/hostname":"h2","topology.kubernetes.io/zone":"z1"',
  '"llm-d.ai/role":"prefill","kubernetes.io/hostname":"h3","topology.kubernetes.io/zone":"z2"',
  '"llm-d.ai/role":"prefill"',
]);

function prefill(filter: string, endpoints: string): string {
  const result = loadDocument(
    '{"revision":1,"options":{"allowExperimentalPlugins":true},"endpoints":' +
      endpoints +
      ',"picker":{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},' +
      filter +
      ',{"type":"max-score-picker"},{"type":"max-score-picker","name":"all","parameters":{"maxNumOfEndpoints":9}},{"type":"always-disagg-pd-decider"},{"type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"always-disagg-pd-decider"}}}],' +
      '"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"},{"pluginRef":"near"},{"pluginRef":"all"}]}]}}',
  );
  assert(result.config !== null, problemsText(result.problems.errors));
  const picks = result.config!.scheduler.decide(tokens(10)).prefill;
  let out = "";
  for (let i = 0; i < 5; i++) if (picks.has(i)) out += i.toString();
  return out;
}

describe("topology-affinity-filter", () => {
  it("keeps what shares the level with the decode pick", () => {
    expect(prefill('{"type":"topology-affinity-filter","name":"near"}', PLACES)).toBe("1");
    expect(prefill('{"type":"topology-affinity-filter","name":"near","parameters":{"minAffinity":"rack"}}', PLACES)).toBe("1");
    expect(prefill('{"type":"topology-affinity-filter","name":"near","parameters":{"minAffinity":"zone"}}', PLACES)).toBe("12");
    expect(prefill('{"type":"topology-affinity-filter","name":"near","parameters":{"minAffinity":"region"}}', PLACES)).toBe("12");
  });

  it("keeps all when nothing is close", () => {
    expect(prefill('{"type":"topology-affinity-filter","name":"near"}', endpointsJson("decode prefill prefill"))).toBe("12");
  });

  it("reads other labels by topology-extractor", () => {
    const named = labelled(['"llm-d.ai/role":"decode","host":"a"', '"llm-d.ai/role":"prefill","host":"b"', '"llm-d.ai/role":"prefill","host":"a"']);
    expect(prefill('{"type":"topology-extractor","parameters":{"hostname":"host"}},{"type":"topology-affinity-filter","name":"near"}', named)).toBe("2");
  });

  it("topology-affinity-scorer prefers the closest", () => {
    const result = loadDocument(
      '{"revision":1,"options":{"allowExperimentalPlugins":true},"endpoints":' +
        PLACES +
        ',"picker":{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"topology-affinity-scorer"},{"type":"max-score-picker"},{"type":"max-score-picker","name":"all","parameters":{"maxNumOfEndpoints":9}},{"type":"always-disagg-pd-decider"},{"type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"always-disagg-pd-decider"}}}],' +
        '"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"},{"pluginRef":"topology-affinity-scorer"},{"pluginRef":"all"}]}]}}',
    );
    assert(result.config !== null, problemsText(result.problems.errors));
    expect(list(result.config!.scheduler.decide(tokens(10)).prefill).startsWith("1 2 ")).toBe(true);
  });

  it("refuses an unknown level", () => {
    expect(pluginError('{"type":"topology-affinity-filter","parameters":{"minAffinity":"row"}}', "plugins[0].parameters.minAffinity", "must be host, rack, zone or region", '{"allowExperimentalPlugins":true}')).toBe("");
  });
});
