/** A decode pod as Envoy sees one: an HTTP/1.1 server that says in its answer what it got, and that does what the request's x-pod-* headers ask. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer as createPlainServer, type Socket } from "node:net";
import { hostPortText } from "../fleet/address.js";
import { listenAnywhere } from "../fleet/ports.js";

/** What a pod answers with, as JSON. */
export interface Echo {
  pod: string;
  method: string;
  /** The request target as it came. */
  url: string;
  /** As it came: name, value, name, value … */
  rawHeaders: string[];
  rawTrailers: string[];
  bytes: number;
  /** The first bytes of the body. */
  head: string;
}

export interface PodOptions {
  name: string;
  host?: string;
  tls?: { cert: string; key: string };
}

const HEAD_BYTES = 256;

export class Pod {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  /** What `/health` answers. */
  healthStatus = 200;
  /** What `/metrics` answers; null: what every path answers. */
  metrics: string | null = null;
  metricsStatus = 200;
  /** `/metrics` is never answered. */
  metricsSilent = false;
  /** How often `/metrics` was asked for. */
  scrapes = 0;
  readonly seen: Echo[] = [];
  /** Streams that are held open now. */
  get open(): number {
    return this.waiting.length;
  }
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();

  private constructor(name: string, host: string, port: number, server: Server) {
    this.name = name;
    this.host = host;
    this.port = port;
    this.server = server;
  }

  /** A pod on a port of the system's choosing, or on one that another pod had. */
  static async start(options: PodOptions): Promise<Pod> {
    const host = options.host ?? "127.0.0.1";
    const server = options.tls === undefined ? createServer() : createTlsServer(options.tls);
    // Longer than Envoy keeps an idle connection.
    server.keepAliveTimeout = 65_000;
    server.requestTimeout = 0;
    const port = await listenAnywhere(server, host);
    const pod = new Pod(options.name, host, port, server);
    server.on("request", (request, response) => { pod.take(request, response); });
    server.on("connection", (socket: Socket) => {
      pod.sockets.add(socket);
      socket.on("close", () => pod.sockets.delete(socket));
      socket.on("error", () => undefined);
    });
    return pod;
  }

  get address(): string {
    return hostPortText(this);
  }

  /** What clients asked for, without what Envoy's health checks and the filter's scrapes ask for all the time. */
  get requests(): Echo[] {
    return this.seen.filter(({ url }) => url !== "/metrics" && url !== "/health");
  }

  private take(request: IncomingMessage, response: ServerResponse): void {
    const pieces: Buffer[] = [];
    let bytes = 0;
    request.on("data", (piece: Buffer) => {
      if (bytes < HEAD_BYTES) pieces.push(piece.subarray(0, HEAD_BYTES - bytes));
      bytes += piece.length;
    });
    request.on("error", () => undefined);
    response.on("error", () => undefined);
    request.on("end", () => {
      const echo: Echo = {
        pod: this.name,
        method: request.method ?? "",
        url: request.url ?? "",
        rawHeaders: request.rawHeaders,
        rawTrailers: request.rawTrailers,
        bytes,
        head: Buffer.concat(pieces).toString("latin1"),
      };
      this.seen.push(echo);
      const header = (name: string): string => String(request.headers[name] ?? "");
      if (request.url === "/metrics") this.scrapes++;
      if (request.url === "/metrics" && this.metricsSilent) return;
      if (request.url === "/metrics" && this.metrics !== null) {
        response.writeHead(this.metricsStatus, { "content-type": "text/plain; version=0.0.4" });
        response.end(this.metrics);
        return;
      }
      if (header("x-pod-reset") !== "") request.socket.destroy();
      else if (header("x-pod-silent") !== "") return;
      else if (header("x-pod-stream") !== "") this.stream(response, Number(header("x-pod-stream")), Number(header("x-pod-piece") || "8"));
      else {
        const status = request.url === "/health" ? this.healthStatus : Number(header("x-pod-status") || "200");
        setTimeout(() => {
          // `x-pod-set: name=value` is what a sidecar would add to its answer.
          const [name, value] = header("x-pod-set").split("=");
          response.writeHead(status, { "content-type": "application/json", ...(name !== undefined && value !== undefined ? { [name]: value } : {}) });
          response.end(JSON.stringify(echo));
        }, Number(header("x-pod-delay-ms") || "0"));
      }
    });
  }

  /** `pieces` pieces of `size` bytes, as fast as they are taken; 0 pieces: the first one, and the stream stays open until {@link finish}. */
  private stream(response: ServerResponse, pieces: number, size: number): void {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const piece = Buffer.alloc(size, "x");
    if (pieces === 0) {
      response.write(piece);
      this.waiting.push(response);
      return;
    }
    let left = pieces;
    const go = (): void => {
      while (left > 0) {
        left--;
        this.sent += size;
        if (!response.write(piece)) {
          response.once("drain", go);
          return;
        }
      }
      response.end();
    };
    go();
  }
  private readonly waiting: ServerResponse[] = [];
  /** Bytes of streams handed to the socket. */
  sent = 0;

  /** Ends the streams that are held open. */
  finish(): void {
    for (const response of this.waiting.splice(0)) response.end("end");
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => this.server.close(() => { resolve(); }));
  }
}

/** An address on which connections are refused. */
export async function refusingPort(host = "127.0.0.1"): Promise<number> {
  const server = createPlainServer();
  const port = await listenAnywhere(server, host);
  await new Promise<void>((resolve) => server.close(() => { resolve(); }));
  return port;
}
