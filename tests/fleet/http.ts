/**
 * An HTTP/1.1 client on a plain socket. Tests need the bytes of a request as they say: header spelling and order, repeated lines, chunk sizes, trailers; and
 * they need to know how an answer ended.
 */
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { hostPortText } from "./address.js";

export type HeaderLine = [name: string, value: string];

export interface RequestOptions {
  host: string;
  port: number;
  method: string;
  /** The request target as it goes on the wire. */
  path: string;
  /** As spelt, in order. `host`, `content-length` and `transfer-encoding` are added when they are not among them. */
  headers?: readonly HeaderLine[];
  body?: Buffer | null;
  /** Instead of a content-length: the pieces of a chunked body, one write each. */
  chunks?: readonly Buffer[] | null;
  /** After the last piece of a chunked body. */
  trailers?: readonly HeaderLine[];
  /** The client closes its connection so long after the request was sent. */
  leaveAfterMs?: number | null;
  /** The client closes its connection when this is aborted, whatever it has sent or received by then. */
  leave?: AbortSignal;
  /** No answer's end within that: the connection is closed, the end is "timeout". */
  timeoutMs?: number;
  /** TLS without verification (self-signed sidecars). */
  tls?: boolean;
  /** Called with each piece of the answer's body as it comes. */
  onBody?: (piece: Buffer) => void;
}

export interface Answer {
  /** null: no status line came. */
  status: number | null;
  headers: HeaderLine[];
  body: Buffer;
  trailers: HeaderLine[];
  /** `clean`: as its framing says; `broken`: cut off before that; `left`: we closed; `timeout`. */
  end: "clean" | "broken" | "left" | "timeout";
  /** What the socket said, where it broke. */
  error: string | null;
  startedAtMs: number;
  /** When the last byte of the request was handed to the system; null when that never came about. */
  sentAtMs: number | null;
  firstByteAtMs: number | null;
  endedAtMs: number;
  /** When we closed the connection by `leaveAfterMs` or `leave`. */
  leftAtMs: number | null;
}

/** The clock of all records: milliseconds since 1970, with a fraction, the same in all processes of a machine. */
export function clockMs(): number {
  return performance.timeOrigin + performance.now();
}

/** The lines of one header, in order. */
export function headerLines(headers: readonly (readonly [string, string])[], name: string): string[] {
  const wanted = name.toLowerCase();
  return headers.filter(([header]) => header.toLowerCase() === wanted).map(([, value]) => value);
}

type Framing = { kind: "none" } | { kind: "length"; left: number } | { kind: "close" } | { kind: "size" } | { kind: "chunk"; left: number } | { kind: "crlf" } | { kind: "trailers" };

/** Reads one answer from the bytes of a connection. */
export class AnswerReader {
  status: number | null = null;
  headers: HeaderLine[] = [];
  trailers: HeaderLine[] = [];
  readonly pieces: Buffer[] = [];
  /** The answer is complete by its framing. */
  complete = false;
  /** The bytes are no HTTP/1.1 answer. */
  bad: string | null = null;
  private pending: Buffer = Buffer.alloc(0);
  private framing: Framing | null = null;
  private readonly head: boolean;
  private readonly onBody: ((piece: Buffer) => void) | undefined;

  /** @param method HEAD answers have no body */
  constructor(method: string, onBody?: (piece: Buffer) => void) {
    this.head = method === "HEAD";
    this.onBody = onBody;
  }

  push(data: Buffer): void {
    this.pending = this.pending.length === 0 ? data : Buffer.concat([this.pending, data]);
    while (!this.complete && this.bad === null && this.step());
  }

  /** The peer has ended the connection. True when that is how the answer ends, or it had ended. */
  finish(): boolean {
    if (this.framing?.kind === "close" && this.bad === null) this.complete = true;
    return this.complete;
  }

  private take(bytes: number): Buffer {
    const taken = this.pending.subarray(0, bytes);
    this.pending = this.pending.subarray(bytes);
    return taken;
  }

  private line(): string | null {
    const end = this.pending.indexOf("\r\n");
    if (end < 0) return null;
    const line = this.take(end).toString("latin1");
    this.take(2);
    return line;
  }

  private emit(piece: Buffer): void {
    if (piece.length === 0) return;
    this.pieces.push(piece);
    this.onBody?.(piece);
  }

  /** One step of the parse; false when more bytes are needed. */
  private step(): boolean {
    if (this.framing === null) return this.readHead();
    switch (this.framing.kind) {
      case "none":
        this.complete = true;
        return false;
      case "length": {
        const piece = this.take(Math.min(this.framing.left, this.pending.length));
        this.framing.left -= piece.length;
        this.emit(piece);
        if (this.framing.left > 0) return false;
        this.complete = true;
        return false;
      }
      case "close":
        this.emit(this.take(this.pending.length));
        return false;
      case "size": {
        const line = this.line();
        if (line === null) return false;
        const size = /^([0-9A-Fa-f]+)[ \t]*(?:;.*)?$/.exec(line)?.[1];
        if (size === undefined) {
          this.bad = "bad chunk size";
          return false;
        }
        const left = Number.parseInt(size, 16);
        this.framing = left === 0 ? { kind: "trailers" } : { kind: "chunk", left };
        return true;
      }
      case "chunk": {
        const piece = this.take(Math.min(this.framing.left, this.pending.length));
        this.framing.left -= piece.length;
        this.emit(piece);
        if (this.framing.left > 0) return false;
        this.framing = { kind: "crlf" };
        return true;
      }
      case "crlf": {
        if (this.pending.length < 2) return false;
        if (this.take(2).toString("latin1") !== "\r\n") {
          this.bad = "a chunk does not end where its size says";
          return false;
        }
        this.framing = { kind: "size" };
        return true;
      }
      case "trailers": {
        const line = this.line();
        if (line === null) return false;
        if (line === "") {
          this.complete = true;
          return false;
        }
        this.trailers.push(splitLine(line));
        return true;
      }
    }
  }

  private readHead(): boolean {
    const end = this.pending.indexOf("\r\n\r\n");
    if (end < 0) return false;
    const lines = this.take(end).toString("latin1").split("\r\n");
    this.take(4);
    const status = /^HTTP\/1\.[01] ([0-9]{3})(?: |$)/.exec(lines[0] ?? "")?.[1];
    if (status === undefined) {
      this.bad = "no HTTP/1.1 status line";
      return false;
    }
    // An informational answer (100, 103) comes before the real one.
    if (status.startsWith("1") && status !== "101") return true;
    this.status = Number(status);
    this.headers = lines.slice(1).map(splitLine);
    this.framing = this.bodyFraming();
    return true;
  }

  private bodyFraming(): Framing {
    if (this.head || this.status === 204 || this.status === 304) return { kind: "none" };
    if (headerLines(this.headers, "transfer-encoding").some((value) => /(?:^|,)\s*chunked\s*$/i.test(value))) return { kind: "size" };
    const length = headerLines(this.headers, "content-length")[0];
    if (length === undefined) return { kind: "close" };
    return { kind: "length", left: Number(length) };
  }
}

function splitLine(line: string): HeaderLine {
  const colon = line.indexOf(":");
  return [line.slice(0, Math.max(colon, 0)), line.slice(colon + 1).trim()];
}

/** A large body is written in slices, so that an early answer (413) is read before the rest is pushed into a closed connection. */
const SLICE_BYTES = 256 * 1024;
/** Between two pieces of a chunked body, so that they are pieces on the other side too. */
const PIECE_GAP_MS = 5;
const DEFAULT_TIMEOUT_MS = 60_000;

function hasChunks(options: RequestOptions): boolean {
  return options.chunks !== undefined && options.chunks !== null;
}

function headBytes(options: RequestOptions): Buffer {
  const lines: HeaderLine[] = [...(options.headers ?? [])];
  const has = (name: string): boolean => lines.some(([header]) => header.toLowerCase() === name);
  if (!has("host")) lines.unshift(["Host", hostPortText(options)]);
  if (hasChunks(options)) {
    if (!has("transfer-encoding")) lines.push(["Transfer-Encoding", "chunked"]);
    const trailers = options.trailers ?? [];
    if (trailers.length > 0 && !has("trailer")) lines.push(["Trailer", trailers.map(([name]) => name).join(", ")]);
  } else if ((options.body ?? null) !== null && !has("content-length")) {
    lines.push(["Content-Length", (options.body?.length ?? 0).toString()]);
  }
  const text = [`${options.method} ${options.path} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`)].join("\r\n");
  return Buffer.from(`${text}\r\n\r\n`, "utf8");
}

/** Writes, and waits while the socket is full. False when the connection is gone or the answer is already complete. */
function write(socket: Socket, bytes: Buffer, stopped: () => boolean): Promise<boolean> {
  if (stopped() || socket.destroyed) return Promise.resolve(false);
  return new Promise((resolve) => {
    const done = (): void => {
      socket.removeListener("drain", done);
      socket.removeListener("close", done);
      resolve(!stopped() && !socket.destroyed);
    };
    if (socket.write(bytes)) {
      resolve(true);
      return;
    }
    socket.on("drain", done);
    socket.on("close", done);
  });
}

async function writeRequest(socket: Socket, options: RequestOptions, stopped: () => boolean): Promise<boolean> {
  const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
  if (hasChunks(options)) {
    if (!(await write(socket, headBytes(options), stopped))) return false;
    for (const piece of options.chunks ?? []) {
      await pause(PIECE_GAP_MS);
      const sized = Buffer.concat([Buffer.from(`${piece.length.toString(16)}\r\n`), piece, Buffer.from("\r\n")]);
      if (!(await write(socket, sized, stopped))) return false;
    }
    if ((options.trailers ?? []).length > 0) await pause(PIECE_GAP_MS);
    const trailers = (options.trailers ?? []).map(([name, value]) => `${name}: ${value}\r\n`).join("");
    return write(socket, Buffer.from(`0\r\n${trailers}\r\n`), stopped);
  }
  const body = options.body ?? Buffer.alloc(0);
  if (!(await write(socket, Buffer.concat([headBytes(options), body.subarray(0, SLICE_BYTES)]), stopped))) return false;
  for (let at = SLICE_BYTES; at < body.length; at += SLICE_BYTES) {
    if (!(await write(socket, body.subarray(at, at + SLICE_BYTES), stopped))) return false;
  }
  return true;
}

/** Sends one request on a connection of its own and reads its answer to the end. Never rejects: a connection that fails is an answer without a status. */
export function send(options: RequestOptions): Promise<Answer> {
  return new Promise((resolve) => {
    const startedAtMs = clockMs();
    const reader = new AnswerReader(options.method, options.onBody);
    const socket = options.tls === true ? connectTls({ host: options.host, port: options.port, rejectUnauthorized: false }) : connect({ host: options.host, port: options.port });
    socket.setNoDelay(true);
    let sentAtMs: number | null = null;
    let firstByteAtMs: number | null = null;
    let leftAtMs: number | null = null;
    let error: string | null = null;
    let settled = false;
    let leave: NodeJS.Timeout | undefined;

    const settle = (end: Answer["end"]): void => {
      if (settled) return;
      settled = true;
      clearTimeout(leave);
      clearTimeout(limit);
      options.leave?.removeEventListener("abort", left);
      socket.destroy();
      resolve({
        status: reader.status,
        headers: reader.headers,
        body: Buffer.concat(reader.pieces),
        trailers: reader.trailers,
        end,
        error: error ?? reader.bad,
        startedAtMs,
        sentAtMs,
        firstByteAtMs,
        endedAtMs: clockMs(),
        leftAtMs,
      });
    };
    const limit = setTimeout(() => { settle("timeout"); }, options.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    const left = (): void => {
      leftAtMs = clockMs();
      settle("left");
    };
    options.leave?.addEventListener("abort", left, { once: true });

    socket.on("data", (data) => {
      firstByteAtMs ??= clockMs();
      reader.push(data);
      if (reader.complete) settle("clean");
      else if (reader.bad !== null) settle("broken");
    });
    socket.on("end", () => { settle(reader.finish() ? "clean" : "broken"); });
    socket.on("error", (problem) => {
      error = problem.message;
    });
    socket.on("close", () => { settle(reader.complete ? "clean" : "broken"); });
    socket.once(options.tls === true ? "secureConnect" : "connect", () => {
      void writeRequest(socket, options, () => settled || reader.complete).then((whole) => {
        if (!whole) return;
        sentAtMs = clockMs();
        const after = options.leaveAfterMs ?? null;
        if (after === null || settled) return;
        leave = setTimeout(left, after);
      });
    });
  });
}
