/** Requests of scenarios, and what a client may expect of any answer of ours. */
import { connect } from "node:net";
import { headerLines, send, type Answer, type HeaderLine } from "../fleet/http.js";
import type { Bed, Setting } from "./bed.js";
import type { Findings } from "./findings.js";
import { isJson, stringAt, textAt } from "./json-text.js";

export interface Ask {
  readonly setting?: Setting;
  readonly method?: string;
  readonly path: string;
  readonly headers?: readonly HeaderLine[];
  readonly body?: string | Buffer | null;
  /** Instead of a whole body: pieces, one write each. */
  readonly chunks?: readonly Buffer[];
  readonly trailers?: readonly HeaderLine[];
  /** The client leaves when it is aborted. */
  readonly leave?: AbortSignal;
  readonly timeoutMs?: number;
  readonly onBody?: (piece: Buffer) => void;
}

/** Sends a request to the bed's door. Never rejects. */
export async function ask(bed: Bed, { setting = "fail", method = "POST", path, headers = [], body = null, chunks, trailers, leave, timeoutMs, onBody }: Ask): Promise<Answer> {
  const door = bed.doors[setting];
  if (door === undefined) throw new Error(`the bed has no door "${setting}"`);
  const hasBody = body !== null || chunks !== undefined;
  const typed = headers.some(([name]) => name.toLowerCase() === "content-type");
  return send({
    host: door.host,
    port: door.port,
    method,
    path,
    headers: [...(hasBody && !typed ? [["Content-Type", "application/json"] as HeaderLine] : []), ...headers],
    body: typeof body === "string" ? Buffer.from(body) : body,
    ...(chunks === undefined ? {} : { chunks }),
    ...(trailers === undefined ? {} : { trailers }),
    ...(leave === undefined ? {} : { leave }),
    ...(onBody === undefined ? {} : { onBody }),
    timeoutMs: timeoutMs ?? bed.patienceMs,
  });
}

/** Sends a chat request over a connection from which nothing is read. The returned function closes it. */
export async function askUnread(bed: Bed, path: string, headers: readonly HeaderLine[], body: string): Promise<() => void> {
  const door = bed.doors.fail;
  if (door === undefined) throw new Error("the bed has no door");
  const socket = connect(door.port, door.host);
  socket.pause().on("error", () => undefined);
  await new Promise((resolve) => socket.once("connect", resolve));
  const lines = [["Host", "unread"], ["Content-Type", "application/json"], ["Content-Length", String(Buffer.byteLength(body))], ...headers].map(([name = "", value = ""]) => `${name}: ${value}\r\n`);
  socket.write(`POST ${path} HTTP/1.1\r\n${lines.join("")}\r\n${body}`);
  return () => {
    socket.destroy();
  };
}

/** The routing headers of a request that is to be split; none behind a gateway, whose filter sets them. */
export function routed(bed: Bed, stages: { readonly prefill?: boolean; readonly encode?: boolean }): HeaderLine[] {
  if (bed.via === "gateway") return [];
  const lines: HeaderLine[] = [];
  if (stages.prefill === true) lines.push(["X-Prefiller-Host-Port", bed.prefill.address]);
  if (stages.encode === true) lines.push(["X-Encoder-Hosts-Ports", bed.encode.map(({ address }) => address).join(",")]);
  return lines;
}

export const PD = { prefill: true } as const;
export const EPD = { prefill: true, encode: true } as const;

/** A whole answer with that status; says how it ended otherwise. */
export function expectStatus(found: Findings, what: string, answer: Answer, status: number): boolean {
  return found.that(
    answer.status === status && answer.end === "clean",
    `${what}: status ${String(answer.status)}, ${answer.end}, where ${String(status)} is wanted (${answer.body.toString("utf8", 0, 200)})`,
  );
}

const TYPES: Readonly<Record<number, string>> = {
  400: "BadRequestError",
  403: "ForbiddenError",
  404: "NotFoundError",
  413: "PayloadTooLargeError",
  415: "UnsupportedMediaTypeError",
  502: "BadGateway",
  503: "ServiceUnavailable",
  504: "GatewayTimeout",
};
/** Words of a transport that are no client's business (D21). */
const TRANSPORT_WORDS = /ECONN|EPIPE|ETIMEDOUT|ENOTFOUND|socket|undici|UND_ERR|127\.0\.0\.1|localhost|at \S+ \(|node:/i;

/** An error of the sidecar's own: JSON in the field's shape with a JSON content type, and nothing of what lies behind (sidecar §2.2, D21). */
export function expectOwnError(found: Findings, what: string, answer: Answer, status: number): void {
  if (!expectStatus(found, what, answer, status)) return;
  found.same(`${what}: content-type`, headerLines(answer.headers, "content-type"), ["application/json"]);
  found.that(isJson(answer.body), `${what}: the body is no JSON: ${answer.body.toString("utf8", 0, 100)}`);
  found.same(`${what}: error.type`, stringAt(answer.body, "error.type"), TYPES[status] ?? "");
  found.same(`${what}: error.code`, textAt(answer.body, "error.code"), String(status));
  found.that(stringAt(answer.body, "error.message") !== "", `${what}: error.message is missing`);
  found.that(/^(?:null|".+")$/.test(textAt(answer.body, "error.param")), `${what}: error.param is ${textAt(answer.body, "error.param")}`);
  found.that(!TRANSPORT_WORDS.test(answer.body.toString("utf8")), `${what}: the error tells of the transport: ${answer.body.toString("utf8", 0, 200)}`);
  found.same(`${what}: x-request-id lines`, headerLines(answer.headers, "x-request-id").length, 1);
  if (status === 503) found.that(/^\d+$/.test(headerLines(answer.headers, "retry-after").join()), `${what}: no Retry-After`);
}

/** No header of an answer stands there twice but the ones that may (D7). */
export function expectSingleHeaders(found: Findings, what: string, answer: Answer): void {
  for (const name of ["content-type", "content-length", "x-request-id", "date", "server", "transfer-encoding"]) {
    found.that(headerLines(answer.headers, name).length <= 1, `${what}: ${name} is there ${String(headerLines(answer.headers, name).length)} times`);
  }
}
