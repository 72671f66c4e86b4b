// Bad input never traps: seeded mutations of good documents, in bytes and in values. A trap ends the run, so that every case is a test of its own outcome.
import { Random } from "../../scheduling/random";
import { RequestFacts } from "../../scheduling/request";
import { loadDocument } from "../document";
import { renderReport } from "../report";
import { documentJson, endpointsJson } from "./support";

const SEED_EPD: string =
  '{"apiVersion":"llm-d.ai/v1alpha1","kind":"EndpointPickerConfig","plugins":[{"type":"label-selector-filter","name":"decode-pods","parameters":{"matchExpressions":[{"key":"role","operator":"In","values":["decode"]}]}},' +
  '{"type":"label-selector-filter","name":"prefill-pods","parameters":{"matchLabels":{"role":"prefill"}}},{"type":"prefix-cache-scorer","parameters":{"autoTune":false,"blockSizeTokens":5,"maxPrefixBlocksToMatch":256,"lruCapacityPerServer":31250}},{"type":"max-score-picker","parameters":{"maxNumOfEndpoints":2}},' +
  '{"type":"always-disagg-multimodal-decider"},{"type":"prefix-based-pd-decider","parameters":{"nonCachedTokens":8,"promptTokens":0}},{"type":"disagg-profile-handler","parameters":{"stageOrder":"decode-first","profiles":{"encode":"encode","prefill":"prefill","decode":"decode"},"deciders":{"encode":"always-disagg-multimodal-decider","prefill":"prefix-based-pd-decider"}}}],' +
  '"schedulingProfiles":[{"name":"encode"},{"name":"prefill","plugins":[{"pluginRef":"prefill-pods"},{"pluginRef":"prefix-cache-scorer","weight":2.5}]},{"name":"decode","plugins":[{"pluginRef":"decode-pods"},{"pluginRef":"prefix-cache-scorer"}]}],"flowControl":{"maxBytes":"1Gi","defaultRequestTTL":"1m30s"}}';

const MANY: string =
  '{"plugins":[{"type":"token-producer","parameters":{"estimate":{"video":{"frames":{"mode":"strided","strided":{"frameStride":2}}}}}},{"type":"core-metrics-extractor","parameters":{"engineConfigs":[{"name":"x","kvUsageSpec":"a{b=c}"}]}},{"type":"context-length-aware","parameters":{"enableFiltering":true}},{"type":"by-label","parameters":{"label":"role","validValues":["decode"]}},' +
  '{"type":"utilization-filter","parameters":{"conditions":[{"metric":"waiting-queue","maxValue":3}]}},{"type":"concurrency-detector","parameters":{"headroom":0.5}},{"type":"probabilistic-admitter","parameters":{"power":2}},{"type":"weighted-random-picker"},{"type":"active-request-scorer"},{"type":"token-load-scorer"},{"type":"topology-affinity-scorer"},{"type":"p2p-source-producer"},{"type":"prefix-cache-affinity-filter"}]}';

const OPTIONS: string =
  '{"apiVersion":"crosspoint/v1","kind":"FilterOptions","onMissingStage":"fail","bodyLimitBytes":"64Mi","scrape":{"intervalMs":1000},"allowPaths":["/x/*"],"tls":{"decode":true},"noDecodeStatus":429,"allowExperimentalPlugins":true,"kvSourceSelector":{"matchLabels":{"a":"b"}}}';

const VALUES: StaticArray<string> = [
  "null", "true", "-1", "0", "1.5", "1e400", "-1e400", "1e-400", "4294967296", "9007199254740993", '""', '"x"', '"\\u0000"', '"\\ud800"', "[]", "{}", "[[]]", '{"a":1}', "[null]", '{"type":"queue-scorer"}', "-0", '"-"', '"1Gi"', '"1h"',
];

const BYTES: string = '"{}[],:\\0e-. \u0001\ud800';

/** One to three changes: a piece dropped, doubled or cut off, a character changed, or a value replaced by another one. */
function mutate(text: string, random: Random): string {
  for (let n = 1 + random.below(3); n > 0 && text.length > 1; n--) {
    const at = random.below(text.length);
    const kind = random.below(8);
    if (kind == 0) text = text.substring(0, at) + text.substring(at + 1 + random.below(8));
    else if (kind == 1) text = text.substring(0, at) + text.substring(at, at + random.below(40)) + text.substring(at);
    else if (kind == 2) text = text.substring(0, at) + BYTES.charAt(random.below(BYTES.length)) + text.substring(at + 1);
    else if (kind == 3 && random.below(4) == 0) text = text.substring(0, at);
    else {
      // The value behind the next colon, up to a comma or a bracket.
      const colon = text.indexOf(":", at);
      if (colon < 0) continue;
      let end = colon + 1;
      while (end < text.length && !",]}".includes(text.charAt(end))) end++;
      text = text.substring(0, colon + 1) + VALUES[random.below(VALUES.length)] + text.substring(end);
    }
  }
  return text;
}

function run(document: string, seed: u64, rounds: i32): i32 {
  const random = new Random(seed);
  let accepted = 0;
  for (let i = 0; i < rounds; i++) {
    const result = loadDocument(mutate(document, random));
    const config = result.config;
    if ((config === null) == (result.problems.errors.length == 0)) return -1;
    if (!renderReport(result).startsWith('{"errors":[')) return -1;
    if (config === null) continue;
    accepted++;
    // What is accepted must also decide.
    const facts = new RequestFacts();
    facts.hasTokens = true;
    facts.tokens = 1000;
    facts.blockTokens = 16;
    facts.totalBlocks = 63;
    facts.mmItems = facts.mmDistinct = random.below(3);
    facts.priority = random.below(3) - 1;
    config.scheduler.decide(facts);
  }
  return accepted;
}

describe("fuzz", () => {
  it("the seed's configuration", () => {
    const accepted = run(documentJson(SEED_EPD, OPTIONS, endpointsJson("decode prefill encode prefill-decode")), 1, 1500);
    expect(accepted).toBeGreaterThan(20);
    expect(accepted).toBeLessThan(1400);
  });

  it("many plugins", () => {
    const accepted = run(documentJson(MANY, OPTIONS, endpointsJson("decode - decode")), 2, 1500);
    expect(accepted).toBeGreaterThan(20);
    expect(accepted).toBeLessThan(1400);
  });

  it("endpoints", () => {
    const accepted = run(
      documentJson("null", OPTIONS, '[{"name":"a","namespace":"n","address":"fd00::1","port":"8000","labels":{"llm-d.ai/role":"decode"}},{"name":"b","address":"::ffff:1.2.3.4","port":81},{"name":"c","address":"10.0.0.1","port":1}]'),
      3,
      1500,
    );
    expect(accepted).toBeGreaterThan(100);
  });

  it("noise", () => {
    const random = new Random(4);
    for (let i = 0; i < 2000; i++) {
      let text = "";
      for (let k = random.below(40); k >= 0; k--) text += random.below(3) == 0 ? VALUES[random.below(VALUES.length)] : BYTES.charAt(random.below(BYTES.length));
      expect(loadDocument(text).config === null).toBe(true);
    }
  });
});
