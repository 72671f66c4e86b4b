/** Stands between a sidecar and a real prefiller: says when a leg comes and when its answer does, and may change the answer. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { headerLines, send } from "../fleet/http.js";
import { listenAnywhere } from "../fleet/ports.js";

export interface MiddlemanOptions {
  /** A leg of that request id has come; the prefiller has not seen it yet. */
  readonly onLeg?: (id: string) => void | Promise<void>;
  /** The answer's body before it goes on; what it returns goes on. */
  readonly onAnswer?: (body: Buffer, id: string) => Buffer | Promise<Buffer>;
  /** The answer has been handed to the system, all of it. */
  readonly onPassed?: (id: string) => void;
}

export class Middleman {
  readonly host = "127.0.0.1";
  readonly port: number;
  legs = 0;
  private options: MiddlemanOptions = {};

  private constructor(
    private readonly server: Server,
    port: number,
  ) {
    this.port = port;
  }

  static async start(target: { readonly host: string; readonly port: number }): Promise<Middleman> {
    const server = createServer();
    const middleman = new Middleman(server, await listenAnywhere(server, "127.0.0.1"));
    server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      middleman.pass(target, request, response).catch(() => response.destroy());
    });
    return middleman;
  }

  get address(): string {
    return `${this.host}:${this.port.toString()}`;
  }

  /** What it does from now on. */
  behave(options: MiddlemanOptions): void {
    this.options = options;
  }

  private async pass(target: { readonly host: string; readonly port: number }, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { onLeg, onAnswer, onPassed } = this.options;
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    this.legs += 1;
    // The sidecar's leaving reaches the prefiller.
    const gone = new AbortController();
    response.on("close", () => {
      if (!response.writableFinished) gone.abort();
    });
    const id = request.headers["x-request-id"]?.toString() ?? "";
    await onLeg?.(id);
    if (gone.signal.aborted) return;
    const answer = await send({
      ...{ host: target.host, port: target.port, method: request.method ?? "", path: request.url ?? "", leave: gone.signal },
      headers: [["content-type", "application/json"], ["x-request-id", id]],
      body: Buffer.concat(pieces),
    });
    if (gone.signal.aborted || answer.status === null) {
      response.destroy();
      return;
    }
    const body = (await onAnswer?.(answer.body, id)) ?? answer.body;
    response.writeHead(answer.status, { "content-type": headerLines(answer.headers, "content-type")[0] ?? "application/json", "content-length": body.length });
    response.end(body, () => onPassed?.(id));
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise<void>((resolve) => this.server.close(() => { resolve(); }));
  }
}
