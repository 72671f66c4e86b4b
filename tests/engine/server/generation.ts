/** A generation request: read, checked, and run, as a whole answer or as a stream. */

import { randomUUID } from "node:crypto";

import type { ApiRoute, GenerationRequest, ReadContext, WriteContext } from "../api/request.js";
import { inputItems } from "../api/responses.js";
import { DONE, SSE_TYPE } from "../api/sse.js";
import type { Leg } from "../core/services.js";
import { ApiError, ClientGone, EngineDeath, engineDeadError, internalError } from "../errors.js";
import type { Incarnation } from "../incarnation.js";
import { member, type JsonObject } from "../json.js";
import { distinctMedia } from "../media.js";
import type { ResolvedOptions } from "../options.js";
import type { Exchange } from "./exchange.js";
import type { AppHost } from "./host.js";

export function freshId(): string {
  return randomUUID().replaceAll("-", "");
}

export function seconds(): number {
  return Math.floor(Date.now() / 1000);
}

/** What the client gets to know of a failure. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof EngineDeath) return engineDeadError();
  return error instanceof ApiError ? error : internalError();
}

/** @throws ApiError, EngineDeath, ClientGone as long as nothing was sent */
export async function generate(host: AppHost, exchange: Exchange, route: ApiRoute, json: JsonObject): Promise<void> {
  const { options, life } = host;
  const { record } = exchange;
  if (route.shape === "generate" && !options.scaleOut) throw new ApiError(403, "This endpoint needs --enable-scale-out", null, "Forbidden");
  const context: ReadContext = {
    defaultModel: options.model[0] ?? "",
    requestId: exchange.header("x-request-id") ?? "",
    freshId: freshId(),
    storedResponse: (id) => life.responses.items(id),
  };
  const request = route.read(json, context);
  checkModel(options, request);
  checkMediaData(life, request);
  const leg: Leg = { stage: record.stage, record, signal: exchange.signal, header: (name) => exchange.header(name) };
  const write: WriteContext = { promptTokensDetails: options.promptTokensDetails, created: seconds() };
  const leave = life.useAdapter(request.model);
  try {
    if (record.stage === "encode") await encode(life, exchange, route, request, leg, write);
    else await run(host, exchange, route, request, leg, write, json);
  } finally {
    leave();
  }
}

async function encode(life: Incarnation, exchange: Exchange, route: ApiRoute, request: GenerationRequest, leg: Leg, write: WriteContext): Promise<void> {
  life.encoder.check(request, leg);
  const outcome = await life.encoder.answer(request, leg);
  if (!request.stream) {
    await exchange.json(200, route.full(request, outcome, write));
    return;
  }
  // A streamed encode leg gets no parameters (real-engine §6).
  await exchange.head(200, { "content-type": SSE_TYPE });
  for (const event of route.stream(request, write).start()) await exchange.write(event);
  await exchange.write(DONE);
  exchange.end();
}

async function run(host: AppHost, exchange: Exchange, route: ApiRoute, request: GenerationRequest, leg: Leg, write: WriteContext, json: JsonObject): Promise<void> {
  const { life } = host;
  life.connector.check(request, leg);
  life.core.check(request);
  if (request.stream) {
    await runStreamed(host, exchange, route, request, leg, write);
    return;
  }
  const outcome = await life.core.run(request, leg, null);
  const response = route.full(request, outcome, write);
  if (route.shape === "responses" && host.options.responsesStore && member(json, "store") !== false) {
    const items = inputItems(json, { storedResponse: (id) => life.responses.items(id) });
    const output = member(response, "output");
    life.responses.put(request.id, [...items, ...(Array.isArray(output) ? output : [])], response);
  }
  await exchange.json(200, response);
}

async function runStreamed(host: AppHost, exchange: Exchange, route: ApiRoute, request: GenerationRequest, leg: Leg, write: WriteContext): Promise<void> {
  const writer = route.stream(request, write);
  const send = async (events: string[]): Promise<void> => {
    for (const event of events) await exchange.write(event);
  };
  // The status line and the role chunk leave before any KV is there, but the work starts at once.
  const started = exchange.head(200, { "content-type": SSE_TYPE }).then(() => send(writer.start()));
  started.catch(() => undefined);
  try {
    const outcome = await host.life.core.run(request, leg, {
      token: async (choice, token, piece) => {
        await started;
        await send(writer.token(choice, token, piece));
      },
      finish: async (choice, finish) => {
        await started;
        await send(writer.finish(choice, finish));
      },
    });
    await started;
    await send(writer.end(outcome));
  } catch (error) {
    if (error instanceof ClientGone) throw error;
    if (error instanceof EngineDeath) host.die(error.reason);
    exchange.sendAnyway();
    await started;
    await send(writer.error(toApiError(error).body()));
  }
  exchange.end();
}

function checkModel(options: ResolvedOptions, request: GenerationRequest): void {
  if (!options.strictModels || options.model.includes(request.model) || options.loraAdapters.includes(request.model)) return;
  throw new ApiError(404, `The model \`${request.model}\` does not exist.`, "model");
}

/** A part with nothing but a `uuid` stands for bytes that this engine must have seen (real-engine §6). */
function checkMediaData(life: Incarnation, request: GenerationRequest): void {
  const items = request.prompts.flatMap((prompt) => distinctMedia(prompt.media));
  const counts = new Map<string, number>();
  for (const item of items) {
    const index = counts.get(item.modality) ?? 0;
    counts.set(item.modality, index + 1);
    if (item.uuidOnly !== null && !life.mediaUuids.has(`${item.modality}:${item.uuidOnly}`)) {
      throw new ApiError(400, `Cache miss for ${item.modality} at index ${String(index)} but data is not provided.`, "messages");
    }
    if (item.uuid !== null) life.mediaUuids.add(`${item.modality}:${item.uuid}`);
  }
}
