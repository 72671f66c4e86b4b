import { createServer, type Server, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { AnswerReader, send } from "./http.js";
import { freePort, listenAnywhere } from "./ports.js";

const servers: Server[] = [];
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await Promise.all(servers.splice(0).map((server) => new Promise((done) => server.close(done))));
});

/** A server that hands every connection to `serve`, and notes what it was sent. */
async function serve(onData: (socket: Socket, text: string) => void): Promise<{ port: number; text: () => string; events: string[] }> {
  let all = "";
  const events: string[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on("data", (data) => {
      all += data.toString("latin1");
      events.push("data");
      onData(socket, all);
    });
    socket.on("error", () => events.push("error"));
    socket.on("close", () => events.push("close"));
  });
  servers.push(server);
  return { port: await listenAnywhere(server, "127.0.0.1"), text: () => all, events };
}

describe("the client's requests", () => {
  it("go out as spelt: case and repeats of headers, a body with its length", async () => {
    const server = await serve((socket, text) => {
      if (text.endsWith("abc")) socket.end("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n");
    });
    const answer = await send({ host: "127.0.0.1", port: server.port, method: "POST", path: "/x?y=1", headers: [["Host", "h"], ["X-One", "1"], ["x-one", "2"]], body: Buffer.from("abc") });
    expect(server.text()).toBe("POST /x?y=1 HTTP/1.1\r\nHost: h\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 3\r\n\r\nabc");
    expect(answer).toMatchObject({ status: 204, end: "clean", headers: [["X-A", "1"]] });
    expect(answer.sentAtMs).not.toBeNull();
  });

  it("go out chunked with trailers, three pieces as three chunks", async () => {
    const server = await serve((socket, text) => {
      if (text.includes("x-checksum: 1\r\n\r\n")) socket.end("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    const answer = await send({ host: "127.0.0.1", port: server.port, method: "POST", path: "/", chunks: [Buffer.from("ab"), Buffer.from("cd"), Buffer.from("0123456789abcdef")], trailers: [["x-checksum", "1"]] });
    expect(server.text()).toBe(
      `POST / HTTP/1.1\r\nHost: 127.0.0.1:${server.port.toString()}\r\nTransfer-Encoding: chunked\r\nTrailer: x-checksum\r\n\r\n2\r\nab\r\n2\r\ncd\r\n10\r\n0123456789abcdef\r\n0\r\nx-checksum: 1\r\n\r\n`,
    );
    expect(answer.body.toString()).toBe("ok");
  });

  it("have neither length nor chunks without a body, and keep those that the caller sets", async () => {
    const server = await serve((socket) => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    await send({ host: "127.0.0.1", port: server.port, method: "GET", path: "/" });
    expect(server.text()).not.toMatch(/content-length|transfer-encoding/i);
    const other = await serve((socket) => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    await send({ host: "127.0.0.1", port: other.port, method: "POST", path: "/", headers: [["content-length", "9"]], body: Buffer.from("abc") });
    expect(other.text().match(/content-length/gi)).toHaveLength(1);
  });

  it("stop when the answer comes before the body is sent, and its whole body is read", async () => {
    const server = await serve((socket, text) => {
      if (text.length < 300_000) socket.write("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 5\r\n\r\nlarge");
    });
    const answer = await send({ host: "127.0.0.1", port: server.port, method: "POST", path: "/", body: Buffer.alloc(64 * 1024 * 1024, 65) });
    expect(answer).toMatchObject({ status: 413, end: "clean" });
    expect(answer.body.toString()).toBe("large");
    expect(server.text().length).toBeLessThan(64 * 1024 * 1024);
  });

  it("are left after the given time, and the other side sees the connection close", async () => {
    const server = await serve(() => undefined);
    const answer = await send({ host: "127.0.0.1", port: server.port, method: "POST", path: "/", body: Buffer.from("x"), leaveAfterMs: 30 });
    expect(answer).toMatchObject({ status: null, end: "left" });
    expect((answer.leftAtMs ?? 0) - (answer.sentAtMs ?? 0)).toBeGreaterThanOrEqual(25);
    await new Promise((done) => setTimeout(done, 50));
    expect(server.events).toContain("close");
  });

  it("are left when the caller says so, in the middle of a body too", async () => {
    const server = await serve(() => undefined);
    const leave = new AbortController();
    const answer = send({ host: "127.0.0.1", port: server.port, method: "POST", path: "/", headers: [["Content-Length", "100"]], body: Buffer.from("x"), leave: leave.signal });
    await expect.poll(() => server.text()).toContain("\r\n\r\nx");
    leave.abort();
    expect(await answer).toMatchObject({ status: null, end: "left", leftAtMs: expect.any(Number) as number });
    await expect.poll(() => server.events).toContain("close");
  });

  it("end with a time-out when no answer comes, and without a status when nothing listens", async () => {
    const server = await serve(() => undefined);
    expect(await send({ host: "127.0.0.1", port: server.port, method: "GET", path: "/", timeoutMs: 40 })).toMatchObject({ status: null, end: "timeout" });
    const refused = await send({ host: "127.0.0.1", port: await freePort(), method: "GET", path: "/" });
    expect(refused).toMatchObject({ status: null, end: "broken" });
    expect(refused.error).toContain("ECONNREFUSED");
  });
});

describe("the client's reading of an answer", () => {
  function read(text: string, options: { method?: string; ended?: boolean; cut?: number } = {}): { reader: AnswerReader; clean: boolean; body: string } {
    const reader = new AnswerReader(options.method ?? "POST");
    const bytes = Buffer.from(text);
    const step = options.cut ?? bytes.length;
    for (let at = 0; at < bytes.length; at += step) reader.push(bytes.subarray(at, at + step));
    const clean = options.ended === true ? reader.finish() : reader.complete;
    return { reader, clean, body: Buffer.concat(reader.pieces).toString() };
  }

  const CHUNKED = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nx-a: 2\r\n\r\n3\r\nabc\r\nA;ext=1\r\n0123456789\r\n0\r\nX-T: t\r\n\r\n";

  it.each([1, 2, 3, 7, 1000])("reads chunks and trailers, cut every %i bytes", (cut) => {
    const { reader, clean, body } = read(CHUNKED, { cut });
    expect([clean, body, reader.status]).toEqual([true, "abc0123456789", 200]);
    expect(reader.headers.slice(1)).toEqual([
      ["X-A", "1"],
      ["x-a", "2"],
    ]);
    expect(reader.trailers).toEqual([["X-T", "t"]]);
  });

  it("tells a broken end from a clean one", () => {
    expect(read(CHUNKED.slice(0, -2), { ended: true }).clean).toBe(false);
    expect(read(CHUNKED.slice(0, -10), { ended: true }).clean).toBe(false);
    expect(read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", { ended: true }).clean).toBe(false);
    expect(read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", { ended: true }).clean).toBe(true);
    expect(read("HTTP/1.1 200 OK\r\n\r\nabc", { ended: true }).clean).toBe(true);
    expect(read("HTTP/1.1 200 OK\r\n\r\nabc").clean).toBe(false);
    expect(read("HTTP/1.1 200", { ended: true }).clean).toBe(false);
  });

  it("skips informational answers and reads none where there is no body", () => {
    expect(read("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).toMatchObject({ clean: true, body: "ok" });
    expect(read("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", { method: "HEAD" }).clean).toBe(true);
    expect(read("HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n").clean).toBe(true);
  });

  it("says what is no HTTP/1.1", () => {
    expect(read("SSH-2.0\r\n\r\n").reader.bad).toBe("no HTTP/1.1 status line");
    expect(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n").reader.bad).toBe("bad chunk size");
    expect(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n").reader.bad).toContain("does not end where its size says");
  });
});
