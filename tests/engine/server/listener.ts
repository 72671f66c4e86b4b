/** A port that can stop listening and start again on the same number, without losing the connections that are open. */

import { createServer as createHttp, type RequestListener, type Server } from "node:http";
import { createServer as createHttps } from "node:https";
import type { AddressInfo, Socket } from "node:net";

export interface ListenerOptions {
  host: string;
  port: number;
  keepAliveMs: number;
  tls?: { cert: string; key: string };
}

export class Listener {
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  /** Connections without a request so far: node does not count them as idle. */
  private readonly unused = new Set<Socket>();
  private boundPort = 0;
  private wanted = false;
  private pending: Promise<void> | null = null;

  constructor(
    private readonly options: ListenerOptions,
    handler: RequestListener,
  ) {
    const common = { maxHeaderSize: 1024 * 1024, requestTimeout: 0, headersTimeout: 0, noDelay: true };
    this.server = options.tls === undefined ? createHttp(common, handler) : createHttps({ ...common, ...options.tls }, handler);
    this.server.timeout = 0;
    this.server.keepAliveTimeout = options.keepAliveMs;
    this.server.on("connection", (socket: Socket) => {
      this.sockets.add(socket);
      socket.once("close", () => this.sockets.delete(socket));
      // A reset is the client's business and must not end the process.
      socket.on("error", () => undefined);
    });
    this.server.on(options.tls === undefined ? "connection" : "secureConnection", (socket: Socket) => {
      this.unused.add(socket);
      socket.once("close", () => this.unused.delete(socket));
    });
    this.server.on("request", ({ socket }) => {
      this.unused.delete(socket);
    });
    this.server.on("clientError", (_error, socket) => {
      if (socket.writable) socket.end("HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
      else socket.destroy();
    });
  }

  get port(): number {
    return this.boundPort;
  }

  get connections(): number {
    return this.sockets.size;
  }

  get listening(): boolean {
    return this.server.listening;
  }

  /** @throws the system's error when the port is taken */
  listen(): Promise<void> {
    this.wanted = true;
    if (this.server.listening) return Promise.resolve();
    this.pending ??= this.bind().finally(() => {
      this.pending = null;
      if (!this.wanted) this.refuse();
    });
    return this.pending;
  }

  /** New connections are refused from now on; those that carry a request go on. */
  refuse(): void {
    this.wanted = false;
    if (!this.server.listening) return;
    this.server.close();
    this.server.closeIdleConnections();
    for (const socket of this.unused) socket.destroy();
  }

  destroyConnections(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.wanted = false;
    await this.pending?.catch(() => undefined);
    const closed = this.server.listening ? new Promise<void>((resolve) => this.server.close(() => {
      resolve();
    })) : Promise.resolve();
    this.destroyConnections();
    await closed;
  }

  private bind(): Promise<void> {
    return new Promise((resolve, reject) => {
      const failed = (error: Error): void => {
        reject(error);
      };
      this.server.once("error", failed);
      this.server.listen({ host: this.options.host, port: this.boundPort === 0 ? this.options.port : this.boundPort, backlog: 4096 }, () => {
        this.server.off("error", failed);
        this.boundPort = (this.server.address() as AddressInfo).port;
        resolve();
      });
    });
  }
}
