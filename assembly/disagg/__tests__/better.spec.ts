// Choices beside the reference's (issue: "choosing better than the reference"): each test runs both rules over the same arrivals and asserts what the difference is and how
// large. (Encoders: encode.spec.) The reference's rule is the same scheduler without what the rule adds, which is what its documents describe.
import { holds, mustLoad, problemsText, tokens } from "../../config/__tests__/support";
import { LoadedConfig, loadDocument } from "../../config/document";
import { EndpointTable } from "../../endpoints/table";
import { Random } from "../../scheduling/random";
import { Decision } from "../decision";

const PD: string =
  '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"queue-scorer"},{"type":"always-disagg-pd-decider"},TOPOLOGY{"type":"disagg-profile-handler","parameters":{ORDER"deciders":DECIDERS}}],' +
  '"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"},{"pluginRef":"queue-scorer"}SECOND]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"},{"pluginRef":"queue-scorer"}SECOND]}]}';

function picker(topology: string, second: string, prefillFirst: bool = false): string {
  return PD.replaceAll("TOPOLOGY", topology)
    .replaceAll("SECOND", second)
    .replaceAll("ORDER", prefillFirst ? '"stageOrder":"prefill-first",' : "")
    .replaceAll("DECIDERS", prefillFirst ? "{}" : '{"prefill":"always-disagg-pd-decider"}');
}

function pd(labels: string, options: string = "null", topology: string = "", second: string = "", prefillFirst: bool = false): LoadedConfig {
  let endpoints = "";
  // Four hosts, two revisions: pod k of each role is on host k % 4 and of revision k % 2.
  for (let i = 0; i < 16; i++) {
    const role = i < 8 ? "decode" : "prefill";
    endpoints +=
      (i ? "," : "") + '{"name":"e' + i.toString() + '","address":"10.0.0.' + (i + 1).toString() + '","port":8000,"labels":{"llm-d.ai/role":"' + role + '",' + labels.replaceAll("HOST", (i % 4).toString()).replaceAll("REV", (i % 2).toString()) + "}}";
  }
  const config = mustLoadDocument(picker(topology, second, prefillFirst), options, endpoints);
  for (let i = 0; i < 16; i++) config.endpoints.known[i] = 7;
  return config;
}

function mustLoadDocument(pickerText: string, options: string, endpoints: string): LoadedConfig {
  const result = loadDocument('{"revision":1,"picker":' + pickerText + ',"options":' + options + ',"endpoints":[' + endpoints + "]}");
  const config = result.config;
  assert(config !== null, problemsText(result.problems.errors));
  return config!;
}

/** Random queues, as every scrape brings others. */
function shuffleLoad(table: EndpointTable, random: Random): void {
  for (let i = 0; i < table.count; i++) table.waiting[i] = <f64>random.below(10);
}

/** Decisions of 1000 whose two pods differ in `by` (pods k and k + 8 are alike when k % by is). */
function mixed(config: LoadedConfig, by: i32): i32 {
  const random = new Random(5);
  let count = 0;
  for (let r = 0; r < 1000; r++) {
    shuffleLoad(config.endpoints, random);
    const d = config.scheduler.decide(tokens(100));
    assert(d.prefill.count > 0 && d.decode.count > 0, "both are picked");
    if (d.prefill.first % by != d.decode.first % by) count++;
  }
  return count;
}

const TOPOLOGY: string = '{"type":"topology-affinity-filter","parameters":{"minAffinity":"host"}},';
const ALPHA: string = '{"allowExperimentalPlugins":true}';

describe("prefill and decode of one revision", () => {
  it("the reference mixes revisions in about half of the requests of a rollout, we in none, in both stage orders", () => {
    const labels = '"revision":"vREV"';
    for (let order = 0; order < 2; order++) {
      const reference = mixed(pd(labels, "null", "", "", order == 1), 2);
      expect(reference).toBeGreaterThan(400);
      expect(reference).toBeLessThan(600);
      expect(mixed(pd(labels, '{"revisionLabel":"revision"}', "", "", order == 1), 2)).toBe(0);
    }
  });

  it("and both revisions keep their share of the requests", () => {
    const config = pd('"revision":"vREV"', '{"revisionLabel":"revision"}');
    const random = new Random(9);
    let second = 0;
    for (let r = 0; r < 1000; r++) {
      shuffleLoad(config.endpoints, random);
      second += config.scheduler.decide(tokens(100)).decode.first & 1;
    }
    expect(second).toBeGreaterThan(420);
    expect(second).toBeLessThan(580);
  });
});

describe("topology affinity of prefill to decode", () => {
  it("without it three in four KV hand-offs leave the host of four, with the filter none does, and the least loaded of the host is taken", () => {
    const labels = '"kubernetes.io/hostname":"hHOST"';
    const reference = mixed(pd(labels), 4);
    expect(reference).toBeGreaterThan(650);
    expect(reference).toBeLessThan(850);
    const config = pd(labels, ALPHA, TOPOLOGY, ',{"pluginRef":"topology-affinity-filter"}');
    expect(mixed(config, 4)).toBe(0);
    const random = new Random(3);
    for (let r = 0; r < 200; r++) {
      shuffleLoad(config.endpoints, random);
      const d = config.scheduler.decide(tokens(100));
      const other = d.prefill.first < 12 ? d.prefill.first + 4 : d.prefill.first - 4;
      expect(config.endpoints.waiting[d.prefill.first]).toBeLessThanOrEqual(config.endpoints.waiting[other]);
    }
  });

  it("in prefill-first order it is decode that follows", () => {
    const config = pd('"kubernetes.io/hostname":"hHOST"', ALPHA, TOPOLOGY, ',{"pluginRef":"topology-affinity-filter"}', true);
    expect(mixed(config, 4)).toBe(0);
  });

  it("as a scorer it gives way to load: fewer hand-offs leave the host, and no queue is taken that is far longer", () => {
    const labels = '"kubernetes.io/hostname":"hHOST"';
    const scorer = pd(labels, ALPHA, '{"type":"topology-affinity-scorer"},', ',{"pluginRef":"topology-affinity-scorer","weight":0.5}');
    const left = mixed(scorer, 4);
    expect(left).toBeGreaterThan(50);
    expect(left).toBeLessThan(500);
  });
});

/** What a burst did: requests per pod, and how many found their prompt. */
class Burst {
  readonly perPod: StaticArray<i32> = new StaticArray<i32>(8);
  hits: i32 = 0;

  get most(): i32 {
    let most = 0;
    for (let i = 0; i < 8; i++) most = max(most, this.perPod[i]);
    return most;
  }
}

const HERD: string =
  '{"plugins":[{"type":"SCORER"PARAMETERS},{"type":"prefix-cache-scorer"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"SCORER","weight":WEIGHT},{"pluginRef":"prefix-cache-scorer"}]}]}';

/**
 * `prompts` different prompts, `each` requests with each of them on average, in random order, all between two scrapes, on eight idle pods. A pod holds a prompt once it was sent it. `ours`: what was
 * sent since the scrape counts as load; the reference's scorers see what the last scrape saw.
 */
function burst(ours: bool, scorer: string, parameters: string, weight: string, prompts: i32, each: i32): Burst {
  const config = mustLoad(HERD.replaceAll("SCORER", scorer).replaceAll("PARAMETERS", parameters).replaceAll("WEIGHT", weight), "- ".repeat(8).trimEnd());
  const table = config.endpoints;
  for (let i = 0; i < 8; i++) table.known[i] = 7;
  const out = new Burst();
  const warm = new StaticArray<u8>(8 * prompts);
  const random = new Random(21);
  for (let r = 0; r < prompts * each; r++) {
    const prompt = random.below(prompts);
    for (let i = 0; i < 8; i++) {
      holds(table, i, warm[prompt * 8 + i] ? 1600 : 0);
      table.inflightRequests[i] = out.perPod[i];
      table.sinceScrape[i] = ours ? out.perPod[i] : 0;
    }
    const d: Decision = config.scheduler.decide(tokens(1600));
    const pod = d.decode.first;
    if (warm[prompt * 8 + pod]) out.hits++;
    warm[prompt * 8 + pod] = 1;
    out.perPod[pod]++;
  }
  return out;
}

describe("a burst within one scrape interval", () => {
  it("of 80 equal prompts: the reference sends all to the pod that got the first, we no more than twice the mean to any, and nine in ten find their prompt", () => {
    const reference = burst(false, "load-aware-scorer", ',"parameters":{"threshold":16}', "8", 1, 80);
    expect(reference.most).toBe(80);
    const ours = burst(true, "load-aware-scorer", ',"parameters":{"threshold":16}', "8", 1, 80);
    expect(ours.most).toBeLessThanOrEqual(20);
    expect(ours.hits).toBeGreaterThanOrEqual(72);
  });

  it("the same by the queue's rank among the candidates", () => {
    const reference = burst(false, "queue-scorer", "", "2", 1, 80);
    expect(reference.most).toBe(80);
    const ours = burst(true, "queue-scorer", "", "2", 1, 80);
    expect(ours.most).toBeLessThanOrEqual(11);
    expect(ours.hits).toBe(72);
  });

  it("the prefix keeps its weight: with sixteen prompts a sixth more of the requests find theirs than by load alone, at the same level of load", () => {
    const ours = burst(true, "load-aware-scorer", ',"parameters":{"threshold":16}', "8", 16, 10);
    const blind = burst(true, "load-aware-scorer", ',"parameters":{"threshold":16}', "800", 16, 10);
    // By load alone a prompt is met by chance.
    expect(ours.hits).toBeGreaterThan(blind.hits + 20);
    expect(ours.most).toBeLessThanOrEqual(blind.most + 3);
    const reference = burst(false, "load-aware-scorer", ',"parameters":{"threshold":16}', "8", 16, 10);
    expect(reference.most).toBeGreaterThan(ours.most);
  });
});
