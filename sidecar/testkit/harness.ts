import { type ClientRequest, request as httpRequest, type IncomingMessage, type OutgoingHttpHeaders } from "node:http";
import { request as httpsRequest } from "node:https";
import { pino } from "pino";
import { valuesOf } from "../headers.js";
import { parseOptions, type SidecarOptions } from "../options.js";
import { type Sidecar, startSidecar } from "../server.js";
import type { Tracing } from "../telemetry/trace.js";
import type { TestUpstream } from "./upstream.js";

export interface Answered {
  readonly status: number;
  readonly rawHeaders: readonly string[];
  readonly body: string;
  /** The answer came to its proper end. */
  readonly whole: boolean;
}

export interface Ask {
  readonly method?: string;
  readonly target?: string;
  /** Names and values in turn. */
  readonly headers?: readonly string[];
  readonly body?: string | Buffer | readonly (string | Buffer)[];
}

/** A running sidecar on a free port of loopback, in front of `decoder`. Flags as on the command line; the port is chosen by the system. */
export async function startTestSidecar(decoder: TestUpstream | number, flags: readonly string[] = [], change: Partial<SidecarOptions> = {}, logLines: string[] = [], tracing?: Tracing): Promise<Sidecar> {
  const port = typeof decoder === "number" ? decoder : decoder.port;
  const { options } = parseOptions(["--secure-proxy=false", "--listen-address=127.0.0.1", "--decoder-host=127.0.0.1", `--model-server-port=${String(port)}`, "--log-level=debug", ...flags], {});
  const log = pino({ level: options.logLevel }, { write: (line: string) => void logLines.push(line) });
  return startSidecar({ ...options, port: 0, ...change }, { log, ...(tracing === undefined ? {} : { tracing }) });
}

/** Sends a request on a connection of its own. */
export function open(url: string, { method = "POST", target = "/v1/chat/completions", headers = [], body }: Ask): { readonly request: ClientRequest; readonly head: Promise<IncomingMessage> } {
  const { protocol, hostname, port } = new URL(url);
  const listed = valuesOf(headers, "host").length > 0 ? headers : ["host", `${hostname}:${port}`, ...headers];
  const named = body === undefined || valuesOf(headers, "content-type").length > 0 ? listed : [...listed, "content-type", "application/json"];
  const length = typeof body === "string" || Buffer.isBuffer(body) ? ["content-length", String(Buffer.byteLength(body))] : [];
  // Node takes lists of lines as headers; its types do not say so.
  const lines = [...named, ...length, "connection", "close"] as unknown as OutgoingHttpHeaders;
  const options = { host: hostname.replace(/^\[(.*)\]$/, "$1"), port, method, path: target, headers: lines, agent: false as const, rejectUnauthorized: false };
  const request = protocol === "https:" ? httpsRequest(options) : httpRequest(options);
  const head = new Promise<IncomingMessage>((resolve, reject) => {
    request.once("response", resolve);
    request.on("error", reject);
  });
  head.catch(() => undefined);
  if (body === undefined) request.end();
  else if (typeof body === "string" || Buffer.isBuffer(body)) request.end(body);
  else {
    for (const piece of body) request.write(piece);
    request.end();
  }
  return { request, head };
}

export async function ask(url: string, what: Ask): Promise<Answered> {
  const response = await open(url, what).head;
  const chunks: Buffer[] = [];
  const whole = await new Promise<boolean>((resolve) => {
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    response.once("end", () => {
      resolve(response.complete);
    });
    response.once("error", () => {
      resolve(false);
    });
    response.once("aborted", () => {
      resolve(false);
    });
  });
  return { status: response.statusCode ?? 0, rawHeaders: response.rawHeaders, body: Buffer.concat(chunks).toString(), whole };
}

/** The value of a counter or gauge with exactly these labels; 0 when it was never touched. */
export async function metric(sidecar: Sidecar, name: string, labels: Record<string, string | number> = {}): Promise<number> {
  const found = await sidecar.metrics.registry.getSingleMetric(`crosspoint_sidecar_${name}`)?.get();
  const wanted = Object.entries(labels);
  const values = (found?.values ?? []).filter((value) => wanted.every(([label, expected]) => String(Reflect.get(value.labels, label)) === String(expected)));
  return values.reduce((sum, { value }) => sum + value, 0);
}

export function errorOf(answered: Answered): { message: string; type: string; param: string | null; code: number } {
  return (JSON.parse(answered.body) as { error: { message: string; type: string; param: string | null; code: number } }).error;
}

export function header(answered: Pick<Answered, "rawHeaders">, name: string): string[] {
  return valuesOf(answered.rawHeaders, name);
}
