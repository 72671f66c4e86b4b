import { loadPicker, media, mustLoad, oneError, pluginError, table, tokens } from "../../config/__tests__/support";
import { RequestFacts } from "../../scheduling/request";
import { MultimodalDecider } from "../deciders/always";
import { PrefixBasedDecider } from "../deciders/prefix-based";
import { Decision, DecisionType, DECISION_TYPES, Outcome } from "../decision";
import { EncodeReason, ENCODE_REASONS, PrefillReason, PREFILL_REASONS } from "../reasons";

/** The decider's word for a prompt of `input` tokens of which the decode pick holds `cached`. */
function ask(input: i32, cached: i32, nonCached: i32, prompt: i32): string {
  const fleet = table("decode");
  fleet.matchedTokens[0] = cached;
  return PREFILL_REASONS[new PrefixBasedDecider(nonCached, prompt).prefill(tokens(input), fleet, 0)];
}

function encode(facts: RequestFacts): string {
  return ENCODE_REASONS[new MultimodalDecider().encode(facts)];
}

describe("prefix-based-pd-decider", () => {
  it("S-DC-01 never with nonCachedTokens 0, with or without an endpoint", () => {
    expect(ask(10, 5, 0, 0)).toBe("skip_threshold_zero");
    expect(PREFILL_REASONS[new PrefixBasedDecider(0, 0).prefill(tokens(10), table("decode"), -1)]).toBe("skip_threshold_zero");
  });

  it("S-DC-02 no without an endpoint", () => {
    expect(PREFILL_REASONS[new PrefixBasedDecider(5, 0).prefill(tokens(10), table("decode"), -1)]).toBe("skip_no_tokens");
  });

  it("S-DC-03 10 tokens, promptTokens 20: no", () => {
    expect(ask(10, 0, 5, 20)).toBe("skip_short_prompt");
  });

  it("S-DC-04 promptTokens equal to the input: yes", () => {
    expect(ask(10, 5, 5, 10)).toBe("run_uncached");
  });

  it("S-DC-05 10 tokens, nonCached 20: no", () => {
    expect(ask(10, 0, 20, 0)).toBe("skip_short_prompt");
  });

  it("S-DC-06 10 tokens, 8 cached, nonCached 5: no", () => {
    expect(ask(10, 8, 5, 0)).toBe("skip_short_suffix");
  });

  it("S-DC-07 10 tokens, 5 cached, nonCached 5: equality says yes", () => {
    expect(ask(10, 5, 5, 0)).toBe("run_uncached");
  });

  it("S-DC-08 10 tokens, 2 cached, nonCached 3: yes", () => {
    expect(ask(10, 2, 3, 0)).toBe("run_uncached");
  });

  it("S-DC-09 10 tokens, all cached, nonCached 1: no", () => {
    expect(ask(10, 10, 1, 0)).toBe("skip_cached");
  });

  it("S-DC-10 10 tokens, nothing cached, nonCached 5: yes", () => {
    expect(ask(10, 0, 5, 0)).toBe("run_uncached");
  });

  it("S-DC-11 100 tokens, the index was not asked: no", () => {
    const facts = tokens(100);
    facts.blockTokens = 0;
    expect(PREFILL_REASONS[new PrefixBasedDecider(5, 0).prefill(facts, table("decode"), 0)]).toBe("skip_no_tokens");
  });

  it("S-DC-13 4096 tokens, 240 blocks of 16 held, nonCached 512: no, 256 are left", () => {
    expect(ask(4096, 240 * 16, 512, 0)).toBe("skip_short_suffix");
  });

  it("S-DC-14 the same with 192 blocks: yes, 1024 are left", () => {
    expect(ask(4096, 192 * 16, 512, 0)).toBe("run_uncached");
  });

  it("S-DC-15 negative thresholds are refused", () => {
    expect(pluginError('{"type":"prefix-based-pd-decider","parameters":{"nonCachedTokens":-1}}', "plugins[0].parameters.nonCachedTokens", "at least 0")).toBe("");
    expect(pluginError('{"type":"prefix-based-pd-decider","parameters":{"promptTokens":-1}}', "plugins[0].parameters.promptTokens", "at least 0")).toBe("");
  });

  it("S-DC-16 without parameters it never says yes", () => {
    const config = mustLoad(
      '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"prefix-based-pd-decider"},{"type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"prefix-based-pd-decider"}}}],"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"}]}]}',
      "decode prefill",
    );
    expect(PREFILL_REASONS[config.scheduler.decide(tokens(100000)).prefillReason]).toBe("skip_threshold_zero");
  });

  it("S-DC-17 an exact count is taken as it is", () => {
    expect(ask(7, 0, 8, 0)).toBe("skip_short_prompt");
    expect(ask(8, 0, 8, 0)).toBe("run_uncached");
    expect(ask(9, 0, 8, 0)).toBe("run_uncached");
  });

  it("S-DC-18 the count is that of all prompts together", () => {
    // Two prompts of 5 tokens each reach the decider as 10 (request/ adds them up; such a request is never split anyway).
    expect(ask(5 + 5, 0, 8, 0)).toBe("run_uncached");
  });

  it("S-DC-19 an empty prompt: no", () => {
    expect(ask(0, 0, 5, 0)).toBe("skip_short_prompt");
  });

  it("says no to a request whose tokens are not known", () => {
    const facts = new RequestFacts();
    expect(PREFILL_REASONS[new PrefixBasedDecider(5, 0).prefill(facts, table("decode"), 0)]).toBe("skip_no_tokens");
  });

  it("counts the tail by tokens: one token more or less around each threshold decides", () => {
    expect(ask(100, 92, 8, 0)).toBe("run_uncached");
    expect(ask(100, 93, 8, 0)).toBe("skip_short_suffix");
    expect(ask(100, 99, 8, 0)).toBe("skip_short_suffix");
    expect(ask(100, 100, 8, 0)).toBe("skip_cached");
    // A record that claims more than the prompt has is a full hit, no more.
    expect(ask(100, 120, 8, 0)).toBe("skip_cached");
    expect(ask(49, 0, 8, 50)).toBe("skip_short_prompt");
    expect(ask(50, 0, 8, 50)).toBe("run_uncached");
  });

  it("case 21: a prompt of 5 bytes and nonCachedTokens 8", () => {
    expect(ask(3, 0, 8, 0)).toBe("skip_short_prompt");
  });

  it("S-DC-12 match info of another type than the index's cannot be: a producer of another type is refused", () => {
    expect(
      oneError(
        '{"plugins":[{"type":"inflight-load-producer","name":"mine"},{"type":"prefix-based-pd-decider","parameters":{"prefixMatchInfoProducerName":"mine"}}]}',
        "plugins[1].parameters.prefixMatchInfoProducerName",
        "not of type approx-prefix-cache-producer",
      ),
    ).toBe("");
  });

  it("takes the name of its producer (scheduler L7), and refuses one that is not there", () => {
    expect(
      oneError(
        '{"plugins":[{"type":"approx-prefix-cache-producer","name":"mine"},{"type":"prefix-based-pd-decider","parameters":{"prefixMatchInfoProducerName":"other"}}]}',
        "plugins[1].parameters.prefixMatchInfoProducerName",
        "no default producer",
      ),
    ).toBe("");
    expect(
      loadPicker(
        '{"plugins":[{"type":"approx-prefix-cache-producer","name":"mine"},{"type":"prefix-based-pd-decider","parameters":{"prefixMatchInfoProducerName":"mine"}}]}',
      ).problems.errors.length,
    ).toBe(0);
  });
});

describe("always-disagg-multimodal-decider", () => {
  it("S-DC-20 text no, media yes, nothing known no", () => {
    expect(encode(tokens(100))).toBe("skip_text_only");
    expect(encode(media(100, 1))).toBe("run_multimodal");
    expect(encode(media(100, 22))).toBe("run_multimodal");
    expect(encode(new RequestFacts())).toBe("skip_text_only");
  });
});

describe("decision types", () => {
  it("S-DC-22 by the stages that run", () => {
    const decision = new Decision(2);
    expect(DECISION_TYPES[decision.type]).toBe("decode-only");
    decision.prefill.count = 1;
    expect(DECISION_TYPES[decision.type]).toBe("prefill-decode");
    decision.encode.count = 1;
    expect(DECISION_TYPES[decision.type]).toBe("encode-prefill-decode");
    decision.prefill.count = 0;
    expect(DECISION_TYPES[decision.type]).toBe("encode-decode");
    decision.reset();
    expect(decision.type).toBe(DecisionType.DecodeOnly);
  });
});

describe("conditional decode", () => {
  it("S-DC-23 412 only when it is asked for and nothing is held", () => {
    const config = mustLoad("null", "-");
    const facts = tokens(100);
    expect(config.scheduler.decide(facts).outcome).toBe(Outcome.Ok);
    facts.ifAvailable = true;
    expect(config.scheduler.decide(facts).outcome).toBe(Outcome.NotAvailable);
    config.endpoints.matchedBlocks[0] = 1;
    config.endpoints.matchedTokens[0] = 16;
    expect(config.scheduler.decide(facts).outcome).toBe(Outcome.Ok);
  });
});

describe("reasons", () => {
  it("have one word each", () => {
    expect(PREFILL_REASONS.length).toBe(<i32>PrefillReason.StatefulResponse + 1);
    expect(ENCODE_REASONS.length).toBe(<i32>EncodeReason.NoEncodeEndpoint + 1);
  });
});
