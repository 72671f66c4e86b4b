/** One HTTP request and its answer on the service port, with the record that is kept of it. */

import { setMaxListeners } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import { TLSSocket } from "node:tls";

import type { ApiError} from "../errors.js";
import { ClientGone } from "../errors.js";
import { stringify, type JsonObject } from "../json.js";
import { clockMs, headerPairs, type Recorder } from "../record.js";
import type { EngineRecord } from "../types.js";

export type AnswerHeaders = Record<string, string | string[]>;

export class Exchange {
  private readonly abort = new AbortController();
  /** The status line waits for this (`delay_ms` of a script). */
  private gate: Promise<void> = Promise.resolve();
  private ended = false;
  private cutByUs = false;
  private ignoreAbort = false;
  /** Further headers, and those that a script adds. */
  private readonly extraHeaders: AnswerHeaders = {};
  private readonly afterEnd: (() => void)[] = [];

  constructor(
    readonly request: IncomingMessage,
    readonly response: ServerResponse,
    readonly record: EngineRecord,
    private readonly recorder: Recorder,
  ) {
    // Each prompt of a list waits on it, and there may be many.
    setMaxListeners(0, this.abort.signal);
    if (record.modelCall) recorder.callStarted();
    response.once("close", () => {
      this.close();
    });
  }

  /** Aborted when the client leaves or the engine dies. */
  get signal(): AbortSignal {
    return this.abort.signal;
  }

  get headersSent(): boolean {
    return this.response.headersSent;
  }

  /** First value of a header, whatever its case. */
  header(name: string): string | undefined {
    return this.record.rawHeaders.find(([own]) => own.toLowerCase() === name)?.[1];
  }

  kill(reason: Error): void {
    this.abort.abort(reason);
  }

  holdHead(until: Promise<void>): void {
    this.gate = until;
    // Whoever awaits the gate sees the failure; nobody may.
    until.catch(() => undefined);
  }

  addHeaders(headers: AnswerHeaders): void {
    Object.assign(this.extraHeaders, headers);
  }

  /** Called when the answer has left; not for one that was cut off. */
  onAnswered(callback: () => void): void {
    this.afterEnd.push(callback);
  }

  /** Reads the body to its end. @throws ClientGone */
  async readBody(): Promise<Buffer> {
    const pieces: Buffer[] = [];
    try {
      for await (const piece of this.request) pieces.push(piece as Buffer);
    } catch {
      throw new ClientGone();
    }
    const body = pieces.length === 1 && pieces[0] !== undefined ? pieces[0] : Buffer.concat(pieces);
    this.record.rawTrailers = headerPairs(this.request.rawTrailers);
    this.recorder.setBody(this.record, body);
    return body;
  }

  async head(status: number, headers: AnswerHeaders): Promise<void> {
    await this.gate;
    this.throwIfAborted();
    if (this.response.headersSent) throw new Error("the status line was sent before");
    this.record.status = status;
    this.record.firstByteAtMs = clockMs();
    // uvicorn sends no Keep-Alive header; naming the connection keeps node from adding one.
    const connection = this.response.shouldKeepAlive ? "keep-alive" : "close";
    this.response.writeHead(status, { date: new Date().toUTCString(), server: "uvicorn", connection, ...headers, ...this.extraHeaders });
    this.response.flushHeaders();
  }

  /** One write; waits while the client does not read. */
  async write(piece: string | Uint8Array): Promise<void> {
    this.throwIfAborted();
    if (piece.length === 0) return;
    // Whoever sends its last words to a client that may be gone does not wait for it.
    if (this.response.write(piece) || this.ignoreAbort) return;
    await new Promise<void>((resolve, reject) => {
      const done = (): void => {
        this.response.off("drain", done);
        this.signal.removeEventListener("abort", failed);
        resolve();
      };
      const failed = (): void => {
        this.response.off("drain", done);
        reject(this.signal.reason as Error);
      };
      this.response.once("drain", done);
      this.signal.addEventListener("abort", failed, { once: true });
    });
  }

  end(): void {
    this.response.end();
  }

  async json(status: number, value: JsonObject | JsonObject[], headers: AnswerHeaders = {}): Promise<void> {
    await this.bytes(status, "application/json", Buffer.from(stringify(value)), headers);
  }

  /** A whole answer with its length. */
  async bytes(status: number, contentType: string | null, body: Uint8Array, headers: AnswerHeaders = {}): Promise<void> {
    const type: AnswerHeaders = contentType === null ? {} : { "content-type": contentType };
    await this.head(status, { ...type, "content-length": String(body.length), ...headers });
    if (this.request.method !== "HEAD") await this.write(body);
    this.end();
  }

  async error(error: ApiError): Promise<void> {
    await this.json(error.status, error.body());
  }

  /** RST instead of whatever was to come. A TLS socket is closed without its farewell. */
  reset(): void {
    this.cutByUs = true;
    const { socket } = this.request;
    if (socket instanceof TLSSocket) socket.destroy();
    else socket.resetAndDestroy();
  }

  /** Lets an error answer through after {@link kill}: an engine that dies still answers what is in flight. */
  sendAnyway(): void {
    this.ignoreAbort = true;
  }

  private throwIfAborted(): void {
    if (this.signal.aborted && !this.ignoreAbort) throw this.signal.reason as Error;
  }

  private close(): void {
    if (this.ended) return;
    this.ended = true;
    const { record } = this;
    record.open = false;
    record.endedAtMs = clockMs();
    if (record.modelCall) this.recorder.callEnded();
    if (this.response.writableFinished) {
      for (const callback of this.afterEnd) callback();
      return;
    }
    if (this.signal.aborted) return;
    if (!this.cutByUs) {
      record.aborted = true;
      record.abortedAtMs = record.endedAtMs;
    }
    this.abort.abort(new ClientGone());
  }
}
