import { randomUUID } from "node:crypto";

/**
 * Headers as the wire has them: names and values in turn, repeats kept. Node's joined objects lose which lines were sent (sidecar §10.3), and undici takes
 * and gives such lists as they are.
 */
export type FlatHeaders = readonly string[];

/** Headers of one connection, never of the next one (RFC 9110 §7.6.1; HDR-10). */
const HOP_BY_HOP = new Set(["connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"]);

/** What steers the sidecar, or would steer something behind it: on no leg (HDR-06, DESIGN decision 5). */
export const ROUTING_HEADERS: readonly string[] = [
  "x-prefiller-host-port",
  "x-encoder-hosts-ports",
  "x-kv-cache-source-host-port",
  "x-data-parallel-host-port",
  "x-data-parallel-rank",
  "x-prefiller-url",
  "x-gateway-destination-endpoint",
  "x-gateway-destination-endpoint-subset",
  "x-envoy-original-dst-host",
  "x-crosspoint-decision",
];

const NOT_ON_A_LEG = new Set([
  ...HOP_BY_HOP,
  ...ROUTING_HEADERS,
  // Made anew for each leg.
  "host",
  "content-length",
  "x-forwarded-for",
  "x-request-id",
  // Envoy's count of its own tries, of no use to an engine.
  "x-envoy-attempt-count",
  // Node has answered it already.
  "expect",
]);

/** In lower case, with its parameters; "" for none. */
export function contentTypeOf(headers: FlatHeaders): string {
  return (valuesOf(headers, "content-type")[0] ?? "").toLowerCase();
}

/** Whether an answer is a stream of events. */
export function isEventStream(headers: FlatHeaders): boolean {
  return contentTypeOf(headers).startsWith("text/event-stream");
}

/** All values of a header, one per line, in order. */
export function valuesOf(headers: FlatHeaders, name: string): string[] {
  const values: string[] = [];
  for (let index = 0; index + 1 < headers.length; index += 2) {
    if (headers[index]?.toLowerCase() === name) values.push(headers[index + 1] ?? "");
  }
  return values;
}

/** The names that the Connection header adds to the hop-by-hop ones. */
function connectionNames(headers: FlatHeaders): ReadonlySet<string> | null {
  const lines = valuesOf(headers, "connection");
  // What nearly all connections say names no header.
  if (lines.every((line) => line === "keep-alive" || line === "close")) return null;
  return new Set(lines.flatMap((line) => line.split(",")).map((name) => name.trim().toLowerCase()));
}

export interface ClientRequest {
  readonly rawHeaders: FlatHeaders;
  /** Address of the peer, appended to X-Forwarded-For; empty when its socket is gone already. */
  readonly peerAddress: string;
  readonly requestId: string;
  /** The body was opened: the content encoding that it came in is not that of the legs. */
  readonly bodyOpened: boolean;
}

/**
 * The client's headers as prefill and decode legs carry them (sidecar §2.1, §3.2): its Host, everything but hop-by-hop and routing headers, X-Forwarded-For
 * with the peer appended, exactly one x-request-id (HDR-09). Content length is the leg's own.
 */
export function legHeaders({ rawHeaders, peerAddress, requestId, bodyOpened }: ClientRequest): string[] {
  const dropped = connectionNames(rawHeaders);
  const headers: string[] = [];
  let host = "";
  let forwardedFor = "";
  let cookie = "";
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const raw = rawHeaders[index] ?? "";
    const value = rawHeaders[index + 1] ?? "";
    const name = raw.toLowerCase();
    if (name === "host" || name === ":authority") {
      if (host === "") host = value;
    } else if (name === "x-forwarded-for") {
      forwardedFor += forwardedFor === "" ? value : `, ${value}`;
    } else if (name === "cookie") {
      // HTTP/2 may send it in crumbs (RFC 9113 §8.2.3).
      cookie += cookie === "" ? value : `; ${value}`;
    } else if (!name.startsWith(":") && !NOT_ON_A_LEG.has(name) && dropped?.has(name) !== true && !(bodyOpened && name === "content-encoding")) {
      headers.push(raw, value);
    }
  }
  if (host !== "") headers.push("host", host);
  if (peerAddress !== "") forwardedFor += forwardedFor === "" ? peerAddress : `, ${peerAddress}`;
  if (forwardedFor !== "") headers.push("x-forwarded-for", forwardedFor);
  if (cookie !== "") headers.push("cookie", cookie);
  headers.push("x-request-id", requestId);
  return headers;
}

/** Without one header: for legs whose answers must be read (D15: no Accept-Encoding there). */
export function withoutHeader(headers: FlatHeaders, name: string): string[] {
  const kept: string[] = [];
  for (let index = 0; index + 1 < headers.length; index += 2) {
    if (headers[index]?.toLowerCase() !== name) kept.push(headers[index] ?? "", headers[index + 1] ?? "");
  }
  return kept;
}

/** An engine's headers as the client gets them. `dropLength`: the body that follows is not the engine's byte for byte. */
export function answerHeaders(headers: FlatHeaders, dropLength: boolean): string[] {
  const dropped = connectionNames(headers);
  const kept: string[] = [];
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = (headers[index] ?? "").toLowerCase();
    if (HOP_BY_HOP.has(name) || dropped?.has(name) === true || (dropLength && name === "content-length")) continue;
    kept.push(headers[index] ?? "", headers[index + 1] ?? "");
  }
  return kept;
}

/** Longer ids are no ids: they would only grow every log line behind us. */
const MAX_REQUEST_ID_LENGTH = 1024;

/** The client's request id, or a new one: the first line that is not empty (HDR-09). */
export function requestIdOf(rawHeaders: FlatHeaders): string {
  const given = valuesOf(rawHeaders, "x-request-id").find((value) => value.trim() !== "");
  return given !== undefined && given.length <= MAX_REQUEST_ID_LENGTH ? given : randomUUID();
}
