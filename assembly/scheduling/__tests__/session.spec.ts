// Session affinity, both strategies, as a scorer and as a filter.
import { list, loadPicker, mustLoad, oneError, pathsOf, problemsText, tokens } from "../../config/__tests__/support";
import { idHash } from "../../endpoints/bindings";
import { Fleet } from "../../endpoints/fleet";
import { LoadedConfig } from "../../config/document";
import { Decision } from "../../disagg/decision";
import { MemoryStore, Store } from "../../store";
import { PassStage } from "../pass";
import { RequestFacts } from "../request";
import { base64 } from "../session";

const ALPHA: string = '{"allowExperimentalPlugins":true}';

function hashOf(text: string): u64 {
  const bytes = String.UTF8.encode(text);
  return idHash(changetype<usize>(bytes), bytes.byteLength);
}

/** One profile with a scorer (or filter) of these parameters beside a queue scorer of little weight, over four endpoints; e3 has the shortest queue. */
function config(parameters: string, kind: string = "scorer"): LoadedConfig {
  const type = "session-affinity-" + kind;
  const out = mustLoad(
    '{"plugins":[{"type":"queue-scorer"},{"type":"' + type + '","parameters":' + parameters + '}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer","weight":0.1},{"pluginRef":"' + type + '"}]}]}',
    "- - - -",
    ALPHA,
  );
  use(out, new MemoryStore());
  return out;
}

function use(c: LoadedConfig, store: Store): void {
  const table = c.endpoints;
  const ids = new StaticArray<u32>(table.count);
  for (let i = 0; i < ids.length; i++) {
    ids[i] = 50 + i;
    table.id[i] = ids[i];
    table.known[i] = 7;
    table.waiting[i] = i == 3 ? 0 : 5;
  }
  c.scheduler.use(store, new Fleet(ids));
}

/** A request whose wanted headers have these values ("": not sent). */
function withHeaders(values: StaticArray<string>, nowS: u32 = 1000): RequestFacts {
  const facts = tokens(100);
  facts.nowS = nowS;
  for (let i = 0; i < values.length; i++) facts.headers[i] = values[i].length > 0 ? hashOf(values[i]) : 0;
  return facts;
}

function decodeOf(c: LoadedConfig, facts: RequestFacts): string {
  return list(c.scheduler.decide(facts).decode);
}

describe("session affinity by a token of the client's", () => {
  it("S-SC-09 the token of pod B makes it B; another header is honoured; an invalid token or none counts for nobody", () => {
    const c = config("null");
    expect(c.headers.length).toBe(1);
    expect(c.headers[0].name).toBe("x-session-token");
    expect(decodeOf(c, withHeaders([base64("default/e1")]))).toBe("1");
    expect(decodeOf(c, withHeaders([base64("default/e0")]))).toBe("0");
    // Without one that is good the other scorers decide.
    expect(decodeOf(c, withHeaders(["not a token"]))).toBe("3");
    expect(decodeOf(c, withHeaders([base64("default/e9")]))).toBe("3");
    expect(decodeOf(c, withHeaders([""]))).toBe("3");
    const other = config('{"headerName":"X-My-Session"}');
    expect(other.headers[0].name).toBe("x-my-session");
    expect(decodeOf(other, withHeaders([base64("default/e2")]))).toBe("2");
    const nested = config('{"strategy":"encoded_endpoint_header","encodedEndpointHeaderConfig":{"header":"x-nested"}}');
    expect(nested.headers[0].name).toBe("x-nested");
  });

  it("the answer carries every endpoint's token: base64 of namespace/name", () => {
    const c = config("null");
    expect(c.echoes.length).toBe(1);
    expect(c.echoes[0].header).toBe("x-session-token");
    expect(c.echoes[0].stage).toBe(PassStage.Decode);
    expect(c.echoes[0].tokens[2]).toBe("ZGVmYXVsdC9lMg==");
    expect(base64("")).toBe("");
    expect(base64("a")).toBe("YQ==");
    expect(base64("ab")).toBe("YWI=");
    expect(base64("abc")).toBe("YWJj");
    expect(base64("ü/ÿ>?")).toBe("w7wvw78+Pw==");
  });

  it("as a filter it leaves the bound endpoint alone, and all when that is no candidate", () => {
    const c = config("null", "filter");
    expect(decodeOf(c, withHeaders([base64("default/e1")]))).toBe("1");
    expect(decodeOf(c, withHeaders([""]))).toBe("3");
    c.endpoints.usable[1] = 0;
    expect(decodeOf(c, withHeaders([base64("default/e1")]))).toBe("3");
  });
});

describe("session affinity by an id", () => {
  it("binds a session to the first pick, and comes back there whatever the load", () => {
    const c = config('{"strategy":"session_id"}');
    expect(c.headers[0].name).toBe("x-session-id");
    expect(c.echoes.length).toBe(0);
    expect(decodeOf(c, withHeaders(["alice"]))).toBe("3");
    c.endpoints.waiting[3] = 100;
    c.endpoints.waiting[2] = 0;
    expect(decodeOf(c, withHeaders(["bob"]))).toBe("2");
    for (let i = 0; i < 5; i++) {
      expect(decodeOf(c, withHeaders(["alice"]))).toBe("3");
      expect(decodeOf(c, withHeaders(["bob"]))).toBe("2");
    }
  });

  it("another worker finds the binding; another instance does not", () => {
    const store = new MemoryStore();
    const a = config('{"strategy":"session_id"}');
    use(a, store);
    expect(decodeOf(a, withHeaders(["alice"]))).toBe("3");
    const b = config('{"strategy":"session_id"}');
    use(b, store);
    b.endpoints.waiting[3] = 100;
    expect(decodeOf(b, withHeaders(["alice"]))).toBe("3");
    const filter = config('{"strategy":"session_id"}', "filter");
    use(filter, store);
    filter.endpoints.waiting[3] = 100;
    filter.endpoints.waiting[1] = 0;
    expect(decodeOf(filter, withHeaders(["alice"]))).toBe("1");
  });

  it("forgets a session that was silent for evictionTtlSeconds, and every use counts", () => {
    const c = config('{"strategy":"session_id","sessionIdConfig":{"evictionTtlSeconds":60}}');
    expect(decodeOf(c, withHeaders(["alice"], 1000))).toBe("3");
    c.endpoints.waiting[3] = 100;
    c.endpoints.waiting[0] = 0;
    expect(decodeOf(c, withHeaders(["alice"], 1050))).toBe("3");
    expect(decodeOf(c, withHeaders(["alice"], 1105))).toBe("3");
    expect(decodeOf(c, withHeaders(["alice"], 1166))).toBe("0");
  });

  it("an endpoint that is gone frees its sessions, one that is only out for now does not", () => {
    const store = new MemoryStore();
    const c = config('{"strategy":"session_id"}');
    use(c, store);
    expect(decodeOf(c, withHeaders(["alice"]))).toBe("3");
    // Out: the session is served elsewhere; nobody else was asked for by name, so it is bound there.
    c.endpoints.usable[3] = 0;
    c.endpoints.waiting[1] = 0;
    expect(decodeOf(c, withHeaders(["alice"]))).toBe("1");
    c.endpoints.usable[3] = 1;
    expect(decodeOf(c, withHeaders(["alice"]))).toBe("1");
    // Restarted in place: another id.
    const ids: StaticArray<u32> = [50, 99, 52, 53];
    c.scheduler.use(store, new Fleet(ids));
    c.endpoints.id[1] = 99;
    c.endpoints.waiting[1] = 50;
    expect(decodeOf(c, withHeaders(["alice"]))).toBe("3");
  });

  it("the first source that is there counts; an attribute names a session-id-producer", () => {
    const c = mustLoad(
      '{"plugins":[{"type":"queue-scorer"},{"type":"session-id-producer","name":"ids","parameters":{"cookieName":"sid"}},{"type":"session-affinity-scorer","parameters":{"strategy":"session_id","sources":[{"attribute":"SessionID/ids"},{"header":"X-Fallback"}]}}],' +
        '"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer","weight":0.1},{"pluginRef":"session-affinity-scorer"}]}]}',
      "- - - -",
      ALPHA,
    );
    use(c, new MemoryStore());
    expect(c.headers.length).toBe(2);
    expect(c.headers[0].cookie).toBe("sid");
    expect(c.headers[1].name).toBe("x-fallback");
    expect(decodeOf(c, withHeaders(["alice", ""]))).toBe("3");
    c.endpoints.waiting[3] = 100;
    expect(decodeOf(c, withHeaders(["alice", "bob"]))).toBe("3");
    expect(decodeOf(c, withHeaders(["", "alice"]))).toBe("3");
    c.endpoints.waiting[0] = 0;
    expect(decodeOf(c, withHeaders(["", "carol"]))).toBe("0");
  });

  it("profileName says which pick the session is bound to", () => {
    const c = mustLoad(
      '{"plugins":[{"type":"prefill-filter"},{"type":"decode-filter"},{"type":"queue-scorer"},{"type":"always-disagg-pd-decider"},{"type":"session-affinity-scorer","parameters":{"strategy":"session_id","profileName":"prefill"}},' +
        '{"type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"always-disagg-pd-decider"}}}],"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},' +
        '{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"},{"pluginRef":"queue-scorer","weight":0.1},{"pluginRef":"session-affinity-scorer"}]}]}',
      "decode prefill prefill prefill",
      ALPHA,
    );
    use(c, new MemoryStore());
    expect(list(c.scheduler.decide(withHeaders(["alice"])).prefill)).toBe("3");
    c.endpoints.waiting[3] = 100;
    c.endpoints.waiting[1] = 0;
    const d: Decision = c.scheduler.decide(withHeaders(["alice"]));
    expect(list(d.prefill)).toBe("3");
    expect(list(d.decode)).toBe("0");
    expect(list(c.scheduler.decide(withHeaders(["bob"])).prefill)).toBe("1");
  });
});

describe("session parameters", () => {
  const plugin = (parameters: string): string => '{"plugins":[{"type":"session-affinity-scorer","parameters":' + parameters + "}]}";

  it("what is wrong is named", () => {
    const at = "plugins[0].parameters.";
    expect(oneError(plugin('{"strategy":"sticky"}'), at + "strategy", "encoded_endpoint_header", ALPHA)).toBe("");
    expect(oneError(plugin('{"headerName":"a b"}'), at + "headerName", "name of letters", ALPHA)).toBe("");
    expect(oneError(plugin('{"strategy":"session_id","sources":[{"header":"a","attribute":"b"}]}'), at + "sources[0]", "exactly one", ALPHA)).toBe("");
    expect(oneError(plugin('{"strategy":"session_id","sources":[{"attribute":"nobody"}]}'), at + "sources[0].attribute", "session-id-producer", ALPHA)).toBe("");
    expect(oneError(plugin('{"profileName":"nope"}'), at + "profileName", "no profile", ALPHA)).toBe("");
    expect(oneError(plugin('{"strategy":"session_id","sessionIdConfig":{},"evictionTtlSeconds":5}'), at + "evictionTtlSeconds", "sessionIdConfig", ALPHA)).toBe("");
    expect(oneError(plugin('{"strategy":"session_id","evictionTtlSeconds":-1}'), at + "evictionTtlSeconds", "", ALPHA)).toBe("");
  });

  it("it is of alpha stability", () => {
    expect(pathsOf(loadPicker(plugin("{}")).problems.errors)).toBe("plugins[0].type");
    expect(problemsText(loadPicker(plugin("{}"), "decode", ALPHA).problems.errors)).toBe("");
  });
});
