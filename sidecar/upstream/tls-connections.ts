import { isIP } from "node:net";
import type { TLSSocket } from "node:tls";
import { buildConnector, type Dispatcher } from "undici";
import { upstreamContext } from "../tls.js";
import { type Connection, Http2Connections } from "./http2.js";

export const CONNECT_TIMEOUT_MS = 30_000;
/** Most engines close an idle connection after seconds; ours may be older, and a request that meets a closed one is sent once more on a fresh one. */
export const IDLE_TIMEOUT_MS = 90_000;

type Connected = { readonly http1: TLSSocket } | { readonly http2: Connection };

/**
 * TLS connections to one engine. The first shows by ALPN whether it speaks HTTP/2; until then requests wait for that one. An engine that was found to speak HTTP/1.1 is
 * offered nothing else any more.
 */
export class TlsConnections {
  readonly http2: Http2Connections;
  /** undici's way to a connection: one that was made before it was known which protocol it would speak, or a new one. */
  readonly forUndici: buildConnector.connector;
  readonly #connect: (both: boolean) => Promise<TLSSocket>;
  readonly #spare: TLSSocket[] = [];
  #speaksHttp1 = false;
  #connecting: Promise<Connected> | null = null;
  #destroyed = false;

  constructor(url: URL, host: string, verify: boolean) {
    const common = { timeout: CONNECT_TIMEOUT_MS, rejectUnauthorized: verify, secureContext: upstreamContext(verify) };
    const http1 = buildConnector(common);
    const both = buildConnector({ ...common, allowH2: true });
    // The name in the certificate is the engine's; an address is not sent as a name (RFC 6066 §3).
    const servername = isIP(host) === 0 ? host : "";
    const address = { hostname: url.hostname, host: url.host, protocol: url.protocol, port: url.port, servername };
    this.http2 = new Http2Connections(url.origin, IDLE_TIMEOUT_MS);
    this.#connect = (offerHttp2) =>
      new Promise((resolve, reject) => {
        (offerHttp2 ? both : http1)(address, (error, socket) => {
          if (error === null) resolve(socket as TLSSocket);
          else reject(error);
        });
      });
    this.forUndici = (options, callback) => {
      const spare = this.#takeSpare();
      if (spare === null) {
        http1({ ...options, servername }, callback);
        return;
      }
      // Called back at once, undici would not look at its queue.
      queueMicrotask(() => {
        callback(null, spare);
      });
    };
  }

  get speaksHttp1(): boolean {
    return this.#speaksHttp1;
  }

  /** Sends over HTTP/2, or calls `overHttp1`. What goes wrong with the connection is told to the handler. */
  dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler, overHttp1: () => void): void {
    const free = this.http2.free();
    if (free !== null) {
      free.dispatch(options, handler);
      return;
    }
    this.#connecting ??= this.#open().finally(() => {
      this.#connecting = null;
    });
    this.#when(this.#connecting, handler, (connected) => {
      if (!("http2" in connected)) overHttp1();
      // Others that waited for it may have filled it.
      else if (connected.http2.hasRoom) connected.http2.dispatch(options, handler);
      else this.dispatch(options, handler, overHttp1);
    });
  }

  /** The same on a connection of its own. */
  dispatchFresh(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler, overHttp1: () => void): void {
    this.#when(this.#open(), handler, (connected) => {
      if ("http2" in connected) connected.http2.dispatch(options, handler, true);
      else overHttp1();
    });
  }

  #when(opened: Promise<Connected>, handler: Dispatcher.DispatchHandler, send: (connected: Connected) => void): void {
    opened.then(send, (error: unknown) => {
      handler.onResponseError?.(NO_CONNECTION, error instanceof Error ? error : new Error(String(error)));
    });
  }

  async #open(): Promise<Connected> {
    const socket = await this.#connect(true);
    if (this.#destroyed) {
      socket.destroy();
      throw new Error("the engine's connections are closed");
    }
    if (socket.alpnProtocol === "h2") return { http2: this.http2.add(socket) };
    this.#speaksHttp1 = true;
    socket.on("error", () => undefined);
    this.#spare.push(socket);
    return { http1: socket };
  }

  #takeSpare(): TLSSocket | null {
    for (let socket = this.#spare.pop(); socket !== undefined; socket = this.#spare.pop()) if (!socket.destroyed && socket.writable) return socket;
    return null;
  }

  destroy(): void {
    this.#destroyed = true;
    this.http2.destroy();
    for (const socket of this.#spare.splice(0)) socket.destroy();
  }
}

/** What a handler gets whose request never met a connection. */
const NO_CONNECTION: Dispatcher.DispatchController = { aborted: false, paused: false, reason: null, abort: () => undefined, pause: () => undefined, resume: () => undefined };
