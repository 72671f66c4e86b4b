import { hasWarning, holds, loadPicker, pluginError, table, tokens } from "../../../config/__tests__/support";
import { Build } from "../../../config/build";
import { JsonDoc } from "../../../config/json";
import { Node } from "../../../config/node";
import { Problems } from "../../../config/problems";
import { createPlugin } from "../../../config/registry";
import { EndpointTable } from "../../../endpoints/table";
import { Pass } from "../../pass";
import { Random } from "../../random";
import { RequestFacts } from "../../request";

/** Raw scores of a scorer over the whole table, joined by spaces. */
function scores(type: string, parameters: string, endpoints: EndpointTable, facts: RequestFacts = new RequestFacts()): string {
  const plugin = createPlugin(type, Node.root(JsonDoc.parse(parameters), 0, "", new Problems()), new Build(new Problems()))!;
  plugin.prepare(endpoints);
  const pass = new Pass(endpoints, new Random());
  pass.facts = facts;
  pass.count = endpoints.count;
  for (let i = 0; i < endpoints.count; i++) pass.candidates[i] = i;
  plugin.score(pass);
  let out = "";
  for (let i = 0; i < endpoints.count; i++) out += (i > 0 ? " " : "") + (Math.round(pass.raw[i] * 100000) / 100000).toString();
  return out;
}

function queues(values: Array<f64>): EndpointTable {
  const out = table("- ".repeat(values.length).trimEnd());
  for (let i = 0; i < values.length; i++) {
    out.waiting[i] = values[i];
    out.running[i] = values[i];
  }
  return out;
}

describe("queue-scorer", () => {
  it("S-SC-01 10, 5, 0 give 0, 0.5, 1; equal and zero give 1", () => {
    expect(scores("queue-scorer", "null", queues([10, 5, 0]))).toBe("0.0 0.5 1.0");
    expect(scores("queue-scorer", "null", queues([4, 4]))).toBe("1.0 1.0");
    expect(scores("queue-scorer", "null", queues([0, 0, 0]))).toBe("1.0 1.0 1.0");
  });

  it("an unknown queue is in the middle, and sets no limit (scheduler L10)", () => {
    const endpoints = queues([10, 1000, 0]);
    endpoints.known[1] = 0;
    expect(scores("queue-scorer", "null", endpoints)).toBe("0.0 0.5 1.0");
  });

  it("running-requests-size-scorer does the same on running requests", () => {
    const endpoints = queues([8, 4, 0]);
    expect(scores("running-requests-size-scorer", "null", endpoints)).toBe("0.0 0.5 1.0");
    endpoints.known[2] = 1;
    expect(scores("running-requests-size-scorer", "null", endpoints)).toBe("0.0 1.0 0.5");
  });
});

describe("kv-cache-utilization-scorer", () => {
  it("S-SC-02 0.8, 0.5, 0 give 0.2, 0.5, 1", () => {
    const endpoints = table("- - - -");
    endpoints.kvUsage[0] = 0.8;
    endpoints.kvUsage[1] = 0.5;
    endpoints.known[3] = 0;
    expect(scores("kv-cache-utilization-scorer", "null", endpoints)).toBe("0.2 0.5 1.0 0.5");
  });
});

describe("load-aware-scorer", () => {
  it("S-SC-03 threshold 10: 2, 0, 15 waiting give 0.4, 0.5, 0", () => {
    expect(scores("load-aware-scorer", '{"threshold":10}', queues([2, 0, 15]))).toBe("0.4 0.5 0.0");
  });

  it("has a threshold of 128, and no use for one below 1", () => {
    expect(scores("load-aware-scorer", "null", queues([64, 128]))).toBe("0.25 0.0");
    expect(scores("load-aware-scorer", '{"threshold":0}', queues([64]))).toBe("0.25");
    expect(hasWarning(loadPicker('{"plugins":[{"type":"load-aware-scorer","parameters":{"threshold":-4}}]}'), "plugins[0].parameters.threshold", "default")).toBe("");
    expect(pluginError('{"type":"load-aware-scorer","parameters":{"threshold":"many"}}', "plugins[0].parameters.threshold", "whole number")).toBe("");
  });

  it("an unknown queue is in the middle of its range", () => {
    const endpoints = queues([0, 0]);
    endpoints.known[1] = 0;
    expect(scores("load-aware-scorer", "null", endpoints)).toBe("0.5 0.25");
  });
});

describe("active-request-scorer", () => {
  it("S-SC-04 nothing in flight: 1 everywhere, known or not", () => {
    const endpoints = table("- - -");
    endpoints.known[1] = 0;
    expect(scores("active-request-scorer", "null", endpoints)).toBe("1.0 1.0 1.0");
  });

  it("S-SC-05 idleThreshold and maxBusyScore: idle pods 1, busy ones scaled below the cap", () => {
    const endpoints = table("- - - -");
    endpoints.inflightRequests[1] = 2;
    endpoints.inflightRequests[2] = 5;
    endpoints.inflightRequests[3] = 10;
    expect(scores("active-request-scorer", '{"idleThreshold":2,"maxBusyScore":0.5}', endpoints)).toBe("1.0 1.0 0.25 0.0");
    expect(scores("active-request-scorer", "null", endpoints)).toBe("1.0 0.8 0.5 0.0");
  });

  it("takes its old parameter, and what is out of range, with a warning", () => {
    const result = loadPicker('{"plugins":[{"type":"active-request-scorer","parameters":{"requestTimeout":"2m","idleThreshold":-1,"maxBusyScore":3}}]}');
    expect(hasWarning(result, "plugins[0].parameters.requestTimeout", "unused")).toBe("");
    expect(hasWarning(result, "plugins[0].parameters.idleThreshold", "0 is used")).toBe("");
    expect(hasWarning(result, "plugins[0].parameters.maxBusyScore", "1 is used")).toBe("");
  });
});

describe("token-load-scorer", () => {
  it("counts what is in flight and what the request would add there", () => {
    const endpoints = table("- - -");
    endpoints.inflightTokens[1] = 500;
    endpoints.inflightTokens[2] = 5000;
    holds(endpoints, 0, 300);
    expect(scores("token-load-scorer", '{"queueThresholdTokens":1000}', endpoints, tokens(400))).toBe("0.9 0.1 0.0");
  });
});

function matched(total: i32): RequestFacts {
  const facts = tokens(total);
  facts.blockTokens = 1;
  facts.totalBlocks = total;
  return facts;
}

function block1(values: Array<i32>): EndpointTable {
  const out = table("- ".repeat(values.length).trimEnd());
  for (let i = 0; i < values.length; i++) out.matchedTokens[i] = out.matchedBlocks[i] = values[i];
  return out;
}

describe("prefix-cache-scorer", () => {
  it("S-PX-22 5 and 2 of 10 blocks", () => {
    expect(scores("prefix-cache-scorer", "null", block1([5, 2, 0]), matched(10))).toBe("0.5 0.2 0.0");
  });

  it("S-PX-23 weight 0.5, scale 100: 5 of 10 and 50 of 100", () => {
    const parameters = '{"matchLengthWeight":0.5,"matchLengthScaleTokens":100}';
    expect(scores("prefix-cache-scorer", parameters, block1([5]), matched(10))).toBe("0.25125");
    expect(scores("prefix-cache-scorer", parameters, block1([50]), matched(100))).toBe("0.375");
    expect(scores("prefix-cache-scorer", parameters, block1([500]), matched(1000))).toBe("0.75");
  });

  it("S-PX-24 nothing known of the prompt: 0", () => {
    expect(scores("prefix-cache-scorer", "null", block1([5, 2]), new RequestFacts())).toBe("0.0 0.0");
  });

  it("S-PX-25 weight and scale out of range", () => {
    expect(pluginError('{"type":"prefix-cache-scorer","parameters":{"matchLengthWeight":-0.1}}', "plugins[0].parameters.matchLengthWeight", "between 0 and 1")).toBe("");
    expect(pluginError('{"type":"prefix-cache-scorer","parameters":{"matchLengthWeight":1.1}}', "plugins[0].parameters.matchLengthWeight", "between 0 and 1")).toBe("");
    expect(pluginError('{"type":"prefix-cache-scorer","parameters":{"matchLengthWeight":0.5,"matchLengthScaleTokens":0}}', "plugins[0].parameters.matchLengthScaleTokens", "greater than 0")).toBe("");
    expect(loadPicker('{"plugins":[{"type":"prefix-cache-scorer","parameters":{"matchLengthScaleTokens":0}}]}').problems.errors.length).toBe(0);
  });

  it("the length counts the last partial block with its own tokens (scheduler L6)", () => {
    const endpoints = table("-");
    holds(endpoints, 0, 20); // Two blocks of 16, the second with 4 tokens.
    expect(scores("prefix-cache-scorer", '{"matchLengthWeight":1,"matchLengthScaleTokens":40}', endpoints, tokens(20))).toBe("0.25");
  });
});

describe("context-length-aware", () => {
  it("scores by how well the prompt fits the label's range", () => {
    const endpoints = table("- - - - - -");
    const ranges: StaticArray<string> = ["0-10000", "5000-5000", "0-4000", "7000-9000", "9-1"];
    for (let i = 0; i < ranges.length; i++) endpoints.labels[i].set("llm-d.ai/context-length-range", ranges[i]);
    // 0.3 + 0.7 * (0.7 / 2 + 0.3 / 2); no width; 1,000 above; 2,000 below; min above max; no label.
    expect(scores("context-length-aware", "null", endpoints, tokens(5000))).toBe("0.65 1.0 0.15 0.1 0.0 0.5");
    expect(scores("context-length-aware", '{"label":"other"}', endpoints, tokens(5000))).toBe("0.5 0.5 0.5 0.5 0.5 0.5");
  });
});
