import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { ApiError } from "./errors.js";
import type { FlatHeaders } from "./headers.js";

export type ClientMessage = IncomingMessage | Http2ServerRequest;
export type ClientResponse = ServerResponse | Http2ServerResponse;

/** A refused request's body is read on for so long, so that its sender sees the answer and not a reset; more than that closes the connection. */
const DISCARD_MS = 10_000;
const DISCARD_BYTES = 64 * 1024 * 1024;

/** Writes status and headers, repeats kept in both protocols. */
export function writeHead(response: ClientResponse, status: number, headers: FlatHeaders): void {
  if (!(response instanceof Http2ServerResponse)) {
    response.writeHead(status, [...headers]);
    return;
  }
  const grouped = Object.create(null) as Record<string, string[]>;
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = (headers[index] ?? "").toLowerCase();
    (grouped[name] ??= []).push(headers[index + 1] ?? "");
  }
  response.writeHead(status, grouped);
}

export function write(response: ClientResponse, chunk: Buffer): boolean {
  // Two classes with the same method, of which the compiler finds no common signature.
  return response instanceof Http2ServerResponse ? response.write(chunk) : response.write(chunk);
}

/** An answer of our own. `end` is all of it; a HEAD request gets the head. */
export function answer(response: ClientResponse, status: number, headers: FlatHeaders, body: Buffer): void {
  writeHead(response, status, headers);
  response.end(body);
}

export function answerError(response: ClientResponse, error: ApiError, requestId: string): void {
  answer(response, error.status, [...error.headers(), "x-request-id", requestId], error.body());
}

/** Breaks the answer off, so that the client cannot take it for whole: no last chunk, a reset stream (sidecar §2.1). */
export function cut(response: ClientResponse): void {
  if (response instanceof Http2ServerResponse) response.stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  else response.destroy();
}

/** {@link cut}, behind a last word. */
export function writeAndCut(response: ClientResponse, chunk: Buffer): void {
  const done = (): void => {
    cut(response);
  };
  if (response instanceof Http2ServerResponse) response.write(chunk, done);
  else response.write(chunk, done);
}

/** Notices a client that leaves its answer unread. */
export interface ReaderWatch {
  /** Something waits to be taken. */
  blocked(): void;
  /** It was taken. */
  flows(): void;
}

/**
 * Calls back when a client has taken nothing of what waits for it for so long. One that reads slowly is no such client.
 *
 * @param idleMs 0: never
 */
export function watchReader(response: ClientResponse, idleMs: number, onStalled: () => void): ReaderWatch {
  if (idleMs === 0) return { blocked: () => undefined, flows: () => undefined };
  if (!(response instanceof Http2ServerResponse)) {
    response.on("timeout", onStalled);
    // Node's own timer knows of writes that are under way. The server sets it anew once the answer is given.
    return { blocked: () => response.socket?.setTimeout(idleMs), flows: () => response.socket?.setTimeout(0) };
  }
  // Of a stream of many Node's timer would see what the others take.
  const { stream } = response;
  let timer: NodeJS.Timeout | null = null;
  let waiting = 0;
  const flows = (): void => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
  };
  const look = (): void => {
    flows();
    waiting = stream.writableLength;
    timer = setTimeout(() => {
      if (stream.writableLength === 0 || stream.destroyed) return;
      if (stream.writableLength === waiting) onStalled();
      else look();
    }, idleMs).unref();
  };
  response.once("close", flows);
  return { blocked: look, flows };
}

/** Reads on and throws away what is left of a body that is not wanted. */
export function discardBody(request: ClientMessage): void {
  if (request.complete || request.destroyed) return;
  let left = DISCARD_BYTES;
  const stop = (): void => {
    clearTimeout(timer);
    if (!request.complete) request.socket.destroy();
  };
  const timer = setTimeout(stop, DISCARD_MS);
  timer.unref();
  request
    .on("data", (chunk: Buffer) => {
      left -= chunk.length;
      if (left < 0) stop();
    })
    .once("close", () => {
      clearTimeout(timer);
    })
    .resume();
}
