import { always, holds, list, Machine, media, multimodal, mustLoad, table, tokens } from "../../config/__tests__/support";
import { LoadedConfig } from "../../config/document";
import { EndpointTable } from "../../endpoints/table";
import { NeverSplit, RequestFacts } from "../../scheduling/request";
import { PrefixBasedDecider } from "../deciders/prefix-based";
import { EncodeDecider } from "../deciders/decider";
import { Decision, DECISION_TYPES, Outcome, Stage } from "../decision";
import { hostPorts } from "./support";
import { DecodeReason, DECODE_REASONS, EncodeReason, ENCODE_REASONS, PREFILL_REASONS } from "../reasons";

/** `decode-reason/prefill-reason/encode-reason`. */
function reasons(decision: Decision): string {
  return DECODE_REASONS[decision.decodeReason] + "/" + PREFILL_REASONS[decision.prefillReason] + "/" + ENCODE_REASONS[decision.encodeReason];
}

/** `decode|prefill|encode` picks. */
function picks(decision: Decision): string {
  return list(decision.decode) + "|" + list(decision.prefill) + "|" + list(decision.encode);
}

function type(decision: Decision): string {
  return DECISION_TYPES[decision.type];
}

function uncached(count: i32): PrefixBasedDecider {
  return new PrefixBasedDecider(count, 0);
}

/** P/D as the reference's scheduler test sets it up: prefix scorer on both profiles, load-aware on decode, nonCachedTokens 2. */
function reference(roles: string, handler: string = '{"deciders":{"prefill":"prefix-based-pd-decider"}}'): LoadedConfig {
  const config = mustLoad(
    '{"plugins":[{"type":"prefill-filter"},{"type":"decode-filter"},{"type":"prefix-cache-scorer"},{"type":"load-aware-scorer"},{"type":"max-score-picker"},' +
      '{"type":"prefix-based-pd-decider","parameters":{"nonCachedTokens":2}},{"type":"disagg-profile-handler","parameters":' +
      handler +
      '}],"schedulingProfiles":[{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"},{"pluginRef":"prefix-cache-scorer","weight":50},{"pluginRef":"max-score-picker"}]},' +
      '{"name":"decode","plugins":[{"pluginRef":"decode-filter"},{"pluginRef":"load-aware-scorer","weight":1},{"pluginRef":"prefix-cache-scorer","weight":0},{"pluginRef":"max-score-picker"}]}]}',
    roles,
  );
  for (let i = 0; i < config.endpoints.count; i++) config.endpoints.known[i] = 7;
  return config;
}

/** The reference's fixture makes a token of every full 4 characters. */
const ELEVEN_CHARACTERS: i32 = 2;
const FIVE_CHARACTERS: i32 = 1;

class CountingDecider extends EncodeDecider {
  asked: i32 = 0;

  encode(facts: RequestFacts): EncodeReason {
    this.asked++;
    return EncodeReason.SkipTextOnly;
  }
}

describe("decode first", () => {
  it("S-DG-01 the decode profile comes first, alone when the decider says no", () => {
    const m = new Machine(table("decode prefill"), uncached(0), null);
    const d = m.decide(tokens(100));
    expect(picks(d)).toBe("0||");
    expect(m.decodeSpy.runs).toBe(1);
    expect(m.prefillSpy.runs).toBe(0);
    expect(m.decodeSpy.peer).toBe(-1);
  });

  it("S-DG-02 without a decode endpoint nothing further runs, and it is an error", () => {
    const m = new Machine(table("prefill encode"), always(), multimodal());
    const d = m.decide(media(100, 1));
    expect(d.outcome).toBe(Outcome.NoDecodeEndpoint);
    expect(picks(d)).toBe("||");
    expect(reasons(d)).toBe("no_decode_endpoint//");
    expect(m.prefillSpy.runs + m.encodeSpy.runs).toBe(0);
  });

  it("S-DG-03 decode endpoints that the filters drain: the same", () => {
    const config = mustLoad(
      '{"plugins":[{"type":"concurrency-detector","parameters":{"maxConcurrency":1}},{"type":"disagg-profile-handler"}],"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"concurrency-detector"}]}]}',
      "decode decode",
    );
    config.endpoints.inflightRequests[0] = 1;
    config.endpoints.inflightRequests[1] = 5;
    const d = config.scheduler.decide(tokens(100));
    expect(d.outcome).toBe(Outcome.NoDecodeEndpoint);
    expect(reasons(d)).toBe("no_decode_endpoint//");
  });

  it("S-DG-04 enough uncached tokens: prefill", () => {
    const d = new Machine(table("decode prefill"), uncached(8), null).decide(tokens(100));
    expect(picks(d)).toBe("0|1|");
    expect(reasons(d)).toBe("picked/run_uncached/skip_no_decider");
  });

  it("S-DG-05 a short uncached suffix: no prefill", () => {
    const fleet = table("decode prefill");
    holds(fleet, 0, 95);
    const m = new Machine(fleet, uncached(8), null);
    const d = m.decide(tokens(100));
    expect(picks(d)).toBe("0||");
    expect(reasons(d)).toBe("picked/skip_short_suffix/skip_no_decider");
    expect(m.prefillSpy.runs).toBe(0);
  });

  it("S-DG-06 each profile runs once", () => {
    const m = new Machine(table("decode prefill"), always(), null);
    m.decide(tokens(100));
    expect(m.decodeSpy.runs).toBe(1);
    expect(m.prefillSpy.runs).toBe(1);
  });

  it("S-DG-07 tokens that cannot be counted: no prefill, no error", () => {
    const d = new Machine(table("decode prefill"), uncached(8), null).decide(new RequestFacts());
    expect(d.outcome).toBe(Outcome.Ok);
    expect(reasons(d)).toBe("picked/skip_no_tokens/skip_no_decider");
  });

  it("S-DG-08 the same request twice: prefill, then decode only", () => {
    const fleet = table("decode prefill");
    const m = new Machine(fleet, uncached(8), null);
    expect(type(m.decide(tokens(100)))).toBe("prefill-decode");
    holds(fleet, 0, 100);
    const d = m.decide(tokens(100));
    expect(type(d)).toBe("decode-only");
    expect(reasons(d)).toBe("picked/skip_cached/skip_no_decider");
  });

  it("S-DG-09 a short and a long request: only the long one is split", () => {
    const m = new Machine(table("decode prefill"), uncached(50), null);
    expect(type(m.decide(tokens(20)))).toBe("decode-only");
    expect(type(m.decide(tokens(200)))).toBe("prefill-decode");
  });

  it("S-DG-10 profiles of other names", () => {
    const config = mustLoad(
      '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"always-disagg-pd-decider"},{"type":"disagg-profile-handler","parameters":{"profiles":{"decode":"my-decode","prefill":"my-prefill"},"deciders":{"prefill":"always-disagg-pd-decider"}}}],"schedulingProfiles":[{"name":"my-prefill","plugins":[{"pluginRef":"prefill-filter"}]},{"name":"my-decode","plugins":[{"pluginRef":"decode-filter"}]}]}',
      "prefill decode",
    );
    expect(picks(config.scheduler.decide(tokens(10)))).toBe("1|0|");
    expect(config.scheduler.decodeCapable[0]).toBe(0);
    expect(config.scheduler.decodeCapable[1]).toBe(1);
  });

  it("S-DG-11 E/PD, text only: no encode", () => {
    const m = new Machine(table("decode encode"), null, multimodal());
    const d = m.decide(tokens(100));
    expect(reasons(d)).toBe("picked/skip_no_decider/skip_text_only");
    expect(m.encodeSpy.runs).toBe(0);
  });

  // To the scheduler an image, a video and an audio block are media items; what counts as one is request/'s.
  it("S-DG-12 E/PD, an image: encode", () => {
    expect(picks(new Machine(table("decode encode"), null, multimodal()).decide(media(300, 1)))).toBe("0||1");
  });

  it("S-DG-13 E/PD, a video: encode", () => {
    expect(picks(new Machine(table("decode encode"), null, multimodal()).decide(media(4500, 1)))).toBe("0||1");
  });

  it("S-DG-14 E/PD, audio: encode", () => {
    expect(picks(new Machine(table("decode encode"), null, multimodal()).decide(media(12, 1)))).toBe("0||1");
  });

  it("S-DG-15 E/PD, no encode endpoint: finished, without another try", () => {
    const m = new Machine(table("decode prefill"), null, multimodal());
    const d = m.decide(media(100, 1));
    expect(d.outcome).toBe(Outcome.Ok);
    expect(reasons(d)).toBe("picked/skip_no_decider/no_encode_endpoint");
    expect(type(d)).toBe("decode-only");
  });

  it("S-DG-16 E/P/D, media: encode before prefill", () => {
    const m = new Machine(table("decode prefill encode"), always(), multimodal());
    const d = m.decide(media(100, 1));
    expect(picks(d)).toBe("0|1|2");
    expect(type(d)).toBe("encode-prefill-decode");
    // Encode has run when the decode pick becomes prefill's peer.
    expect(m.encodeSpy.peer).toBe(-1);
    expect(m.prefillSpy.peer).toBe(0);
  });

  it("S-DG-17 E/P/D, text with many uncached tokens: prefill only", () => {
    const d = new Machine(table("decode prefill encode"), uncached(8), multimodal()).decide(tokens(100));
    expect(reasons(d)).toBe("picked/run_uncached/skip_text_only");
    expect(type(d)).toBe("prefill-decode");
  });

  it("S-DG-18 E/P/D, text with few uncached tokens: decode only", () => {
    const fleet = table("decode prefill encode");
    holds(fleet, 0, 96);
    const d = new Machine(fleet, uncached(8), multimodal()).decide(tokens(100));
    expect(reasons(d)).toBe("picked/skip_short_suffix/skip_text_only");
    expect(type(d)).toBe("decode-only");
  });

  it("S-DG-19 E/P/D, encode has no endpoint: prefill all the same", () => {
    const d = new Machine(table("decode prefill"), always(), multimodal()).decide(media(100, 1));
    expect(reasons(d)).toBe("picked/run_always/no_encode_endpoint");
    expect(picks(d)).toBe("0|1|");
  });

  it("S-DG-20 E/P/D, encode done: prefill follows", () => {
    const d = new Machine(table("decode prefill encode"), uncached(8), multimodal()).decide(media(100, 2));
    expect(reasons(d)).toBe("picked/run_uncached/run_multimodal");
  });

  it("S-DG-21 an encode decider that says no is asked once", () => {
    const decider = new CountingDecider();
    new Machine(table("decode prefill encode"), always(), decider).decide(media(100, 1));
    expect(decider.asked).toBe(1);
  });

  it("S-DG-22 both deciders unset: neither stage", () => {
    const d = new Machine(table("decode prefill encode"), null, null).decide(media(100, 1));
    expect(reasons(d)).toBe("picked/skip_no_decider/skip_no_decider");
    expect(type(d)).toBe("decode-only");
  });

  it("S-DG-23 only an encode decider: encode, no prefill", () => {
    const d = new Machine(table("decode prefill encode"), null, multimodal()).decide(media(100, 1));
    expect(picks(d)).toBe("0||2");
    expect(type(d)).toBe("encode-decode");
  });

  it("S-DG-24 only a prefill decider: prefill, no encode", () => {
    const d = new Machine(table("decode prefill encode"), always(), null).decide(media(100, 1));
    expect(picks(d)).toBe("0|1|");
    expect(reasons(d)).toBe("picked/run_always/skip_no_decider");
  });

  it("S-DG-25 encode did not run: no encode endpoints in the result", () => {
    const d = new Machine(table("decode encode"), null, multimodal()).decide(tokens(10));
    expect(d.encode.count).toBe(0);
    expect(d.encode.first).toBe(-1);
  });

  it("S-DG-26 encode ran and found nothing: the reason stays, and no header comes of it", () => {
    const fleet = table("decode");
    const d = new Machine(fleet, null, multimodal()).decide(media(10, 1));
    expect(d.encodeReason).toBe(EncodeReason.NoEncodeEndpoint);
    expect(hostPorts(fleet, d.encode)).toBe("");
  });

  it("S-DG-27 all three ran: three results, decode the primary one", () => {
    const fleet = table("prefill encode decode");
    const d = new Machine(fleet, always(), multimodal()).decide(media(100, 1));
    expect(hostPorts(fleet, d.decode)).toBe("10.0.0.3:8000");
    expect(hostPorts(fleet, d.prefill)).toBe("10.0.0.1:8000");
    expect(hostPorts(fleet, d.encode)).toBe("10.0.0.2:8000");
  });

  it("S-DG-29 prefill sees the decode pick as its peer", () => {
    const m = new Machine(table("prefill decode"), always(), null);
    m.decide(tokens(100));
    expect(m.prefillSpy.peer).toBe(1);
  });

  it("S-DG-30 no prefill: no peer for anyone", () => {
    const m = new Machine(table("prefill decode"), uncached(0), null);
    m.decide(tokens(100));
    expect(m.prefillSpy.peer).toBe(-2);
    expect(m.decodeSpy.peer).toBe(-1);
  });
});

describe("prefill first", () => {
  it("S-DG-31 prefill runs without a decider", () => {
    const m = new Machine(table("decode prefill"), null, null);
    m.setup.prefillFirst = true;
    const d = m.decide(tokens(1));
    expect(picks(d)).toBe("0|1|");
    expect(reasons(d)).toBe("picked/run_always/skip_no_decider");
    expect(m.prefillSpy.peer).toBe(-1);
  });

  it("S-DG-32 no prefill endpoint: decode runs, without a peer", () => {
    const m = new Machine(table("decode encode"), null, null);
    m.setup.prefillFirst = true;
    const d = m.decide(tokens(10));
    expect(d.outcome).toBe(Outcome.Ok);
    expect(reasons(d)).toBe("picked/no_prefill_endpoint/skip_no_decider");
    expect(m.decodeSpy.peer).toBe(-1);
  });

  it("S-DG-33 media: prefill, encode, decode", () => {
    const m = new Machine(table("decode prefill encode"), null, multimodal());
    m.setup.prefillFirst = true;
    const d = m.decide(media(10, 1));
    expect(picks(d)).toBe("0|1|2");
    expect(m.encodeSpy.peer).toBe(-1);
    expect(m.decodeSpy.peer).toBe(1);
  });

  it("S-DG-34 text only: no encode, decode", () => {
    const m = new Machine(table("decode prefill encode"), null, multimodal());
    m.setup.prefillFirst = true;
    const d = m.decide(tokens(10));
    expect(picks(d)).toBe("0|1|");
    expect(reasons(d)).toBe("picked/run_always/skip_text_only");
  });

  it("S-DG-35 decode sees the prefill pick as its peer", () => {
    const m = new Machine(table("decode prefill"), null, null);
    m.setup.prefillFirst = true;
    m.decide(tokens(10));
    expect(m.decodeSpy.peer).toBe(1);
  });

  it("the prefill pick is no candidate for decode (scheduler L15)", () => {
    const m = new Machine(table("prefill-decode decode"), null, null);
    m.setup.prefillFirst = true;
    expect(picks(m.decide(tokens(10)))).toBe("1|0|");
  });

  it("one pod for both: it decodes, and nothing is split", () => {
    const m = new Machine(table("prefill-decode"), null, null);
    m.setup.prefillFirst = true;
    const d = m.decide(tokens(10));
    expect(picks(d)).toBe("0||");
    expect(reasons(d)).toBe("picked/self_endpoint/skip_no_decider");
  });

  it("decode fails: nothing of the other picks is left", () => {
    const m = new Machine(table("prefill encode"), null, multimodal());
    m.setup.prefillFirst = true;
    const d = m.decide(media(10, 1));
    expect(d.outcome).toBe(Outcome.NoDecodeEndpoint);
    expect(picks(d)).toBe("||");
  });

  it("a request that is never split is not, here either", () => {
    const m = new Machine(table("decode prefill"), null, null);
    m.setup.prefillFirst = true;
    const facts = tokens(10);
    facts.neverSplit = NeverSplit.ParallelSampling;
    expect(reasons(m.decide(facts))).toBe("picked/parallel_sampling/skip_no_decider");
    expect(m.prefillSpy.runs).toBe(0);
  });
});

describe("the reference's scheduler test", () => {
  it("S-DG-36 no candidates at all: an error", () => {
    const d = reference("").scheduler.decide(tokens(ELEVEN_CHARACTERS));
    expect(d.outcome).toBe(Outcome.NoCandidates);
    expect(reasons(d)).toBe("no_candidates//");
  });

  it("S-DG-37 only D: D, and prefill is missing without an error", () => {
    const d = reference("decode").scheduler.decide(tokens(ELEVEN_CHARACTERS));
    expect(picks(d)).toBe("0||");
    expect(reasons(d)).toBe("picked/no_prefill_endpoint/skip_no_decider");
  });

  it("S-DG-38 only P: an error", () => {
    expect(reference("prefill").scheduler.decide(tokens(ELEVEN_CHARACTERS)).outcome).toBe(Outcome.NoDecodeEndpoint);
  });

  it("S-DG-39 1P + 1D: both, and with a full hit D alone", () => {
    const config = reference("prefill decode");
    expect(picks(config.scheduler.decide(tokens(ELEVEN_CHARACTERS)))).toBe("1|0|");
    holds(config.endpoints, 0, ELEVEN_CHARACTERS);
    holds(config.endpoints, 1, ELEVEN_CHARACTERS);
    expect(picks(config.scheduler.decide(tokens(ELEVEN_CHARACTERS)))).toBe("1||");
  });

  it("S-DG-40 1P + 1D, a short prompt: D alone, both times", () => {
    const config = reference("prefill decode");
    expect(picks(config.scheduler.decide(tokens(FIVE_CHARACTERS)))).toBe("1||");
    holds(config.endpoints, 1, FIVE_CHARACTERS);
    expect(picks(config.scheduler.decide(tokens(FIVE_CHARACTERS)))).toBe("1||");
  });

  it("S-DG-41 1P + 1U: U decodes, P prefills", () => {
    expect(picks(reference("prefill -").scheduler.decide(tokens(ELEVEN_CHARACTERS)))).toBe("1|0|");
  });

  it("S-DG-42 1P + D (queue 0) + U (queue 2): D decodes", () => {
    const config = reference("prefill decode -");
    config.endpoints.waiting[2] = 2;
    for (let i = 0; i < 20; i++) expect(picks(config.scheduler.decide(tokens(10)))).toBe("1|0|");
  });

  it("S-DG-43 prefill first, 1P + 1D: both", () => {
    expect(picks(reference("prefill decode", '{"stageOrder":"prefill-first"}').scheduler.decide(tokens(ELEVEN_CHARACTERS)))).toBe("1|0|");
  });
});

describe("never splitting", () => {
  it("overrides a decider that says yes and one that says no, by the word of what it saw", () => {
    const words: StaticArray<string> = ["multiple_prompts", "parallel_sampling", "prompt_logprobs", "stateful_response"];
    const m = new Machine(table("decode prefill"), always(), null);
    const short = new Machine(table("decode prefill"), uncached(1000), null);
    for (let i = 0; i < 4; i++) {
      const facts = tokens(100);
      facts.neverSplit = <NeverSplit>(i + 1);
      expect(PREFILL_REASONS[m.decide(facts).prefillReason]).toBe(words[i]);
      expect(PREFILL_REASONS[short.decide(facts).prefillReason]).toBe(words[i]);
    }
    expect(m.prefillSpy.runs).toBe(0);
  });

  it("does not keep media from the encoders", () => {
    const facts = media(100, 1);
    facts.neverSplit = NeverSplit.ParallelSampling;
    expect(reasons(new Machine(table("decode prefill encode"), always(), multimodal()).decide(facts))).toBe("picked/parallel_sampling/run_multimodal");
  });

  it("without a decider the reason is that there is none", () => {
    const facts = tokens(100);
    facts.neverSplit = NeverSplit.MultiplePrompts;
    expect(reasons(new Machine(table("decode prefill"), null, null).decide(facts))).toBe("picked/skip_no_decider/skip_no_decider");
  });
});

describe("one pod for two stages", () => {
  it("the decode pick is no candidate for prefill (scheduler L15)", () => {
    const m = new Machine(table("prefill-decode prefill-decode"), always(), null);
    for (let i = 0; i < 50; i++) {
      const d = m.decide(tokens(100));
      expect(d.prefill.first).toBe(1 - d.decode.first);
    }
    expect(m.prefillSpy.seen.length).toBe(1);
  });

  it("self_endpoint when it is the only one that could, whatever onMissingStage says", () => {
    const m = new Machine(table("prefill-decode encode"), always(), null);
    m.setup.failOnMissingStage = true;
    const d = m.decide(tokens(100));
    expect(d.outcome).toBe(Outcome.Ok);
    expect(reasons(d)).toBe("picked/self_endpoint/skip_no_decider");
    expect(type(d)).toBe("decode-only");
  });

  it("leaves out every decode endpoint of an ordered list, while others are left", () => {
    const m = new Machine(table("prefill-decode prefill-decode prefill"), always(), null, 2);
    const d = m.decide(tokens(100));
    expect(d.decode.count).toBe(2);
    expect(list(d.prefill)).toBe("2");
  });

  it("and falls back to the second decode endpoint when it must", () => {
    const m = new Machine(table("prefill-decode prefill-decode"), always(), null, 2);
    const d = m.decide(tokens(100));
    expect(d.decode.count).toBe(2);
    expect(d.prefill.count).toBe(1);
    expect(d.prefill.first).toBe(d.decode.list[1]);
  });
});

describe("onMissingStage", () => {
  it("local: the stage is left out, with its reason", () => {
    const d = new Machine(table("decode"), always(), multimodal()).decide(media(100, 1));
    expect(d.outcome).toBe(Outcome.Ok);
    expect(reasons(d)).toBe("picked/no_prefill_endpoint/no_encode_endpoint");
  });

  it("fail: encode is missed first, then prefill", () => {
    const m = new Machine(table("decode"), always(), multimodal());
    m.setup.failOnMissingStage = true;
    let d = m.decide(media(100, 1));
    expect(d.outcome).toBe(Outcome.MissingStage);
    expect(d.missing).toBe(Stage.Encode);
    d = m.decide(tokens(100));
    expect(d.outcome).toBe(Outcome.MissingStage);
    expect(d.missing).toBe(Stage.Prefill);
    expect(PREFILL_REASONS[d.prefillReason]).toBe("no_prefill_endpoint");
  });

  it("fail does not touch a stage that is not wanted", () => {
    const m = new Machine(table("decode"), uncached(1000), multimodal());
    m.setup.failOnMissingStage = true;
    expect(m.decide(tokens(100)).outcome).toBe(Outcome.Ok);
  });

  it("is read from FilterOptions", () => {
    const picker =
      '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"always-disagg-pd-decider"},{"type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"always-disagg-pd-decider"}}}],"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"}]}]}';
    expect(mustLoad(picker, "decode", '{"onMissingStage":"fail"}').scheduler.decide(tokens(10)).outcome).toBe(Outcome.MissingStage);
    expect(mustLoad(picker, "decode").scheduler.decide(tokens(10)).outcome).toBe(Outcome.Ok);
  });
});

describe("unusable endpoints", () => {
  it("are left out of every stage", () => {
    const fleet = table("decode decode prefill prefill encode encode");
    fleet.usable[0] = fleet.usable[2] = fleet.usable[4] = 0;
    const m = new Machine(fleet, always(), multimodal());
    for (let i = 0; i < 20; i++) expect(picks(m.decide(media(100, 1)))).toBe("1|3|5");
  });

  it("are taken when no other candidate is left", () => {
    const fleet = table("decode prefill");
    fleet.usable[0] = fleet.usable[1] = 0;
    expect(picks(new Machine(fleet, always(), null).decide(tokens(100)))).toBe("0|1|");
  });

  it("are also taken when the filters drain the usable ones", () => {
    const config = mustLoad(
      '{"plugins":[{"type":"concurrency-detector","parameters":{"maxConcurrency":1}}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"concurrency-detector"}]}]}',
      "- -",
    );
    config.endpoints.usable[1] = 0;
    config.endpoints.inflightRequests[0] = 1;
    expect(picks(config.scheduler.decide(tokens(1)))).toBe("1||");
  });
});

describe("by load", () => {
  it("takes a decode-capable endpoint with the fewest requests, then the shortest queue", () => {
    const fleet = table("prefill decode decode decode");
    fleet.inflightRequests[1] = 2;
    fleet.inflightRequests[2] = 1;
    fleet.inflightRequests[3] = 1;
    fleet.waiting[2] = 3;
    const m = new Machine(fleet, always(), multimodal());
    for (let i = 0; i < 20; i++) {
      const d = m.scheduler.decideByLoad(new RequestFacts(), DecodeReason.UndecidedBody);
      expect(picks(d)).toBe("3||");
      expect(reasons(d)).toBe("undecided_body//");
    }
  });

  it("keeps the word it is given", () => {
    const m = new Machine(table("decode"), null, null);
    expect(reasons(m.scheduler.decideByLoad(new RequestFacts(), DecodeReason.NoBody))).toBe("no_body//");
    expect(reasons(m.scheduler.decideByLoad(new RequestFacts(), DecodeReason.UndecidedEncoding))).toBe("undecided_encoding//");
    expect(reasons(m.scheduler.decideByLoad(new RequestFacts(), DecodeReason.UnknownPath))).toBe("unknown_path//");
  });

  it("spreads over equals", () => {
    const m = new Machine(table("decode decode decode"), null, null);
    const counts = new StaticArray<i32>(3);
    for (let i = 0; i < 300; i++) counts[m.scheduler.decideByLoad(new RequestFacts(), DecodeReason.NoBody).decode.first]++;
    for (let i = 0; i < 3; i++) expect(counts[i]).toBeGreaterThan(60);
  });

  it("a queue that is not known decides nothing", () => {
    const fleet = table("decode decode");
    fleet.known[0] = 0;
    fleet.waiting[1] = 9;
    const m = new Machine(fleet, null, null);
    const counts = new StaticArray<i32>(2);
    for (let i = 0; i < 100; i++) counts[m.scheduler.decideByLoad(new RequestFacts(), DecodeReason.NoBody).decode.first]++;
    expect(counts[0]).toBeGreaterThan(20);
    expect(counts[1]).toBeGreaterThan(20);
  });

  it("without a decode endpoint, and without any", () => {
    expect(reasons(new Machine(table("prefill"), null, null).scheduler.decideByLoad(new RequestFacts(), DecodeReason.NoBody))).toBe("no_decode_endpoint//");
    expect(reasons(new Machine(table(""), null, null).scheduler.decideByLoad(new RequestFacts(), DecodeReason.NoBody))).toBe("no_candidates//");
  });
});

describe("encoders", () => {
  it("one entry per distinct item, dealt out evenly, starting anywhere", () => {
    const m = new Machine(table("decode encode encode encode"), null, multimodal(), 3);
    const starts = new StaticArray<i32>(4);
    for (let i = 0; i < 300; i++) {
      const d = m.decide(media(100, 22));
      expect(d.encode.count).toBe(22);
      starts[d.encode.first]++;
      const items = new StaticArray<i32>(4);
      for (let k = 0; k < 22; k++) items[d.encode.list[k]]++;
      for (let e = 1; e < 4; e++) expect(items[e] == 7 || items[e] == 8).toBe(true);
    }
    for (let i = 1; i < 4; i++) expect(starts[i]).toBeGreaterThan(60);
    expect(m.decide(media(100, 2)).encode.count).toBe(2);
    expect(m.decide(media(100, 1)).encode.count).toBe(1);
    // Where the items could not be told apart, the encoders themselves are listed.
    const unknown = media(100, 5);
    unknown.mmDistinct = 0;
    expect(m.decide(unknown).encode.count).toBe(3);
  });
});

describe("sheddable requests", () => {
  const picker =
    '{"plugins":[{"type":"concurrency-detector","parameters":{"maxConcurrency":10}},{"type":"random-picker"}],"flowControl":{"saturationDetector":{"pluginRef":"concurrency-detector"}},"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"random-picker"}]}]}';

  it("are refused when the fleet is saturated, the others are not", () => {
    const config = mustLoad(picker, "- -");
    const facts = tokens(10);
    facts.priority = -1;
    expect(config.scheduler.decide(facts).outcome).toBe(Outcome.Ok);
    config.endpoints.inflightRequests[0] = 15;
    config.endpoints.inflightRequests[1] = 5;
    expect(config.scheduler.decide(facts).outcome).toBe(Outcome.Saturated);
    facts.priority = 0;
    expect(config.scheduler.decide(facts).outcome).toBe(Outcome.Ok);
  });
});

describe("a fleet of a thousand", () => {
  it("is decided again and again in the same memory", () => {
    const config = reference("decode prefill encode prefill-decode ".repeat(250).trimEnd());
    expect(config.endpoints.count).toBe(1000);
    const facts = media(1000, 1);
    for (let i = 0; i < 10; i++) config.scheduler.decide(facts);
    const before = memory.size();
    let prefills = 0;
    for (let i = 0; i < 2000; i++) prefills += config.scheduler.decide(facts).prefill.count;
    expect(memory.size()).toBe(before);
    expect(prefills).toBe(2000);
  });
});
