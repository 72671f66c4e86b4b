/**
 * The wire scenarios: what must be true of the legs of a request, whatever sidecar carries them out and whatever kind of engine stands behind it. The same list
 * runs on simulated and on real engines; a scenario that needs records or scripts says so. Each returns what it saw wrong.
 */
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { parse } from "../cases/json.js";
import { differenceExcept } from "../cases/tokens.js";
import type { EngineRecord, ScriptEntry } from "../engine/index.js";
import { type Answer, type HeaderLine, headerLines } from "../fleet/http.js";
import { freePort } from "../fleet/ports.js";
import { type Bed, type EngineFace, type Need, type Scenario, type Setting, type Simulated } from "./bed.js";
import { ask, askUnread, EPD, expectOwnError, expectSingleHeaders, expectStatus, PD, routed } from "./client.js";
import { Findings } from "./findings.js";
import { copiesAt, stringAt, textAt } from "./json-text.js";
import { type Allowances, counts, held, type Legs, legsNow, legsOf, MARK, ROUTING_HEADERS, standingRules, within, workOf, workSince } from "./legs.js";
import { address, audioPart, imagePart, mediaBody, pictureUrl } from "./media.js";
import { oddParams, OK, prefillAnswer, prefillAnswers } from "./scripted.js";
import { CHAT, freshText, type Shape, SHAPES } from "./shapes.js";

interface Given extends Allowances {
  readonly rows?: readonly string[];
  readonly setting?: Setting;
  readonly needs?: readonly Need[];
}

/** Engines that record and play scripts, and routing headers of our own. */
const SIM: readonly Need[] = ["sim", "sidecar"];
const SIM_MEDIA: readonly Need[] = ["sim", "sidecar", "encoders"];

function scenario(name: string, { rows = [], setting = "fail", needs = [], ...allowed }: Given, check: (bed: Bed, found: Findings) => Promise<void>): Scenario {
  return {
    name,
    rows,
    setting,
    needs,
    run: async (bed) => {
      const found = new Findings();
      await check(bed, found);
      await standingRules(bed, found, allowed);
      return found.list;
    },
  };
}

/** The engine's simulated side; scenarios that use it need "sim". */
function sim(face: EngineFace | undefined): Simulated {
  if (face === undefined || face.sim === null) throw new Error("the scenario uses records without needing them");
  return face.sim;
}

function only(found: Findings, what: string, records: readonly EngineRecord[]): EngineRecord | null {
  found.that(records.length === 1, `${what}: called ${String(records.length)} times where once is wanted`);
  return records[0] ?? null;
}

function expectIdentical(found: Findings, what: string, client: string | Buffer, leg: Buffer, except: readonly string[]): void {
  let difference: string | null;
  try {
    difference = differenceExcept(Buffer.from(client), leg, except);
  } catch (error) {
    difference = error instanceof Error ? error.message : String(error);
  }
  found.that(difference === null, `${what}: ${String(difference)}`);
}

/** Decode must not have begun before prefill's answer was whole, nor prefill before the last encoder's. */
function expectOrder(found: Findings, { encode, prefill, decode }: Legs): void {
  const ended = (records: readonly EngineRecord[]): number => Math.max(0, ...records.map(({ endedAtMs, startedAtMs }) => endedAtMs ?? startedAtMs));
  const started = (records: readonly EngineRecord[]): number => Math.min(Number.POSITIVE_INFINITY, ...records.map(({ startedAtMs }) => startedAtMs));
  // The engine notes its answer's end a moment after the sidecar has read it.
  const slackMs = 5;
  found.that(started(prefill) + slackMs >= ended(encode), "prefill began before encode had ended");
  found.that(started(decode) + slackMs >= ended(encode), "decode began before encode had ended");
  found.that(started(decode) + slackMs >= ended(prefill), "decode began before prefill had ended");
}

function expectEventStream(found: Findings, shape: Shape, answer: Answer): void {
  found.that((headerLines(answer.headers, "content-type")[0] ?? "").startsWith("text/event-stream"), `${shape.name}: the stream's content type is ${headerLines(answer.headers, "content-type").join()}`);
  const text = answer.body.toString("utf8");
  found.that(text.endsWith("\n\n") || text.endsWith("\r\n\r\n"), `${shape.name}: the last event is not complete`);
  found.that(text.includes(shape.lastLine), `${shape.name}: no "${shape.lastLine}" in the stream`);
}

function header(name: string, value: string): HeaderLine {
  return [name, value];
}

// ---- the routes ----------------------------------------------------------------------------------------------------------------------------------------

const routes: readonly Scenario[] = SHAPES.flatMap((shape) =>
  [false, true].map((stream) =>
    scenario(`P/D ${shape.name}${stream ? ", streamed" : ""}: prefill, then decode with its blocks, and the decoder's own text`, { rows: stream ? ["C-RT-11"] : ["C-NX-01", "C-NX-06"] }, async (bed, found) => {
      const body = shape.body(bed.model, { stream });
      const path = `${shape.path}?trace=a%20b`;
      const requestId = `wire-${randomUUID()}`;
      const before = [await workOf(bed.prefill), await workOf(bed.decode)] as const;
      const answer = await ask(bed, { path, headers: [...routed(bed, PD), header("X-Request-Id", requestId)], body });
      if (!expectStatus(found, "P/D", answer, 200)) return;
      expectSingleHeaders(found, "P/D", answer);
      if (stream) expectEventStream(found, shape, answer);
      const alone = await ask(bed, { path: shape.path, body });
      if (!expectStatus(found, "decode alone", alone, 200)) return;
      found.that(shape.textOf(answer.body, stream) !== "", "the answer has no text");
      found.same("the text", shape.textOf(answer.body, stream), shape.textOf(alone.body, stream));
      const decoded = await workSince(bed.decode, before[1], 2);
      found.same("requests served by prefill", (await workSince(bed.prefill, before[0], 1)).served, 1);
      found.same("requests served by decode", decoded.served, 2);
      found.that(decoded.externalTokens > 0, "no prompt token of decode came from the prefiller");
      if (bed.prefill.sim === null) return;

      const legs = await legsOf(bed);
      const [prefill, decode] = [legs.prefill[0], legs.decode[0]];
      if (!found.same("calls (encode/prefill/decode)", counts(legs), "0/1/2") || prefill === undefined || decode === undefined) return;
      expectOrder(found, { ...legs, decode: [decode] });
      for (const leg of [prefill, decode]) {
        found.same(`${leg.stage}: method and path`, `${leg.method} ${leg.path}`, `POST ${path}`);
        found.same(`${leg.stage}: x-request-id`, headerLines(leg.rawHeaders, "x-request-id"), [requestId]);
      }
      expectIdentical(found, "prefill's body", body, prefill.body, shape.prefillEdits);
      expectIdentical(found, "decode's body", body, decode.body, ["kv_transfer_params"]);
      found.that(legs.decode[1]?.body.equals(Buffer.from(body)) === true, "a request without a prefiller is not the client's, byte for byte");
      if (shape.limitsIn !== "") {
        found.same("prefill: other sampling parameters", [textAt(prefill.body, "sampling_params.seed"), textAt(prefill.body, "sampling_params.temperature")], ["9007199254740993", "0.0"]);
      }
      const { handoff } = decode;
      found.that(handoff?.found === true, `the blocks were not there for decode: ${handoff?.reason ?? "no hand-off at all"}`);
      found.that(handoff?.verbatim === true, `the hand-off was changed: ${handoff?.differs.join(", ") ?? ""}`);
      found.that(handoff?.correct === true, "the blocks were not those of this prompt");
    }),
  ),
);

const localRoutes: readonly Scenario[] = [
  ...SHAPES.map((shape) =>
    scenario(`decode alone ${shape.name}: the client's bytes, one call`, { rows: ["C-RT-01"], needs: SIM }, async (bed, found) => {
      for (const body of [shape.body(bed.model), shape.body(bed.model, { stream: true })]) expectStatus(found, "decode alone", await ask(bed, { path: shape.path, body }), 200);
      const empty = await ask(bed, { path: shape.path, headers: [header("x-prefiller-host-port", ""), header("X-Prefiller-Host-Port", ' , "" ,')], body: shape.body(bed.model) });
      expectStatus(found, "with empty routing headers", empty, 200);
      const legs = await legsOf(bed);
      found.same("calls (encode/prefill/decode)", counts(legs), "0/0/3");
    }),
  ),
  scenario("other JSON routes pass through with their bytes, path and query", { rows: ["C-RT-02", "C-RT-04"], needs: SIM }, async (bed, found) => {
    const body = `{ "model":"${bed.model}","input" : ["one","tw\\u006f"], "x":9007199254740993, "encoding_format":"float" }`;
    const headers = [...routed(bed, EPD), header("X-Data-Parallel-Host-Port", MARK), header("x-kv-cache-source-host-port", MARK)];
    expectStatus(found, "embeddings", await ask(bed, { path: "/v1/embeddings?a=1&b=%2F", headers, body }), 200);
    for (const path of ["/v1/models", "/version", "/ping", "/metrics"]) expectStatus(found, path, await ask(bed, { method: "GET", path, headers }), 200);
    expectStatus(found, "GET on a POST route", await ask(bed, { method: "GET", path: "/v1/chat/completions", headers }), 405);
    const legs = await legsOf(bed);
    found.same("calls (encode/prefill/decode)", counts(legs), "0/0/1");
    const [leg] = legs.decode;
    found.same("path", leg?.path ?? "", "/v1/embeddings?a=1&b=%2F");
    found.that(leg?.body.equals(Buffer.from(body)) === true, "the body is not the client's");
  }),
  scenario("health is the sidecar's own", { rows: ["C-RT-03"], needs: SIM }, async (bed, found) => {
    for (const method of ["GET", "HEAD"]) expectStatus(found, `${method} /health`, await ask(bed, { method, path: "/health" }), 200);
    found.same("requests at the engine", sim(bed.decode).records().length, 0);
    expectStatus(found, "/ready", await ask(bed, { method: "GET", path: "/ready" }), 200);
  }),
  scenario("paths that no client may reach are 404, in every spelling", { needs: ["sidecar"] }, async (bed, found) => {
    const before = await workOf(bed.decode);
    const control = ["/sleep", "/wake_up", "/pause", "/resume", "/collective_rpc", "/reset_prefix_cache", "/update_weights", "/inference/v1/abort_requests", "/kv_event_sources", "/invocations", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/"];
    const spelt = ["/v1/LOAD_LORA_ADAPTER", "/v1/%6coad_lora_adapter", "/v1//load_lora_adapter/", "/v1/./load_lora_adapter", "/v1/x/../load_lora_adapter", "/v1/../sleep", "/v1/%2e%2e/sleep", "/v1/..%2fsleep", "/v1/%252e%252e/sleep", "/v1/..;/sleep", "/v1/..\\sleep", "http://engine.example.test/sleep"];
    for (const path of [...control, ...spelt]) {
      const answer = await ask(bed, { path, body: '{"level":1}' });
      if (answer.status !== 404) found.that(false, `POST ${path}: ${String(answer.status)} where 404 is wanted`);
      else expectOwnError(found, path, answer, 404);
    }
    for (const { path } of bed.decode.sim?.records() ?? []) found.that(path === "/metrics", `${path} reached the engine`);
    found.same("requests served", (await workOf(bed.decode)).served, before.served);
  }),
];

// ---- the prefill leg's body ----------------------------------------------------------------------------------------------------------------------------

/** Limits as clients send them: `[what, text of the members]`, each text with a comma behind. */
const LIMIT_FORMS: Readonly<Record<Shape["name"], readonly (readonly [string, string])[]>> = {
  chat: [
    ["none", ""],
    ["all", '"max_tokens":50,"max_completion_tokens" : 40,"min_tokens":9,'],
    ["max_completion_tokens only", '"max_completion_tokens":40,'],
    ["twice", '"max_tokens":50,"max_completion_tokens":40,"max_tokens":60,"max_completion_tokens":41,"min_tokens":2,"min_tokens":3,'],
    ["null and escaped", '"max_tokens":null,"max_completion_toke\\u006es":40,'],
  ],
  completions: [
    ["none", ""],
    ["all", '"max_tokens":50,"min_tokens":9,'],
    ["twice", '"max_tokens":50,"max_tokens":1E1,"min_tokens":2,"min_tokens":3,'],
  ],
  messages: [
    ["given", '"max_tokens":50,'],
    ["twice", '"max_tokens":50,"max_tokens":60,'],
  ],
  responses: [
    ["none", ""],
    ["given", '"max_output_tokens":50,"store":true,'],
    ["twice", '"max_output_tokens":50,"max_output_tokens":60,"store":false,"store":true,'],
  ],
  generate: [
    ["none", ""],
    ["all", '"max_tokens":50,"min_tokens":9,'],
    ["twice", '"max_tokens":50,"min_tokens":2,"max_tokens":60,"min_tokens":3,'],
  ],
};

function limitPath(shape: Shape, name: string): string {
  return shape.limitsIn === "" ? name : `${shape.limitsIn}.${name}`;
}

const limits: readonly Scenario[] = [
  ...SHAPES.map((shape) =>
    scenario(`${shape.name}: one token and no stream on prefill, the client's own limits on decode`, { rows: ["C-NX-02", "C-NX-03", "C-NX-04", "C-NX-05", ...shapeRows(shape)], needs: SIM }, async (bed, found) => {
      for (const [form, text] of LIMIT_FORMS[shape.name]) {
        sim(bed.prefill).setScript(prefillAnswers(2).script);
        sim(bed.decode).setScript(OK);
        for (const stream of [false, true]) {
          const what = `limits ${form}${stream ? ", streamed" : ""}`;
          const body = shape.body(bed.model, { stream, limits: text });
          expectStatus(found, what, await ask(bed, { path: shape.path, headers: routed(bed, PD), body }), 200);
          const legs = await legsOf(bed);
          const [prefill, decode] = [legs.prefill.at(-1), legs.decode.at(-1)];
          if (prefill === undefined || decode === undefined) return;
          for (const name of shape.limits) found.same(`${what}: prefill's ${limitPath(shape, name)}`, textAt(prefill.body, limitPath(shape, name)), "1");
          if (shape.limitsIn === "") for (const name of shape.limits) found.that(copiesAt(prefill.body, name).every((copy) => copy === "1"), `${what}: not every ${name} of prefill is 1`);
          // Where the API has no such member it only confuses an engine that checks (NX-07, NX-09).
          for (const name of ["max_tokens", "max_completion_tokens", "min_tokens", "max_output_tokens"]) {
            if (!shape.prefillEdits.includes(name)) found.same(`${what}: prefill's top-level ${name}`, textAt(prefill.body, name), "absent");
          }
          found.same(`${what}: prefill's stream and stream_options`, [textAt(prefill.body, "stream"), textAt(prefill.body, "stream_options")], ["false", "absent"]);
          found.same(`${what}: prefill's kv_transfer_params`, copiesAt(prefill.body, "kv_transfer_params").map(sorted), [NIXL_PARAMS]);
          if (shape.name === "responses") found.same(`${what}: prefill's store`, textAt(prefill.body, "store"), "false");
          expectIdentical(found, `${what}: decode's body`, body, decode.body, ["kv_transfer_params"]);
        }
      }
    }),
  ),
  scenario("generate without sampling_params, or with one that is no object: made on prefill, gone on decode", { rows: ["C-NX-09"], needs: SIM }, async (bed, found) => {
    for (const members of ["", ',"sampling_params":null', ',"sampling_params":7', ',"sampling_params":{}', ',"sampling_params":{ }', ',"sampling_params":[1],"sampling_params":{"n":1}']) {
      sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript(OK);
      const body = `{"model":"${bed.model}","token_ids":[5,6,7]${members}}`;
      expectStatus(found, members, await ask(bed, { path: "/inference/v1/generate", headers: routed(bed, PD), body }), 200);
      const { prefill, decode } = await legsOf(bed);
      const body1 = prefill.at(-1)?.body ?? "";
      found.same(`${members}: prefill`, [textAt(body1, "sampling_params.max_tokens"), textAt(body1, "sampling_params.min_tokens")], ["1", "1"]);
      expectIdentical(found, `${members}: decode`, body, decode.at(-1)?.body ?? Buffer.alloc(0), ["kv_transfer_params"]);
    }
  }),
  scenario("stream_options without stream, and stream written twice: neither is on prefill", { needs: SIM }, async (bed, found) => {
    for (const members of ['"stream":true,"stream":false,"stream_options":{"include_usage":true}', '"stream":false,"stream":true,"stream_options":null,"stream_options":{}', '"stream":"true"', '"str\\u0065am":true']) {
      sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript(OK);
      const body = `{"model":"${bed.model}","messages":[{"role":"user","content":"${freshText()}"}],${members}}`;
      expectStatus(found, members, await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body }), 200);
      const { prefill, decode } = await legsOf(bed);
      const leg = prefill.at(-1)?.body ?? Buffer.alloc(0);
      found.same(`${members}: prefill's stream`, [...copiesAt(leg, "stream"), textAt(leg, "stream_options")].filter((text) => text !== "false"), ["absent"]);
      found.same(`${members}: prefill's last stream`, textAt(leg, "stream"), "false");
      expectIdentical(found, `${members}: decode`, body, decode.at(-1)?.body ?? Buffer.alloc(0), ["kv_transfer_params"]);
    }
  }),
  scenario("a body in an odd form keeps its bytes on both legs: byte order mark, white space, empty object members, 1 MiB of data", { needs: SIM }, async (bed, found) => {
    const forms = [`\ufeff {\n "model" : "${bed.model}" , "messages" : [ { "role" : "user" , "content" : "${freshText()}" } ]\r\n}\t\n`, `{"":{},"messages":[{"role":"user","content":"${"QUJD".repeat(262_144)}"}],"model":"${bed.model}","__proto__":{"a":1},"\\ud83d\\ude00":[[[]]]}`];
    for (const body of forms) {
      sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript(OK);
      expectStatus(found, "odd form", await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body }), 200);
      const { prefill, decode } = await legsOf(bed);
      const text = body.replace(/^\ufeff/, "");
      for (const [leg, edits] of [
        [prefill.at(-1), CHAT.prefillEdits],
        [decode.at(-1), ["kv_transfer_params"]],
      ] as const) {
        if (leg === undefined) found.that(false, "a leg is missing");
        else expectIdentical(found, leg.stage, text, leg.body.subarray(body === text ? 0 : 3), edits);
      }
    }
  }),
];

function shapeRows(shape: Shape): string[] {
  const rows: Partial<Record<Shape["name"], string>> = { responses: "C-NX-07", messages: "C-NX-08", generate: "C-NX-09" };
  const row = rows[shape.name];
  return row === undefined ? [] : [row];
}

const NIXL_PARAMS = sorted('{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}');

/** An object's text with its members in order of their names. */
function sorted(json: string): string {
  const { value } = parse(json);
  return value instanceof Map ? JSON.stringify([...value].sort(([a], [b]) => (a < b ? -1 : 1))) : json;
}

// ---- the hand-off --------------------------------------------------------------------------------------------------------------------------------------

/** Prefill answers with 2xx that hold no usable hand-off (DESIGN decision 8): the text of the member, or of a whole answer. */
const BAD_HANDOFFS: readonly (readonly [string, string])[] = [
  ["no member", '{"id":"x"}'],
  ["null", '{"kv_transfer_params":null}'],
  ["an empty object", '{"kv_transfer_params":{ }}'],
  ["a list", '{"kv_transfer_params":[1]}'],
  ["text", '{"kv_transfer_params":"x"}'],
  ["a good one and then null", '{"kv_transfer_params":{"remote_request_id":"r"},"kv_transfer_params":null}'],
  ["block ids that are text", '{"kv_transfer_params":{"remote_block_ids":"1","remote_request_id":"r"}}'],
  ["block ids that are null", '{"kv_transfer_params":{"remote_block_ids":null,"remote_request_id":"r"}}'],
  ["nested block ids without a request id", '{"kv_transfer_params":{"remote_block_ids":[[1]]}}'],
  ["a request id that is a number", '{"kv_transfer_params":{"remote_request_id":7}}'],
  ["a request id that is null", '{"kv_transfer_params":{"remote_request_id":null,"remote_block_ids":[[1]]}}'],
  ["a port that is a word", '{"kv_transfer_params":{"remote_port":"http","remote_request_id":"r"}}'],
  ["a port that is true", '{"kv_transfer_params":{"remote_port":true,"remote_request_id":"r"}}'],
  ["no JSON", "<html>busy</html>"],
  ["JSON that is no object", "[1]"],
  ["broken JSON", '{"kv_transfer_params":{"remote_request_id":"r"}'],
  ["nothing", ""],
];

const GOOD_HANDOFFS: readonly string[] = ['{"a":1}', '{"remote_block_ids":[1,2],"remote_port":"0080"}', '{"remote_block_ids":[],"remote_port":5600.0}', '{"remote_block_ids":[[1],[2]],"remote_request_id":"\\u0072-9"}', '{"remote_request_id":""}'];

const handoffs: readonly Scenario[] = [
  scenario("what prefill hands over goes to decode byte for byte, on every route", { rows: ["C-NX-06"], needs: SIM }, async (bed, found) => {
    for (const shape of SHAPES) {
      const { params, script } = prefillAnswers(1);
      sim(bed.prefill).setScript(script);
      sim(bed.decode).setScript(OK);
      const body = shape.body(bed.model);
      expectStatus(found, shape.name, await ask(bed, { path: shape.path, headers: routed(bed, PD), body }), 200);
      const decode = (await legsOf(bed)).decode.at(-1);
      found.same(`${shape.name}: kv_transfer_params`, copiesAt(decode?.body ?? Buffer.alloc(0), "kv_transfer_params"), [params[0] ?? ""]);
    }
  }),
  scenario("a large hand-off that comes in pieces goes on whole", { needs: SIM }, async (bed, found) => {
    const params = `{"remote_block_ids":[[${Array.from({ length: 20_000 }, (_, index) => String(index)).join(", ")}]],"remote_request_id":"wire-large"}`;
    const answer = Buffer.from(`{"kv_transfer_params":${params}}`);
    const chunks = Array.from({ length: Math.ceil(answer.length / 9001) }, (_, index) => answer.subarray(index * 9001, (index + 1) * 9001));
    sim(bed.prefill).setScript({ headers: { "content-type": "application/json" }, chunks });
    sim(bed.decode).setScript(OK);
    expectStatus(found, "P/D", await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) }), 200);
    found.same("kv_transfer_params", copiesAt((await legsOf(bed)).decode[0]?.body ?? Buffer.alloc(0), "kv_transfer_params"), [params]);
  }),
  scenario("hand-offs that an engine takes are not refused", { needs: SIM }, async (bed, found) => {
    for (const params of GOOD_HANDOFFS) {
      sim(bed.prefill).setScript(prefillAnswer(params));
      sim(bed.decode).setScript(OK);
      expectStatus(found, params, await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) }), 200);
      found.same(params, copiesAt((await legsOf(bed)).decode.at(-1)?.body ?? Buffer.alloc(0), "kv_transfer_params"), [params]);
    }
  }),
  scenario("no usable hand-off, fail: a typed 502, decode is not called", { rows: ["C-NX-16", "C-NX-17"], needs: SIM }, async (bed, found) => {
    for (const [what, text] of BAD_HANDOFFS) {
      sim(bed.prefill).setScript({ status: 200, headers: { "content-type": "application/json" }, text });
      const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) });
      expectOwnError(found, what, answer, 502);
      found.that(answer.body.toString("utf8").includes("handoff_invalid"), `${what}: the error does not say handoff_invalid`);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), `0/${String(BAD_HANDOFFS.length)}/0`);
  }),
  scenario("no usable hand-off, local: decode alone with the client's own body", { rows: ["C-NX-17"], setting: "local", needs: SIM }, async (bed, found) => {
    for (const [what, text] of BAD_HANDOFFS) {
      sim(bed.prefill).setScript({ status: 200, headers: { "content-type": "application/json" }, text });
      const body = CHAT.body(bed.model);
      expectStatus(found, what, await ask(bed, { setting: "local", path: CHAT.path, headers: routed(bed, PD), body }), 200);
      found.that((await legsOf(bed)).decode.at(-1)?.body.equals(Buffer.from(body)) === true, `${what}: decode's body is not the client's`);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), `0/${String(BAD_HANDOFFS.length)}/${String(BAD_HANDOFFS.length)}`);
  }),
  scenario("a prefill answer that comes compressed is read", { needs: SIM }, async (bed, found) => {
    for (const [coding, pack] of [
      ["gzip", gzipSync],
      ["deflate", deflateSync],
      ["br", brotliCompressSync],
    ] as const) {
      const params = oddParams();
      sim(bed.prefill).setScript({ headers: { "content-type": "application/json", "content-encoding": coding }, chunks: [pack(`{"kv_transfer_params":${params}}`)] });
      sim(bed.decode).setScript(OK);
      const answer = await ask(bed, { path: CHAT.path, headers: [...routed(bed, PD), header("Accept-Encoding", "gzip, br")], body: CHAT.body(bed.model) });
      expectStatus(found, coding, answer, 200);
      found.same(coding, copiesAt((await legsOf(bed)).decode.at(-1)?.body ?? Buffer.alloc(0), "kv_transfer_params"), [params]);
    }
  }),
  scenario("two requests at once with one id: each has its own hand-off", { needs: ["sidecar"] }, async (bed, found) => {
    const body = CHAT.body(bed.model);
    const headers = [...routed(bed, PD), header("X-Request-Id", `twin-${randomUUID()}`)];
    const answers = await Promise.all([1, 2, 3].map(() => ask(bed, { path: CHAT.path, headers, body })));
    for (const answer of answers) expectStatus(found, "at once", answer, 200);
    found.same("different texts", new Set(answers.map(({ body: text }) => CHAT.textOf(text, false))).size, 1);
    for (const { handoff } of (await legsOf(bed)).decode) found.that(handoff?.correct === true, "a decode leg read blocks that are not its prompt's");
  }),
  scenario("a decode leg whose kept connection breaks begins again from prefill, never with used parameters", { needs: SIM, held: true }, async (bed, found) => {
    const body = CHAT.body(bed.model);
    expectStatus(found, "to open a connection", await ask(bed, { path: CHAT.path, body }), 200);
    sim(bed.decode).setScript([{ tcp: "reset" }, {}]);
    const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body });
    expectStatus(found, "after the break", answer, 200);
    const { prefill, decode } = await legsOf(bed);
    found.same("prefill and decode calls", [prefill.length, decode.length], [2, 3]);
    found.that(decode.at(-1)?.handoff?.correct === true, "the second decode did not find its blocks");
  }),
  scenario("a decode leg that fails before its first content, local: the engine computes the prompt itself, and nobody sees it", { setting: "local", needs: SIM, held: true }, async (bed, found) => {
    const role = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n';
    const error = 'data: {"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n';
    const failures: readonly [string, boolean, ScriptEntry][] = [
      ["an error event behind the opening", true, { headers: EVENT_STREAM, chunks: [role, error], gap_ms: 30 }],
      ["a 500 with a stream wanted", true, { status: 500, json: { error: { message: "handshake" } } }],
      ["a 500", false, { status: 500, json: { error: { message: "handshake" } } }],
      ["an opening and then a reset", true, { headers: EVENT_STREAM, chunks: [role], gap_ms: 30, then: "reset" }],
    ];
    for (const [what, stream, entry] of failures) {
      await bed.clear();
      sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript([entry, {}]);
      const body = CHAT.body(bed.model, { stream });
      const answer = await ask(bed, { setting: "local", path: CHAT.path, headers: routed(bed, PD), body });
      if (!expectStatus(found, what, answer, 200)) continue;
      const text = answer.body.toString("utf8");
      found.that(!text.includes('"error"') && text.split('"role":"assistant"').length === 2, `${what}: the answer shows the failure: ${text.slice(0, 200)}`);
      found.that(CHAT.textOf(answer.body, stream) !== "", `${what}: the answer has no text`);
      const { decode } = await legsOf(bed);
      found.that(decode.length === 2 && decode[1]?.body.equals(Buffer.from(body)) === true, `${what}: the second decode is not the client's own body`);
    }
  }),
  scenario("a decode leg that fails after it was read is not sent again", { needs: SIM, held: true }, async (bed, found) => {
    sim(bed.prefill).setScript(prefillAnswers(3).script);
    const failures: readonly [string, ScriptEntry, number][] = [
      ["a 500", { status: 500, json: { error: { message: "engine" } } }, 500],
      ["a 503", { status: 503, json: { error: { message: "engine" } } }, 503],
      ["headers and then a reset", { headers: { "content-type": "application/json" }, text: '{"half":', then: "reset" }, 502],
    ];
    for (const [what, entry, status] of failures) {
      sim(bed.decode).setScript(entry);
      found.same(what, (await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) })).status, status);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/3/3");
  }),
];

// ---- requests that are never split ---------------------------------------------------------------------------------------------------------------------

const WHOLE: readonly (readonly [string, string, string])[] = [
  ["two prompts", "/v1/completions", '"prompt":["a b c d","a b c d"],"max_tokens":4'],
  ["two prompts as ids", "/v1/completions", '"prompt":[[5,6,7],[5,6]],"max_tokens":4'],
  ["n in chat", CHAT.path, '"messages":[{"role":"user","content":"x"}],"n":2,"max_tokens":4'],
  ["n in completions", "/v1/completions", '"prompt":"x","n":3,"max_tokens":4'],
  ["best_of", "/v1/completions", '"prompt":"x","best_of":2,"max_tokens":4'],
  ["prompt_logprobs in chat", CHAT.path, '"messages":[{"role":"user","content":"x"}],"prompt_logprobs":0'],
  ["prompt_logprobs in completions", "/v1/completions", '"prompt":"x","prompt_logprobs":1'],
  ["echo with logprobs", "/v1/completions", '"prompt":"x","echo":true,"logprobs":1'],
  ["prompt_embeds", "/v1/completions", '"prompt_embeds":"AAAA"'],
  ["n in generate", "/inference/v1/generate", '"token_ids":[5,6,7],"sampling_params":{"n":2}'],
  ["prompt_logprobs in generate", "/inference/v1/generate", '"token_ids":[5,6,7],"sampling_params":{"prompt_logprobs":1}'],
  ["previous_response_id", "/v1/responses", '"input":"x","previous_response_id":"resp_1"'],
  ["conversation", "/v1/responses", '"input":"x","conversation":"conv_1"'],
  ["background", "/v1/responses", '"input":"x","background":true'],
  ["an escaped name", CHAT.path, '"messages":[{"role":"user","content":"x"}],"\\u006e":2'],
  ["a name twice", CHAT.path, '"n":1,"messages":[{"role":"user","content":"x"}],"n":2'],
];

const whole: readonly Scenario[] = [
  scenario("requests that are never split: decode alone with the client's bytes, whatever the header says", { needs: SIM }, async (bed, found) => {
    sim(bed.decode).setScript(OK);
    for (const [what, path, members] of WHOLE) {
      const body = `{"model":"${bed.model}",${members}}`;
      expectStatus(found, what, await ask(bed, { path, headers: routed(bed, PD), body }), 200);
      const legs = await legsOf(bed);
      found.same(`${what}: prefill calls`, legs.prefill.length, 0);
      found.that(legs.decode.at(-1)?.body.equals(Buffer.from(body)) === true, `${what}: decode's body is not the client's`);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), `0/0/${String(WHOLE.length)}`);
  }),
  scenario("a list of prompts comes back whole and right, and no engine dies of it", { needs: ["sidecar"] }, async (bed, found) => {
    for (const lengths of [
      [4, 4],
      [2, 6],
    ]) {
      const prompts = lengths.map((times) => `${randomUUID()} ${"tide ".repeat(times * 16)}`);
      const completion = async (prompt: string | readonly string[], headers: readonly HeaderLine[]): Promise<Answer> =>
        ask(bed, { path: "/v1/completions", headers, body: JSON.stringify({ model: bed.model, prompt, temperature: 0, max_tokens: 6 }) });
      const answer = await completion(prompts, routed(bed, PD));
      if (!expectStatus(found, "list", answer, 200)) return;
      for (const [index, prompt] of prompts.entries()) {
        const alone = await completion(prompt, []);
        found.same(`choice ${String(index)}`, stringAt(answer.body, `choices.${String(index)}.text`), stringAt(alone.body, "choices.0.text"));
      }
    }
  }),
  scenario("n of one, and the like, may be split", { needs: SIM }, async (bed, found) => {
    for (const members of ['"n":1', '"n":null', '"best_of":1', '"prompt_logprobs":null', '"background":false', '"previous_response_id":null']) {
      sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript(OK);
      expectStatus(found, members, await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: `{"messages":[{"role":"user","content":"x"}],${members}}` }), 200);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/6/6");
  }),
];

// ---- headers -------------------------------------------------------------------------------------------------------------------------------------------

const HOSTILE_HEADERS: readonly HeaderLine[] = [
  // One that names no rank of the pod is refused (DP-03), and so is sent on a route only that does not read it.
  ...ROUTING_HEADERS.filter((name) => !["x-prefiller-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port"].includes(name)).map((name) => header(name.toUpperCase(), MARK)),
  header("Connection", "keep-alive, X-Drop, upgrade"),
  header("X-Drop", MARK),
  header("Keep-Alive", "timeout=5"),
  header("TE", "gzip"),
  header("Proxy-Authorization", "Basic eA=="),
  header("Proxy-Connection", "keep-alive"),
  header("Upgrade", "h2c"),
];

const headers: readonly Scenario[] = [
  scenario("headers on every leg: no routing, none of one connection, the others as they came", { rows: ["C-HDR-06", "C-HDR-10"], needs: SIM_MEDIA }, async (bed, found) => {
    const kept: readonly HeaderLine[] = [header("Host", "gateway.example.test"), header("X-Forwarded-For", "192.0.2.7"), header("User-Agent", "wire/1"), header("Cookie", "a=1"), header("X-Twice", "1"), header("x-twice", "2"), header("X-Latin", "caf\u00e9")];
    const body = mediaBody(bed.model, freshText(), [imagePart(address("h.png"))]);
    for (const [what, path, routing, payload] of [
      ["E/P/D", CHAT.path, routed(bed, EPD), body],
      ["decode alone", CHAT.path, [], body],
      ["pass-through", "/v1/embeddings", routed(bed, EPD), `{"model":"${bed.model}","input":"x"}`],
    ] as const) {
      expectStatus(found, what, await ask(bed, { path, headers: [...routing, ...HOSTILE_HEADERS, ...kept, header("Authorization", "Bearer k")], body: payload }), 200);
    }
    const legs = await legsOf(bed);
    found.same("calls (encode/prefill/decode)", counts(legs), "1/1/3");
    for (const { stage, rawHeaders } of [...legs.prefill, ...legs.decode]) {
      for (const [name, values] of [
        ["host", ["gateway.example.test"]],
        ["x-forwarded-for", ["192.0.2.7, 127.0.0.1"]],
        ["user-agent", ["wire/1"]],
        ["authorization", ["Bearer k"]],
        ["cookie", ["a=1"]],
        ["x-twice", ["1", "2"]],
        ["x-drop", []],
        // Bytes as they came, one character each.
        ["x-latin", [Buffer.from("caf\u00e9").toString("latin1")]],
        ["content-type", ["application/json"]],
      ] as const) {
        found.same(`${stage}: ${name}`, headerLines(rawHeaders, name), values);
      }
    }
    for (const { engine, rawHeaders } of legs.encode) {
      for (const [name, values] of [
        ["host", [bed.encode[0]?.address ?? ""]],
        ["authorization", ["Bearer k"]],
        ["cookie", []],
        ["x-forwarded-for", []],
        ["content-type", ["application/json"]],
      ] as const) {
        found.same(`encode at ${engine}: ${name}`, headerLines(rawHeaders, name), values);
      }
    }
  }),
  scenario("exactly one x-request-id on every leg: the client's, or a new one", { rows: ["C-HDR-09"], needs: SIM_MEDIA }, async (bed, found) => {
    const forms: readonly (readonly [string, readonly HeaderLine[], string | null])[] = [
      ["given", [header("x-request-id", "id-1")], "id-1"],
      ["given twice", [header("X-Request-Id", "id-2"), header("x-request-id", "id-3")], "id-2"],
      ["empty and given", [header("x-request-id", ""), header("X-REQUEST-ID", "id-4")], "id-4"],
      ["absent", [], null],
    ];
    for (const [what, lines, wanted] of forms) {
      await bed.clear();
      const answer = await ask(bed, { path: CHAT.path, headers: [...routed(bed, EPD), ...lines], body: mediaBody(bed.model, freshText(), [imagePart(address("i.png")), imagePart(address("j.png"))]) });
      expectStatus(found, what, answer, 200);
      const legs = await legsOf(bed);
      const idOf = ({ rawHeaders }: EngineRecord): string => headerLines(rawHeaders, "x-request-id").join(" and ");
      const [prefill, decode] = [legs.prefill.map(idOf), legs.decode.map(idOf)];
      found.same(`${what}: prefill and decode`, prefill, decode);
      if (wanted !== null) found.same(`${what}: decode`, decode, [wanted]);
      else found.that(/^[0-9a-f-]{36}$/.test(decode.join()), `${what}: the new id is ${decode.join()}`);
      found.same(`${what}: encode`, legs.encode.map(idOf).sort(), [`${decode.join()}-enc-0`, `${decode.join()}-enc-1`]);
      found.same(`${what}: answer`, headerLines(answer.headers, "x-request-id"), decode);
    }
  }),
  scenario("the prefill header's forms: first of a list, several lines, empty entries, http://", { rows: ["C-HDR-01", "C-HDR-02", "C-HDR-07", "C-HDR-08"], needs: SIM }, async (bed, found) => {
    const { address: prefiller } = bed.prefill;
    const closed = `127.0.0.1:${String(await freePort())}`;
    for (const values of [[prefiller], [` ${prefiller} ,${closed}`], [`,,${prefiller}`], ["", prefiller, closed], [`http://${prefiller}`]]) {
      const answer = await ask(bed, { path: CHAT.path, headers: values.map((value) => header("x-prefiller-host-port", value)), body: CHAT.body(bed.model) });
      expectStatus(found, values.join(" | "), answer, 200);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/5/5");
    for (const value of ["nonsense", "host:0", "host:99999", "[::1", `${prefiller}/x`, "https://h:1", "a b:1", "user@h:1"]) {
      expectOwnError(found, value, await ask(bed, { path: CHAT.path, headers: [header("x-prefiller-host-port", value)], body: CHAT.body(bed.model) }), 502);
    }
    found.same("after wrong values", counts(await legsOf(bed)), "0/5/5");
  }),
];

// ---- control members of clients ------------------------------------------------------------------------------------------------------------------------

const KV = `{"do_remote_prefill":true,"do_remote_decode":true,"remote_block_ids":[[1]],"remote_engine_id":"${MARK}","remote_request_id":"${MARK}","remote_host":"${MARK}","remote_port":1}`;

/** `[what, text of top-level members]`, each text with a comma in front. */
const CONTROL: readonly (readonly [string, string])[] = [
  ["top level", `,"kv_transfer_params":${KV},"ec_transfer_params":{"h":{"peer_host":"${MARK}"}}`],
  ["bootstrap", `,"bootstrap_host":"${MARK}","bootstrap_port":1,"bootstrap_room":"${MARK}","bootstrap_":"${MARK}"`],
  ["vllm_xargs", `,"vllm_xargs":{"kv_transfer_params":${KV},"tag":"kept","ec_transfer_params":"${MARK}"}`],
  ["vllm_xargs, alone in it", `,"vllm_xargs":{ "kv_transfer_params" : ${KV} }`],
  ["extra_args", `,"sampling_params":{"extra_args":{"kv_transfer_params":${KV},"ec_transfer_params":["${MARK}"]},"max_tokens":8}`],
  ["names with escapes", `,"kv\\u005ftransfer_params":${KV},"\\u0065\\u0063_transfer_params":"${MARK}","bootstrap\\u005froom":"${MARK}","vllm\\u005fxargs":{"kv_transfer_param\\u0073":${KV}}`],
  ["names twice", `,"kv_transfer_params":null,"kv_transfer_params":${KV},"kv_transfer_params":{"a":"${MARK}"},"vllm_xargs":{"kv_transfer_params":1},"vllm_xargs":{"kv_transfer_params":${KV},"kv_transfer_params":${KV}}`],
  ["other kinds of values", `,"kv_transfer_params":"${MARK}","ec_transfer_params":[["${MARK}"]],"bootstrap_port":{"a":"${MARK}"}`],
];

/** Routes that take JSON and are not orchestrated. */
const OTHER_ROUTES: readonly (readonly [string, string])[] = [
  ["/v1/embeddings", '"input":"x"'],
  ["/pooling", '"input":"x"'],
  ["/score", '"text_1":"x","text_2":"y"'],
  ["/rerank", '"query":"x","documents":["y"]'],
  ["/tokenize", '"prompt":"x"'],
  ["/v1/messages/count_tokens", '"messages":[{"role":"user","content":"x"}]'],
  ["//v1/./chat/completions", '"messages":[{"role":"user","content":"x"}],"max_tokens":2'],
  ["/v1/chat/completions/", '"messages":[{"role":"user","content":"x"}],"max_tokens":2'],
  ["/v1/chat/completions/batch", '"messages":[]'],
  ["/v1/no/such/route", '"x":1'],
];

function hostile(shape: Shape, bed: Bed, members: string): string {
  if (shape.limitsIn === "") return shape.body(bed.model, { more: members });
  // The route's own sampling_params must be the only ones, so the hostile ones are these.
  const sampling = /^,"sampling_params":(.*)$/.exec(members)?.[1];
  const body = shape.body(bed.model, { more: sampling === undefined ? members : "" });
  return sampling === undefined ? body : body.replace(/"sampling_params":\{[^}]*\}/, `"sampling_params":${sampling}`);
}

const controlMembers: readonly Scenario[] = [
  ...SHAPES.map((shape) =>
    scenario(`control members of a client on ${shape.path}: none reaches an engine, decode alone or split`, {}, async (bed, found) => {
      for (const [what, members] of CONTROL) {
        const body = hostile(shape, bed, members);
        for (const headers of [[], routed(bed, PD)]) {
          const answer = await ask(bed, { path: shape.path, headers, body });
          expectStatus(found, `${what}${headers.length > 0 ? ", P/D" : ""}`, answer, 200);
          const decode = (await legsOf(bed)).decode.at(-1);
          if (decode === undefined) continue;
          if (what === "vllm_xargs") found.same(`${what}: what is left of it`, textAt(decode.body, "vllm_xargs"), '{"tag":"kept"}');
          expectIdentical(found, what, body, decode.body, ["kv_transfer_params", "ec_transfer_params", "vllm_xargs", "sampling_params", "bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_"]);
          for (const peer of decode.outbound) found.that(!peer.includes(MARK), `${what}: the engine called ${peer}`);
        }
      }
    }),
  ),
  scenario("control members of a client on routes that are passed through", { engineErrors: true, needs: SIM }, async (bed, found) => {
    for (const [path, members] of OTHER_ROUTES) {
      for (const [, control] of CONTROL) await ask(bed, { path, body: `{"model":"${bed.model}",${members}${control}}` });
    }
    found.same("requests at the engine", sim(bed.decode).records().length, OTHER_ROUTES.length * CONTROL.length);
  }),
  scenario("control members in every encoding that is opened", {}, async (bed, found) => {
    const [, members = ""] = CONTROL.find(([what]) => what === "names with escapes") ?? [];
    const text = CHAT.body(bed.model, { more: `${members},"kv_transfer_params":${KV}` });
    const forms: readonly (readonly [string, readonly HeaderLine[], Buffer])[] = [
      ["UTF-8 with a byte order mark", [], Buffer.from(`\ufeff${text}`)],
      ["gzip", [header("Content-Encoding", "gzip")], gzipSync(text)],
      ["GZIP and identity", [header("Content-Encoding", "GZIP, identity")], gzipSync(text)],
      ["deflate", [header("Content-Encoding", "deflate")], deflateSync(text)],
      // Envoy opens one layer, and the wrong one of two lines.
      ...(bed.via === "sidecar" ? ([["br over gzip", [header("Content-Encoding", "gzip"), header("content-encoding", "br")], brotliCompressSync(gzipSync(text))]] as const) : []),
      ["a charset in the type", [header("Content-Type", "application/json; charset=utf-16")], Buffer.from(text)],
    ];
    for (const [what, lines, body] of forms) {
      for (const headers of [[], routed(bed, PD)]) expectStatus(found, what, await ask(bed, { path: CHAT.path, headers: [...headers, ...lines], body }), 200);
    }
    const bytes = Buffer.from(text);
    const cuts = Array.from({ length: 9 }, (_, index) => bytes.subarray(Math.floor((index * bytes.length) / 9), Math.floor(((index + 1) * bytes.length) / 9)));
    expectStatus(found, "chunked with trailers", await ask(bed, { path: CHAT.path, chunks: cuts, trailers: [header("x-checksum", "1")] }), 200);
    for (const record of (await legsOf(bed)).decode) found.that(["", "identity"].includes(headerLines(record.rawHeaders, "content-encoding").join()), `a leg's content-encoding is ${headerLines(record.rawHeaders, "content-encoding").join()}`);
  }),
];

// ---- bodies that are refused ---------------------------------------------------------------------------------------------------------------------------

const SENTENCE = `{"model":"m","messages":[{"role":"user","content":"x"}],"kv_transfer_params":${KV}`;

function utf32(text: string, bigEndian: boolean): Buffer {
  const bytes = Buffer.alloc(text.length * 4);
  for (let index = 0; index < text.length; index++) {
    if (bigEndian) bytes.writeUInt32BE(text.charCodeAt(index), index * 4);
    else bytes.writeUInt32LE(text.charCodeAt(index), index * 4);
  }
  return bytes;
}

const UNREADABLE: readonly (readonly [string, Buffer | string])[] = [
  ["truncated", SENTENCE],
  ["a trailing comma", `${SENTENCE},}`],
  ["two values", `${SENTENCE}}{}`],
  ["rubbish behind", `${SENTENCE}}x`],
  ["a comment", `${SENTENCE}/* */}`],
  ["NaN", `${SENTENCE},"x":NaN}`],
  ["an unquoted name", `${SENTENCE},x:1}`],
  ["single quotes", `${SENTENCE},'x':1}`],
  ["a control character in text", `${SENTENCE},"x":"\u0001"}`],
  ["a bad escape", `${SENTENCE},"x":"\\q"}`],
  ["a leading zero", `${SENTENCE},"x":01}`],
  ["bytes that are not UTF-8", Buffer.concat([Buffer.from(`${SENTENCE},"x":"`), Buffer.from([0xc3, 0x28]), Buffer.from('"}')])],
  ["UTF-16 little endian", Buffer.from(`${SENTENCE}}`, "utf16le")],
  ["UTF-16 big endian", Buffer.from(`${SENTENCE}}`, "utf16le").swap16()],
  ["UTF-16 with a byte order mark", Buffer.from(`\ufeff${SENTENCE}}`, "utf16le")],
  ["UTF-32 little endian", utf32(`${SENTENCE}}`, false)],
  ["UTF-32 big endian", utf32(`${SENTENCE}}`, true)],
  ["nothing", ""],
  ["white space", " \n"],
];

const refused: readonly Scenario[] = [
  scenario("JSON that cannot be read is a 400 on every route, and no engine sees it", { rows: ["C-RT-05", "C-RT-06"] }, async (bed, found) => {
    const before = [await workOf(bed.prefill), await workOf(bed.decode)] as const;
    for (const [what, body] of UNREADABLE) {
      const paths = what === "nothing" ? [CHAT.path] : [CHAT.path, "/v1/responses", "/inference/v1/generate", "/v1/embeddings"];
      for (const path of paths) {
        for (const headers of [[], routed(bed, PD)]) {
          const chunks = what === "nothing" ? { body: "" } : { body };
          expectOwnError(found, `${what} to ${path}`, await ask(bed, { path, headers, ...chunks }), 400);
        }
      }
    }
    for (const body of ["null", "[]", "3", '"x"', "true"]) expectOwnError(found, body, await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body }), 400);
    expectOwnError(found, "no body at all", await ask(bed, { path: CHAT.path, headers: routed(bed, PD) }), 400);
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/0/0");
    const after = [await workOf(bed.prefill), await workOf(bed.decode)] as const;
    found.same("requests served", [after[0].served, after[1].served], [before[0].served, before[1].served]);
    expectStatus(found, "and then a good one", await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) }), 200);
  }),
  // A gateway opens what it can itself, and hands on nothing where that fails.
  scenario("an encoding that cannot be opened is a 415, one that does not open a 400", { needs: ["sidecar"] }, async (bed, found) => {
    const text = CHAT.body(bed.model);
    for (const coding of ["zstd", "x-opaque", "gzip, zstd", "compress", "gzip, gzip, gzip", "*", "constructor", "__proto__"]) {
      for (const path of [CHAT.path, "/v1/embeddings"]) {
        expectOwnError(found, `${coding} to ${path}`, await ask(bed, { path, headers: [...routed(bed, PD), header("Content-Encoding", coding)], body: text }), 415);
      }
    }
    for (const [what, body] of [
      ["no gzip at all", Buffer.from(text)],
      ["a gzip that ends early", gzipSync(text).subarray(0, 60)],
      ["gzip of broken JSON", gzipSync(SENTENCE)],
    ] as const) {
      expectOwnError(found, what, await ask(bed, { path: CHAT.path, headers: [...routed(bed, PD), header("Content-Encoding", "gzip")], body }), 400);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/0/0");
  }),
  scenario("a body beyond the limit is a 413: announced, in pieces, and only when opened", { setting: "small" }, async (bed, found) => {
    const large = CHAT.body(bed.model, { more: `,"x":"${"a".repeat(30_000)}"` });
    const bytes = Buffer.from(large);
    const thirds = [bytes.subarray(0, 10_000), bytes.subarray(10_000, 20_000), bytes.subarray(20_000)];
    for (const [what, form] of [
      ["announced", { body: large }],
      ["in pieces", { chunks: thirds }],
      ["opened", { body: gzipSync(large), headers: [header("Content-Encoding", "gzip")] }],
    ] as const) {
      expectOwnError(found, what, await ask(bed, { setting: "small", path: CHAT.path, ...form }), 413);
    }
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/0/0");
    expectStatus(found, "within it", await ask(bed, { setting: "small", path: CHAT.path, body: CHAT.body(bed.model) }), 200);
  }),
  scenario("a form is passed to no JSON route, and with a control member to none", { needs: SIM }, async (bed, found) => {
    const form = (name: string): string => `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${name === "model" ? "m" : MARK}\r\n--b--\r\n`;
    const type = header("Content-Type", "multipart/form-data; boundary=b");
    for (const path of [CHAT.path, "/v1/embeddings"]) expectOwnError(found, path, await ask(bed, { path, headers: [type], body: form("model") }), 400);
    for (const name of ["kv_transfer_params", "ec_transfer_params", "vllm_xargs"]) {
      expectOwnError(found, name, await ask(bed, { path: "/v1/audio/transcriptions", headers: [type], body: form(name) }), 400);
    }
    found.same("requests at the engine", sim(bed.decode).records().length, 0);
  }),
];

// ---- the encode stage ----------------------------------------------------------------------------------------------------------------------------------

function urlOf({ body }: EngineRecord): string {
  const part = "messages.0.content.0";
  return stringAt(body, `${part}.image_url.url`) || stringAt(body, `${part}.audio_url.url`) || stringAt(body, `${part}.video_url.url`) || stringAt(body, `${part}.input_audio.data`);
}

/** Most encode calls that were open at the same time. A call ends for the caller when its answer begins to arrive. */
function mostAtOnce(records: readonly EngineRecord[]): number {
  const edges = records.flatMap(({ startedAtMs, firstByteAtMs }) => [
    { at: startedAtMs, step: 1 },
    { at: firstByteAtMs ?? Number.POSITIVE_INFINITY, step: -1 },
  ]);
  edges.sort((a, b) => a.at - b.at || a.step - b.step);
  let open = 0;
  return Math.max(0, ...edges.map(({ step }) => (open += step)));
}

const encodeStage: readonly Scenario[] = [
  scenario("E/P/D with real pictures: encoders once per picture, then prefill, then decode", { rows: ["C-EC-12"], needs: ["encoders"] }, async (bed, found) => {
    const [one, other] = [pictureUrl(), pictureUrl()];
    const body = mediaBody(bed.model, freshText(), [imagePart(one), imagePart(other), imagePart(one)]);
    const before = await Promise.all(bed.encode.map(workOf));
    const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, EPD), body });
    if (!expectStatus(found, "E/P/D", answer, 200)) return;
    const served = await Promise.all(bed.encode.map(async (face, index) => (await workSince(face, before[index] ?? { served: 0, externalTokens: 0 }, 1)).served));
    found.same("requests served by the encoders", served, [1, 1]);
    const legs = await legsOf(bed);
    // Behind a gateway the encoders are called again, whatever is cached.
    if (bed.via === "sidecar") {
      const alone = await ask(bed, { path: CHAT.path, body });
      found.same("the text", CHAT.textOf(answer.body, false), CHAT.textOf(alone.body, false));
    }
    if (bed.prefill.sim === null) return;
    found.same("calls (encode/prefill/decode)", counts(legs), "2/1/1");
    expectOrder(found, legs);
    for (const { source, reference } of legs.prefill[0]?.media ?? []) found.same("prefill's embedding", [source, reference], ["reference", "found"]);
    expectIdentical(found, "prefill's body", body, legs.prefill[0]?.body ?? Buffer.alloc(0), [...CHAT.prefillEdits, "ec_transfer_params"]);
    expectIdentical(found, "decode's body", body, legs.decode[0]?.body ?? Buffer.alloc(0), ["kv_transfer_params", "ec_transfer_params"]);
    found.same("embeddings on both legs", copiesAt(legs.prefill[0]?.body ?? Buffer.alloc(0), "ec_transfer_params"), copiesAt(legs.decode[0]?.body ?? Buffer.alloc(0), "ec_transfer_params"));
  }),
  scenario("E/PD: without a prefiller the engine gets the embeddings", { rows: ["C-EC-11"], needs: SIM_MEDIA }, async (bed, found) => {
    const parts = [imagePart(address("a.png")), `{"type":"audio_url","audio_url":{"url":"${address("b.wav")}"}}`, `{"type":"video_url","video_url":{"url":"${address("c.mp4")}"}}`, audioPart()];
    const body = mediaBody(bed.model, freshText(), parts);
    expectStatus(found, "E/PD", await ask(bed, { path: CHAT.path, headers: routed(bed, { encode: true }), body }), 200);
    const legs = await legsOf(bed);
    found.same("calls (encode/prefill/decode)", counts(legs), "4/0/1");
    expectOrder(found, legs);
    expectIdentical(found, "decode's body", body, legs.decode[0]?.body ?? Buffer.alloc(0), ["ec_transfer_params"]);
    const media = legs.decode[0]?.media ?? [];
    found.same("items", media.length, 4);
    for (const { modality, source, reference } of media) found.same(`the ${modality}'s embedding`, [source, reference], ["reference", "found"]);
  }),
  scenario("item i goes to entry i mod N, each distinct part once, as one item in one message", { rows: ["C-EC-02", "C-EC-03", "C-EC-04", "C-EC-05"], needs: SIM_MEDIA }, async (bed, found) => {
    const [a, b, c] = ["a", "b", "c"].map((name) => address(`${name}.png`)) as [string, string, string];
    const audio = audioPart();
    const parts = [
      imagePart(a),
      imagePart(b, ',"detail":"low"'),
      // Equal as a whole, written otherwise.
      ` { "image_url" : { "url" : "${a.replace("media", "m\\u0065dia")}" } , "type" : "image_url" }`,
      imagePart(b, ',"detail":"high"'),
      `{"type":"video_url","video_url":{"url":"${c}"}}`,
      audio,
      audio,
      imagePart(b, ',"detail":"low"'),
    ];
    const more = ',"max_completion_tokens":7,"mm_processor_kwargs":{"fps":1.0,"n":9007199254740993},"cache_salt":"s\\u0061lt","tools":[],"seed":1,"user":"u"';
    const body = mediaBody(bed.model, freshText(), parts, more);
    sim(bed.decode).setScript(OK);
    for (const { sim: engine } of bed.encode) engine?.setScript({ status: 200, json: {} });
    expectStatus(found, "E/PD", await ask(bed, { path: `${CHAT.path}?x=1`, headers: [...routed(bed, { encode: true }), header("x-request-id", "R"), header("traceparent", "00-t")], body }), 200);
    const { encode, decode } = await legsOf(bed);
    const distinct = [parts[0], parts[1], parts[3], parts[4], audio, audio];
    const wanted = distinct.map((part, index) => `R-enc-${String(index)} at ${bed.encode[index % 2]?.name ?? ""}: ${part ?? ""}`);
    const seen = encode.map(({ body: leg, engine, rawHeaders }) => {
      const [content = ""] = copiesAt(leg, "messages");
      return `${headerLines(rawHeaders, "x-request-id").join()} at ${engine}: ${/^\[\{"role":"user","content":\[(.*)\]\}\]$/s.exec(content)?.[1] ?? content}`;
    });
    found.same("encode calls", seen.sort(), wanted.sort());
    for (const { body: leg, path, method, rawHeaders } of encode) {
      found.same("path", `${method} ${path}`, `POST ${CHAT.path}`);
      found.same("members", [...(parse(leg).members ?? [])].map(({ name }) => name).sort(), ["cache_salt", "max_completion_tokens", "max_tokens", "messages", "mm_processor_kwargs", "model", "stream"]);
      found.same("limits", [textAt(leg, "max_tokens"), textAt(leg, "max_completion_tokens"), textAt(leg, "stream")], ["1", "1", "false"]);
      found.same("carried", [copiesAt(leg, "mm_processor_kwargs"), copiesAt(leg, "cache_salt")], [['{"fps":1.0,"n":9007199254740993}'], ['"s\\u0061lt"']]);
      found.same("traceparent", headerLines(rawHeaders, "traceparent"), ["00-t"]);
    }
    expectIdentical(found, "decode's body", body, decode[0]?.body ?? Buffer.alloc(0), []);
  }),
  scenario("twenty items: at most eight at a time, all of them, in turn over the entries", { needs: SIM_MEDIA }, async (bed, found) => {
    for (const { sim: engine } of bed.encode) engine?.setScript({ delay_ms: 12 });
    const urls = Array.from({ length: 20 }, (_, index) => address(`${String(index)}.png`));
    expectStatus(found, "E/PD", await ask(bed, { path: CHAT.path, headers: routed(bed, { encode: true }), body: mediaBody(bed.model, freshText(), urls.map((url) => imagePart(url))) }), 200);
    const { encode, decode } = await legsOf(bed);
    found.same("items that were encoded", encode.map(urlOf).sort(), [...urls].sort());
    for (const record of encode) found.same(`${urlOf(record)}: encoder`, record.engine, bed.encode[urls.indexOf(urlOf(record)) % 2]?.name);
    const most = mostAtOnce(encode);
    found.that(most <= 8, `${String(most)} encode calls at once where eight are the most`);
    found.that(most >= 2, "encode calls one after the other");
    found.same("references at decode", (decode[0]?.media ?? []).filter(({ reference }) => reference === "found").length, 20);
  }),
  scenario("what encoders hand over goes to prefill and decode byte for byte", { rows: ["C-EC-06", "C-EC-07"], needs: SIM_MEDIA, engineErrors: true }, async (bed, found) => {
    const members = ['"h\\u0030" : {"peer_port":5500, "size":18446744073709551617,"f":1.0,"f":2E400}', '"h1":[ ]'];
    for (const [index, { sim: engine }] of bed.encode.entries()) engine?.setScript({ headers: { "content-type": "application/json" }, text: `{"choices":[],"ec_transfer_params":{ ${members[index] ?? ""} }}` });
    const { script } = prefillAnswers(1);
    sim(bed.prefill).setScript(script);
    sim(bed.decode).setScript(OK);
    const urls = [imagePart(address("a.png")), imagePart(address("b.png"))];
    expectStatus(found, "E/P/D", await ask(bed, { path: CHAT.path, headers: routed(bed, EPD), body: mediaBody(bed.model, freshText(), urls) }), 200);
    const legs = await legsOf(bed);
    for (const leg of [...legs.prefill, ...legs.decode]) {
      const [params = ""] = copiesAt(leg.body, "ec_transfer_params");
      for (const member of members) found.that(params.includes(member), `${leg.stage}: ${member} is not there as it came: ${params}`);
    }
    // An encoder with nothing to hand over is no failure, and nothing is written then.
    for (const json of [{}, { ec_transfer_params: null }, { ec_transfer_params: {} }]) {
      for (const { sim: engine } of bed.encode) engine?.setScript({ status: 200, json });
      expectStatus(found, JSON.stringify(json), await ask(bed, { path: CHAT.path, headers: routed(bed, { encode: true }), body: mediaBody(bed.model, freshText(), urls) }), 200);
      found.same(JSON.stringify(json), copiesAt((await legsOf(bed)).decode.at(-1)?.body ?? Buffer.alloc(0), "ec_transfer_params"), []);
    }
  }),
  scenario("responses and messages with pictures: encoded as chat, split in their own API", { needs: SIM_MEDIA }, async (bed, found) => {
    const forms: readonly (readonly [string, string])[] = [
      ["/v1/responses", `"input":[{"role":"user","content":[{"type":"input_text","text":"${freshText()}"},{"type":"input_image","image_url":"${address("r.png")}","detail":"low"}]}],"max_output_tokens":8`],
      ["/v1/messages", `"messages":[{"role":"user","content":[{"type":"text","text":"${freshText()}"},${imagePart(address("m.png"))}]}],"max_tokens":8`],
    ];
    for (const [path, members] of forms) {
      await bed.clear();
      const body = `{"model":"${bed.model}","temperature":0,${members}}`;
      expectStatus(found, path, await ask(bed, { path, headers: routed(bed, EPD), body }), 200);
      const legs = await legsOf(bed);
      found.same(`${path}: calls (encode/prefill/decode)`, counts(legs), "1/1/1");
      found.same(`${path}: paths`, [legs.encode[0]?.path, legs.prefill[0]?.path, legs.decode[0]?.path], [CHAT.path, path, path]);
      found.same(`${path}: prefill's embedding`, legs.prefill[0]?.media.map(({ source, reference }) => [source, reference]), [["reference", "found"]]);
    }
  }),
  scenario("text alone calls no encoder", { rows: ["C-EC-01"], needs: SIM_MEDIA }, async (bed, found) => {
    const body = `{"model":"${bed.model}","temperature":0,"max_tokens":4,"messages":[{"role":"user","content":"${freshText()} {\\"type\\":\\"image_url\\"}"},{"role":"user","content":[{"type":"text","text":"image_url"}]}]}`;
    expectStatus(found, "text", await ask(bed, { path: CHAT.path, headers: routed(bed, EPD), body }), 200);
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/1/1");
  }),
  scenario("the encoder header's forms: several lines, empty entries, repeats that count", { rows: ["C-EC-17"], needs: SIM_MEDIA }, async (bed, found) => {
    const [first = "", second = ""] = bed.encode.map(({ address: at }) => at);
    const urls = ["a", "b", "c"].map((name) => imagePart(address(`${name}.png`)));
    const lines = [header("x-encoder-hosts-ports", `,${first},`), header("X-Encoder-Hosts-Ports", `${first} , ${second}`)];
    expectStatus(found, "lines", await ask(bed, { path: CHAT.path, headers: lines, body: mediaBody(bed.model, freshText(), urls) }), 200);
    found.same("encoders of the items", (await legsOf(bed)).encode.map((record) => `${urlOf(record).slice(-5)} ${record.engine}`).sort(), ["a.png e0", "b.png e0", "c.png e1"]);
    expectStatus(found, "empty", await ask(bed, { path: CHAT.path, headers: [header("x-encoder-hosts-ports", "")], body: mediaBody(bed.model, freshText(), urls) }), 200);
    found.same("encode calls after an empty header", (await legsOf(bed)).encode.length, 3);
  }),
  ...(["fail", "local"] as const).map((setting) =>
    scenario(`an encoder that fails, ${setting}`, { rows: ["C-EC-08"], setting, needs: SIM_MEDIA }, async (bed, found) => {
      const failures: readonly [string, ScriptEntry][] = [
        ["500", { status: 500, headers: { "x-secret": "s" }, text: "out of memory at /models/x" }],
        ["a reset", { tcp: "reset" }],
        ["an answer that breaks off", { headers: { "content-type": "application/json" }, text: '{"ec_tr', then: "reset" }],
        ["no JSON", { status: 200, text: "<html>" }],
      ];
      for (const [what, entry] of failures) {
        await bed.clear();
        sim(bed.encode[1]).setScript(entry);
        const body = mediaBody(bed.model, freshText(), [imagePart(address("a.png")), imagePart(address("b.png"))]);
        const answer = await ask(bed, { setting, path: CHAT.path, headers: routed(bed, EPD), body });
        const legs = await legsOf(bed);
        if (setting === "fail") {
          expectOwnError(found, what, answer, 502);
          found.that(!answer.body.toString("utf8").includes("out of memory"), `${what}: the error tells what the encoder said`);
          found.same(`${what}: prefill and decode calls`, [legs.prefill.length, legs.decode.length], [0, 0]);
        } else if (expectStatus(found, what, answer, 200)) {
          found.same(`${what}: references that prefill was given`, Object.keys(Object(legs.prefill[0]?.json) as object).includes("ec_transfer_params") ? (legs.prefill[0]?.media ?? []).filter(({ reference }) => reference === "found").length : -1, 1);
          found.that(legs.decode[0]?.handoff?.correct === true, `${what}: decode did not find its blocks`);
        }
      }
    }),
  ),
  ...(["fail", "local"] as const).map((setting) =>
    scenario(`an encoder's 4xx is the client's own error, ${setting}`, { setting, needs: SIM_MEDIA, engineErrors: true }, async (bed, found) => {
      sim(bed.encode[0]).setScript({ status: 422, headers: { "x-engine": "e" }, json: { error: { message: "no picture" } } });
      const answer = await ask(bed, { setting, path: CHAT.path, headers: routed(bed, EPD), body: mediaBody(bed.model, freshText(), [imagePart(address("a.png"))]) });
      expectStatus(found, "4xx", answer, 422);
      found.same("body and headers", [answer.body.toString("utf8"), headerLines(answer.headers, "x-engine")], ['{"error":{"message":"no picture"}}', ["e"]]);
      found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "1/0/0");
    }),
  ),
  scenario("the first failed item ends the other calls at once", { rows: ["C-EC-08"], needs: SIM_MEDIA }, async (bed, found) => {
    sim(bed.encode[0]).setScript({ delay_ms: 3000 });
    sim(bed.encode[1]).setScript({ status: 500, delay_ms: 30 });
    const startedAt = performance.now();
    const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, EPD), body: mediaBody(bed.model, freshText(), ["a", "b", "c"].map((name) => imagePart(address(`${name}.png`)))) });
    expectOwnError(found, "the failure", answer, 502);
    found.that(performance.now() - startedAt < 1500, "the answer waits for calls that no longer matter");
    found.that(await within(1000, () => legsNow(bed).encode.filter(({ engine }) => engine === "e0").every(({ aborted }) => aborted)), "the other encode calls go on");
    found.same("prefill and decode calls", [legsNow(bed).prefill.length, legsNow(bed).decode.length], [0, 0]);
  }),
];

// ---- usage ---------------------------------------------------------------------------------------------------------------------------------------------

/** Prefill answers as each API writes them, with 7 cached tokens. */
const PREFILL_USAGE: Readonly<Record<Shape["name"], string>> = {
  chat: '"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":7}},',
  completions: '"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":7}},',
  generate: '"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":7}},',
  messages: '"usage":{"input_tokens":50,"cache_read_input_tokens":7},',
  responses: '"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":7}},',
};

/** Decode answers with what the engine counted itself, where the number 7 belongs: `#`, and where what is left of 59: `@`. */
const DECODE_USAGE: Readonly<Record<Shape["name"], readonly string[]>> = {
  chat: ['{"choices":[{"message":{"content":"\\"usage\\":{}"}}], "usage" : {"prompt_tokens":50,"prompt_tokens_details" : { "cached_tokens":# },"total_tokens":9007199254740993},"x":1.0}', '{"usage":{"prompt_tokens":50,"prompt_tokens_details":{"a":1,"cached_tokens":#}}}'],
  completions: ['{"usage":{"prompt_tokens_details":{"cached_tokens":#,"x":null},"prompt_tokens":50},"choices":[]}'],
  generate: ['{"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":#}},"choices":[{"token_ids":[1,2]}]}'],
  messages: ['{"type":"message","content":[],"usage":{"input_tokens":@, "cache_read_input_tokens" : #,"output_tokens":3}}'],
  responses: ['{"object":"response","usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":#},"total_tokens":58},"output":[]}'],
};

/** Events of a stream, written as engines may: comments, names, CR LF, no JSON, text that only looks like usage. */
const DECODE_STREAM: Readonly<Record<Shape["name"], string>> = {
  chat: ': ping\n\ndata: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\ndata: {"choices":[{"delta":{"content":"\\"usage\\": é"}}],"usage":null}\n\ndata: "usage" is no JSON\n\nid: 7\r\nevent: x\r\ndata:{"choices":[],"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":#}}}\r\n\r\ndata: [DONE]\n\n',
  completions: 'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":#}}}\n\ndata: [DONE]\n\n',
  generate: 'data: {"choices":[{"token_ids":[1]}]}\n\ndata: {"choices":[],"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":#}}}\n\ndata: [DONE]\n\n',
  messages:
    'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":@,"cache_read_input_tokens":#,"output_tokens":0}}}\n\nevent: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}\n\nevent: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":3,"cache_read_input_tokens":#}}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
  responses:
    'event: response.created\ndata: {"type":"response.created","response":{"usage":null}}\n\nevent: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\nevent: response.completed\ndata: {"type":"response.completed","response":{"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":#}}}}\n\n',
};

const EVENT_STREAM = { "content-type": "text/event-stream; charset=utf-8" };

function bytewise(text: string): Buffer[] {
  const bytes = Buffer.from(text);
  return Array.from(bytes, (_, index) => bytes.subarray(index, index + 1));
}

const usage: readonly Scenario[] = [
  ...SHAPES.map((shape) =>
    scenario(`${shape.name}: the cached tokens of prefill in decode's usage, and no other byte changed`, { rows: ["C-NX-19", "C-NX-20", "C-NX-21", "C-NX-22", ...shapeRows(shape)], needs: SIM }, async (bed, found) => {
      for (const [cached, more] of [
        ["7", PREFILL_USAGE[shape.name]],
        ["0", ""],
      ] as const) {
        const templates = [...DECODE_USAGE[shape.name].map((text) => ({ text, stream: false })), { text: DECODE_STREAM[shape.name], stream: true }];
        for (const { text, stream } of templates) {
          sim(bed.prefill).setScript(prefillAnswer(oddParams(), more));
          const sent = text.replaceAll("#", "49").replaceAll("@", "10");
          sim(bed.decode).setScript(stream ? { headers: EVENT_STREAM, chunks: bytewise(sent) } : { status: 200, headers: { "content-type": "application/json" }, text: sent });
          const answer = await ask(bed, { path: shape.path, headers: routed(bed, PD), body: shape.body(bed.model, { stream }) });
          if (expectStatus(found, "P/D", answer, 200)) found.same(`${stream ? "stream" : "answer"}, ${cached} cached`, answer.body.toString("utf8"), text.replaceAll("#", cached).replaceAll("@", String(59 - Number(cached))));
          expectSingleHeaders(found, "P/D", answer);
        }
      }
    }),
  ),
  scenario("an engine that names no cached tokens gets them added, without an answer's usage nothing", { needs: SIM }, async (bed, found) => {
    const forms: readonly (readonly [string, string])[] = [
      ['{"usage":{"prompt_tokens":50,"prompt_tokens_details":null}}', '{"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":7}}}'],
      ['{"usage":{"prompt_tokens":50}}', '{"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":7}}}'],
      ['{"usage":{}}', '{"usage":{"prompt_tokens_details":{"cached_tokens":7}}}'],
      ['{"usage":null}', '{"usage":null}'],
      ['{"choices":[]}', '{"choices":[]}'],
      ["no JSON at all, with \"usage\"", "no JSON at all, with \"usage\""],
    ];
    for (const [sent, wanted] of forms) {
      sim(bed.prefill).setScript(prefillAnswer(oddParams(), PREFILL_USAGE.chat));
      sim(bed.decode).setScript({ status: 200, headers: { "content-type": "application/json" }, text: sent });
      found.same(sent, (await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) })).body.toString("utf8"), wanted);
    }
  }),
  scenario("an answer of 300 KB, in pieces, is rewritten too", { rows: ["C-NX-23"], needs: SIM }, async (bed, found) => {
    const text = `{"choices":[{"message":{"content":"${"x".repeat(300_000)}"}}],"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":#}}}`;
    sim(bed.prefill).setScript(prefillAnswer(oddParams(), PREFILL_USAGE.chat));
    const sent = Buffer.from(text.replace("#", "49"));
    sim(bed.decode).setScript({ headers: { "content-type": "application/json", "content-length": String(sent.length) }, chunks: Array.from({ length: 31 }, (_, index) => sent.subarray(index * 10_000, (index + 1) * 10_000)) });
    const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) });
    if (expectStatus(found, "P/D", answer, 200)) found.same("the answer", answer.body.toString("utf8"), text.replace("#", "7"));
  }),
  scenario("prefill's cached tokens by its cache: none on a cold prompt, some on a warm one", {}, async (bed, found) => {
    const body = CHAT.body(bed.model);
    const cached: string[] = [];
    for (const what of ["cold", "warm"]) {
      const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body });
      if (!expectStatus(found, what, answer, 200)) return;
      cached.push(textAt(answer.body, CHAT.cachedAt));
    }
    found.that(["0", "null", "absent"].includes(cached[0] ?? ""), `cold: ${String(cached[0])} cached tokens`);
    if (bed.via === "gateway") return;
    found.that(Number(cached[1]) > 0, `warm: ${String(cached[1])} cached tokens`);
    const { prefill } = await legsOf(bed);
    const warm = prefill[1];
    if (warm !== undefined) found.same("warm", cached[1], String(warm.cachedTokens));
  }),
  scenario("decode alone is not rewritten, compressed answers pass as they are", { needs: SIM }, async (bed, found) => {
    const text = DECODE_USAGE.chat[0] ?? "";
    sim(bed.decode).setScript({ status: 200, headers: { "content-type": "application/json" }, text });
    found.same("decode alone", (await ask(bed, { path: CHAT.path, body: CHAT.body(bed.model) })).body.toString("utf8"), text);
    const packed = gzipSync(text.replace("#", "49"));
    sim(bed.decode).setScript({ headers: { "content-type": "application/json", "content-encoding": "gzip", "content-length": String(packed.length) }, chunks: [packed] });
    const answer = await ask(bed, { path: CHAT.path, headers: [header("Accept-Encoding", "gzip")], body: CHAT.body(bed.model) });
    found.that(answer.body.equals(packed), "a compressed answer is not the engine's");
    found.same("content-encoding", headerLines(answer.headers, "content-encoding"), ["gzip"]);
    found.same("accept-encoding on decode alone", headerLines((await legsOf(bed)).decode.at(-1)?.rawHeaders ?? [], "accept-encoding"), ["gzip"]);
    const { script } = prefillAnswers(1);
    sim(bed.prefill).setScript(script);
    const split = await ask(bed, { path: CHAT.path, headers: [...routed(bed, PD), header("Accept-Encoding", "gzip")], body: CHAT.body(bed.model) });
    found.that(split.body.equals(packed), "a compressed answer of a split request is not the engine's");
  }),
];

// ---- streams -------------------------------------------------------------------------------------------------------------------------------------------

const GAP_MS = 60;
const PIECES = 6;

const streams: readonly Scenario[] = [
  ...[false, true].map((split) =>
    scenario(`each event leaves when it is complete, ${split ? "P/D" : "decode alone"}`, { rows: ["C-RT-11"], needs: SIM }, async (bed, found) => {
      if (split) sim(bed.prefill).setScript(prefillAnswers(1).script);
      const events = Array.from({ length: PIECES }, (_, index) => `data: {"choices":[{"delta":{"content":"${String(index)}"}}]}\n\n`);
      sim(bed.decode).setScript({ headers: EVENT_STREAM, chunks: events, gap_ms: GAP_MS });
      const arrivals: number[] = [];
      let text = "";
      const answer = await ask(bed, {
        path: CHAT.path,
        headers: routed(bed, split ? PD : {}),
        body: CHAT.body(bed.model, { stream: true }),
        onBody: (piece) => {
          text += piece.toString("utf8");
          while (arrivals.length < text.split("\n\n").length - 1) arrivals.push(performance.now());
        },
      });
      if (!expectStatus(found, "the stream", answer, 200)) return;
      found.same("the stream", answer.body.toString("utf8"), events.join(""));
      const gaps = arrivals.slice(1).map((at, index) => at - (arrivals[index] ?? 0));
      // A busy machine may join two of them, a sidecar that waits for the next one or the end joins the last two, or all.
      found.that(gaps.filter((gap) => gap > GAP_MS / 3).length >= PIECES - 3, `events come together: gaps of ${gaps.map((gap) => gap.toFixed(0)).join(", ")} ms where ${String(GAP_MS)} are between them`);
      found.that((gaps.at(-1) ?? 0) > GAP_MS / 3 || (gaps.at(-2) ?? 0) > GAP_MS * 1.5, `the last event but one was held back until the last: gaps of ${gaps.map((gap) => gap.toFixed(0)).join(", ")} ms`);
    }),
  ),
  scenario("a stream cut at every byte arrives byte for byte", { needs: SIM }, async (bed, found) => {
    const text = DECODE_STREAM.chat.replaceAll("#", "49");
    sim(bed.decode).setScript({ headers: EVENT_STREAM, chunks: bytewise(text) });
    const alone = await ask(bed, { path: CHAT.path, body: CHAT.body(bed.model, { stream: true }) });
    if (expectStatus(found, "decode alone", alone, 200)) found.same("decode alone", alone.body.toString("utf8"), text);
    // No end of line at the end, lines that never end, CR alone, an empty stream.
    for (const odd of ["data: 1", 'data: {"usage":1}\r\rdata: 2\r', "\n\n\n", 'x: {"usage":{}}\ndata\n:', ""]) {
      sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript({ headers: EVENT_STREAM, chunks: bytewise(odd) });
      const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model, { stream: true }) });
      if (expectStatus(found, "P/D", answer, 200)) found.same(JSON.stringify(odd), answer.body.toString("utf8"), odd);
    }
  }),
  scenario("a stream that breaks stays broken: no end is invented", { rows: ["C-RT-10"], needs: SIM, held: true }, async (bed, found) => {
    const events = ['data: {"choices":[{"delta":{"content":"a"}}]}\n\n', 'data: {"choices":[{"del'];
    for (const split of [false, true]) {
      if (split) sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript({ headers: EVENT_STREAM, chunks: events, gap_ms: 20, then: "reset" });
      const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, split ? PD : {}), body: CHAT.body(bed.model, { stream: true }) });
      const text = answer.body.toString("utf8");
      found.same(`${split ? "P/D" : "decode alone"}: status and end`, [answer.status, answer.end], [200, "broken"]);
      found.that(!text.includes("[DONE]"), "[DONE] was invented");
      found.that(text.startsWith(events[0] ?? "?") && events.join("").startsWith(text), `the stream is ${JSON.stringify(text)}`);
    }
    sim(bed.decode).setScript({ headers: { "content-type": "application/json" }, text: '{"half":', then: "reset" });
    const answer = await ask(bed, { path: CHAT.path, body: CHAT.body(bed.model) });
    found.that(answer.end !== "clean" || answer.status === 502, `half an answer ends clean with ${String(answer.status)}`);
  }),
  scenario("a client that reads nothing makes the engine wait", { needs: SIM }, async (bed, found) => {
    sim(bed.prefill).setScript(prefillAnswers(1).script);
    // More than all buffers of two connections hold.
    const event = Buffer.from(`data: {"choices":[{"delta":{"content":"${"x".repeat(250_000)}"}}]}\n\n`);
    sim(bed.decode).setScript({ headers: EVENT_STREAM, chunks: Array.from({ length: 100 }, () => event) });
    const close = await askUnread(bed, CHAT.path, routed(bed, PD), CHAT.body(bed.model, { stream: true }));
    found.that(await within(3000, () => legsNow(bed).decode.some(({ firstByteAtMs }) => firstByteAtMs !== null)), "decode did not begin to answer");
    found.that(!(await within(1200, () => legsNow(bed).decode[0]?.open !== true)), "the engine was rid of 25 MB that nobody has read");
    close();
    await expectAborted(found, "decode", () => legsNow(bed).decode);
  }),
  scenario("an error event in a stream is passed on", { needs: SIM }, async (bed, found) => {
    const text = 'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\ndata: {"error":{"message":"Internal server error","type":"InternalServerError","param":null,"code":500}}\n\ndata: [DONE]\n\n';
    sim(bed.prefill).setScript(prefillAnswers(1).script);
    sim(bed.decode).setScript({ headers: EVENT_STREAM, chunks: [text] });
    found.same("the stream", (await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model, { stream: true }) })).body.toString("utf8"), text);
  }),
  scenario("the engine's own answers pass whole: status, headers, body, trailers of none", { needs: SIM, engineErrors: true }, async (bed, found) => {
    for (const [status, text] of [
      [400, '{"error":{"message":"bad","code":400}}'],
      [404, '{"error":{"message":"The model does not exist."}}'],
      [429, "slow down"],
      [500, '{"error":{"message":"Internal server error"}}'],
      [204, ""],
    ] as const) {
      for (const split of [false, true]) {
        if (split) sim(bed.prefill).setScript(prefillAnswers(1).script);
        sim(bed.decode).setScript({ status, headers: { "content-type": "application/json", "x-engine": ["1", "2"], "set-cookie": ["a=1", "b=2"], connection: "x-hop, keep-alive", "x-hop": "1", "keep-alive": "timeout=9" }, ...(text === "" ? {} : { text }) });
        const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, split ? PD : {}), body: CHAT.body(bed.model) });
        const what = `${String(status)}${split ? ", P/D" : ""}`;
        expectStatus(found, what, answer, status);
        found.same(`${what}: body`, answer.body.toString("utf8"), text);
        for (const [name, values] of [
          ["x-engine", ["1", "2"]],
          ["set-cookie", ["a=1", "b=2"]],
          ["x-hop", []],
        ] as const) {
          found.same(`${what}: ${name}`, headerLines(answer.headers, name), values);
        }
        found.that(!headerLines(answer.headers, "keep-alive").join().includes("timeout=9"), `${what}: the engine's Keep-Alive was passed on`);
        expectSingleHeaders(found, what, answer);
      }
    }
  }),
];

// ---- clients that leave --------------------------------------------------------------------------------------------------------------------------------

interface Leaving {
  /** When the client leaves. */
  readonly when: () => boolean;
  readonly headers: readonly HeaderLine[];
  readonly body: string;
}

/** Sends a request and leaves when something holds; says when it never does. */
async function leaveWhen(bed: Bed, found: Findings, { when, headers: lines, body }: Leaving): Promise<void> {
  const leave = new AbortController();
  const answer = ask(bed, { path: CHAT.path, headers: lines, body, leave: leave.signal });
  found.that(await within(3000, when), "the moment to leave never came");
  leave.abort();
  await answer;
}

async function expectAborted(found: Findings, what: string, records: () => readonly EngineRecord[]): Promise<void> {
  const left = performance.now();
  found.that(await within(1000, () => records().every(({ aborted }) => aborted)), `${what} goes on ${(performance.now() - left).toFixed(0)} ms after the client left`);
}

const leaving: readonly Scenario[] = [
  scenario("a client that leaves in the middle of its body: no engine is called", { needs: SIM }, async (bed, found) => {
    const leave = new AbortController();
    const answer = ask(bed, { path: CHAT.path, headers: [...routed(bed, PD), header("Content-Length", "100000")], body: CHAT.body(bed.model), leave: leave.signal });
    await sleep(60);
    leave.abort();
    await answer;
    await sleep(60);
    found.same("calls (encode/prefill/decode)", counts(legsNow(bed)), "0/0/0");
  }),
  scenario("a client that leaves during encode: the encoders stop, nothing else begins", { rows: ["C-EC-09"], needs: SIM_MEDIA }, async (bed, found) => {
    for (const { sim: engine } of bed.encode) engine?.setScript({ delay_ms: 3000 });
    const body = mediaBody(bed.model, freshText(), Array.from({ length: 12 }, (_, index) => imagePart(address(`${String(index)}.png`))));
    await leaveWhen(bed, found, { when: () => legsNow(bed).encode.length >= 8, headers: routed(bed, EPD), body });
    await expectAborted(found, "encode", () => legsNow(bed).encode);
    await sleep(30);
    found.same("calls (encode/prefill/decode)", counts(legsNow(bed)), "8/0/0");
  }),
  scenario("a client that leaves during prefill: prefill stops, decode is never called, no blocks stay", { rows: ["C-NX-18"], needs: SIM }, async (bed, found) => {
    sim(bed.prefill).setScript({ delay_ms: 3000 });
    await leaveWhen(bed, found, { when: () => legsNow(bed).prefill.length === 1, headers: routed(bed, PD), body: CHAT.body(bed.model) });
    await expectAborted(found, "prefill", () => legsNow(bed).prefill);
    await sleep(30);
    found.same("calls (encode/prefill/decode)", counts(legsNow(bed)), "0/1/0");
  }),
  ...[false, true].map((stream) =>
    scenario(`a client that leaves after the hand-off: decode is still told, and the blocks are freed${stream ? " (streamed)" : ""}`, { needs: SIM, engineErrors: true }, async (bed, found) => {
      sim(bed.decode).setScript({ first_byte_delay_ms: 150 });
      await leaveWhen(bed, found, { when: () => legsNow(bed).decode.length === 1, headers: routed(bed, PD), body: CHAT.body(bed.model, { stream, limits: '"max_tokens":400,"ignore_eos":true,' }) });
      found.that(await within(2000, () => held(bed) === 0), "the blocks stay pinned");
      const legs = await legsOf(bed);
      found.same("calls (encode/prefill/decode)", counts(legs), "0/1/1");
      found.that(legs.decode[0]?.handoff?.found === true, "decode was ended before it had taken the blocks");
    }),
  ),
  scenario("a client that leaves before the engine has said a word ends its call", { needs: SIM }, async (bed, found) => {
    sim(bed.decode).setScript({ delay_ms: 3000 });
    for (const stream of [false, true]) {
      const calls = legsNow(bed).decode.length;
      await leaveWhen(bed, found, { when: () => legsNow(bed).decode.length > calls, headers: [], body: CHAT.body(bed.model, { stream }) });
      await expectAborted(found, "decode", () => legsNow(bed).decode);
    }
  }),
  scenario("a client that leaves between the legs: decode takes the blocks all the same", { needs: SIM, engineErrors: true }, async (bed, found) => {
    // The prefill answer is on its way when the client is gone: held back by the size of the hand-off's neighbour.
    const leave = new AbortController();
    const body = CHAT.body(bed.model);
    const answer = ask(bed, { path: CHAT.path, headers: routed(bed, PD), body, leave: leave.signal });
    found.that(await within(3000, () => legsNow(bed).prefill.some(({ firstByteAtMs }) => firstByteAtMs !== null)), "prefill did not answer");
    leave.abort();
    await answer;
    found.that(await within(2000, () => held(bed) === 0), "the blocks stay pinned");
    found.that((await legsOf(bed)).decode.length <= 1, "decode was called more than once");
  }),
  ...[false, true].map((split) =>
    scenario(`a client that leaves in the middle of a stream ends it at the engine, ${split ? "P/D" : "decode alone"}`, { needs: SIM }, async (bed, found) => {
      if (split) sim(bed.prefill).setScript(prefillAnswers(1).script);
      sim(bed.decode).setScript({ headers: EVENT_STREAM, chunks: Array.from({ length: 60 }, (_, index) => `data: {"choices":[{"delta":{"content":"${String(index)}"}}]}\n\n`), gap_ms: 50 });
      const leave = new AbortController();
      let seen = false;
      const answer = ask(bed, {
        path: CHAT.path,
        headers: routed(bed, split ? PD : {}),
        body: CHAT.body(bed.model, { stream: true }),
        leave: leave.signal,
        onBody: () => {
          seen = true;
        },
      });
      found.that(await within(3000, () => seen), "no event came");
      leave.abort();
      await answer;
      await expectAborted(found, "decode", () => legsNow(bed).decode);
    }),
  ),
];

// ---- prefill that fails --------------------------------------------------------------------------------------------------------------------------------

const PREFILL_FAILURES: readonly (readonly [string, ScriptEntry, number, "relayed" | "ours"])[] = [
  ["500", { status: 500, headers: { "content-type": "application/json", "x-engine": "p" }, text: '{"error": {"message":"p"}}' }, 500, "relayed"],
  ["503", { status: 503, headers: { "content-type": "text/plain", "x-engine": "p" }, text: "busy" }, 503, "relayed"],
  ["301", { status: 301, headers: { location: "/elsewhere", "x-engine": "p" }, text: "moved" }, 301, "relayed"],
  ["a reset", { tcp: "reset" }, 502, "ours"],
  ["an answer that breaks off", { headers: { "content-type": "application/json" }, text: '{"kv_tr', then: "reset" }, 502, "ours"],
];

const failures: readonly Scenario[] = [
  scenario("prefill that fails, fail: its answer or a typed 502, and decode is not called", { rows: ["C-NX-11", "C-NX-14", "C-NX-15"], needs: SIM }, async (bed, found) => {
    for (const [what, entry, status, from] of PREFILL_FAILURES) {
      sim(bed.prefill).setScript(entry);
      const answer = await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) });
      if (from === "ours") {
        expectOwnError(found, what, answer, status);
        continue;
      }
      expectStatus(found, what, answer, status);
      found.same(`${what}: body and header`, [answer.body.toString("utf8"), headerLines(answer.headers, "x-engine")], [entry.text ?? "", ["p"]]);
    }
    const closed = await freePort();
    expectOwnError(found, "refused", await ask(bed, { path: CHAT.path, headers: [header("x-prefiller-host-port", `127.0.0.1:${String(closed)}`)], body: CHAT.body(bed.model) }), 502);
    found.same("decode calls", (await legsOf(bed)).decode.length, 0);
  }),
  scenario("prefill that fails, local: decode alone with the client's own body", { setting: "local", needs: SIM }, async (bed, found) => {
    const bodies: string[] = [];
    const send = async (what: string, lines: readonly HeaderLine[]): Promise<void> => {
      const body = CHAT.body(bed.model);
      bodies.push(body);
      expectStatus(found, what, await ask(bed, { setting: "local", path: CHAT.path, headers: lines, body }), 200);
    };
    for (const [what, entry] of PREFILL_FAILURES) {
      sim(bed.prefill).setScript(entry);
      await send(what, routed(bed, PD));
    }
    await send("refused", [header("x-prefiller-host-port", `127.0.0.1:${String(await freePort())}`)]);
    await send("no address", [header("x-prefiller-host-port", "nonsense")]);
    const { decode } = await legsOf(bed);
    found.same("decode calls", decode.length, bodies.length);
    for (const [index, body] of bodies.entries()) found.that(decode[index]?.body.equals(Buffer.from(body)) === true, `decode ${String(index)}: not the client's body`);
  }),
  ...(["fail", "local"] as const).map((setting) =>
    scenario(`prefill's 4xx is the client's own error, ${setting}`, { rows: ["C-NX-13"], setting, needs: SIM, engineErrors: true }, async (bed, found) => {
      for (const status of [400, 404, 422, 429]) {
        const text = `{"error": {"message":"m ${String(status)}","param":"input_tokens"}}`;
        sim(bed.prefill).setScript({ status, headers: { "content-type": "application/json", "retry-after": "9", "x-engine": "p" }, text });
        const answer = await ask(bed, { setting, path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) });
        expectStatus(found, String(status), answer, status);
        found.same(`${String(status)}: body and headers`, [answer.body.toString("utf8"), headerLines(answer.headers, "x-engine"), headerLines(answer.headers, "retry-after")], [text, ["p"], ["9"]]);
        expectSingleHeaders(found, String(status), answer);
      }
      found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/4/0");
    }),
  ),
  scenario("prefill is tried again after 502, 503, 504 and a broken connection, and then serves", { rows: ["C-NX-10"], setting: "retry", needs: SIM }, async (bed, found) => {
    for (const entry of [{ status: 502 }, { status: 503, json: {} }, { status: 504 }, { tcp: "reset" as const }]) {
      await bed.clear();
      sim(bed.prefill).setScript([entry, {}]);
      const answer = await ask(bed, { setting: "retry", path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) });
      expectStatus(found, JSON.stringify(entry), answer, 200);
      const { prefill, decode } = await legsOf(bed);
      found.that(prefill.length >= 2 && prefill.length <= 3, `${JSON.stringify(entry)}: ${String(prefill.length)} prefill calls`);
      found.that(only(found, "decode", decode)?.handoff?.correct === true, `${JSON.stringify(entry)}: decode did not find its blocks`);
    }
  }),
  scenario("a prefiller that is gone: the header's next candidate is asked", { setting: "retry", needs: SIM }, async (bed, found) => {
    const closed = `127.0.0.1:${String(await freePort())}`;
    const answer = await ask(bed, { setting: "retry", path: CHAT.path, headers: [header("x-prefiller-host-port", `${closed},${bed.prefill.address}`)], body: CHAT.body(bed.model) });
    expectStatus(found, "the second candidate", answer, 200);
    const legs = await legsOf(bed);
    found.same("calls (encode/prefill/decode)", counts(legs), "0/1/1");
    found.that(legs.decode[0]?.handoff?.correct === true, "decode did not find its blocks");
  }),
  scenario("prefill is tried so often and no more", { rows: ["C-NX-12"], setting: "retry", needs: SIM }, async (bed, found) => {
    sim(bed.prefill).setScript({ status: 502, headers: { "x-engine": "p" }, text: "down" });
    const answer = await ask(bed, { setting: "retry", path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) });
    expectStatus(found, "always 502", answer, 502);
    found.same("calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/3/0");
  }),
  scenario("other answers of prefill are its last word", { rows: ["C-NX-13"], setting: "retry", needs: SIM, engineErrors: true }, async (bed, found) => {
    for (const status of [500, 501, 429, 404, 400, 301]) {
      await bed.clear();
      sim(bed.prefill).setScript({ status, text: "no" });
      expectStatus(found, String(status), await ask(bed, { setting: "retry", path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) }), status);
      found.same(`${String(status)}: calls (encode/prefill/decode)`, counts(await legsOf(bed)), "0/1/0");
    }
    await bed.clear();
    // It had begun to answer: its blocks may be pinned, and another prefill would pin more.
    sim(bed.prefill).setScript({ headers: { "content-type": "application/json" }, text: '{"kv', then: "reset" });
    expectOwnError(found, "half an answer", await ask(bed, { setting: "retry", path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) }), 502);
    found.same("half an answer: calls (encode/prefill/decode)", counts(await legsOf(bed)), "0/1/0");
  }),
  scenario("deadlines: a typed 504 for each stage, and its call is ended", { setting: "deadline", needs: SIM_MEDIA, engineErrors: true }, async (bed, found) => {
    const late = { delay_ms: 3000 };
    const stages: readonly (readonly [string, Simulated, Readonly<{ prefill?: boolean; encode?: boolean }>])[] = [
      ["encode", sim(bed.encode[0]), { encode: true }],
      ["prefill", sim(bed.prefill), PD],
      ["decode", sim(bed.decode), {}],
      ["decode of a split request", sim(bed.decode), PD],
    ];
    for (const [what, engine, stage] of stages) {
      await bed.clear();
      engine.setScript(late);
      const startedAt = performance.now();
      const answer = await ask(bed, { setting: "deadline", path: CHAT.path, headers: routed(bed, stage), body: mediaBody(bed.model, freshText(), [imagePart(address("a.png"))]) });
      expectOwnError(found, what, answer, 504);
      found.that(performance.now() - startedAt < 2000, `${what}: the deadline of 250 ms came after ${(performance.now() - startedAt).toFixed(0)} ms`);
      found.that(await within(1000, () => engine.records().every(({ open }) => !open)), `${what}: the call goes on`);
    }
  }),
  scenario("deadlines, local: the local engine does what it can alone", { setting: "deadline-local", needs: SIM_MEDIA }, async (bed, found) => {
    sim(bed.encode[0]).setScript({ delay_ms: 3000 });
    sim(bed.prefill).setScript({ delay_ms: 3000 });
    const body = mediaBody(bed.model, freshText(), [imagePart(address("a.png"))]);
    expectStatus(found, "both late", await ask(bed, { setting: "deadline-local", path: CHAT.path, headers: routed(bed, EPD), body }), 200);
    const { decode } = await legsOf(bed);
    found.that(only(found, "decode", decode)?.body.equals(Buffer.from(body)) === true, "decode's body is not the client's");
  }),
  scenario("an engine that is not there: 503 with Retry-After, no stage is spent on it, and it comes back", { rows: ["C-RT-08"], needs: SIM }, async (bed, found) => {
    sim(bed.decode).setScript({ tcp: "refused" });
    expectOwnError(found, "decode alone", await ask(bed, { path: CHAT.path, body: CHAT.body(bed.model) }), 503);
    expectOwnError(found, "P/D", await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) }), 503);
    expectOwnError(found, "/ready", await ask(bed, { method: "GET", path: "/ready" }), 503);
    found.same("prefill calls", legsNow(bed).prefill.length, 0);
    sim(bed.decode).setScript(null);
    let answer: Answer | null = null;
    for (let tries = 0; tries < 50 && answer?.status !== 200; tries++) {
      await sleep(10);
      answer = await ask(bed, { path: CHAT.path, headers: routed(bed, PD), body: CHAT.body(bed.model) });
    }
    found.same("when it is back", answer?.status, 200);
  }),
  scenario("an engine that breaks without an answer: a typed 502", { rows: ["C-RT-09"], needs: SIM }, async (bed, found) => {
    sim(bed.decode).setScript({ tcp: "reset" });
    expectOwnError(found, "decode alone", await ask(bed, { path: CHAT.path, body: CHAT.body(bed.model) }), 502);
    expectOwnError(found, "pass-through", await ask(bed, { path: "/v1/embeddings", body: `{"model":"${bed.model}","input":"x"}` }), 502);
  }),
];

export const SCENARIOS: readonly Scenario[] = [
  ...routes,
  ...localRoutes,
  ...limits,
  ...handoffs,
  ...whole,
  ...headers,
  ...controlMembers,
  ...refused,
  ...encodeStage,
  ...usage,
  ...streams,
  ...leaving,
  ...failures,
];

