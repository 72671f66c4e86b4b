import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { KeyPair } from "../certificate.js";

/** One request as an upstream received it. */
export interface Received {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  /** Milliseconds of the process's clock. */
  readonly startedAt: number;
  /** The caller closed its connection before the answer's end. */
  aborted: boolean;
  /** Index of the connection among all that the upstream has accepted. */
  readonly connection: number;
}

export type Handler = (received: Received, response: ServerResponse, call: number) => void | Promise<void>;

/** A small scripted engine on loopback that keeps what it receives. */
export class TestUpstream {
  readonly received: Received[] = [];
  connections = 0;
  handler: Handler;
  readonly #server: ReturnType<typeof createServer>;
  readonly #sockets = new Map<Socket, number>();

  private constructor(handler: Handler, tls: KeyPair | null) {
    this.handler = handler;
    const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
      this.#onRequest(request, response);
    };
    this.#server = tls === null ? createServer({ maxHeaderSize: 1 << 21 }, onRequest) : createTlsServer({ ...tls }, onRequest);
    this.#server.on(tls === null ? "connection" : "secureConnection", (socket: Socket) => {
      this.#sockets.set(socket, this.connections++);
      socket.once("close", () => this.#sockets.delete(socket));
      socket.on("error", () => undefined);
    });
  }

  static async start(handler: Handler = (_, response) => void response.end("{}"), tls: KeyPair | null = null, host = "127.0.0.1"): Promise<TestUpstream> {
    const upstream = new TestUpstream(handler, tls);
    await new Promise<void>((resolve) => upstream.#server.listen(0, host, resolve));
    return upstream;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get authority(): string {
    const { address, family, port } = this.#server.address() as AddressInfo;
    return family === "IPv6" ? `[${address}]:${String(port)}` : `${address}:${String(port)}`;
  }

  get openSockets(): number {
    return this.#sockets.size;
  }

  /** The parsed body of a call. */
  json(call = this.received.length - 1): Record<string, unknown> {
    return JSON.parse(this.text(call)) as Record<string, unknown>;
  }

  text(call = this.received.length - 1): string {
    return this.received[call]?.body.toString() ?? "";
  }

  #onRequest(request: IncomingMessage, response: ServerResponse): void {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.once("end", () => {
      const received: Received = {
        method: request.method ?? "",
        target: request.url ?? "",
        rawHeaders: request.rawHeaders,
        body: Buffer.concat(chunks),
        startedAt: performance.now(),
        aborted: false,
        connection: this.#sockets.get(request.socket) ?? -1,
      };
      response.once("close", () => {
        if (!response.writableFinished) received.aborted = true;
      });
      response.on("error", () => undefined);
      const call = this.received.push(received) - 1;
      void this.handler(received, response, call);
    });
    request.on("error", () => undefined);
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets.keys()) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Frees the port: connections are refused from now on. */
  static async refusedPort(): Promise<number> {
    const upstream = await TestUpstream.start();
    const { port } = upstream;
    await upstream.close();
    return port;
  }
}

export function sendJson(response: ServerResponse, body: unknown, status = 200, headers: Record<string, string | string[]> = {}): void {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(text);
}

/** Waits until a condition holds. */
export async function until(condition: () => boolean, timeoutMs = 5000): Promise<void> {
  const endsAt = performance.now() + timeoutMs;
  while (!condition()) {
    if (performance.now() > endsAt) throw new Error(`not so within ${String(timeoutMs)} ms: ${condition.toString()}`);
    await sleep(5);
  }
}
