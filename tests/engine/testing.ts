/** Helpers for specs that talk to engines. */

import { request as httpRequest, type IncomingHttpHeaders } from "node:http";

import type { JsonObject } from "./json.js";
import type { Engine, EngineOptions } from "./types.js";
import { startEngine } from "./engine.js";

export interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  text: string;
  /** The parsed body, an empty object when it is not JSON. */
  json: Record<string, unknown>;
  /** `data:` payloads of a stream, `[DONE]` included. */
  data: string[];
  /** `event:` names of a stream. */
  events: string[];
  /** The connection broke before the answer's end. */
  broken: boolean;
}

export interface Send {
  method?: string;
  headers?: Record<string, string | string[]>;
  /** An object is sent as JSON. */
  body?: unknown;
  signal?: AbortSignal;
}

/** One request over a connection of its own. Rejects when no answer begins. */
export function send(url: string, path: string, options: Send = {}): Promise<Reply> {
  const target = new URL(path, url);
  const raw = options.body instanceof Uint8Array || typeof options.body === "string";
  const body = options.body === undefined ? undefined : raw ? (options.body as Uint8Array | string) : JSON.stringify(options.body);
  const type = body === undefined ? {} : { "content-type": "application/json" };
  return new Promise((resolve, reject) => {
    let answered = false;
    const request = httpRequest(
      target,
      { method: options.method ?? (body === undefined ? "GET" : "POST"), agent: false, headers: { ...type, ...options.headers }, ...(options.signal === undefined ? {} : { signal: options.signal }) },
      (response) => {
        answered = true;
        const pieces: Buffer[] = [];
        const done = (broken: boolean): void => {
          resolve(readReply(response.statusCode ?? 0, response.headers, Buffer.concat(pieces).toString("utf8"), broken));
        };
        response.on("data", (piece: Buffer) => pieces.push(piece));
        response.on("end", () => {
          done(false);
        });
        response.on("error", () => {
          done(true);
        });
      },
    );
    request.on("error", (error) => {
      // Once an answer has begun its own error tells of a broken connection.
      if (!answered) reject(error);
    });
    request.end(body);
  });
}

function readReply(status: number, headers: IncomingHttpHeaders, text: string, broken: boolean): Reply {
  const lines = text.split("\n");
  let json: Record<string, unknown> = {};
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null) json = value as Record<string, unknown>;
  } catch {
    // A stream, or no JSON at all.
  }
  return {
    status,
    headers,
    text,
    json,
    data: lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)),
    events: lines.filter((line) => line.startsWith("event: ")).map((line) => line.slice(7)),
    broken,
  };
}

/** The member at a dotted path, undefined when there is none. */
export function at(value: unknown, path: string): unknown {
  let current = value;
  for (const name of path.split(".")) {
    if (typeof current !== "object" || current === null) return undefined;
    current = (current as Record<string, unknown>)[name];
  }
  return current;
}

/** Text of the first choice of a chat answer, streamed or not. */
export function chatText(reply: Reply): string {
  if (reply.data.length === 0) return String(at(reply.json, "choices.0.message.content"));
  return reply.data
    .filter((line) => line !== "[DONE]")
    .map((line) => at(JSON.parse(line), "choices.0.delta.content") ?? "")
    .join("");
}

export const NIXL_PREFILL: JsonObject = {
  do_remote_decode: true,
  do_remote_prefill: false,
  remote_engine_id: null,
  remote_block_ids: null,
  remote_host: null,
  remote_port: null,
};

/** A chat body of about `tokens` prompt tokens, different for every `topic`. */
export function chatBody(topic: string, tokens = 60, more: JsonObject = {}): JsonObject {
  const text = `${topic} and the harbour office keeps a ledger of every vessel `.repeat(Math.ceil(tokens / 12)).slice(0, tokens * 4);
  return { model: "m", messages: [{ role: "user", content: text }], temperature: 0, max_tokens: 8, ...more };
}

/** A prefill leg made from a chat body, in the form that the strict engine wants. */
export function prefillLeg(body: JsonObject): JsonObject {
  const leg: JsonObject = { ...body, max_tokens: 1, max_completion_tokens: 1, min_tokens: 1, stream: false, kv_transfer_params: NIXL_PREFILL };
  delete leg["stream_options"];
  return leg;
}

/** For `expect.poll` on a machine that others use too. */
export const PATIENT = { timeout: 15_000, interval: 5 };

/** Starts engines and closes what a spec has started. */
export class EngineHouse {
  private readonly engines: Engine[] = [];

  async start(options: EngineOptions): Promise<Engine> {
    const engine = await startEngine(options);
    this.engines.push(engine);
    return engine;
  }

  async closeAll(): Promise<void> {
    await Promise.all(this.engines.splice(0).map((engine) => engine.close()));
  }
}

/** Samples of one family of a Prometheus text, by their labels. */
export async function metric(url: string, name: string, labels = ""): Promise<number | undefined> {
  const { text } = await send(url, "/metrics");
  const line = text.split("\n").find((candidate) => (candidate.startsWith(`${name}{`) || candidate.startsWith(`${name} `)) && candidate.includes(labels));
  return line === undefined ? undefined : Number(line.slice(line.lastIndexOf(" ") + 1));
}
