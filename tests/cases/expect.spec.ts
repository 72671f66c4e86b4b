import { afterAll, describe, expect, it } from "vitest";
import { EXPECT_KEYS, judge, maxInFlight, readExpect } from "./expect.js";
import { parseValue } from "./json.js";
import type { AnswerEnd, Decision, HeaderLine, Leg, Role, RunSeen, SendSeen, StepSeen } from "./seen.js";

// ---- a run in which everything went as it should: P/D with one encoder ------------------------------------------------------------------------------------

const CLIENT = '{"model":"m","messages":[{"content":"a"}],"max_tokens":5,"seed":9007199254740993}';

function decision(over: Partial<Decision> = {}): Decision {
  return {
    prefill: { reason: "run_uncached", endpoint: "127.0.0.1:20" },
    encode: { reason: "run_multimodal", endpoints: ["127.0.0.1:30"] },
    decode: { reason: "picked", endpoint: "127.0.0.1:10" },
    model: "m",
    mmItems: 1,
    decisions: 1,
    ...over,
  };
}

const NO_PREFILL: Partial<Decision> = { prefill: { reason: "skip_cached", endpoint: "" } };

function sendSeen(over: Partial<SendSeen> = {}): SendSeen {
  return {
    via: "envoy",
    method: "POST",
    path: "/v1/chat/completions",
    status: 200,
    headers: [
      ["Content-Type", "application/json; charset=utf-8"],
      ["x-request-id", "job-1"],
    ],
    body: Buffer.from('{"choices":[{"index":0}],"usage":{"prompt_tokens":3},"peer":"127.0.0.1:20"}'),
    end: "clean",
    endedAtMs: 1000,
    leftAtMs: null,
    decision: decision(),
    sidecarHead: [
      ["x-prefiller-host-port", "127.0.0.1:20"],
      ["x-encoder-hosts-ports", "127.0.0.1:30"],
      ["x-request-id", "job-1"],
    ],
    decisions: 1,
    vmFailed: false,
    ...over,
  };
}

function leg(role: Role, over: Partial<Leg> = {}): Leg {
  return {
    role,
    engine: `${role}-0`,
    method: "POST",
    path: "/v1/chat/completions",
    headers: [["X-Request-Id", "job-1"]],
    body: Buffer.from(
      role === "prefill"
        ? CLIENT.replace('"max_tokens":5', '"max_tokens":1').replace(/}$/, ',"kv_transfer_params":{"room":7,"remote_host":null}}')
        : CLIENT.replace(/}$/, ',"kv_transfer_params":{"room":7,"remote_host":"127.0.0.1"}}'),
    ),
    startedAtMs: 100,
    endedAtMs: 200,
    status: 200,
    abortedAtMs: null,
    connectionFailure: null,
    ...over,
  };
}

function stepSeen(over: Partial<StepSeen> = {}): StepSeen {
  const legs = over.legs ?? [leg("encode"), leg("prefill", { startedAtMs: 210, endedAtMs: 300 }), leg("decode", { startedAtMs: 310, endedAtMs: 400 })];
  return {
    sends: [sendSeen()],
    atOnce: false,
    clientBody: Buffer.from(CLIENT),
    legs,
    decisions: 1,
    traps: 0,
    heldTransfers: 0,
    unlistedConnections: 0,
    handoffInvalid: 0,
    readyStatus: 200,
    ...over,
  };
}

function runSeen(steps: StepSeen[] = [stepSeen()], over: Partial<RunSeen> = {}): RunSeen {
  return {
    policy: "fail",
    steps,
    alive: [{ sidecar: "sidecar d0", sameProcess: true, status: 200 }],
    lateTraps: 0,
    dead: [],
    map: (text) => text.replaceAll("10.0.1.20:8000", "127.0.0.1:20").replaceAll("10.0.1.20", "127.0.0.1"),
    ...over,
  };
}

function findings(expectation: string, run: RunSeen): string[] {
  return judge(readExpect(parseValue(expectation), run.steps.length - 1, [run.policy]), run);
}

const stream = (text: string, over: Partial<SendSeen> = {}): SendSeen => sendSeen({ headers: [["content-type", "text/event-stream; charset=utf-8"]], body: Buffer.from(text), ...over });
const WHOLE = 'data: {"choices":[{"index":0}],"usage":{"n":1}}\n\ndata: {"choices":[{"index":1}]}\r\n\r\ndata: {"choices":[],"usage":{"n":2}}\n\ndata: [DONE]\n\n';

// ---- one row: a demand, a run that meets it, and runs that do not -------------------------------------------------------------------------------------------

interface Row {
  section: "filter" | "sidecar" | "client";
  key: string;
  value: string;
  good: RunSeen;
  bad: RunSeen[];
}

const one = (over: Partial<StepSeen>): RunSeen => runSeen([stepSeen(over)]);
const sent = (over: Partial<SendSeen>): RunSeen => one({ sends: [sendSeen(over)] });
const legs = (...list: Leg[]): RunSeen => one({ legs: list });
const answeredByEnvoy: Partial<SendSeen> = { decision: null, sidecarHead: null };

const ROWS: Row[] = [
  { section: "filter", key: "prefill", value: "true", good: runSeen(), bad: [sent({ decision: decision(NO_PREFILL), sidecarHead: [] }), sent({ decision: "missing" }), sent({ sidecarHead: [] }), sent({ sidecarHead: null }), sent(answeredByEnvoy)] },
  { section: "filter", key: "prefill", value: "false", good: sent(answeredByEnvoy), bad: [runSeen(), sent({ decision: decision(NO_PREFILL) })] },
  { section: "filter", key: "encode", value: "true", good: runSeen(), bad: [sent({ decision: decision({ encode: { reason: "skip_text_only", endpoints: [] } }), sidecarHead: [] }), sent({ sidecarHead: [["x-prefiller-host-port", "127.0.0.1:20"]] }), sent(answeredByEnvoy)] },
  {
    section: "filter",
    key: "reasons",
    value: '{"prefill":"run_uncached","encode":"run_multimodal","decode":"picked"}',
    good: runSeen(),
    bad: [sent({ decision: decision(NO_PREFILL) }), sent({ decision: decision({ decode: { reason: "no_body", endpoint: "x" } }) }), sent({ decision: decision({ encode: { reason: "", endpoints: [] } }) }), sent(answeredByEnvoy), sent({ decision: "missing" })],
  },
  { section: "filter", key: "mm_items", value: "1", good: runSeen(), bad: [sent({ decision: decision({ mmItems: 2 }) }), sent(answeredByEnvoy)] },
  { section: "filter", key: "model", value: '"m"', good: runSeen(), bad: [sent({ decision: decision({ model: "other" }) }), sent(answeredByEnvoy)] },
  { section: "filter", key: "decisions", value: "1", good: runSeen(), bad: [one({ decisions: 2 }), one({ decisions: null }), one({ decisions: 0 }), one({ sends: [sendSeen({ decision: decision({ decisions: 2 }) })] })] },
  {
    section: "filter",
    key: "same_decode",
    value: "true",
    good: runSeen([stepSeen(), stepSeen()]),
    bad: [
      runSeen([stepSeen(), stepSeen({ sends: [sendSeen({ decision: decision({ decode: { reason: "picked", endpoint: "127.0.0.1:11" } }) })] })]),
      runSeen([stepSeen(), stepSeen({ sends: [sendSeen({ decision: "missing" })] })]),
      runSeen([stepSeen({ sends: [sendSeen(answeredByEnvoy)] }), stepSeen()]),
      runSeen([stepSeen(), stepSeen({ sends: [sendSeen({ decision: decision({ decode: { reason: "no_candidates", endpoint: "" } }) })] })]),
    ],
  },
  {
    section: "filter",
    key: "second_post",
    value: '{"same_decode":true,"prefill":false}',
    good: one({ sends: [sendSeen(), sendSeen({ decision: decision(NO_PREFILL), sidecarHead: [] })] }),
    bad: [
      one({ sends: [sendSeen(), sendSeen()] }),
      one({ sends: [sendSeen(), sendSeen({ decision: decision({ ...NO_PREFILL, decode: { reason: "picked", endpoint: "127.0.0.1:11" } }), sidecarHead: [] })] }),
      runSeen(),
      one({ atOnce: true, sends: [sendSeen(), sendSeen({ decision: decision(NO_PREFILL), sidecarHead: [] })] }),
    ],
  },
  {
    section: "filter",
    key: "prefix",
    value: '{"1":"miss","2":"hit"}',
    good: runSeen([stepSeen(), stepSeen({ sends: [sendSeen({ decision: decision({ prefill: { reason: "skip_short_suffix", endpoint: "" } }) })] })]),
    bad: [
      runSeen([stepSeen(), stepSeen()]),
      runSeen([stepSeen({ sends: [sendSeen({ decision: decision(NO_PREFILL) })] }), stepSeen({ sends: [sendSeen({ decision: decision(NO_PREFILL) })] })]),
      runSeen([stepSeen(), stepSeen({ sends: [sendSeen({ decision: decision({ ...NO_PREFILL, decode: { reason: "picked", endpoint: "127.0.0.1:11" } }) })] })]),
      runSeen([stepSeen()]),
      runSeen([stepSeen({ sends: [sendSeen(answeredByEnvoy)] }), stepSeen({ sends: [sendSeen({ decision: decision(NO_PREFILL) })] })]),
    ],
  },
  {
    section: "filter",
    key: "headers",
    value: '{"x-prefiller-host-port":"10.0.1.20:8000","x-other":{"absent":true},"x-request-id":{"not":"job-2"}}',
    good: runSeen(),
    bad: [
      sent({ sidecarHead: null }),
      sent({ sidecarHead: [["x-prefiller-host-port", "127.0.0.1:21"]] }),
      sent({ sidecarHead: [] }),
      sent({ sidecarHead: [["x-prefiller-host-port", "127.0.0.1:20"], ["x-other", ""]] }),
      sent({ sidecarHead: [["x-prefiller-host-port", "127.0.0.1:20"], ["x-request-id", "job-1"], ["x-request-id", "job-2"]] }),
    ],
  },
  { section: "filter", key: "status_from", value: '"engine"', good: runSeen(), bad: [sent({ status: 404 }), sent({ status: null }), one({ legs: [] }), legs(leg("decode", { status: 500 }))] },
  { section: "filter", key: "trap", value: "false", good: runSeen(), bad: [one({ traps: 1 }), one({ traps: null }), runSeen([stepSeen()], { lateTraps: 1 }), runSeen([stepSeen()], { lateTraps: null })] },

  { section: "sidecar", key: "encode", value: '{"max_tokens":5}', good: runSeen(), bad: [legs(leg("decode")), legs(leg("encode", { body: Buffer.from("{}") })), legs(leg("encode", { body: Buffer.from("{") }))] },
  {
    section: "sidecar",
    key: "prefill",
    value: '{"max_tokens":1,"stream":{"absent":true},"kv_transfer_params.remote_host":{"not":"10.0.1.20"}}',
    good: runSeen(),
    bad: [legs(leg("decode")), legs(leg("prefill", { body: Buffer.from(CLIENT) })), legs(leg("prefill", { body: Buffer.from('{"max_tokens":1,"stream":false}') })), legs(leg("prefill", { connectionFailure: "refused" }))],
  },
  {
    section: "sidecar",
    key: "decode",
    value: '{"seed":9007199254740993,"kv_transfer_params.room":{"same_as_prefill":true},"kv_transfer_params.remote_host":"10.0.1.20"}',
    good: runSeen(),
    bad: [
      legs(leg("prefill")),
      legs(leg("prefill"), leg("decode", { body: Buffer.from(leg("decode").body.toString().replace("9007199254740993", "9007199254740992")) })),
      legs(leg("prefill"), leg("decode", { body: Buffer.from(leg("decode").body.toString().replace('"room":7', '"room":8')) })),
      legs(leg("decode")),
    ],
  },
  {
    section: "sidecar",
    key: "untouched",
    value: '["messages","seed"]',
    good: runSeen(),
    bad: [
      legs(leg("prefill")),
      legs(leg("decode", { body: Buffer.from(CLIENT.replace('"a"', '"\\u0061"')) })),
      legs(leg("prefill", { body: Buffer.from(CLIENT.replace("740993", "740992")) }), leg("decode")),
      one({ clientBody: null }),
      one({ clientBody: Buffer.from('{"model":"m"}') }),
      legs(leg("decode", { body: Buffer.from("{") })),
    ],
  },
  {
    section: "sidecar",
    key: "bytes_identical_except",
    value: '["max_tokens","kv_transfer_params"]',
    good: runSeen(),
    bad: [legs(leg("prefill")), legs(leg("decode", { body: Buffer.from(CLIENT.replace("740993", "740992")) })), legs(leg("prefill", { body: Buffer.from("{}") }), leg("decode")), one({ clientBody: null }), one({ clientBody: Buffer.from("{") })],
  },
  { section: "sidecar", key: "paths", value: '{"prefill":"/v1/chat/completions"}', good: runSeen(), bad: [legs(leg("decode")), legs(leg("prefill", { path: "/v1/chat/completions?beta=true" }))] },
  { section: "sidecar", key: "header_absent", value: '["x-prefiller-host-port"]', good: runSeen(), bad: [legs(leg("decode"), leg("encode", { headers: [["X-Prefiller-Host-Port", ""]] }))] },
  {
    section: "sidecar",
    key: "values_per_leg",
    value: '{"x-request-id":1}',
    good: runSeen(),
    bad: [legs(leg("decode", { headers: [] })), legs(leg("decode", { headers: [["x-request-id", "a,b"]] })), legs(leg("decode"), leg("prefill", { headers: [["x-request-id", "a"], ["X-Request-Id", "b"]] })), one({ legs: [] })],
  },
  {
    section: "sidecar",
    key: "distinct",
    value: '["kv_transfer_params.room"]',
    good: one({ sends: [sendSeen(), sendSeen()], legs: [leg("decode"), leg("decode", { body: Buffer.from('{"kv_transfer_params":{"room":8}}') })] }),
    bad: [
      one({ sends: [sendSeen(), sendSeen()], legs: [leg("decode"), leg("decode")] }),
      one({ sends: [sendSeen(), sendSeen()], legs: [leg("decode")] }),
      one({ sends: [sendSeen(), sendSeen()], legs: [leg("decode"), leg("decode", { body: Buffer.from("{}") })] }),
      one({ sends: [sendSeen()], legs: [leg("decode")] }),
    ],
  },
  { section: "sidecar", key: "encoder_requests", value: "1", good: runSeen(), bad: [one({ legs: [] }), legs(leg("encode"), leg("encode"))] },
  { section: "sidecar", key: "prefill_calls", value: "1", good: runSeen(), bad: [one({ legs: [] }), legs(leg("prefill", { connectionFailure: "refused" }))] },
  { section: "sidecar", key: "decode_calls", value: "2", good: legs(leg("decode"), leg("decode", { connectionFailure: "reset" })), bad: [runSeen(), legs(leg("decode"), leg("decode", { connectionFailure: "refused" }))] },
  { section: "sidecar", key: "decode_calls", value: "1", good: legs(leg("decode"), leg("decode", { connectionFailure: "reset" })), bad: [legs(leg("decode"), leg("decode"), leg("decode", { connectionFailure: "reset" }))] },
  { section: "sidecar", key: "decode_calls", value: '{"max":1}', good: runSeen(), bad: [legs(leg("decode"), leg("decode"))] },
  { section: "sidecar", key: "prefill_attempts", value: "2", good: legs(leg("prefill"), leg("prefill", { connectionFailure: "refused" })), bad: [runSeen()] },
  { section: "sidecar", key: "encoders_used", value: "2", good: legs(leg("encode"), leg("encode", { engine: "encode-1" })), bad: [legs(leg("encode"), leg("encode"))] },
  { section: "sidecar", key: "max_in_flight", value: '{"max":1}', good: legs(leg("encode"), leg("encode", { startedAtMs: 200, endedAtMs: 250 })), bad: [legs(leg("encode"), leg("encode", { startedAtMs: 199, endedAtMs: 250 }))] },
  { section: "sidecar", key: "held_transfers", value: "0", good: runSeen(), bad: [one({ heldTransfers: 1 }), one({ heldTransfers: null })] },
  { section: "sidecar", key: "unlisted_connections", value: "0", good: runSeen(), bad: [one({ unlistedConnections: 1 })] },
  { section: "sidecar", key: "handoff_invalid", value: "7", good: one({ handoffInvalid: 7 }), bad: [runSeen(), one({ handoffInvalid: null })] },
  {
    section: "sidecar",
    key: "prefill_aborted",
    value: "true",
    good: one({ sends: [sendSeen({ leftAtMs: 300, end: "left" })], legs: [leg("prefill", { status: 0, abortedAtMs: 1290 })] }),
    bad: [runSeen(), one({ sends: [sendSeen({ leftAtMs: 300, end: "left" })], legs: [leg("prefill", { status: 0, abortedAtMs: 1310 })] })],
  },
  {
    section: "sidecar",
    key: "encode_aborted",
    value: "true",
    good: legs(leg("encode", { status: 0, abortedAtMs: 250 }), leg("encode", { status: 500, endedAtMs: 200 })),
    bad: [runSeen(), legs(leg("encode", { status: 0, abortedAtMs: 1300 }), leg("encode", { status: 500, endedAtMs: 200 }))],
  },
  { section: "sidecar", key: "ready", value: "false", good: one({ readyStatus: 503 }), bad: [runSeen(), one({ readyStatus: null })] },
  {
    section: "sidecar",
    key: "alive",
    value: "true",
    good: runSeen(),
    bad: [runSeen([stepSeen()], { alive: [] }), runSeen([stepSeen()], { alive: [{ sidecar: "d0", sameProcess: false, status: 200 }] }), runSeen([stepSeen()], { alive: [{ sidecar: "d0", sameProcess: true, status: 503 }] })],
  },

  { section: "client", key: "status", value: "200", good: runSeen(), bad: [sent({ status: 500 }), sent({ status: null }), one({ sends: [sendSeen(), sendSeen({ status: 500 })] }), one({ sends: [] })] },
  { section: "client", key: "status_class", value: "2", good: sent({ status: 204 }), bad: [sent({ status: 404 }), sent({ status: null })] },
  { section: "client", key: "status_in", value: "[200,415]", good: sent({ status: 415 }), bad: [sent({ status: 400 }), sent({ status: null })] },
  {
    section: "client",
    key: "headers",
    value: '{"content-type":"application/json","retry-after":{"absent":true},"x-request-id":"job-1"}',
    good: runSeen(),
    bad: [sent({ headers: [["content-type", "text/plain"], ["x-request-id", "job-1"]] }), sent({ headers: [["content-type", "application/json"], ["x-request-id", "job-1"], ["Retry-After", "1"]] }), sent({ headers: [["content-type", "application/json"]] }), sent({ status: null })],
  },
  {
    section: "client",
    key: "json",
    value: '{"usage.prompt_tokens":3,"error":{"absent":true},"peer":"10.0.1.20:8000"}',
    good: runSeen(),
    bad: [sent({ body: Buffer.from('{"usage":{"prompt_tokens":4}}') }), sent({ body: Buffer.from("oops") }), sent({ body: Buffer.alloc(0) }), sent({ status: null }), sent({ body: Buffer.from('{"usage":{"prompt_tokens":3},"peer":"127.0.0.1:20","error":{}}') })],
  },
  { section: "client", key: "json", value: '{"usage.n":2}', good: one({ sends: [stream(WHOLE)] }), bad: [one({ sends: [stream('data: {"usage":{"n":2}}\n\ndata: {"usage":{"n":3}}\n\n')] }), one({ sends: [stream("data: [DONE]\n\n")] })] },
  { section: "client", key: "choices", value: "2", good: one({ sends: [stream(WHOLE)] }), bad: [runSeen(), sent({ body: Buffer.from("{}") })] },
  { section: "client", key: "done", value: "true", good: one({ sends: [stream(WHOLE)] }), bad: [one({ sends: [stream(WHOLE, { end: "broken" })] }), one({ sends: [stream(WHOLE.replace("data: [DONE]\n\n", ""))] }), runSeen()] },
  {
    section: "client",
    key: "done",
    value: "false",
    good: one({ sends: [stream('data: {"a":1}\n\n', { end: "broken" })] }),
    bad: [one({ sends: [stream(WHOLE)] }), one({ sends: [stream('data: {"a":1}\n\n')] })],
  },
  { section: "client", key: "failures", value: "1", good: one({ sends: [sendSeen(), sendSeen({ end: "broken" })] }), bad: [runSeen(), one({ sends: [sendSeen({ status: 500 }), stream("data: {}\n\n")] }), one({ sends: [] })] },
  { section: "client", key: "lacks", value: '["the secret","10.0.1.20:8000"]', good: sent({ body: Buffer.from("fine") }), bad: [sent({ body: Buffer.from("all of the secret") }), sent({ headers: [["x", "the secret"]] }), runSeen(), sent({ status: null })] },
];

describe("every key of expect", () => {
  const covered = new Set<string>();
  for (const [at, row] of ROWS.entries()) {
    const expectation = `{"${row.section}":{"${row.key}":${row.value}}}`;
    it(`${row.section}.${row.key} ${row.value} holds for a run that shows it (${at.toString()})`, () => {
      expect(findings(expectation, row.good)).toEqual([]);
    });
    it.each(row.bad.map((bad, index) => ({ bad, index })))(`${row.section}.${row.key} ${row.value} fails (${at.toString()}.$index)`, ({ bad }) => {
      const found = findings(expectation, bad);
      expect(found.length).toBeGreaterThan(0);
      for (const text of found) expect(text).toContain(`expect.${row.section}.${row.key}`);
      covered.add(`${row.section}.${row.key}`);
    });
  }

  afterAll(() => {
    const all = Object.entries(EXPECT_KEYS).flatMap(([section, keys]) => keys.map((key) => `${section}.${key}`));
    expect([...covered].sort()).toEqual(all.sort());
  });
});

describe("which request a demand speaks of", () => {
  const wrong = stepSeen({ sends: [sendSeen({ status: 500 })] });

  it("the first request's demands hold for every step that has no entry of its own", () => {
    expect(findings('{"client":{"status":200}}', runSeen([stepSeen(), wrong]))).toEqual([expect.stringContaining("step 1: expect.client.status")]);
    expect(findings('{"client":{"status":200},"then":[{}]}', runSeen([stepSeen(), wrong]))).toEqual([]);
    expect(findings('{"client":{"status":200},"then":[{"client":{"status":200}}]}', runSeen([stepSeen(), wrong]))).toEqual([expect.stringContaining("expect.then.0.client.status")]);
    expect(findings('{"client":{"status":200},"then":[{}]}', runSeen([stepSeen(), stepSeen(), wrong]))).toEqual([expect.stringContaining("step 2: expect.client.status")]);
  });

  it("filter does not apply to a request straight to the sidecar", () => {
    expect(findings('{"filter":{"prefill":false}}', sent({ via: "sidecar", decision: "missing", sidecarHead: null }))).toEqual([]);
  });

  it("fail and local hold in the runs with that policy, beside the rest", () => {
    const both = '{"client":{"headers":{"x-request-id":"job-1"},"fail":{"status":502},"local":{"status":200}}}';
    const judged = (policy: "fail" | "local"): string[] => judge(readExpect(parseValue(both), 0, ["fail", "local"]), runSeen([stepSeen({ sends: [sendSeen({ headers: [] })] })], { policy }));
    expect(judged("fail")).toHaveLength(2);
    expect(judged("local")).toHaveLength(1);
    expect(() => readExpect(parseValue(both), 0, ["fail"])).toThrow("expect.client.local: no run of the case has that policy");
  });

  it("sequential sends: prefill speaks of the first, what the body decides of each", () => {
    const second = sendSeen({ decision: decision(NO_PREFILL), sidecarHead: [["x-encoder-hosts-ports", "127.0.0.1:30"]] });
    expect(findings('{"filter":{"prefill":true,"reasons":{"prefill":"run_uncached"},"encode":true,"mm_items":1}}', one({ sends: [sendSeen(), second] }))).toEqual([]);
    expect(findings('{"filter":{"mm_items":1}}', one({ sends: [sendSeen(), sendSeen({ decision: decision({ mmItems: 0 }) })] }))).toHaveLength(1);
    expect(findings('{"filter":{"prefill":true}}', one({ atOnce: true, sends: [sendSeen(), second] }))).toHaveLength(1);
    expect(findings('{"filter":{"mm_items":1,"decisions":1,"second_post":{"prefill":true}}}', one({ decisions: 2, sends: [sendSeen(), sendSeen({ decision: decision({ mmItems: 0 }) })] }))).toEqual([]);
  });

  it("counts are of all sends together", () => {
    expect(findings('{"filter":{"decisions":2}}', one({ decisions: 2, sends: [sendSeen(), sendSeen()] }))).toEqual([]);
  });

  it("a dead process fails every run", () => {
    expect(findings("{}", runSeen([stepSeen()], { dead: ["sidecar d1"] }))).toEqual(["sidecar d1 ended during the run"]);
  });
});

describe("malformed expectations", () => {
  it.each([
    ['{"router":{}}', "expect.router: unknown key"],
    ['{"filter":{"colour":1}}', "expect.filter.colour: unknown key"],
    ['{"sidecar":{"colour":1}}', "expect.sidecar.colour: unknown key"],
    ['{"client":{"colour":1}}', "expect.client.colour: unknown key"],
    ['{"client":{"fail":{"colour":1}}}', "expect.client.fail.colour: unknown key"],
    ['{"filter":{"fail":{"prefill":true}}}', "expect.filter.fail: unknown key"],
    ['{"then":[{"router":{}}]}', "expect.then.0.router: unknown key"],
    ['{"then":[{"then":[]}]}', "expect.then.0.then: unknown key"],
    ['{"then":[{},{}]}', "expect.then: has 2 entries, given.then has 1 steps"],
    ['{"then":{}}', "expect.then: has to be a list"],
    ["[]", "expect: has to be an object"],
    ['{"filter":[]}', "expect.filter: has to be an object"],
    ['{"filter":{"prefill":"yes"}}', "expect.filter.prefill: has to be true or false"],
    ['{"filter":{"reasons":{"router":"x"}}}', "expect.filter.reasons.router: unknown stage"],
    ['{"filter":{"reasons":{"decode":1}}}', "expect.filter.reasons.decode: has to be a text"],
    ['{"filter":{"prefix":{"0":"hit"}}}', "expect.filter.prefix.0"],
    ['{"filter":{"prefix":{"1":"maybe"}}}', "expect.filter.prefix.1"],
    ['{"filter":{"second_post":{"encode":true}}}', "expect.filter.second_post.encode: unknown key"],
    ['{"filter":{"status_from":"envoy"}}', "expect.filter.status_from"],
    ['{"filter":{"headers":{"a":1}}}', "expect.filter.headers.a: has to be a text"],
    ['{"filter":{"headers":{"a":{"max":1}}}}', "expect.filter.headers.a"],
    ['{"filter":{"mm_items":"1"}}', "expect.filter.mm_items: has to be an integer"],
    ['{"sidecar":{"prefill_calls":{"present":true}}}', "expect.sidecar.prefill_calls"],
    ['{"sidecar":{"prefill_calls":1.5}}', "expect.sidecar.prefill_calls: has to be an integer"],
    ['{"sidecar":{"alive":false}}', "expect.sidecar.alive: has to be true"],
    ['{"sidecar":{"prefill_aborted":false}}', "expect.sidecar.prefill_aborted: has to be true"],
    ['{"sidecar":{"decode":{"a":{"absent":1}}}}', "expect.sidecar.decode.a"],
    ['{"sidecar":{"prefill":{"a":{"same_as_prefill":true}}}}', "expect.sidecar.prefill: same_as_prefill"],
    ['{"sidecar":{"paths":{"router":"/x"}}}', "expect.sidecar.paths.router: unknown leg"],
    ['{"sidecar":{"untouched":"messages"}}', "expect.sidecar.untouched"],
    ['{"sidecar":{"untouched":[]}}', "expect.sidecar.untouched"],
    ['{"sidecar":{"values_per_leg":{"a":"1"}}}', "expect.sidecar.values_per_leg.a"],
    ['{"client":{"status":"200"}}', "expect.client.status: has to be an integer"],
    ['{"client":{"status_in":[]}}', "expect.client.status_in"],
    ['{"client":{"json":{"a":{"same_as_prefill":true}}}}', "expect.client.json.a"],
    ['{"client":{"lacks":"x"}}', "expect.client.lacks"],
  ])("%s", (text, message) => {
    expect(() => readExpect(parseValue(text), 1, ["fail"])).toThrow(message);
  });
});

describe("encode calls in flight", () => {
  it("counts those that are still open, over all encoders, and no failed connection", () => {
    const open = [leg("encode", { endedAtMs: null }), leg("encode", { engine: "encode-1", startedAtMs: 150 }), leg("encode", { startedAtMs: 160, connectionFailure: "refused" }), leg("decode", { startedAtMs: 150 })];
    expect(maxInFlight(open, "encode")).toBe(2);
    expect(maxInFlight([], "encode")).toBe(0);
  });
});

describe("streams", () => {
  const asked = (send: SendSeen): string[] => findings('{"client":{"failures":0}}', one({ sends: [send] }));
  it.each<[string, AnswerEnd, HeaderLine[], number]>([
    [WHOLE, "clean", [["content-type", "text/event-stream"]], 0],
    [WHOLE, "broken", [["content-type", "text/event-stream"]], 1],
    [WHOLE.replace("data: [DONE]\n\n", ""), "clean", [["content-type", "text/event-stream"]], 1],
    [`data: {"error":{"code":500}}\n\n${WHOLE}`, "clean", [["content-type", "text/event-stream"]], 1],
    [`data: {"error":null}\n\n${WHOLE}`, "clean", [["content-type", "text/event-stream"]], 0],
    ["{}", "clean", [["content-type", "application/json"]], 0],
  ])("%j %s", (body, end, headers, failures) => {
    expect(asked(sendSeen({ body: Buffer.from(body), end, headers }))).toHaveLength(failures);
  });

  it("of other APIs have no [DONE]", () => {
    expect(asked(stream("event: response.completed\ndata: {}\n\n", { path: "/v1/responses" }))).toEqual([]);
  });
});
