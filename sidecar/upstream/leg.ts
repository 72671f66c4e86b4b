import { subscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import type { Dispatcher } from "undici";
import type { FlatHeaders } from "../headers.js";
import type { Metrics, Stage } from "../metrics.js";
import { type LegTrace, NO_TRACE, type RequestTrace } from "../telemetry/trace.js";
import { isHttp2, NotProcessedError } from "./http2.js";
import { LegError, legErrorOf } from "./leg-error.js";
import type { Upstream } from "./pools.js";

/** Bodies up to this size are joined for one write; larger ones go out piece by piece as they lie. undici keeps what was joined until the answer's end. */
const JOIN_BELOW_BYTES = 64 * 1024;

export interface LegRequest {
  readonly stage: Stage;
  readonly upstream: Upstream;
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  /** Without content length. */
  readonly headers: FlatHeaders;
  /** Null: no body at all. */
  readonly body: readonly Buffer[] | null;
  /** Milliseconds until the answer's head (`head`), its end (`end`) or the caller's word (`told`, {@link Leg.inTime}) must be there; 0: no deadline. */
  readonly timeoutMs: number;
  readonly timeoutUntil: "head" | "end" | "told";
  /**
   * Whether the request may be sent once more when a kept connection turns out to be closed before any byte of an answer. Not for a decode leg with a
   * hand-off: should the engine have read it after all, its parameters are used (DESIGN, decision 8).
   */
  readonly resendIfStale: boolean;
  /** The span that the call's own is below; absent: none. */
  readonly trace?: RequestTrace;
  /** On a connection that nothing used before: a repetition after a broken one must not meet another that broke with it. */
  readonly fresh?: boolean;
}

/** What a leg tells. `onHead` at most once, then `onData` any number of times, then one of `onEnd` and `onError`, which may also come first. */
export interface LegListener {
  onHead(status: number, headers: FlatHeaders, statusText: string): void;
  onData(chunk: Buffer): void;
  onEnd(trailers: FlatHeaders): void;
  onError(error: LegError): void;
}

const AWAITED: Readonly<Record<LegRequest["timeoutUntil"], string>> = { head: "first byte", end: "whole answer", told: "content" };

// undici says which socket a request goes out on only here. The channel is published in the same turn as, and right after, the handler's onRequestStart.
let starting: Leg | null = null;
subscribe("undici:client:sendHeaders", (message) => {
  const leg = starting;
  starting = null;
  const { socket } = message as { readonly socket?: Socket };
  if (leg !== null && socket !== undefined) leg.usesSocket(socket);
});

function announce(leg: Leg): void {
  starting = leg;
}

/** Sockets that carried a request before. */
const used = new WeakSet<Socket>();

/**
 * When a socket got its connection (`performance.now()`). A client whose request was aborted connects anew before it looks what is left to send, so a pool
 * also keeps connections that never carried a request; their peer closes them as it closes all idle ones.
 */
const connectedAtMs = new WeakMap<Socket, number>();
subscribe("undici:client:connected", (message) => {
  const { socket } = message as { readonly socket?: Socket };
  if (socket !== undefined) connectedAtMs.set(socket, performance.now());
});

/** One call to an engine: from dispatch to the end of its answer, with a deadline, an abort and back-pressure. */
export class Leg implements Dispatcher.DispatchHandler {
  readonly request: LegRequest;
  readonly #listener: LegListener;
  readonly #metrics: Metrics;
  readonly #startedAtMs = performance.now();
  #controller: Dispatcher.DispatchController | null = null;
  #socket: Socket | null = null;
  /** The connection is older than this call: its peer may have closed it meanwhile. */
  #socketKept = false;
  #dispatchedAtMs = 0;
  #bytesReadBefore = 0;
  #timer: NodeJS.Timeout | null = null;
  /** Why we ended it ourselves. */
  #endedBy: LegError | null = null;
  /** Begins with the call. */
  #trace: LegTrace | null = null;
  #sent = false;
  #sentBytes = 0;
  #receivedBytes = 0;
  #status = 0;
  #resent = false;
  #done = false;

  constructor(request: LegRequest, listener: LegListener, metrics: Metrics) {
    this.request = request;
    this.#listener = listener;
    this.#metrics = metrics;
  }

  start(): this {
    const { stage, timeoutMs, upstream } = this.request;
    this.#trace = (this.request.trace ?? NO_TRACE).leg(stage, upstream.authority);
    this.#metrics.legsInFlight.inc({ stage });
    this.request.upstream.running += 1;
    this.setDeadline(timeoutMs);
    this.#dispatch(this.request.fresh === true);
    return this;
  }

  /** The deadline counts from now on; 0: there is none. */
  setDeadline(timeoutMs: number): void {
    this.#clearTimer();
    if (this.#done || timeoutMs <= 0) return;
    this.#timer = setTimeout(() => {
      this.#stop(new LegError("timeout", `no ${AWAITED[this.request.timeoutUntil]} in ${String(timeoutMs)} ms`));
    }, timeoutMs);
  }

  /** What the deadline was for has come. */
  inTime(): void {
    this.#clearTimer();
  }

  /** Ends the call: its connection is closed, so that the engine stops. The listener gets the error `aborted`, once. */
  abort(reason: string): void {
    this.#stop(new LegError("aborted", reason));
  }

  /** Ends the call for a reason of its own. */
  fail(error: LegError): void {
    this.#stop(error);
  }

  /** Back-pressure: nothing more is read from the engine until {@link resume}. */
  pause(): void {
    this.#controller?.pause();
  }

  resume(): void {
    this.#controller?.resume();
  }

  get done(): boolean {
    return this.#done;
  }

  /** The whole body was handed to the connection: nothing reads it any more, but a resend before the head. */
  get sent(): boolean {
    return this.#sent;
  }

  /** The answer's status; 0 before its head. */
  get status(): number {
    return this.#status;
  }

  /** Whether the failure may be the kept connection's, not the engine's: it was there before and gave no byte of an answer to this call. */
  get brokeOnStaleConnection(): boolean {
    return this.#socketKept && !this.gotBytes;
  }

  /** Whether anything of an answer came, be it less than its head. */
  get gotBytes(): boolean {
    return this.#status !== 0 || (this.#socket !== null && this.#socket.bytesRead !== this.#bytesReadBefore);
  }

  /** @internal */
  usesSocket(socket: Socket): void {
    this.#socket = socket;
    this.#socketKept = used.has(socket) || (connectedAtMs.get(socket) ?? Number.POSITIVE_INFINITY) < this.#dispatchedAtMs;
    this.#bytesReadBefore = socket.bytesRead;
    used.add(socket);
  }

  #dispatch(fresh: boolean): void {
    const { upstream, method, target, body } = this.request;
    const headers = this.#trace?.inject(this.request.headers) ?? this.request.headers;
    let length = 0;
    if (body !== null) for (const piece of body) length += piece.length;
    const options: Dispatcher.DispatchOptions = {
      method: method as Dispatcher.HttpMethod,
      path: target,
      headers: body === null ? [...headers] : [...headers, "content-length", String(length)],
      // Iterables are bodies to undici (its types leave that out): a list of buffers is written as it lies, no copy of 8 MiB of media.
      body: body === null || length === 0 ? null : length <= JOIN_BELOW_BYTES ? joined(body) : ({ [Symbol.iterator]: () => this.#pieces(body) } as unknown as Buffer),
      servername: upstream.servername,
    } as Dispatcher.DispatchOptions;
    this.#sent = length <= JOIN_BELOW_BYTES;
    if (this.#sent) this.#sentBytes += length;
    this.#dispatchedAtMs = performance.now();
    if (fresh) upstream.dispatchFresh(options, this);
    else upstream.dispatch(options, this);
  }

  *#pieces(body: readonly Buffer[]): Generator<Buffer> {
    for (const piece of body) {
      this.#sentBytes += piece.length;
      yield piece;
    }
    this.#sent = true;
  }

  #stop(error: LegError): void {
    if (this.#done || this.#endedBy !== null) return;
    this.#endedBy = error;
    if (this.#controller !== null) this.#controller.abort(error);
    // Not on a connection yet: undici tells when it gets one, and onRequestStart ends it there.
    else this.#fail(error);
  }

  #fail(error: LegError): void {
    if (this.#done) return;
    this.#finish(error.failure);
    this.#listener.onError(error);
  }

  #finish(outcome: string): void {
    this.#done = true;
    this.#clearTimer();
    const { stage } = this.request;
    this.request.upstream.running -= 1;
    this.#metrics.legsInFlight.dec({ stage });
    this.#trace?.end(/^\dxx$/.test(outcome) ? null : outcome);
    this.#metrics.legs.inc({ stage, outcome });
    this.#metrics.legBytes.inc({ stage, direction: "sent" }, this.#sentBytes);
    this.#metrics.legBytes.inc({ stage, direction: "received" }, this.#receivedBytes);
    this.#metrics.legDuration.observe({ stage }, (performance.now() - this.#startedAtMs) / 1000);
  }

  #clearTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#endedBy !== null) {
      controller.abort(this.#endedBy);
      return;
    }
    this.#controller = controller;
    if (isHttp2(controller)) this.#socketKept = controller.reused;
    else announce(this);
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, _headers: unknown, statusText = ""): void {
    // 1xx are the connection's own affair.
    if (this.#done || status < 200) return;
    this.#status = status;
    if (this.request.timeoutUntil === "head") this.#clearTimer();
    this.#trace?.firstByte(status);
    this.#metrics.legFirstByte.observe({ stage: this.request.stage }, (performance.now() - this.#startedAtMs) / 1000);
    this.#listener.onHead(status, flat(controller.rawHeaders), statusText);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#done) return;
    this.#receivedBytes += chunk.length;
    this.#listener.onData(chunk);
  }

  onResponseEnd(controller: Dispatcher.DispatchController): void {
    if (this.#done) return;
    this.#finish(`${String(Math.floor(this.#status / 100))}xx`);
    this.#listener.onEnd(flat(controller.rawTrailers));
  }

  onResponseError(_controller: Dispatcher.DispatchController, cause: Error): void {
    if (this.#done) return;
    if (this.#endedBy === null && !this.#resent && (cause instanceof NotProcessedError || (this.request.resendIfStale && this.brokeOnStaleConnection))) {
      this.#resent = true;
      this.#controller = null;
      this.#socket = null;
      this.#socketKept = false;
      this.#metrics.retries.inc({ stage: this.request.stage, reason: "stale_connection" });
      this.#trace?.resent();
      this.#dispatch(true);
      return;
    }
    this.#fail(this.#endedBy ?? legErrorOf(cause));
  }
}

function joined(body: readonly Buffer[]): Buffer {
  return body.length === 1 && body[0] !== undefined ? body[0] : Buffer.concat(body);
}

/** undici's list of names and values as text: bytes as they came, one character each, as Node's own headers are. */
function flat(raw: Dispatcher.DispatchController["rawHeaders"]): string[] {
  return Array.isArray(raw) ? raw.map((entry) => (typeof entry === "string" ? entry : entry.toString("latin1"))) : [];
}
