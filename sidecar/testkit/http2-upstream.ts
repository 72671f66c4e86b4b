import { createSecureServer, type Http2SecureServer, type IncomingHttpHeaders, type Settings, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo } from "node:net";
import type { KeyPair } from "../certificate.js";

/** One request as an HTTP/2 upstream received it. */
export interface Received2 {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  /** Index of its connection. */
  readonly connection: number;
  aborted: boolean;
}

export type Handler2 = (received: Received2, stream: ServerHttp2Stream, call: number) => void;

/** An engine behind a proxy that speaks HTTP/2 and nothing else. */
export class Http2Upstream {
  readonly received: Received2[] = [];
  readonly sessions: ServerHttp2Session[] = [];
  handler: Handler2;
  /** Sees each stream before its body is read. */
  onStream: (stream: ServerHttp2Stream, call: number) => boolean = () => true;
  #calls = 0;
  readonly #server: Http2SecureServer;

  private constructor(handler: Handler2, pair: KeyPair, settings: Settings) {
    this.handler = handler;
    this.#server = createSecureServer({ ...pair, settings });
    this.#server.on("session", (session) => {
      this.sessions.push(session);
      session.on("error", () => undefined);
    });
    this.#server.on("stream", (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      stream.on("error", () => undefined);
      if (!this.onStream(stream, this.#calls++)) return;
      const chunks: Buffer[] = [];
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.once("end", () => {
        const connection = stream.session === undefined ? -1 : this.sessions.indexOf(stream.session as ServerHttp2Session);
        const received: Received2 = { headers, body: Buffer.concat(chunks), connection, aborted: false };
        stream.once("close", () => {
          if (stream.rstCode !== 0) received.aborted = true;
        });
        this.handler(received, stream, this.received.push(received) - 1);
      });
    });
  }

  static async start(pair: KeyPair, handler: Handler2, settings: Settings = {}): Promise<Http2Upstream> {
    const upstream = new Http2Upstream(handler, pair, settings);
    await new Promise<void>((resolve) => upstream.#server.listen(0, "127.0.0.1", resolve));
    return upstream;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get authority(): string {
    return `127.0.0.1:${String(this.port)}`;
  }

  async close(): Promise<void> {
    for (const session of this.sessions) session.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

export function sendJson2(stream: ServerHttp2Stream, body: string, status = 200): void {
  if (stream.destroyed) return;
  stream.respond({ ":status": status, "content-type": "application/json" });
  stream.end(body);
}
