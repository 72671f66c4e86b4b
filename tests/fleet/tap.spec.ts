import { connect, createServer, type Server, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { listenAnywhere } from "./ports.js";
import { RequestHeads, Tap } from "./tap.js";

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface Upstream {
  port: number;
  events: string[];
  sockets: Socket[];
  bytes: () => Buffer;
}

async function upstream(onConnection: (socket: Socket) => void = () => undefined): Promise<Upstream> {
  const events: string[] = [];
  const sockets: Socket[] = [];
  const pieces: Buffer[] = [];
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on("data", (data) => pieces.push(data));
    socket.on("end", () => events.push("end"));
    socket.on("error", (error) => events.push((error as NodeJS.ErrnoException).code ?? "error"));
    socket.on("close", () => events.push("close"));
    onConnection(socket);
  });
  const port = await listenAnywhere(server, "127.0.0.1");
  closers.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((done) => server.close(done));
  });
  return { port, events, sockets, bytes: () => Buffer.concat(pieces) };
}

async function tapTo(target: Promise<{ host: string; port: number }>): Promise<Tap> {
  const tap = await Tap.start(target);
  closers.push(() => tap.close());
  return tap;
}

function client(port: number): Promise<{ socket: Socket; events: string[]; bytes: () => Buffer }> {
  return new Promise((resolve) => {
    const events: string[] = [];
    const pieces: Buffer[] = [];
    const socket = connect({ host: "127.0.0.1", port, allowHalfOpen: true }, () => { resolve({ socket, events, bytes: () => Buffer.concat(pieces) }); });
    socket.on("data", (data) => pieces.push(data));
    socket.on("end", () => events.push("end"));
    socket.on("error", (error) => events.push((error as NodeJS.ErrnoException).code ?? "error"));
    socket.on("close", () => events.push("close"));
    closers.push(() => Promise.resolve(socket.destroy()));
  });
}

async function until(check: () => boolean): Promise<void> {
  for (let waited = 0; !check(); waited += 5) {
    if (waited > 3000) throw new Error("it did not come about");
    await new Promise((done) => setTimeout(done, 5));
  }
}

describe("the tap", () => {
  it("passes bytes on unchanged both ways and notes each request's lines as they were", async () => {
    const up = await upstream((socket) => socket.write("HTTP/1.1 200 OK\r\n\r\n"));
    const tap = await tapTo(Promise.resolve({ host: "127.0.0.1", port: up.port }));
    const { socket, bytes } = await client(tap.port);
    const sent = "POST /a?b=1 HTTP/1.1\r\nX-A: 1\r\nx-a:  2\r\nContent-Length: 4\r\n\r\n\0\xff{}GET /b HTTP/1.1\r\n\r\n";
    socket.write(Buffer.from(sent, "latin1"));
    await until(() => up.bytes().length === sent.length && bytes().length > 0);
    expect(up.bytes().toString("latin1")).toBe(sent);
    expect(bytes().toString()).toBe("HTTP/1.1 200 OK\r\n\r\n");
    expect(tap.requests()).toMatchObject([
      { connection: 1, method: "POST", path: "/a?b=1", headers: [["X-A", "1"], ["x-a", "2"], ["Content-Length", "4"]] },
      { connection: 1, method: "GET", path: "/b", headers: [] },
    ]);
  });

  it("passes a half close on, and the answer that comes after it", async () => {
    const up = await upstream((socket) => socket.on("end", () => socket.end("late")));
    const tap = await tapTo(Promise.resolve({ host: "127.0.0.1", port: up.port }));
    const { socket, events, bytes } = await client(tap.port);
    socket.end("x");
    await until(() => events.includes("close"));
    expect(bytes().toString()).toBe("late");
    expect(events).toEqual(["end", "close"]);
    expect(up.events).toEqual(["end", "close"]);
  });

  it("passes a reset on, either way", async () => {
    const up = await upstream();
    const tap = await tapTo(Promise.resolve({ host: "127.0.0.1", port: up.port }));
    const one = await client(tap.port);
    one.socket.write("x");
    await until(() => up.bytes().length === 1);
    one.socket.resetAndDestroy();
    await until(() => up.events.includes("close"));
    expect(up.events).toContain("ECONNRESET");

    const two = await client(tap.port);
    two.socket.write("y");
    await until(() => up.bytes().length === 2);
    up.sockets[1]?.resetAndDestroy();
    await until(() => two.events.includes("close"));
    expect(two.events).toContain("ECONNRESET");
  });

  it("passes an abrupt close of the client on", async () => {
    const up = await upstream();
    const tap = await tapTo(Promise.resolve({ host: "127.0.0.1", port: up.port }));
    const { socket } = await client(tap.port);
    socket.write("x");
    await until(() => up.bytes().length === 1);
    socket.destroy();
    await until(() => up.events.includes("end") || up.events.includes("ECONNRESET"));
  });

  it("cuts the client off when nothing listens behind", async () => {
    const gone = await upstream();
    for (const close of closers.splice(0)) await close();
    const tap = await tapTo(Promise.resolve({ host: "127.0.0.1", port: gone.port }));
    const { socket, events } = await client(tap.port);
    socket.write("x");
    await until(() => events.includes("close"));
    expect(events).toContain("ECONNRESET");
  });

  it("holds connections until the target is known, and loses none of their bytes", async () => {
    const up = await upstream();
    let known: (target: { host: string; port: number }) => void = () => undefined;
    const tap = await tapTo(new Promise((resolve) => (known = resolve)));
    const { socket } = await client(tap.port);
    socket.write("GET / HTTP/1.1\r\n\r\n");
    await new Promise((done) => setTimeout(done, 30));
    expect(up.sockets).toHaveLength(0);
    known({ host: "127.0.0.1", port: up.port });
    await until(() => up.bytes().length === 18);
    expect(tap.requests()).toHaveLength(1);
  });

  it("keeps back-pressure: a reader that stands still stops the writer", async () => {
    const up = await upstream((socket) => socket.pause());
    const tap = await tapTo(Promise.resolve({ host: "127.0.0.1", port: up.port }));
    const { socket } = await client(tap.port);
    const piece = Buffer.alloc(1024 * 1024);
    let written = 0;
    while (written < 200 && socket.write(piece)) written += 1;
    await new Promise((done) => setTimeout(done, 150));
    let more = 0;
    socket.on("drain", () => (more += 1));
    for (let at = 0; at < 64; at++) socket.write(piece);
    await new Promise((done) => setTimeout(done, 150));
    expect(socket.writableLength).toBeGreaterThan(16 * 1024 * 1024);
    expect(more).toBe(0);
  });
});

describe("heads of requests", () => {
  function heads(text: string, cut: number): string[] {
    const found: string[] = [];
    const reader = new RequestHeads((method, path) => found.push(`${method} ${path}`));
    const bytes = Buffer.from(text, "latin1");
    for (let at = 0; at < bytes.length; at += cut) reader.push(bytes.subarray(at, at + cut));
    return found;
  }

  const TEXT =
    "POST /1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\nx-checksum: 1\r\n\r\nPOST /2 HTTP/1.1\r\ncontent-length: 23\r\n\r\nPOST /no HTTP/1.1\r\n\r\n\r\nGET /3 HTTP/1.1\r\n\r\n";

  it.each([1, 2, 3, 5, 11, 1000])("are found between bodies, cut every %i bytes", (cut) => {
    expect(heads(TEXT, cut)).toEqual(["POST /1", "POST /2", "GET /3"]);
  });

  it("are given up where the bytes are no HTTP/1.1", () => {
    expect(heads("\x16\x03\x01\r\n\r\nGET / HTTP/1.1\r\n\r\n", 1000)).toEqual([]);
    expect(heads("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nGET /2 HTTP/1.1\r\n\r\n", 1000)).toEqual(["POST /"]);
  });
});
