/** What reached the engines, and what holds of every leg whatever the scenario is about. */
import { setTimeout as sleep } from "node:timers/promises";
import type { EngineRecord, Stage } from "../engine/index.js";
import { headerLines } from "../fleet/http.js";
import { type Bed, type EngineFace, facesOf } from "./bed.js";
import type { Findings } from "./findings.js";
import { isJson, stringAt } from "./json-text.js";

/** Every value that a scenario's hostile client writes into a control member or a routing header holds it: it must be in nothing that an engine gets. */
export const MARK = "client-made";

export type Legs = Readonly<Record<Stage, readonly EngineRecord[]>>;

/** How long the last leg may take to end after the client's answer: records are complete then. */
const SETTLE_MS = 1500;

/** The calls of simulated engines that were read to their end, by stage, in order of start; all lists are empty on real ones. */
export async function legsOf(bed: Bed): Promise<Legs> {
  await settle(bed);
  return legsNow(bed);
}

/** The same without waiting for what is still open. */
export function legsNow(bed: Bed): Legs {
  const calls = recordsOf(bed).filter(({ modelCall, readAtMs }) => modelCall && readAtMs !== null);
  const of = (stage: Stage): EngineRecord[] => calls.filter((record) => record.stage === stage).sort((a, b) => a.startedAtMs - b.startedAtMs);
  return { encode: of("encode"), prefill: of("prefill"), decode: of("decode") };
}

/** What those ask who watch an engine: readiness, gateways, these tests. */
const WATCHED = ["/metrics", "/health"];

/** Everything that clients caused: not what watchers ask, and not the connections that a script refused. */
function recordsOf(bed: Bed): EngineRecord[] {
  return facesOf(bed)
    .flatMap(({ sim }) => sim?.records() ?? [])
    .filter(({ method, path }) => method !== "" && !(method === "GET" && WATCHED.includes(path)));
}

/** Waits until no call is open, as long as that may take by right. */
export async function settle(bed: Bed): Promise<void> {
  await Promise.all(facesOf(bed).map(({ sim }) => sim?.idle(SETTLE_MS)));
}

/** Waits until something holds; false when it does not come about. */
export async function within(ms: number, holds: () => boolean): Promise<boolean> {
  const until = performance.now() + ms;
  while (!holds()) {
    if (performance.now() > until) return false;
    await sleep(3);
  }
  return true;
}

/** Hand-offs that the prefiller keeps blocks for. */
export function held(bed: Bed): number {
  return bed.prefill.sim?.state().heldTransfers.length ?? 0;
}

/** Sum of a metric's samples whose labels have these values. */
export async function metric(face: EngineFace, name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
  const samples = (await face.metrics()).filter((sample) => sample.name === name && Object.entries(labels).every(([label, value]) => sample.labels[label] === value));
  return samples.reduce((sum, { value }) => sum + value, 0);
}

/** What an engine of any kind says it has done. */
export interface Work {
  /** Requests that ended well. */
  readonly served: number;
  /** Prompt tokens that came from another engine. */
  readonly externalTokens: number;
}

/** Engines write their counters a moment after the answer. */
const COUNTED_WITHIN_MS = 2000;

/** What an engine has done since `before`, once it says that it served so many requests, or has had the time to. */
export async function workSince(face: EngineFace, before: Work, served: number): Promise<Work> {
  const until = performance.now() + COUNTED_WITHIN_MS;
  for (;;) {
    const now = await workOf(face);
    if (now.served - before.served >= served || performance.now() > until) return { served: now.served - before.served, externalTokens: now.externalTokens - before.externalTokens };
    await sleep(20);
  }
}

export async function workOf(face: EngineFace): Promise<Work> {
  const [stop, length] = [await metric(face, "vllm:request_success_total", { finished_reason: "stop" }), await metric(face, "vllm:request_success_total", { finished_reason: "length" })];
  return { served: stop + length, externalTokens: await metric(face, "vllm:prompt_tokens_by_source_total", { source: "external_kv_transfer" }) };
}

/** Calls by stage as `encode/prefill/decode`. */
export function counts({ encode, prefill, decode }: Legs): string {
  return `${String(encode.length)}/${String(prefill.length)}/${String(decode.length)}`;
}

/** What must not pass a sidecar; a list of the tests' own, so that a name that is missing in the product is missed here. */
export const ROUTING_HEADERS = [
  "x-prefiller-host-port",
  "x-encoder-hosts-ports",
  "x-kv-cache-source-host-port",
  "x-data-parallel-host-port",
  "x-data-parallel-rank",
  "x-prefiller-url",
  "x-gateway-destination-endpoint",
  "x-gateway-destination-endpoint-subset",
  "x-envoy-original-dst-host",
] as const;
const HOP_BY_HOP = ["keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"] as const;

export interface Allowances {
  /** The scenario makes engines complain: by a request that is wrong, or a script. */
  readonly engineErrors?: boolean;
  /** The scenario leaves blocks pinned by right. */
  readonly held?: boolean;
  /** A call may still be open: the scenario is about one that nothing ends. */
  readonly open?: boolean;
}

/** Rules that hold for every leg of every request (DESIGN decisions 5, 8; HDR-06, HDR-09, HDR-10). */
export async function standingRules(bed: Bed, found: Findings, allowed: Allowances): Promise<void> {
  const legs = await legsOf(bed);
  for (const record of recordsOf(bed)) headerRules(record, found);
  for (const stage of ["encode", "prefill", "decode"] as const) for (const record of legs[stage]) bodyRules(record, legs, found);
  const used = legs.decode.map(({ body }) => stringAt(body, "kv_transfer_params.remote_request_id")).filter((id) => id !== "");
  found.that(new Set(used).size === used.length, "a hand-off was given to decode twice");
  for (const { name, sim } of facesOf(bed)) {
    if (sim === null) continue;
    const { dead, openRequests } = sim.state();
    found.that(dead === null, `${name} died: ${String(dead)}`);
    if (allowed.open !== true) found.that(openRequests === 0, `${name}: ${String(openRequests)} call(s) still open long after the answer`);
  }
  if (allowed.engineErrors !== true) {
    for (const { engine, stage, error } of Object.values(legs).flat()) found.that(error === null, `${engine} complains about its ${stage} leg: ${String(error)}`);
  }
  if (allowed.held !== true) found.that(await within(SETTLE_MS, () => held(bed) === 0), `${String(held(bed))} hand-off(s) still pin blocks`);
}

function headerRules(record: EngineRecord, found: Findings): void {
  const leg = `${record.engine} ${record.method} ${record.path}`;
  const { rawHeaders } = record;
  for (const name of ROUTING_HEADERS) found.that(headerLines(rawHeaders, name).length === 0, `${leg}: routing header ${name} reached the engine`);
  for (const name of HOP_BY_HOP) found.that(headerLines(rawHeaders, name).length === 0, `${leg}: hop-by-hop header ${name} reached the engine`);
  for (const [name, value] of rawHeaders) {
    if (value.includes(MARK)) found.that(false, `${leg}: the header ${name} holds what a client must not send`);
  }
  const connection = headerLines(rawHeaders, "connection").join();
  found.that(connection === "" || connection === "keep-alive" || connection === "close", `${leg}: Connection: ${connection}`);
  found.same(`${leg}: x-request-id lines`, headerLines(rawHeaders, "x-request-id").length, 1);
  found.that(headerLines(rawHeaders, "host").length === 1, `${leg}: ${String(headerLines(rawHeaders, "host").length)} Host lines`);
  if (record.readAtMs !== null && record.method === "POST") found.same(`${leg}: content-length`, headerLines(rawHeaders, "content-length"), [String(record.body.length)]);
  if (record.stage !== "decode") found.that(headerLines(rawHeaders, "accept-encoding").length === 0, `${leg}: Accept-Encoding on a leg whose answer must be read`);
}

/** What control members a leg may have: those that stages make, never a client's. */
function bodyRules(record: EngineRecord, legs: Legs, found: Findings): void {
  const leg = `${record.engine} ${record.path}`;
  const text = record.body.toString("utf8");
  found.that(!text.includes(MARK), `${leg}: the body holds what a client must not send`);
  if (record.body.length > 0 && record.method === "POST") found.that(isJson(stripBom(record.body)), `${leg}: the body is no JSON in UTF-8`);
  const handedOver = (stage: Stage): boolean => legs[stage].some(({ status, startedAtMs }) => status >= 200 && status < 300 && startedAtMs <= record.startedAtMs);
  const may = new Set<string>();
  if (record.stage === "prefill" || (record.stage === "decode" && handedOver("prefill"))) may.add("kv_transfer_params");
  if (record.stage !== "encode" && handedOver("encode")) may.add("ec_transfer_params");
  for (const member of record.controlMembers) found.that(may.has(member), `${leg}: control member ${member} reached the engine`);
}

function stripBom(body: Buffer): Buffer {
  return body.subarray(0, 3).equals(Buffer.from([0xef, 0xbb, 0xbf])) ? body.subarray(3) : body;
}
