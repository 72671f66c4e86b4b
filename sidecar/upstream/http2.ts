import { type ClientHttp2Session, type ClientHttp2Stream, connect as connectHttp2, constants, type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import { pipeline, Readable } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Dispatcher } from "undici";

// undici speaks HTTP/2 too, but ends every open stream of a connection when its peer sends GOAWAY (7.30), which is how a proxy before an engine asks for a new
// connection while generations run on the old one.

/** Streams of a connection whose peer has not said how many it takes. */
const STREAMS_UNTIL_TOLD = 100;
/** Of a connection, for all its streams together; a stream's own stays at 64 KiB, since that much may lie unread for a client that does not read. */
const CONNECTION_WINDOW_BYTES = 1 << 20;

/** So long may a peer take to answer a ping before its connection is given up. */
const PING_TIMEOUT_MS = 5000;

/** The engine says that it did nothing with the request (RFC 9113 §8.7): it may be sent again whatever it carries. */
export class NotProcessedError extends Error {}

/** What a handler needs to know of the connection that its request goes out on. */
export interface Http2Controller extends Dispatcher.DispatchController {
  /** The connection carried requests before. */
  readonly reused: boolean;
}

export function isHttp2(controller: Dispatcher.DispatchController): controller is Http2Controller {
  return controller instanceof Call;
}

/** Connections by HTTP/2 to one engine: as many as its limits on streams make necessary. */
export class Http2Connections {
  readonly #origin: string;
  readonly #idleMs: number;
  readonly #all = new Set<Connection>();

  constructor(origin: string, idleMs: number) {
    this.#origin = origin;
    this.#idleMs = idleMs;
  }

  /** A connection that takes another stream; null: there is none. */
  free(): Connection | null {
    for (const connection of this.#all) if (connection.hasRoom) return connection;
    return null;
  }

  /** @param socket on which both sides have agreed on `h2` */
  add(socket: TLSSocket): Connection {
    const connection = new Connection(this.#origin, socket, this.#idleMs, () => this.#all.delete(connection));
    this.#all.add(connection);
    return connection;
  }

  get count(): number {
    return this.#all.size;
  }

  /** Ends the connections once what runs on them has ended. */
  close(): void {
    for (const connection of this.#all) connection.close();
  }

  destroy(): void {
    for (const connection of this.#all) connection.destroy();
  }
}

export class Connection {
  readonly #session: ClientHttp2Session;
  readonly #authority: string;
  readonly #idleMs: number;
  #limit = STREAMS_UNTIL_TOLD;
  #streams = 0;
  #requests = 0;
  #idleTimer: NodeJS.Timeout | null = null;
  #pingTimer: NodeJS.Timeout | null = null;
  readonly #pingTimeoutMs: number;

  constructor(origin: string, socket: TLSSocket, idleMs: number, onClose: () => void, pingTimeoutMs = PING_TIMEOUT_MS) {
    this.#idleMs = idleMs;
    this.#pingTimeoutMs = pingTimeoutMs;
    this.#authority = new URL(origin).host;
    this.#session = connectHttp2(origin, { createConnection: () => socket, peerMaxConcurrentStreams: STREAMS_UNTIL_TOLD, settings: { enablePush: false } });
    this.#session.once("connect", () => {
      this.#session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    });
    this.#session.on("remoteSettings", ({ maxConcurrentStreams }) => {
      this.#limit = maxConcurrentStreams ?? Number.POSITIVE_INFINITY;
    });
    // Its streams tell their requests. A GOAWAY without an error closes the session for new streams, and lets the open ones end.
    this.#session.on("error", () => undefined);
    this.#session.once("close", () => {
      this.#stopIdling();
      this.#stopPinging();
      onClose();
    });
    this.#idle();
  }

  get hasRoom(): boolean {
    return !this.#session.closed && !this.#session.destroyed && this.#streams < this.#limit;
  }

  close(): void {
    if (!this.#session.closed) this.#session.close();
  }

  destroy(): void {
    this.#session.destroy();
  }

  /** @param once closes the connection after this request */
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler, once = false): void {
    const call = new Call(handler, this.#requests > 0, () => {
      this.#ping();
    });
    this.#requests += 1;
    if (!call.begin()) return;
    let stream: ClientHttp2Stream;
    try {
      stream = this.#session.request(requestHeaders(this.#authority, options), { endStream: options.body === null });
    } catch (error) {
      call.fail(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    this.#streams += 1;
    this.#stopIdling();
    stream.once("close", () => {
      this.#streams -= 1;
      if (once) this.close();
      else if (this.#streams === 0) this.#idle();
    });
    call.use(stream);
    sendBody(stream, options.body);
  }

  /** A request that was given up without an answer may be the engine's fault, or that of a connection that leads nowhere any more: the next ones are not to meet that. */
  #ping(): void {
    if (this.#pingTimer !== null || this.#session.destroyed) return;
    this.#pingTimer = setTimeout(() => {
      this.destroy();
    }, this.#pingTimeoutMs).unref();
    const sent = this.#session.ping(() => {
      this.#stopPinging();
    });
    if (!sent) this.#stopPinging();
  }

  #stopPinging(): void {
    if (this.#pingTimer !== null) clearTimeout(this.#pingTimer);
    this.#pingTimer = null;
  }

  #idle(): void {
    this.#stopIdling();
    this.#idleTimer = setTimeout(() => {
      this.close();
    }, this.#idleMs).unref();
  }

  #stopIdling(): void {
    if (this.#idleTimer !== null) clearTimeout(this.#idleTimer);
    this.#idleTimer = null;
  }
}

/** One request: tells undici's kind of handler what becomes of the stream. */
class Call implements Http2Controller {
  readonly reused: boolean;
  rawHeaders: string[] = [];
  rawTrailers: string[] = [];
  aborted = false;
  paused = false;
  reason: Error | null = null;
  readonly #handler: Dispatcher.DispatchHandler;
  readonly #onUnanswered: () => void;
  #stream: ClientHttp2Stream | null = null;
  #answered = false;
  #done = false;

  /** @param onUnanswered the request is given up before anything of its answer came */
  constructor(handler: Dispatcher.DispatchHandler, reused: boolean, onUnanswered: () => void) {
    this.#handler = handler;
    this.#onUnanswered = onUnanswered;
    this.reused = reused;
  }

  /** @returns whether the request is still wanted */
  begin(): boolean {
    this.#handler.onRequestStart?.(this, null);
    return !this.aborted;
  }

  use(stream: ClientHttp2Stream): void {
    this.#stream = stream;
    stream.once("response", (headers) => {
      const { [constants.HTTP2_HEADER_STATUS]: status, ...rest } = headers;
      this.rawHeaders = flat(rest);
      this.#answered = true;
      if (!this.#done) this.#handler.onResponseStart?.(this, Number(status), rest, "");
    });
    stream.on("data", (chunk: Buffer) => {
      if (!this.#done) this.#handler.onResponseData?.(this, chunk);
    });
    stream.once("trailers", (trailers) => {
      this.rawTrailers = flat(trailers);
    });
    stream.once("end", () => {
      // A reset ends the stream too, and with it an answer that is not whole.
      if (this.#done || !this.#answered || (stream.rstCode !== undefined && stream.rstCode !== constants.NGHTTP2_NO_ERROR)) return;
      this.#done = true;
      this.#handler.onResponseEnd?.(this, {});
      // An engine that has answered before it has read everything wants no more.
      if (!stream.writableFinished) stream.close(constants.NGHTTP2_CANCEL);
    });
    stream.once("error", (error: Error) => {
      this.fail(stream.rstCode === constants.NGHTTP2_REFUSED_STREAM ? new NotProcessedError(error.message) : error);
    });
    stream.once("close", () => {
      const refused = stream.rstCode === constants.NGHTTP2_REFUSED_STREAM;
      this.fail(refused ? new NotProcessedError("the stream was refused") : new Error(`the stream was closed before the answer was whole (code ${String(stream.rstCode)})`));
    });
  }

  abort(reason: Error): void {
    if (this.#done) return;
    this.aborted = true;
    this.reason = reason;
    this.#stream?.close(constants.NGHTTP2_CANCEL);
    if (this.#stream !== null && !this.#answered) this.#onUnanswered();
    this.fail(reason);
  }

  fail(error: Error): void {
    if (this.#done) return;
    this.#done = true;
    this.#handler.onResponseError?.(this, error);
  }

  pause(): void {
    this.paused = true;
    this.#stream?.pause();
  }

  resume(): void {
    this.paused = false;
    this.#stream?.resume();
  }
}

/** Repeated lines as one (RFC 9110 §5.3): Node takes some names only once, and HTTP/2 knows no order between names. */
function requestHeaders(authority: string, { method, path, headers }: Dispatcher.DispatchOptions): OutgoingHttpHeaders {
  const joined = Object.create(null) as Record<string, string>;
  const list = headers as readonly string[];
  for (let index = 0; index + 1 < list.length; index += 2) {
    const name = (list[index] ?? "").toLowerCase();
    const value = list[index + 1] ?? "";
    const before = joined[name];
    joined[name] = before === undefined ? value : `${before}${name === "cookie" ? "; " : ", "}${value}`;
  }
  const { host, ...rest } = joined;
  return {
    [constants.HTTP2_HEADER_METHOD]: method,
    [constants.HTTP2_HEADER_PATH]: path,
    [constants.HTTP2_HEADER_SCHEME]: "https",
    [constants.HTTP2_HEADER_AUTHORITY]: host ?? authority,
    ...rest,
  };
}

function flat(headers: IncomingHttpHeaders): string[] {
  const list: string[] = [];
  for (const [name, value] of Object.entries(headers)) {
    if (name.startsWith(":") || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) list.push(name, one);
  }
  return list;
}

/** `body`: null, a buffer, or an iterable of buffers, which go out one after the other as the engine takes them. */
function sendBody(stream: ClientHttp2Stream, body: unknown): void {
  if (body === null || body === undefined) return;
  if (Buffer.isBuffer(body)) {
    stream.end(body);
    return;
  }
  // What goes wrong is told by the stream itself.
  pipeline(Readable.from(body as Iterable<Buffer>, { objectMode: false }), stream, () => undefined);
}
