/** The engine's HTTP face: routes, authorization, scripts, and what becomes of a failure. */

import { GENERATION_PATHS, generationRoute } from "../api/index.js";
import { answerPooling, POOLING_PATHS } from "../api/pooling.js";
import type { ApiRoute } from "../api/request.js";
import { countTokens, detokenize, tokenize } from "../api/tokenize.js";
import { controlMembers } from "../control-members.js";
import { noteError } from "../core/services.js";
import { sleep } from "../core/time.js";
import { ApiError, ClientGone, EngineDeath, engineDeadError, NoHandler } from "../errors.js";
import type { Incarnation } from "../incarnation.js";
import { isObject, JsonError, member, parseJsonBytes, type Json, type JsonObject } from "../json.js";
import type { ResolvedOptions } from "../options.js";
import { replacesAnswer } from "../script.js";
import { stageOf } from "../stage.js";
import type { Exchange } from "./exchange.js";
import { freshId, generate, seconds, toApiError } from "./generation.js";
import type { AppHost } from "./host.js";
import { playScript } from "./script-player.js";

/** Paths that a client must never reach (real-engine §4): the engine does as it is told, and the record says that it was. */
export const CONTROL_PATHS: readonly string[] = [
  "/sleep",
  "/wake_up",
  "/is_sleeping",
  "/pause",
  "/resume",
  "/is_paused",
  "/collective_rpc",
  "/reset_prefix_cache",
  "/reset_mm_cache",
  "/reset_encoder_cache",
  "/update_weights",
  "/init_weight_transfer_engine",
  "/scale_elastic_ep",
  "/v1/load_lora_adapter",
  "/v1/unload_lora_adapter",
  "/inference/v1/abort_requests",
  "/kv_event_sources",
  "/server_info",
];

const TOKEN_PATHS: readonly string[] = ["/tokenize", "/detokenize", "/v1/messages/count_tokens"];

/** Paths of the calls that scripts and call counts speak of, when they are POSTed. */
export const MODEL_PATHS: readonly string[] = [...GENERATION_PATHS, ...POOLING_PATHS, ...TOKEN_PATHS, "/invocations"];

const VERSION = "0.32.0";

export async function serve(host: AppHost, exchange: Exchange, path: string): Promise<void> {
  try {
    await answer(host, exchange, path);
  } catch (error) {
    await fail(host, exchange, error);
  }
}

/** What the client gets of a failure, as long as nothing was sent. */
async function fail(host: AppHost, exchange: Exchange, error: unknown): Promise<void> {
  if (error instanceof EngineDeath) host.die(error.reason);
  else if (error instanceof ClientGone) return;
  else if (!(error instanceof ApiError)) noteError(exchange.record, `simulator: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
  if (exchange.headersSent) {
    exchange.reset();
    return;
  }
  exchange.sendAnyway();
  await exchange.error(toApiError(error)).catch(() => undefined);
}

async function answer(host: AppHost, exchange: Exchange, path: string): Promise<void> {
  const { options } = host;
  const { record } = exchange;
  const method = exchange.request.method ?? "GET";
  const body = await exchange.readBody();
  const parsed = parseLeniently(body);
  const known = parsed instanceof JsonError ? undefined : parsed;
  record.json = known;
  record.controlMembers = controlMembers(known);
  record.stage = stageOf(options.role, known);
  if (record.modelCall && (await applyScript(host, exchange))) return;
  if (host.dead !== null) throw engineDeadError();
  if (options.requireApiKey !== undefined && path.startsWith("/v1") && exchange.header("authorization") !== `Bearer ${options.requireApiKey}`) {
    await exchange.json(401, { error: "Unauthorized" });
    return;
  }
  if (method === "GET" || method === "HEAD") {
    await answerGet(host, exchange, path);
    return;
  }
  if (CONTROL_PATHS.includes(path)) {
    if (path === "/reset_prefix_cache") host.life.services.pool.resetCache();
    await exchange.json(200, {});
    return;
  }
  if (path === "/ping" && method === "POST") {
    await exchange.bytes(200, null, Buffer.alloc(0));
    return;
  }
  if (!MODEL_PATHS.includes(path)) throw notFound();
  if (method !== "POST") throw new NoHandler(405);
  const json = requireObject(exchange, parsed, body.length);
  if (POOLING_PATHS.includes(path)) await answerPoolingCall(host, exchange, path, json);
  else if (path === "/tokenize") await exchange.json(200, tokenize(json, options.maxModelLen));
  else if (path === "/detokenize") await exchange.json(200, detokenize(json));
  else if (path === "/v1/messages/count_tokens") await exchange.json(200, countTokens(json));
  else await generate(host, exchange, routeOf(path, json), json);
}

function notFound(): ApiError {
  return new NoHandler(404);
}

/** `/invocations` is whatever its body looks like. */
function routeOf(path: string, json: JsonObject): ApiRoute {
  const route = generationRoute(path === "/invocations" ? (member(json, "messages") === undefined ? "/v1/completions" : "/v1/chat/completions") : path);
  if (route === undefined) throw notFound();
  return route;
}

function parseLeniently(body: Buffer): Json | JsonError {
  if (body.length === 0) return null;
  try {
    return parseJsonBytes(body);
  } catch (error) {
    if (error instanceof JsonError) return error;
    throw error;
  }
}

/** @throws ApiError 400 as FastAPI and vLLM's media type check give it */
function requireObject(exchange: Exchange, parsed: Json | JsonError, bytes: number): JsonObject {
  const mediaType = (exchange.header("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase();
  if (mediaType !== "application/json") throw new ApiError(400, "Unsupported Media Type: Only 'application/json' is allowed", null, "Bad Request");
  if (parsed instanceof JsonError) {
    noteError(exchange.record, `body is not JSON: ${parsed.message}`);
    if (parsed.kind === "encoding") throw new ApiError(400, "There was an error parsing the body", null, "Bad Request");
    throw new ApiError(400, `1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', ${String(parsed.offset)}), 'msg': 'JSON decode error', 'ctx': {'error': '${parsed.message}'}}`, String(parsed.offset), "Bad Request");
  }
  if (bytes === 0) throw new ApiError(400, "1 validation error:\n  {'type': 'missing', 'loc': ('body',), 'msg': 'Field required'}", null, "Bad Request");
  if (!isObject(parsed)) throw new ApiError(400, "1 validation error:\n  {'type': 'model_attributes_type', 'loc': ('body',), 'msg': 'Input should be a valid dictionary'}", null, "Bad Request");
  return parsed;
}

/** True when the script has given the answer. */
async function applyScript(host: AppHost, exchange: Exchange): Promise<boolean> {
  const { record } = exchange;
  const entry = host.takeScript(record.stage);
  if (entry === null) return false;
  record.scripted = true;
  const idleMs = entry.close_idle_after_ms;
  if (idleMs !== undefined) closeIdle(exchange, idleMs);
  if (replacesAnswer(entry)) {
    await playScript(exchange, entry);
    return true;
  }
  if (entry.headers !== undefined) exchange.addHeaders(entry.headers);
  await sleep(entry.first_byte_delay_ms ?? 0, exchange.signal);
  // A decoder that is slow to answer has its blocks; a prefiller or encoder that is slow has nothing to give yet.
  if (record.stage === "decode") exchange.holdHead(sleep(entry.delay_ms ?? 0, exchange.signal));
  else await sleep(entry.delay_ms ?? 0, exchange.signal);
  return false;
}

function closeIdle(exchange: Exchange, afterMs: number): void {
  const { socket } = exchange.request;
  exchange.onAnswered(() => {
    const requestsBefore = socket.bytesRead;
    const timer = setTimeout(() => {
      // Nothing came since: the connection is idle.
      if (socket.bytesRead === requestsBefore) socket.end();
    }, afterMs);
    timer.unref();
  });
}

async function answerGet(host: AppHost, exchange: Exchange, path: string): Promise<void> {
  const { options, life } = host;
  const { services } = life;
  if (path === "/health" || path === "/ping") await exchange.bytes(200, null, Buffer.alloc(0));
  else if (path === "/version") await exchange.json(200, { version: VERSION });
  else if (path === "/load") await exchange.json(200, { server_load: host.openCalls() });
  else if (path === "/metrics") await exchange.bytes(200, services.metrics.contentType, Buffer.from(await services.metrics.text()));
  else if (path === "/v1/models") await exchange.json(200, models(options));
  else if (path.startsWith("/v1/responses/")) await storedResponse(life, exchange, path.slice("/v1/responses/".length));
  else if (CONTROL_PATHS.includes(path)) await exchange.json(200, {});
  else if (MODEL_PATHS.includes(path)) throw new NoHandler(405);
  else throw notFound();
}

async function storedResponse(life: Incarnation, exchange: Exchange, id: string): Promise<void> {
  const response = life.responses.response(id);
  if (response === null) throw new ApiError(404, `Response with id '${id}' not found.`, "response_id");
  await exchange.json(200, response);
}

function models(options: ResolvedOptions): JsonObject {
  const created = Math.floor(Date.now() / 1000);
  const root = options.model[0] ?? "";
  const entry = (id: string, parent: string | null): JsonObject => ({
    id,
    object: "model",
    created,
    owned_by: "vllm",
    root: id,
    parent,
    max_model_len: options.maxModelLen === 0 ? options.numBlocks * options.blockSize : options.maxModelLen,
    permission: [],
  });
  return { object: "list", data: [...options.model.map((id) => entry(id, null)), ...options.loraAdapters.map((id) => entry(id, root))] };
}

async function answerPoolingCall(host: AppHost, exchange: Exchange, path: string, json: JsonObject): Promise<void> {
  const { options, life } = host;
  const { scheduler } = life.services;
  await scheduler.admit(exchange.signal, () => true);
  try {
    const context = { id: exchange.header("x-request-id") ?? freshId(), created: seconds(), defaultModel: options.model[0] ?? "", dimensions: options.embeddingDimensions };
    const { promptTokens, json: answered } = answerPooling(path, json, context);
    exchange.record.promptTokens = promptTokens;
    await sleep(promptTokens * options.msPerPrefillToken, exchange.signal);
    await exchange.json(200, answered);
  } finally {
    scheduler.leave();
  }
}
