/**
 * The simulated engine held against the real one: the same request to both, and the forms of the answers compared. What differs is listed in differences.json, by request and with
 * the reason; a difference that is not there fails, and so does one that is there and is gone. CROSSPOINT_UPDATE_DIFFERENCES=1 writes the lines anew and keeps the reasons.
 */
import { randomUUID } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compact, JsonNumber, type JsonObject, parse } from "../cases/json.js";
import { type Engine, startEngine } from "../engine/index.js";
import { type Answer, type HeaderLine, send } from "../fleet/http.js";
import { inRoot } from "../fleet/root.js";
import { scrape } from "../wire/simulated.js";
import { freshText, SHAPES } from "../wire/shapes.js";
import { BLOCK_TOKENS, BLOCKS, MODEL } from "./engine.js";
import { difference, outline } from "./outline.js";
import { PATIENCE_MS, type Stack } from "./stack.js";

const FILE = inRoot("tests", "real-engine", "differences.json");
/** Differences that may be there or not, in whatever answer. */
const SOMETIMES = "sometimes";
type Differences = Readonly<Record<string, { readonly why: string; readonly lines: readonly string[] }>>;

interface Target {
  readonly host: string;
  readonly port: number;
}
type Pair = Readonly<Record<"prefill" | "decode", Target>>;

interface Probe {
  readonly name: string;
  readonly run: (engines: Pair) => Promise<Answer>;
}

const PREFILL = '"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}';

function ask(target: Target, path: string, body: string | null, { method = "POST", headers = [["content-type", "application/json"]] as readonly HeaderLine[] } = {}): Promise<Answer> {
  return send({ host: target.host, port: target.port, method, path, headers: body === null ? [] : headers, body: body === null ? null : Buffer.from(body), timeoutMs: PATIENCE_MS });
}

function chat(members: string): string {
  return `{"model":"${MODEL}","messages":[{"role":"user","content":"${freshText()}"}],"temperature":0,"ignore_eos":true${members}}`;
}

/** A decode leg whose hand-off is the prefiller's own, changed. */
function handed(members: string, change: (params: JsonObject) => void = () => undefined): Probe["run"] {
  return async ({ prefill, decode }) => {
    const text = freshText();
    const body = (more: string): string => `{"model":"${MODEL}","messages":[{"role":"user","content":"${text}"}],"temperature":0,"ignore_eos":true${more}}`;
    const { value } = parse((await ask(prefill, "/v1/chat/completions", body(`,"max_tokens":1,${PREFILL}`))).body);
    const params = value instanceof Map ? value.get("kv_transfer_params") : null;
    if (!(params instanceof Map)) throw new Error("no hand-off");
    change(params);
    return ask(decode, "/v1/chat/completions", body(`${members},"kv_transfer_params":${compact(params)}`));
  };
}

/** An engine that the decoder has not met yet, where nobody listens. (One that it has met it does not look up again.) */
function nobodyThere(params: JsonObject): void {
  params.set("remote_engine_id", randomUUID());
  params.set("remote_port", new JsonNumber("1"));
}

const toDecode = (name: string, path: string, body: string | null, more: { method?: string; headers?: readonly HeaderLine[] } = {}): Probe => ({ name, run: ({ decode }) => ask(decode, path, body, more) });
const toPrefill = (name: string, path: string, body: string): Probe => ({ name, run: ({ prefill }) => ask(prefill, path, body) });

function probes(): Probe[] {
  const shapes = SHAPES.flatMap((shape) => [
    ...[false, true].map((stream) => toDecode(`${shape.name}${stream ? ", streamed" : ""}`, shape.path, shape.body(MODEL, { stream, more: ',"ignore_eos":true' }))),
    toPrefill(`${shape.name}, prefill leg`, shape.path, shape.body(MODEL, { limits: shape.name === "responses" ? '"max_output_tokens":1,"store":false,' : '"max_tokens":1,', more: `,${PREFILL}` })),
  ]);
  const path = "/v1/chat/completions";
  return [
    ...shapes,
    // The prefill leg's form, as real-engine §4 has it.
    toPrefill("prefill leg, streamed", path, chat(`,"max_tokens":1,"stream":true,${PREFILL}`)),
    toPrefill("prefill leg of no token", path, chat(`,"max_tokens":0,${PREFILL}`)),
    toPrefill("prefill leg with parameters that are text", path, chat(',"max_tokens":1,"kv_transfer_params":"x"')),
    toPrefill("parameters that are null", path, chat(',"max_tokens":1,"kv_transfer_params":null')),
    toPrefill("parameters that are empty", path, chat(',"max_tokens":1,"kv_transfer_params":{}')),
    toPrefill("do_remote_decode as text", path, chat(',"max_tokens":1,"kv_transfer_params":{"do_remote_decode":"true"}')),
    toPrefill("prefill leg of two prompts", "/v1/completions", `{"model":"${MODEL}","prompt":["pier","${freshText()}"],"max_tokens":1,${PREFILL}}`),
    toPrefill("prefill leg beyond the context", "/v1/completions", `{"model":"${MODEL}","prompt":"${"tide ".repeat(4000)}","max_tokens":1,${PREFILL}}`),
    // The decode leg.
    { name: "decode leg", run: handed(',"max_tokens":8') },
    { name: "decode leg, streamed", run: handed(',"max_tokens":8,"stream":true,"stream_options":{"include_usage":true}') },
    { name: "decode leg of another engine's id", run: handed(',"max_tokens":8', (params) => params.set("remote_engine_id", "0f0f0f0f-0000-4000-8000-000000000000")) },
    { name: "decode leg to a closed side channel", run: handed(',"max_tokens":8', nobodyThere) },
    { name: "decode leg to a closed side channel, streamed", run: handed(',"max_tokens":8,"stream":true', nobodyThere) },
    // What clients ask.
    toDecode("logprobs", path, chat(',"max_tokens":4,"logprobs":true,"top_logprobs":2')),
    toDecode("two choices", path, chat(',"max_tokens":4,"n":2')),
    toDecode("a list of prompts", "/v1/completions", `{"model":"${MODEL}","prompt":["pier","${freshText()}"],"max_tokens":4,"ignore_eos":true}`),
    toDecode("token ids as a prompt", "/v1/completions", `{"model":"${MODEL}","prompt":[5,6,7,8],"max_tokens":4,"ignore_eos":true}`),
    toDecode("usage in every event", path, chat(',"max_tokens":4,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}')),
    toDecode("another model", path, chat(',"max_tokens":4').replace(`"model":"${MODEL}"`, '"model":"none"')),
    toDecode("no messages", path, `{"model":"${MODEL}"}`),
    toDecode("messages that are text", path, `{"model":"${MODEL}","messages":"x"}`),
    toDecode("a negative limit", path, chat(',"max_tokens":-1')),
    toDecode("JSON that breaks off", path, '{"model":'),
    toDecode("another content type", path, chat(""), { headers: [["content-type", "text/plain"]] }),
    toDecode("a prompt beyond the context", "/v1/completions", `{"model":"${MODEL}","prompt":"${"tide ".repeat(4000)}","max_tokens":4}`),
    toDecode("GET of a POST path", path, null, { method: "GET" }),
    toDecode("no such path", "/v1/nothing", "{}"),
    toDecode("GET /health", "/health", null, { method: "GET" }),
    toDecode("GET /version", "/version", null, { method: "GET" }),
    toDecode("GET /ping", "/ping", null, { method: "GET" }),
    toDecode("GET /v1/models", "/v1/models", null, { method: "GET" }),
    toDecode("POST /tokenize", "/tokenize", `{"model":"${MODEL}","prompt":"pier"}`),
    toDecode("POST /detokenize", "/detokenize", `{"model":"${MODEL}","tokens":[5,6]}`),
    toDecode("count_tokens", "/v1/messages/count_tokens", `{"model":"${MODEL}","messages":[{"role":"user","content":"pier"}]}`),
  ];
}

export function simulatorTests(stack: () => Stack): void {
  const update = process.env["CROSSPOINT_UPDATE_DIFFERENCES"] === "1";
  const known = JSON.parse(readFileSync(FILE, "utf8")) as Differences;
  const found: Record<string, Differences[string]> = {};
  let simulated: { prefill: Engine; decode: Engine };
  beforeAll(async () => {
    const options = { model: [MODEL], strictModels: true, strictness: "real" as const, blockSize: BLOCK_TOKENS, numBlocks: BLOCKS, maxModelLen: 2048, maxNumSeqs: 16 };
    simulated = { prefill: await startEngine({ ...options, role: "prefill" }), decode: await startEngine({ ...options, role: "decode" }) };
  });
  afterAll(async () => {
    await Promise.all([simulated.prefill.close(), simulated.decode.close()]);
    if (update) writeFileSync(FILE, `${JSON.stringify(found, null, 2)}\n`);
  });
  // What depends on the words: a text of random tokens can end, or consist of, half a character.
  const sometimes = known[SOMETIMES];
  if (sometimes !== undefined) found[SOMETIMES] = sometimes;
  const judge = (name: string, all: readonly string[]): void => {
    const lines = all.filter((line) => sometimes?.lines.includes(line) !== true);
    const why = known[name]?.why ?? "";
    if (lines.length > 0) found[name] = { why, lines };
    if (update) return;
    expect(lines).toEqual(known[name]?.lines ?? []);
    expect(lines.length === 0 || why !== "", "a reason in differences.json").toBe(true);
  };

  it.each(probes().map((probe) => [probe.name, probe] as const))("the simulated engine answers as the real one, but for what is listed: %s", async (name, { run }) => {
    const answer = await run({ prefill: stack().prefill.engine, decode: stack().decode.engine });
    // No answer is no form: it must not get into the list.
    expect({ end: answer.end, answered: answer.status !== null }).toEqual({ end: "clean", answered: true });
    const real = outline(answer);
    judge(name, difference(real, outline(await run(simulated))));
    expect(await stack().fallen()).toEqual([]);
  });

  it("every metric of the simulated engine is one of the real one's, with its labels", async () => {
    const forms = async (target: Target): Promise<Map<string, string>> => new Map((await scrape(target.host, target.port)).map(({ name, labels }) => [name, Object.keys(labels).filter((label) => label !== "le").sort().join(",")]));
    const real = await forms(stack().decode.engine);
    const lines = [...(await forms(simulated.decode))].filter(([name]) => name.startsWith("vllm:")).flatMap(([name, labels]) => (real.get(name) === undefined ? [`+ ${name}`] : real.get(name) === labels ? [] : [`${name}: ${real.get(name) ?? ""} / ${labels}`]));
    judge("metrics", lines.sort());
  });

  it("lists no difference of a request that is not made", () => {
    const names = [...probes().map(({ name }) => name), "metrics", SOMETIMES];
    expect(Object.keys(known).filter((name) => !names.includes(name))).toEqual([]);
  });
}
