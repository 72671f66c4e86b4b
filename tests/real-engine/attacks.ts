/** Requests that end a real decoder, or make it lie, when they reach it: here they come from clients, and must not. */
import { deflateSync, gzipSync } from "node:zlib";
import { expect, it } from "vitest";
import { type HeaderLine, send } from "../fleet/http.js";
import { compact, JsonNumber, type JsonObject, parse } from "../cases/json.js";
import { textAt } from "../wire/json-text.js";
import { freshText, type Shape, SHAPES } from "../wire/shapes.js";
import { MODEL } from "./engine.js";
import { sourcesOf } from "./sources.js";
import { decisionOf, PATIENCE_MS, type Stack } from "./stack.js";

/** Text of transfer parameters, by what is wrong with them. All are made of a genuine hand-off. */
export type Deadly = Readonly<Record<"flat block ids" | "no request id" | "of a shorter prompt" | "a port where nobody listens" | "not an object", string>>;

/** What the prefiller hands over for a prompt of a block or so, whoever asks; nobody fetches it, and its lease ends by itself. */
async function handoff(stack: Stack): Promise<JsonObject> {
  const body = { model: MODEL, prompt: `pier ${freshText().slice(0, 36)}`, max_tokens: 1, kv_transfer_params: { do_remote_decode: true, do_remote_prefill: false } };
  const answer = await stack.prefill.engine.post("/v1/completions", body);
  const { value } = parse(textAt(answer.body, "kv_transfer_params"));
  if (!(value instanceof Map)) throw new Error(`no hand-off: ${answer.body.toString("utf8", 0, 300)}`);
  return value;
}

export async function deadly(stack: Stack): Promise<Deadly> {
  const genuine = await handoff(stack);
  const text = (change: (params: JsonObject) => void): string => {
    const params = new Map(genuine);
    change(params);
    return compact(params);
  };
  return {
    "flat block ids": text((params) => params.set("remote_block_ids", (genuine.get("remote_block_ids") as JsonNumber[][]).flat())),
    "no request id": text((params) => params.delete("remote_request_id")),
    "of a shorter prompt": text(() => undefined),
    "a port where nobody listens": text((params) => params.set("remote_port", new JsonNumber("1"))),
    "not an object": '"x"',
  };
}

/** Text of top-level members, with a comma in front, that put the parameters where an engine follows them. */
const PLACES: readonly (readonly [string, (params: string) => string])[] = [
  ["at the top", (params) => `,"kv_transfer_params":${params},"ec_transfer_params":{"x":{"peer_host":"127.0.0.1"}}`],
  ["under a name with escapes", (params) => `,"kv\\u005ftransfer_params":${params}`],
  ["twice", (params) => `,"kv_transfer_params":null,"kv_transfer_params":${params}`],
  ["in vllm_xargs", (params) => `,"vllm_xargs":{"kv_transfer_params":${params}}`],
  ["in extra_args", (params) => `,"sampling_params":{"max_tokens":8,"temperature":0,"extra_args":{"kv_transfer_params":${params}}}`],
];

function bodyOf(shape: Shape, members: string): string {
  const ownSampling = /^,"sampling_params":(.*)$/.exec(members)?.[1];
  if (shape.limitsIn === "" || ownSampling === undefined) return shape.body(MODEL, { more: members });
  // The route's own member, so that there are not two of it.
  return shape.body(MODEL).replace(/"sampling_params":\{[^}]*\}/, `"sampling_params":${ownSampling}`);
}

function utf32(text: string, mark: boolean, bigEndian = false): Buffer {
  const points = Array.from(`${mark ? "\ufeff" : ""}${text}`, (character) => character.codePointAt(0) ?? 0);
  const bytes = Buffer.alloc(points.length * 4);
  points.forEach((point, index) => (bigEndian ? bytes.writeUInt32BE(point, index * 4) : bytes.writeUInt32LE(point, index * 4)));
  return bytes;
}

interface Form {
  readonly name: string;
  readonly encode: (text: string) => Buffer;
  readonly headers?: readonly HeaderLine[];
  /** What a client is told: 200, where the body is read and cleaned. */
  readonly status: number;
}

const FORMS: readonly Form[] = [
  { name: "UTF-8", encode: (text) => Buffer.from(text), status: 200 },
  { name: "UTF-8 with a mark", encode: (text) => Buffer.from(`\ufeff${text}`), status: 200 },
  { name: "gzip", encode: gzipSync, headers: [["content-encoding", "gzip"]], status: 200 },
  { name: "deflate", encode: deflateSync, headers: [["content-encoding", "deflate"]], status: 200 },
  { name: "UTF-16 LE", encode: (text) => Buffer.from(text, "utf16le"), status: 400 },
  { name: "UTF-16 LE with a mark", encode: (text) => Buffer.from(`\ufeff${text}`, "utf16le"), status: 400 },
  { name: "UTF-16 BE", encode: (text) => Buffer.from(text, "utf16le").swap16(), status: 400 },
  { name: "UTF-32 LE", encode: (text) => utf32(text, false), status: 400 },
  { name: "UTF-32 LE with a mark", encode: (text) => utf32(text, true), status: 400 },
  { name: "UTF-32 BE", encode: (text) => utf32(text, false, true), status: 400 },
  { name: "with NaN", encode: (text) => Buffer.from(text.replace("{", '{"x":NaN,')), status: 400 },
  { name: "UTF-16 that says so", encode: (text) => Buffer.from(`\ufeff${text}`, "utf16le"), headers: [["content-type", "application/json; charset=utf-16"]], status: 400 },
];

/** Ways in: through Envoy, and at the sidecar's own door, which is what a pod's neighbour can reach. */
type Way = "through Envoy" | "at the sidecar";
const WAYS: readonly Way[] = ["through Envoy", "at the sidecar"];

/** Other paths that read a body; what an engine says of them is its own business. */
const OTHER_PATHS: readonly (readonly [string, string])[] = [
  ["/v1/chat/completions/", '"messages":[{"role":"user","content":"x"}],"max_tokens":2'],
  ["//v1/./chat/completions", '"messages":[{"role":"user","content":"x"}],"max_tokens":2'],
  ["/v1/chat/completions/batch", '"messages":[[{"role":"user","content":"x"}],[{"role":"user","content":"which pier"}]],"max_tokens":2'],
  ["/v1/chat/completions/render", '"messages":[{"role":"user","content":"x"}],"max_tokens":2'],
  ["/v1/messages/count_tokens", '"messages":[{"role":"user","content":"x"}]'],
  ["/v1/systemone", '"state":"x","questions":{}'],
  ["/v1/embeddings", '"input":"x"'],
  ["/tokenize", '"prompt":"x"'],
];

/** Paths of this engine that are a client's: all others of its own list must be closed. */
const OPEN = [/^\/v1\//, /^\/(?:tokenize|detokenize|health|ping|version|metrics)$/, /^\/inference\/v1\/generate$/];

export function attackTests(stack: () => Stack): void {
  let door = Promise.resolve({ host: "", port: 0 });
  const targets = async (way: Way): Promise<{ host: string; port: number }> => {
    if (way === "through Envoy") return stack().envoy.listen;
    if ((await door).port === 0) door = stack().door("attacked", []);
    return door;
  };
  const post = async (way: Way, path: string, body: Buffer | string, headers: readonly HeaderLine[] = []): ReturnType<typeof send> => {
    const { host, port } = await targets(way);
    const typed = headers.some(([name]) => name === "content-type");
    return send({ host, port, method: "POST", path, headers: typed ? headers : [["content-type", "application/json"], ...headers], body: Buffer.from(body), timeoutMs: PATIENCE_MS });
  };
  /** Status lines that are not the wanted one. */
  const wrong = async (tries: readonly { readonly what: string; readonly status: number; readonly ask: () => ReturnType<typeof send> }[]): Promise<string[]> => {
    const found: string[] = [];
    const left = [...tries];
    // A handful at once: engines work in batches.
    await Promise.all(
      Array.from({ length: 6 }, async () => {
        for (let next = left.shift(); next !== undefined; next = left.shift()) {
          const answer = await next.ask();
          if (answer.status !== next.status || answer.end !== "clean") found.push(`${next.what}: ${String(answer.status)}, ${answer.end}: ${answer.body.toString("utf8", 0, 160)}`);
        }
      }),
    );
    return found;
  };
  const unharmed = async (): Promise<void> => {
    expect(await stack().fallen()).toEqual([]);
  };

  it.each(WAYS)("parameters that end an engine, in every place of every API, %s", async (way) => {
    const params = await deadly(stack());
    const before = await sourcesOf(stack().decode.engine);
    const tries = SHAPES.flatMap((shape) => PLACES.map(([place, members]) => ({ what: `${shape.name}, ${place}`, status: 200, ask: () => post(way, shape.path, bodyOf(shape, members(params["flat block ids"]))) })));
    expect(await wrong(tries)).toEqual([]);
    await unharmed();
    // At the sidecar's own door nothing asks for a prefiller: what the decoder took from one, a client's parameters made it take.
    if (way === "at the sidecar") expect((await sourcesOf(stack().decode.engine)).external).toBe(before.external);
  });

  it.each(WAYS)("every kind of parameters that kill, hang or mislead an engine, %s", async (way) => {
    const params = await deadly(stack());
    const tries = SHAPES.flatMap((shape) => Object.entries(params).map(([kind, text]) => ({ what: `${shape.name}, ${kind}`, status: 200, ask: () => post(way, shape.path, shape.body(MODEL, { more: `,"kv_transfer_params":${text}` })) })));
    const lists = [
      ["of equal lengths", ["pier pier pier", "tide tide tide"]],
      ["of unequal lengths", ["pier", freshText()]],
    ] as const;
    for (const [what, prompt] of lists) {
      for (const [kind, text] of Object.entries(params)) {
        tries.push({ what: `prompts ${what}, ${kind}`, status: 200, ask: () => post(way, "/v1/completions", `{"model":"${MODEL}","max_tokens":4,"prompt":${JSON.stringify(prompt)},"kv_transfer_params":${text}}`) });
      }
    }
    expect(await wrong(tries)).toEqual([]);
    await unharmed();
  });

  it.each(WAYS)("the same in every encoding that a real engine reads, %s", async (way) => {
    const params = await deadly(stack());
    const tries = SHAPES.flatMap((shape) =>
      FORMS.map(({ name, encode, headers, status }) => ({ what: `${shape.name}, ${name}`, status, ask: () => post(way, shape.path, encode(shape.body(MODEL, { more: `,"kv_transfer_params":${params["flat block ids"]}` })), headers) })),
    );
    expect(await wrong(tries)).toEqual([]);
    await unharmed();
  });

  it.each(WAYS)("the same on paths that are only passed through, %s", async (way) => {
    const params = await deadly(stack());
    for (const [path, members] of OTHER_PATHS) {
      for (const [, place] of PLACES) {
        const answer = await post(way, path, `{"model":"${MODEL}",${members}${place(params["flat block ids"])}}`);
        expect(answer.end, path).toBe("clean");
        // 501: what this engine has no model for.
        if (answer.status !== 501) expect(answer.status, path).toBeLessThan(500);
      }
    }
    await unharmed();
  });

  it.each(WAYS)("the operators' paths of a real engine are closed, %s", async (way) => {
    const { paths } = JSON.parse((await stack().decode.engine.get("/openapi.json")).body.toString("utf8")) as { paths: Record<string, Record<string, unknown>> };
    const closed = Object.entries(paths).filter(([path]) => !OPEN.some((open) => open.test(path)));
    // A list that says little would show little.
    expect(closed.map(([path]) => path)).toEqual(expect.arrayContaining(["/sleep", "/collective_rpc", "/reset_prefix_cache", "/update_weights", "/inference/v1/abort_requests", "/kv_event_sources", "/invocations"]));
    const { host, port } = await targets(way);
    const reached: string[] = [];
    for (const [path, methods] of closed) {
      for (const method of Object.keys(methods)) {
        const { status } = await send({ host, port, method: method.toUpperCase(), path, headers: [["content-type", "application/json"]], body: method === "get" ? null : Buffer.from('{"level":1,"method":"x"}'), timeoutMs: PATIENCE_MS });
        if (status !== 404) reached.push(`${method} ${path}: ${String(status)}`);
      }
    }
    expect(reached).toEqual([]);
    expect(textAt((await stack().decode.engine.get("/is_sleeping")).body, "is_sleeping")).toBe("false");
    await unharmed();
  });

  it("routing headers of a client do not reach the sidecar", async () => {
    const body = { model: MODEL, max_tokens: 4, messages: [{ role: "user", content: "x" }] };
    const answer = await stack().ask("/v1/chat/completions", body, { headers: [["x-prefiller-host-port", "127.0.0.1:1"], ["x-encoder-hosts-ports", "127.0.0.1:1"], ["x-data-parallel-host-port", "127.0.0.1:1"]] });
    expect(answer.status).toBe(200);
    expect(decisionOf(answer).decision).toBe("decode-only");
  });
}
