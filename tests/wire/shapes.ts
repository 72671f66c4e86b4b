/** The five orchestrated APIs as a client writes and reads them. */
import { randomInt, randomUUID } from "node:crypto";
import { stringAt } from "./json-text.js";

/** Bytes that no re-writing keeps: big integers, `1.0`, exponents, escapes, a name twice, white space, an order of its own. */
const NOISE = '"x_note" : { "z":9007199254740993, "a":[1.0,1E2,-0.0e-3], "t":"\\u0041\\/\\u00e9é" },\t"user":"first",\n "user" : "s\\u0065cond"';

const EIGHT = '"max_tokens":8,';
const LEDGER = "the harbour office keeps a ledger of every vessel that enters the bay, with its tide, cargo and berth. ";

export interface BodyOptions {
  readonly stream?: boolean;
  /** Text of the members that limit the answer, each with a comma behind; eight tokens by default. */
  readonly limits?: string;
  /** Text of further members of the top level, each with a comma in front. */
  readonly more?: string;
}

export interface Shape {
  readonly name: "chat" | "completions" | "messages" | "responses" | "generate";
  readonly path: string;
  /** Object of the request that holds the limits; empty: the top level. */
  readonly limitsIn: "" | "sampling_params";
  /** Limits that a prefill leg must set to one token. */
  readonly limits: readonly string[];
  /** Members of the top level that a prefill leg may differ in from what the client sent. */
  readonly prefillEdits: readonly string[];
  /** Last `data:` or `event:` line of a whole stream. */
  readonly lastLine: string;
  /** A body that nobody has sent before: about a hundred tokens, greedy. */
  body(model: string, options?: BodyOptions): string;
  /** What the model said. */
  textOf(body: Buffer, stream: boolean): string;
  /** Where the answer's cached-token count stands; in a stream in the last event that has it. */
  readonly cachedAt: string;
}

/** Text that stands in no cache yet. */
export function freshText(): string {
  return `${randomUUID()} ${LEDGER.repeat(4)}`;
}

function freshIds(): number[] {
  return Array.from({ length: 100 }, () => 5 + randomInt(200));
}

/** `data:` payloads of an event stream, in order. */
export function dataOf(body: Buffer): string[] {
  return body
    .toString("utf8")
    .split(/\r\n|\r|\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice("data:".length).trimStart());
}

function joined(body: Buffer, path: string): string {
  return dataOf(body)
    .map((data) => stringAt(data, path))
    .join("");
}

function streamText({ stream = false, usage = true }: { stream?: boolean; usage?: boolean }): string {
  if (!stream) return '"stream":false';
  return usage ? '"stream":true,"stream_options":{"include_usage":true}' : '"stream":true';
}

const chat: Shape = {
  name: "chat",
  path: "/v1/chat/completions",
  limitsIn: "",
  limits: ["max_tokens", "max_completion_tokens", "min_tokens"],
  prefillEdits: ["max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options", "kv_transfer_params"],
  lastLine: "data: [DONE]",
  body: (model, { stream = false, limits = EIGHT, more = "" } = {}) =>
    `{${NOISE},"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"${freshText()}"}],"temperature":0,${limits}${streamText({ stream })},"model":"${model}"${more}}`,
  textOf: (body, stream) => (stream ? joined(body, "choices.0.delta.content") : stringAt(body, "choices.0.message.content")),
  cachedAt: "usage.prompt_tokens_details.cached_tokens",
};

const completions: Shape = {
  name: "completions",
  path: "/v1/completions",
  limitsIn: "",
  limits: ["max_tokens", "min_tokens"],
  prefillEdits: ["max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options", "kv_transfer_params"],
  lastLine: "data: [DONE]",
  body: (model, { stream = false, limits = EIGHT, more = "" } = {}) =>
    `{${NOISE},"prompt":"${freshText()}","temperature":0,${limits}${streamText({ stream })},"model":"${model}"${more}}`,
  textOf: (body, stream) => (stream ? joined(body, "choices.0.text") : stringAt(body, "choices.0.text")),
  cachedAt: "usage.prompt_tokens_details.cached_tokens",
};

const messages: Shape = {
  name: "messages",
  path: "/v1/messages",
  limitsIn: "",
  limits: ["max_tokens"],
  prefillEdits: ["max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options", "kv_transfer_params"],
  lastLine: "event: message_stop",
  body: (model, { stream = false, limits = EIGHT, more = "" } = {}) =>
    `{${NOISE},"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"${freshText()}"}]}],"temperature":0,${limits}${streamText({ stream, usage: false })},"model":"${model}"${more}}`,
  textOf: (body, stream) => (stream ? joined(body, "delta.text") : stringAt(body, "content.0.text")),
  cachedAt: "usage.cache_read_input_tokens",
};

const responses: Shape = {
  name: "responses",
  path: "/v1/responses",
  limitsIn: "",
  limits: ["max_output_tokens"],
  prefillEdits: ["max_output_tokens", "store", "stream", "stream_options", "kv_transfer_params"],
  lastLine: "event: response.completed",
  body: (model, { stream = false, limits = '"max_output_tokens":8,', more = "" } = {}) =>
    `{${NOISE},"instructions":"Be brief.","input":[{"role":"user","content":"${freshText()}"}],"temperature":0,${limits}${streamText({ stream, usage: false })},"model":"${model}"${more}}`,
  textOf: (body, stream) => (stream ? joined(body, "delta") : stringAt(body, "output.0.content.0.text")),
  cachedAt: "usage.input_tokens_details.cached_tokens",
};

const generate: Shape = {
  name: "generate",
  path: "/inference/v1/generate",
  limitsIn: "sampling_params",
  limits: ["max_tokens", "min_tokens"],
  prefillEdits: ["sampling_params", "stream", "stream_options", "kv_transfer_params"],
  lastLine: "data: [DONE]",
  body: (model, { stream = false, limits = EIGHT, more = "" } = {}) =>
    `{${NOISE},"token_ids":${JSON.stringify(freshIds())},"sampling_params":{ ${limits}"temperature":0.0,"seed":9007199254740993 },${streamText({ stream })},"model":"${model}"${more}}`,
  // Token ids in, token ids out: each choice's list as it stands.
  textOf: (body, stream) => (stream ? dataOf(body) : [body.toString("utf8")]).map((data) => /"token_ids":\[([^\]]*)\]/.exec(data)?.[1] ?? "").filter((ids) => ids !== "").join(","),
  cachedAt: "usage.prompt_tokens_details.cached_tokens",
};

export const SHAPES: readonly Shape[] = [chat, completions, messages, responses, generate];
export const CHAT = chat;
