import { createServer as createHttpServer, type Server as HttpServer, STATUS_CODES } from "node:http";
import { constants, createSecureServer, type Http2SecureServer, Http2ServerResponse, type ServerHttp2Session } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import type { SecureContextOptions } from "node:tls";
import { authorityOf } from "./candidates.js";
import type { KeyPair } from "./certificate.js";
import { answerError, type ClientMessage, type ClientResponse, discardBody } from "./client.js";
import { ApiError } from "./errors.js";
import { requestIdOf } from "./headers.js";
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
const LAST_ANSWER_MS = 1000;
/** A listen queue for bursts of connections. */
const BACKLOG = 4096;

export type RequestHandler = (request: ClientMessage, response: ClientResponse) => void;

/** @param reason `plain_text`: what came was no TLS at all */
export type OnTlsRefused = (reason: "plain_text" | "handshake", peerAddress: string) => void;

/** What OpenSSL says to a request line, and to HTTP/2's opening words (which it reads as a record's header). */
const NO_TLS = new Set(["ERR_SSL_HTTP_REQUEST", "ERR_SSL_HTTPS_PROXY_REQUEST", "ERR_SSL_WRONG_VERSION_NUMBER"]);

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
 * @param onTlsRefused hears of connections that came to no session
 * @throws the system's error when the port cannot be had
 */
export async function listen(address: string, port: number, tls: KeyPair | null, handler: RequestHandler, onTlsRefused: OnTlsRefused = () => undefined): Promise<Listener> {
  const server = tls === null ? plainServer() : secureServer(tls);
  const sockets = new Set<Socket>();
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session: ServerHttp2Session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
  });
  server.on("request", (request: ClientMessage, response: ClientResponse) => {
    // RFC 9112 §3.2. Node's own refusal has no body.
    if (request.httpVersion === "1.1" && request.headers.host === undefined) refuse(request, response, new ApiError(400, "the request has no Host header", "host"));
    else handler(request, response);
  });
  // What Node would answer with no more than a status, or with nothing.
  server.on("checkExpectation", (request: ClientMessage, response: ClientResponse) => {
    refuse(request, response, new ApiError(417, "no expectation but 100-continue can be met", "expect"));
  });
  server.on("connect", (request: ClientMessage, peer: Socket | ClientResponse) => {
    const error = new ApiError(405, "tunnels are not offered here");
    if (peer instanceof Http2ServerResponse) refuse(request, peer, error);
    else if ("remoteAddress" in peer) endWith(peer, error);
  });
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  server.on("clientError", answerClientError);
  server.on("tlsClientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    onTlsRefused(NO_TLS.has(error.code ?? "") ? "plain_text" : "handshake", socket.remoteAddress ?? "");
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen({ port, backlog: BACKLOG, ...(address === "" ? {} : { host: address }) }, () => {
      server.off("error", reject);
      resolve();
    });
  });
  const bound = server.address() as AddressInfo;
  return {
    port: bound.port,
    url: `${tls === null ? "http" : "https"}://${authorityOf(address === "" ? "localhost" : address, bound.port)}`,
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

const HTTP1_OPTIONS = { maxHeaderSize: MAX_HEADER_BYTES, headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: 0, keepAliveTimeout: KEEP_ALIVE_MS, requireHostHeader: false } as const;

function plainServer(): HttpServer {
  return createHttpServer({ ...HTTP1_OPTIONS, noDelay: true });
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
  Object.assign(server, HTTP1_OPTIONS);
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

/** The answer that is open on a connection, as Node keeps it there. */
interface OpenAnswer {
  readonly headersSent: boolean;
  readonly req: { readonly complete: boolean };
}

/** What the parser refused, in the shape of all our errors. */
function answerClientError(error: NodeJS.ErrnoException, socket: Socket & { readonly _httpMessage?: OpenAnswer | null }): void {
  const open = socket._httpMessage ?? null;
  // An answer that has begun cannot have another in its middle, and one to a request that is whole would be taken for that request's.
  const mayAnswer = open === null || (!open.headersSent && !open.req.complete);
  if (error.code === "ECONNRESET" || !socket.writable || !mayAnswer) {
    socket.destroy();
    return;
  }
  endWith(socket, parserError(error.code));
}

function parserError(code: string | undefined): ApiError {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new ApiError(431, `the header block is larger than ${String(MAX_HEADER_BYTES)} bytes`);
    case "HPE_CHUNK_EXTENSIONS_OVERFLOW":
      return new ApiError(413, "the chunk extensions are too large");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ApiError(408, `the header block took longer than ${String(HEADERS_TIMEOUT_MS)} ms`);
    case "HPE_INVALID_TRANSFER_ENCODING":
      return new ApiError(400, "the body's transfer-encoding is not chunked", "transfer-encoding");
    default:
      return new ApiError(400, "the request is not valid HTTP");
  }
}

/** The last answer of a connection that no request can be read from any more. */
function endWith(socket: Socket, error: ApiError): void {
  socket.on("error", () => undefined);
  const head = [...error.headers(), "connection", "close"];
  const lines = head.flatMap((name, index) => (index % 2 === 0 ? [`${name}: ${head[index + 1] ?? ""}\r\n`] : []));
  socket.end(`HTTP/1.1 ${String(error.status)} ${STATUS_CODES[error.status] ?? ""}\r\n${lines.join("")}\r\n${error.body().toString()}`);
  // For a peer that sends on: a reset at once could take the answer from it.
  const timer = setTimeout(() => socket.destroy(), LAST_ANSWER_MS).unref();
  socket.once("close", () => {
    clearTimeout(timer);
  });
}

function refuse(request: ClientMessage, response: ClientResponse, error: ApiError): void {
  response.on("error", () => undefined);
  request.on("error", () => undefined);
  if ("shouldKeepAlive" in response) response.shouldKeepAlive = false;
  answerError(response, error, requestIdOf(request.rawHeaders));
  discardBody(request);
}
