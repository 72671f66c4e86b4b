import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { inRoot } from "../fleet/root.js";
import { BUILT, FEATURES, type Feature } from "./features.js";
import { bodyOfCase, caseNames, readCase, readGiven } from "./format.js";
import { parseValue } from "./json.js";
import { planCase } from "./plan.js";
import { buildBody, buildRequest } from "./requests.js";

const DATA = inRoot("tests", "cases", "data");

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "cases-"));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

let made = 0;
/** Writes a case and gives its name back. */
function write(given: string, expectation: string, file = '{"model":"m","text":"abc"}', number = 700 + made++): string {
  const name = `${number.toString()}-made`;
  writeFileSync(join(folder, `${name}.json`), file);
  writeFileSync(join(folder, `${name}.md`), `# Made\n\n\`\`\`json given\n${given}\n\`\`\`\n\n\`\`\`json expect\n${expectation}\n\`\`\`\n`);
  return name;
}

const given = (members: string): ReturnType<typeof readGiven> => readGiven(parseValue(`{"path":"/v1/x"${members === "" ? "" : `,${members}`}}`));

describe("the cases of this project", () => {
  it("are all in the format", () => {
    const names = caseNames(DATA);
    expect(names.length).toBeGreaterThanOrEqual(47);
    for (const name of names) {
      const subject = readCase(DATA, name);
      expect(subject.given.needs.every((feature) => FEATURES.includes(feature))).toBe(true);
      const plan = planCase(subject, BUILT, true);
      expect(plan.runs.length + plan.pending.length).toBeGreaterThan(0);
    }
  });

  it("have bodies that can be built, steps too", async () => {
    for (const name of caseNames(DATA)) {
      const subject = readCase(DATA, name);
      for (const request of [subject.given.request, ...subject.given.steps]) {
        const built = await buildRequest(subject, request, 0, DATA, (text) => text);
        expect(built.body === null).toBe(request.body.kind === "none");
      }
    }
  });
});

describe("given", () => {
  it("has the README's defaults", () => {
    expect(given("")).toEqual({
      request: { via: "envoy", method: "POST", path: "/v1/x", headers: [], body: { kind: "file" }, set: [], encoding: undefined, send: { times: 1, atOnce: false, gapMs: 0 } },
      padTo: [0],
      connectors: ["nixlv2"],
      ecConnectors: ["ec-example"],
      policies: ["fail"],
      stages: "e-p-d",
      flags: [],
      encoders: 1,
      topology: "default",
      abortAfterMs: null,
      steps: [],
      needs: [],
    });
  });

  it("reads header lines as spelt, a list as one line each", () => {
    expect(given('"headers":{"X-A":["1","2"],"b":"3"}').request.headers).toEqual([
      ["X-A", "1"],
      ["X-A", "2"],
      ["b", "3"],
    ]);
  });

  it("reads every way to send", () => {
    expect(given('"send":"once"').request.send).toEqual({ times: 1, atOnce: false, gapMs: 0 });
    expect(given('"send":"twice"').request.send).toEqual({ times: 2, atOnce: false, gapMs: 0 });
    expect(given('"send":"twice-at-once"').request.send).toEqual({ times: 2, atOnce: true, gapMs: 0 });
    expect(given('"send":{"times":7,"gap_ms":5}').request.send).toEqual({ times: 7, atOnce: false, gapMs: 5 });
  });

  it("gives a step what given has, unless it replaces it", () => {
    const { steps } = given('"headers":{"a":"1"},"encoding":"gzip","send":"twice","body":3,"then":[{},{"headers":{"b":"2"},"encoding":"chunked","send":"once","body":null,"method":"GET","path":"/y","via":"sidecar","pad_to":[9]},{"body":{"a":1},"set":{"a":2},"pad_to":7}]');
    expect(steps[0]).toEqual({ via: "envoy", method: "POST", path: "/v1/x", headers: [["a", "1"]], body: { kind: "case", number: 3 }, set: [], encoding: "gzip", send: { times: 2, atOnce: false, gapMs: 0 }, padTo: null });
    expect(steps[1]).toEqual({ via: "sidecar", method: "GET", path: "/y", headers: [["b", "2"]], body: { kind: "none" }, set: [], encoding: "chunked", send: { times: 1, atOnce: false, gapMs: 0 }, padTo: 9 });
    expect(steps[2]?.padTo).toBe(7);
    expect(steps[2]?.set).toHaveLength(1);
  });

  it.each([
    ['"colour":1', "given.colour: unknown key"],
    ['"then":[{"colour":1}]', "given.then.0.colour: unknown key"],
    ['"then":[{"stages":"d"}]', "given.then.0.stages: unknown key"],
    ['"via":"proxy"', "given.via: has to be one of envoy, sidecar"],
    ['"encoding":"brotli"', "given.encoding: has to be one of gzip"],
    ['"then":[{"encoding":null}]', "given.then.0.encoding: has to be one of"],
    ['"needs":["telepathy"]', "given.needs.0: has to be one of"],
    ['"connector":["nixl"]', "given.connector.0: has to be one of"],
    ['"connector":"nixlv2"', "given.connector: has to be a list"],
    ['"ec":[]', "given.ec: has to be a list that is not empty"],
    ['"on_stage_failure":["ignore"]', "given.on_stage_failure.0"],
    ['"stages":"pde"', "given.stages"],
    ['"topology":"ipv4"', "given.topology"],
    ['"send":"thrice"', "given.send"],
    ['"send":{"times":0,"gap_ms":0}', "given.send.times"],
    ['"send":{"times":1}', "given.send.gap_ms"],
    ['"send":{"times":1,"gap_ms":0,"jitter":1}', "given.send.jitter: unknown key"],
    ['"pad_to":[-1]', "given.pad_to.0"],
    ['"pad_to":5', "given.pad_to: has to be a list"],
    ['"then":[{"pad_to":[1,2]}]', "given.then.0.pad_to: a step has one value"],
    ['"body":{"a":1}', "given.body: has to be an integer"],
    ['"body":null', "given.body: has to be an integer"],
    ['"then":[{"body":"x"}]', "given.then.0.body: has to be the number of a case, an object or null"],
    ['"then":[{"body":null,"set":{"a":1}}]', "given.then.0.set: there is no body to change"],
    ['"headers":{"a b":"1"}', "given.headers.a b: is no header name"],
    ['"headers":{"a":1}', "given.headers.a: has to be a text"],
    ['"headers":{"a":"1\\r\\nb: 2"}', "given.headers.a: a header value holds no line end"],
    ['"flags":{"--x":1}', "given.flags.--x: is no flag's name"],
    ['"flags":{"x":{"a":1}}', "given.flags.x: has to be a text"],
    ['"flags":{"allow-endpoints":"a"}', "given.flags.allow-endpoints: has to be a list"],
    ['"encoders":0', "given.encoders"],
    ['"abort_after_ms":-1', "given.abort_after_ms"],
    ['"method":"GE T"', "given.method: is no method"],
  ])("refuses %s", (members, message) => {
    expect(() => given(members)).toThrow(message);
  });

  it("needs a path", () => {
    expect(() => readGiven(parseValue("{}"))).toThrow("given.path: is missing");
    expect(() => readGiven(parseValue('{"path":"v1"}'))).toThrow("given.path");
    expect(() => readGiven(parseValue("[]"))).toThrow("given: has to be an object");
  });
});

describe("case files", () => {
  it("have both blocks, as JSON, once", () => {
    const name = write('{"path":"/x"}', "{}");
    expect(readCase(folder, name).given.request.path).toBe("/x");
    writeFileSync(join(folder, `${name}.md`), '```json given\n{"path":"/x"}\n```\n');
    expect(() => readCase(folder, name)).toThrow('there is no block "json expect"');
    writeFileSync(join(folder, `${name}.md`), '```json given\n{"path":"/x"\n```\n```json expect\n{}\n```\n');
    expect(() => readCase(folder, name)).toThrow('the block "json given" is no JSON');
    writeFileSync(join(folder, `${name}.md`), '```json given\n{"path":"/x"}\n```\n```json given\n{"path":"/y"}\n```\n```json expect\n{}\n```\n');
    expect(() => readCase(folder, name)).toThrow('there are 2 blocks "json given"');
  });

  it("that are scripts need a body from another case, and refuse unknown keys", () => {
    expect(() => readCase(folder, write('{"path":"/x"}', "{}", '{"kind":"backend-script","decode":{"status":200}}'))).toThrow("given.body: is missing");
    const name = write('{"path":"/x","body":1}', "{}", '{"kind":"backend-script","decode":[{"status":200},{"tcp":"reset"}],"prefill":{"delay_ms":1}}');
    expect(readCase(folder, name).scripts.decode).toHaveLength(2);
    expect(readCase(folder, name).body).toBeNull();
    const refused = (script: string): string => {
      try {
        readCase(folder, write('{"path":"/x","body":1}', "{}", script));
        return "nothing";
      } catch (error) {
        return error instanceof Error ? error.message : "";
      }
    };
    expect(refused('{"kind":"backend-script","decode":{"colour":1}}')).toBe("decode.colour: unknown key");
    expect(refused('{"kind":"backend-script","router":{"status":200}}')).toBe("router: unknown key");
    expect(refused('{"kind":"backend-script","decode":[]}')).toContain("decode: has to be");
    expect(refused('{"kind":"backend-script","decode":{"json":1,"text":"a"}}')).toContain("json and text");
    expect(refused('{"kind":"backend-script","decode":{"tcp":"closed"}}')).toContain("decode.tcp");
    expect(refused('{"kind":"backend-script","decode":{"tcp":"reset","status":200}}')).toContain("instead of an answer");
    expect(refused('{"kind":"backend-script","decode":{"then":"close"}}')).toContain("decode.then");
    expect(refused('{"kind":"backend-script","decode":{"chunks":"a"}}')).toContain("decode.chunks");
    expect(refused('{"kind":"backend-script","decode":{"delay_ms":-1}}')).toContain("decode.delay_ms");
    expect(refused('{"kind":"play"}')).toContain("backend-script");
  });

  it("are looked up by number in the folder at hand, then in the shared set", () => {
    write('{"path":"/x"}', "{}", '{"own":"body"}', 1);
    write('{"path":"/x","body":1}', "{}", '{"kind":"backend-script"}', 2);
    expect(bodyOfCase(1, folder, DATA).toString()).toBe('{"own":"body"}');
    expect(bodyOfCase(18, folder, DATA).toString()).toContain("max_completion_tokens");
    expect(() => bodyOfCase(999, folder, DATA)).toThrow("there is no case 999");
    expect(() => bodyOfCase(2, folder, DATA)).toThrow("case 2 is a script");
  });

  it("are sorted by number", () => {
    const own = join(folder, "sorted");
    mkdirSync(own);
    for (const name of ["100-a.json", "9-b.md", "20-c.json", "notes.md", "README.md"]) writeFileSync(join(own, name), "");
    expect(caseNames(own)).toEqual(["9-b", "20-c", "100-a"]);
  });
});

describe("bodies of requests", () => {
  it("are the file's bytes; set parses, last duplicate wins, and sends compact JSON with its numbers' text", async () => {
    const file = '{"model": "a", "seed": 9007199254740993,\n "model": "b", "list": [1]}';
    const name = write('{"path":"/x","then":[{"set":{"list.1":"\\u00e9","new":1.0}},{"body":{"x": 1e400}},{"body":null,"method":"GET"},{"set":{"list.5":1}}]}', "{}", file);
    const subject = readCase(folder, name);
    const [first, object, none, beyond] = subject.given.steps;
    if (first === undefined || object === undefined || none === undefined || beyond === undefined) throw new Error("four steps");
    expect(buildBody(subject, subject.given.request, 0, DATA)?.toString()).toBe(file);
    expect(buildBody(subject, first, 0, DATA)?.toString()).toBe('{"model":"b","seed":9007199254740993,"list":[1,"é"],"new":1.0}');
    expect(buildBody(subject, object, 0, DATA)?.toString()).toBe('{"x":1e400}');
    expect(buildBody(subject, none, 0, DATA)).toBeNull();
    expect(() => buildBody(subject, beyond, 0, DATA)).toThrow('set "list.5"');
    const built = await buildRequest(subject, none, 0, DATA, (text) => text);
    expect(built.headers.map(([header]) => header)).toEqual(["Host"]);
  });

  it("get a content type and the encoding's content-encoding, unless the case sends its own", async () => {
    const subject = readCase(folder, write('{"path":"/x","encoding":"gzip","headers":{"x-a":"10.0.0.10:8000"},"then":[{"headers":{"Content-Type":"text/plain","Content-Encoding":"br","host":"h"}}]}', "{}"));
    const step = subject.given.steps[0];
    if (step === undefined) throw new Error("a step");
    const map = (text: string): string => text.replace("10.0.0.10:8000", "127.0.0.1:1");
    expect((await buildRequest(subject, subject.given.request, 0, DATA, map)).headers).toEqual([
      ["Host", "gateway.example.test"],
      ["x-a", "127.0.0.1:1"],
      ["content-type", "application/json"],
      ["content-encoding", "gzip"],
    ]);
    expect((await buildRequest(subject, step, 0, DATA, map)).headers).toEqual([
      ["Content-Type", "text/plain"],
      ["Content-Encoding", "br"],
      ["host", "h"],
    ]);
  });
});

describe("plans", () => {
  const none = new Set<Feature>();
  const plan = (members: string, built: ReadonlySet<Feature>, ipv6 = true, file?: string): ReturnType<typeof planCase> => planCase(readCase(folder, write(`{"path":"/x","body":18${members}}`, "{}", file)), built, ipv6);

  it("repeat the case for every combination and name the values", () => {
    const { runs, pending } = plan(',"pad_to":[0,5000],"ec":["ec-example","ec-nixl"],"on_stage_failure":["fail","local"]', new Set<Feature>(["stage-policy"]));
    expect(pending).toEqual([]);
    expect(runs).toHaveLength(8);
    expect(runs[0]?.label).toEqual(["ec-example", "0", "fail"]);
  });

  it("hold a case back whose needs are not built, by their names", () => {
    expect(plan(',"needs":["zstd","generate"]', new Set<Feature>(["generate"]))).toEqual({ runs: [], pending: [{ value: null, missing: ["zstd"] }] });
    expect(plan(',"topology":"ipv6"', none, false).pending).toEqual([{ value: null, missing: ["ipv6"] }]);
    expect(plan(',"topology":"ipv6"', none, true).runs).toHaveLength(1);
  });

  it("hold one value back and run the others", () => {
    const { runs, pending } = plan(',"connector":["nixlv2","shared-storage"],"on_stage_failure":["fail","local"]', none);
    expect(runs.map((run) => run.label)).toEqual([["nixlv2", "fail"]]);
    expect(pending).toEqual([
      { value: "shared-storage", missing: ["shared-storage"] },
      { value: "local", missing: ["stage-policy"] },
    ]);
  });

  it("repeat a case with scripted chunks with the whole cut at every byte", () => {
    const { runs } = plan("", none, true, '{"kind":"backend-script","decode":{"chunks":["ab"]}}');
    expect(runs.map((run) => [run.everyByte, run.label])).toEqual([
      [false, []],
      [true, ["every byte"]],
    ]);
  });
});
