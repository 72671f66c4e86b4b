/**
 * A TCP proxy that stands between Envoy and a sidecar and notes the head of every request, line by line, as it went over the wire. The bytes pass through
 * unchanged both ways; an end, a reset and back-pressure are passed on.
 */
import { connect, createServer, type Server, type Socket } from "node:net";
import { clockMs, headerLines, type HeaderLine } from "./http.js";
import { listenAnywhere } from "./ports.js";

export interface TappedRequest {
  /** Which connection of the tap, from 1. */
  connection: number;
  atMs: number;
  method: string;
  /** With its query. */
  path: string;
  headers: HeaderLine[];
}

/** Follows the requests of one connection: a head, then a body that is skipped, then the next head. */
export class RequestHeads {
  private pending: Buffer = Buffer.alloc(0);
  private skip = 0;
  private state: "head" | "body" | "size" | "chunk" | "trailers" | "lost" = "head";
  private readonly found: (method: string, path: string, headers: HeaderLine[]) => void;

  constructor(found: (method: string, path: string, headers: HeaderLine[]) => void) {
    this.found = found;
  }

  /** The bytes were no HTTP/1.1: nothing more is read from this connection. */
  get lost(): boolean {
    return this.state === "lost";
  }

  push(data: Buffer): void {
    if (this.state === "lost") return;
    if ((this.state === "body" || this.state === "chunk") && this.pending.length === 0 && data.length <= this.skip) {
      // The bulk of a large body: nothing to keep.
      this.skip -= data.length;
      if (this.skip === 0) this.state = this.state === "body" ? "head" : "size";
      return;
    }
    this.pending = this.pending.length === 0 ? data : Buffer.concat([this.pending, data]);
    while (this.step());
  }

  private step(): boolean {
    switch (this.state) {
      case "head":
        return this.head();
      case "body":
      case "chunk": {
        const taken = Math.min(this.skip, this.pending.length);
        this.pending = this.pending.subarray(taken);
        this.skip -= taken;
        if (this.skip > 0) return false;
        this.state = this.state === "body" ? "head" : "size";
        return true;
      }
      case "size": {
        const line = this.line();
        if (line === null) return false;
        if (!/^[0-9a-fA-F]+/.test(line)) {
          this.state = "lost";
          return false;
        }
        const size = Number.parseInt(line, 16);
        // The CRLF after the chunk is skipped with it.
        this.skip = size + 2;
        this.state = size === 0 ? "trailers" : "chunk";
        return true;
      }
      case "trailers": {
        const line = this.line();
        if (line === null) return false;
        if (line === "") this.state = "head";
        return true;
      }
      case "lost":
        return false;
    }
  }

  private line(): string | null {
    const end = this.pending.indexOf("\r\n");
    if (end < 0) return null;
    const line = this.pending.toString("latin1", 0, end);
    this.pending = this.pending.subarray(end + 2);
    return line;
  }

  private head(): boolean {
    const end = this.pending.indexOf("\r\n\r\n");
    if (end < 0) return false;
    const [first = "", ...lines] = this.pending.toString("latin1", 0, end).split("\r\n");
    this.pending = this.pending.subarray(end + 4);
    const request = /^(\S+) (\S+) HTTP\/1\.[01]$/.exec(first);
    if (request === null) {
      this.state = "lost";
      return false;
    }
    const headers = lines.map((line): HeaderLine => {
      const colon = line.indexOf(":");
      return [line.slice(0, Math.max(colon, 0)), line.slice(colon + 1).trim()];
    });
    this.found(request[1] ?? "", request[2] ?? "", headers);
    if (headerLines(headers, "transfer-encoding").some((value) => /chunked/i.test(value))) {
      this.state = "size";
    } else {
      this.skip = Number(headerLines(headers, "content-length")[0] ?? "0");
      this.state = this.skip > 0 ? "body" : "head";
    }
    return true;
  }
}

/** Passes one direction on: pieces, back-pressure and the end. */
function pass(from: Socket, to: Socket, look: ((data: Buffer) => void) | null): void {
  from.on("data", (data) => {
    look?.(data);
    if (!to.write(data)) from.pause();
  });
  to.on("drain", () => from.resume());
  from.on("end", () => to.end());
}

/** A socket that closed by an error, or before its end came, was cut: the other one is reset too, so that the cut can be told from an end. */
function passCut(from: Socket, to: Socket): void {
  let failed = false;
  from.on("error", () => {
    failed = true;
  });
  from.on("close", () => {
    if (to.destroyed) return;
    if (failed || !from.readableEnded) to.resetAndDestroy();
  });
}

export class Tap {
  readonly host: string;
  readonly port: number;
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  private readonly seen: TappedRequest[] = [];

  private constructor(server: Server, host: string, port: number) {
    this.server = server;
    this.host = host;
    this.port = port;
  }

  /**
   * Listens on a free port of `host` and passes every connection on to the target. Connections that come before the target is known wait for it: so Envoy
   * can start beside the sidecars and finds none of them refusing.
   */
  static async start(target: Promise<{ host: string; port: number }>, host = "127.0.0.1"): Promise<Tap> {
    let connections = 0;
    const server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true });
    const port = await listenAnywhere(server, host);
    const tap = new Tap(server, host, port);
    server.on("connection", (client) => {
      tap.keep(client);
      const connection = ++connections;
      target.then(
        ({ host: targetHost, port: targetPort }) => {
          if (client.destroyed) return;
          const upstream = connect({ host: targetHost, port: targetPort, allowHalfOpen: true, noDelay: true });
          tap.keep(upstream);
          const heads = new RequestHeads((method, path, headers) => {
            tap.seen.push({ connection, atMs: clockMs(), method, path, headers });
          });
          pass(client, upstream, (data) => { heads.push(data); });
          pass(upstream, client, null);
          passCut(client, upstream);
          passCut(upstream, client);
          client.resume();
        },
        () => client.destroy(),
      );
    });
    return tap;
  }

  private keep(socket: Socket): void {
    this.sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => this.sockets.delete(socket));
  }

  /** The requests so far, in order of their heads. */
  requests(): readonly TappedRequest[] {
    return this.seen;
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => this.server.close(() => { resolve(); }));
  }
}
