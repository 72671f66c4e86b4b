import { createServer as createHttpServer, type Server as HttpServer } from "node:http";
import { constants, createSecureServer, type Http2SecureServer, type ServerHttp2Session } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import type { SecureContextOptions } from "node:tls";
import type { KeyPair } from "./certificate.js";
import type { ClientMessage, ClientResponse } from "./client.js";
import { ApiError } from "./errors.js";
import { TLS_CIPHERS, TLS_MIN_VERSION } from "./tls.js";

/** Header block of a request (RT-12). HTTP/2 ends at 64 KiB a field: nghttp2 takes no more. */
const MAX_HEADER_BYTES = 1 << 20;
const MAX_HTTP2_HEADER_FIELDS = 2000;
const HEADERS_TIMEOUT_MS = 30_000;
/** Longer than Envoy keeps an idle connection (an hour): who closes first may meet a request that the other side is sending, and that would be a 503 of the gateway's. */
const KEEP_ALIVE_MS = 3_900_000;
/** Large bodies over HTTP/2 would crawl through the default 64 KiB. */
const HTTP2_WINDOW_BYTES = 1 << 20;
/** Of one connection. A gateway has them all on a few. */
const MAX_HTTP2_STREAMS = 1000;
/** Streams are refused above it, and each may have as much under way as its reader is behind: far above what those come to. MB. */
const MAX_HTTP2_SESSION_MEMORY_MB = 256;
/** In a GOAWAY: whatever is open is carried out. */
const MAX_STREAM_ID = 0x7fff_ffff;
/** A listen queue for bursts of connections. */
const BACKLOG = 4096;

export type RequestHandler = (request: ClientMessage, response: ClientResponse) => void;

export interface Listener {
  readonly port: number;
  /** `http://127.0.0.1:1234`, as a client on this machine would write it. */
  readonly url: string;
  /** Asks clients by HTTP/2 to take their next requests elsewhere (GOAWAY); open streams go on. By HTTP/1.1 each answer says it for its connection. */
  drain(): void;
  /** New connections get another certificate; open ones keep theirs. Nothing where there is no TLS. */
  usePair(pair: KeyPair): void;
  /** Stops listening and ends all connections. */
  close(): Promise<void>;
}

/**
 * Opens the sidecar's port: HTTP/1.1, or TLS with HTTP/2 and HTTP/1.1 by ALPN (sidecar §2, §7). There is no limit on how long a request or an answer takes.
 *
 * @param address `""`: all interfaces
 * @throws the system's error when the port cannot be had
 */
export async function listen(address: string, port: number, tls: KeyPair | null, handler: RequestHandler): Promise<Listener> {
  const server = tls === null ? plainServer() : secureServer(tls);
  const sockets = new Set<Socket>();
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session: ServerHttp2Session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
  });
  server.on("request", handler);
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  server.on("clientError", answerClientError);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ port, backlog: BACKLOG, ...(address === "" ? {} : { host: address }) }, () => {
      server.off("error", reject);
      resolve();
    });
  });
  const bound = server.address() as AddressInfo;
  const local = address === "" ? "localhost" : address.includes(":") ? `[${address}]` : address;
  return {
    port: bound.port,
    url: `${tls === null ? "http" : "https"}://${local}:${String(bound.port)}`,
    drain: () => {
      for (const session of sessions) session.goaway(constants.NGHTTP2_NO_ERROR, MAX_STREAM_ID);
    },
    usePair: (pair) => {
      if ("setSecureContext" in server) server.setSecureContext(contextOf(pair));
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          resolve();
        });
        for (const socket of sockets) socket.destroy();
      }),
  };
}

function plainServer(): HttpServer {
  return createHttpServer({ maxHeaderSize: MAX_HEADER_BYTES, headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: 0, keepAliveTimeout: KEEP_ALIVE_MS, noDelay: true });
}

function contextOf({ cert, key }: KeyPair): SecureContextOptions {
  return { cert, key, minVersion: TLS_MIN_VERSION, ciphers: TLS_CIPHERS };
}

function secureServer(pair: KeyPair): Http2SecureServer {
  const server = createSecureServer({
    ...contextOf(pair),
    allowHTTP1: true,
    maxHeaderListPairs: MAX_HTTP2_HEADER_FIELDS,
    maxSessionMemory: MAX_HTTP2_SESSION_MEMORY_MB,
    settings: { maxHeaderListSize: MAX_HEADER_BYTES, initialWindowSize: HTTP2_WINDOW_BYTES, maxConcurrentStreams: MAX_HTTP2_STREAMS },
  });
  // Node reads these for the HTTP/1.1 side from the server itself, and takes none of them as an option of this kind of server.
  Object.assign(server, { maxHeaderSize: MAX_HEADER_BYTES, headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: 0, keepAliveTimeout: KEEP_ALIVE_MS });
  server.on("session", (session) => {
    session.setLocalWindowSize(4 * HTTP2_WINDOW_BYTES);
    // A peer that breaks off is its own affair; its streams tell their requests.
    session.on("error", () => undefined);
  });
  server.on("secureConnection", (socket) => {
    socket.setNoDelay(true);
  });
  return server;
}

/** What the parser refused, in the shape of all our errors. */
function answerClientError(error: NodeJS.ErrnoException, socket: Socket & { readonly _httpMessage?: unknown }): void {
  // An answer that has begun cannot have another in its middle.
  if (error.code === "ECONNRESET" || !socket.writable || (socket._httpMessage !== undefined && socket._httpMessage !== null)) {
    socket.destroy();
    return;
  }
  const refusal =
    error.code === "HPE_HEADER_OVERFLOW"
      ? { line: "431 Request Header Fields Too Large", error: new ApiError(431, `the header block is larger than ${String(MAX_HEADER_BYTES)} bytes`) }
      : { line: "400 Bad Request", error: new ApiError(400, "the request is not valid HTTP") };
  const body = refusal.error.body().toString();
  socket.end(`HTTP/1.1 ${refusal.line}\r\ncontent-type: application/json\r\ncontent-length: ${String(Buffer.byteLength(body))}\r\nconnection: close\r\n\r\n${body}`);
}
