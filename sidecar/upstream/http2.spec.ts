import type { ServerHttp2Stream } from "node:http2";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { keyPair, type KeyPair } from "../certificate.js";
import type { Sidecar } from "../server.js";
import { ask, header, metric, open, startTestSidecar } from "../testkit/harness.js";
import { Http2Upstream, sendJson2 } from "../testkit/http2-upstream.js";
import { until } from "../testkit/upstream.js";

const TLS = ["--enable-tls=prefiller,decoder,encoder", "--tls-insecure-skip-verify=prefiller,decoder,encoder"];
const HANDOFF = '{"kv_transfer_params":{"a":1}}';

describe("engines by HTTP/2", () => {
  let pair: KeyPair;
  const running: { close(): Promise<void> }[] = [];
  let sidecar: Sidecar;

  beforeAll(async () => {
    pair = await keyPair("");
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((one) => one.close()));
  });

  async function upstream(body: string, settings = {}): Promise<Http2Upstream> {
    const made = await Http2Upstream.start(
      pair,
      (_, stream) => {
        sendJson2(stream, body);
      },
      settings,
    );
    running.push(made);
    return made;
  }

  async function start(engine: Http2Upstream, ...flags: string[]): Promise<string> {
    sidecar = await startTestSidecar(engine.port, [...TLS, ...flags]);
    running.push(sidecar);
    return sidecar.url;
  }

  /** An engine that opens a stream of events for each call, to be gone on with by hand. */
  async function streaming(settings = {}): Promise<{ engine: Http2Upstream; streams: ServerHttp2Stream[] }> {
    const engine = await upstream("", settings);
    const streams: ServerHttp2Stream[] = [];
    engine.handler = (_, stream, call) => {
      // With trailers to come Node does not end the stream in order before it resets it.
      stream.respond({ ":status": 200, "content-type": "text/event-stream" }, { waitForTrailers: true });
      stream.on("wantTrailers", () => {
        if (!stream.closed) stream.sendTrailers({});
      });
      stream.write(`data: ${String(call)}\n\n`);
      streams.push(stream);
    };
    return { engine, streams };
  }

  it("every stage, on one connection each, with all bytes and headers", async () => {
    const engine = await upstream('{"id":"x"}');
    const prefiller = await upstream(HANDOFF);
    const encoder = await upstream("{}");
    const url = await start(engine, "--ec-connector=ec-nixl");
    const image = `data:image/png;base64,${"A".repeat(3_000_000)}`;
    const body = `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"${image}"}}]}],"max_tokens":7}`;
    for (let round = 0; round < 3; round++) {
      const answered = await ask(url, {
        headers: ["host", "one.test", "x-prefiller-host-port", prefiller.authority, "x-encoder-hosts-ports", encoder.authority, "cookie", "a=1", "x-two", "1", "x-two", "2", "x-request-id", "r"],
        body,
      });
      expect([answered.status, answered.body]).toEqual([200, '{"id":"x"}']);
    }
    expect([engine, prefiller, encoder].map(({ sessions, received }) => [sessions.length, received.length])).toEqual([[1, 3], [1, 3], [1, 3]]);
    const [decoded] = engine.received;
    expect(decoded?.headers).toMatchObject({ ":authority": "one.test", ":path": "/v1/chat/completions", ":method": "POST", cookie: "a=1", "x-two": "1, 2", "x-request-id": "r" });
    expect(decoded?.body.toString()).toBe(`${body.slice(0, -1)},"kv_transfer_params":{"a":1}}`);
    expect(encoder.received[0]?.headers[":authority"]).toBe(encoder.authority);
    expect(await metric(sidecar, "upstream_connections", { stage: "decode" })).toBe(1);
  });

  it("repeated headers, trailers and statuses of the answer reach the client", async () => {
    const engine = await upstream("");
    engine.handler = (_, stream) => {
      stream.respond({ ":status": 418, "set-cookie": ["a=1", "b=2"], "content-type": "text/plain" }, { waitForTrailers: true });
      stream.on("wantTrailers", () => {
        stream.sendTrailers({ "x-last": "word" });
      });
      stream.end("short and stout");
    };
    const url = await start(engine);
    const { head } = open(url, { body: "{}" });
    const response = await head;
    const chunks: Buffer[] = [];
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    await new Promise((resolve) => response.once("end", resolve));
    expect([response.statusCode, response.headers["set-cookie"], Buffer.concat(chunks).toString(), response.trailers["x-last"]]).toEqual([418, ["a=1", "b=2"], "short and stout", "word"]);
  });

  it("events arrive as they are sent; a client that leaves has its stream reset, and no other", async () => {
    const { engine, streams } = await streaming();
    const url = await start(engine);
    const leaving = open(url, { body: "{}" });
    const staying = open(url, { body: "{}" });
    const seen: string[] = [];
    (await staying.head).on("data", (chunk: Buffer) => seen.push(chunk.toString()));
    (await leaving.head).resume();
    await until(() => streams.length === 2);
    expect(engine.sessions).toHaveLength(1);
    leaving.request.destroy();
    await until(() => streams.some((stream) => stream.destroyed));
    const left = streams.find((stream) => !stream.destroyed);
    await until(() => seen.length === 1);
    left?.write("data: more\n\n");
    await until(() => seen.length === 2);
    expect(seen[1]).toBe("data: more\n\n");
    expect(engine.sessions[0]?.destroyed).toBe(false);
  });

  it("GOAWAY: open streams run to their end, new requests get a new connection", async () => {
    const { engine, streams } = await streaming();
    const url = await start(engine);
    const first = ask(url, { body: "{}" });
    await until(() => streams.length === 1);
    engine.sessions[0]?.goaway(0, 0x7fff_ffff);
    await sleep(50);
    const second = ask(url, { body: "{}" });
    await until(() => streams.length === 2);
    expect(engine.received.map(({ connection }) => connection)).toEqual([0, 1]);
    for (const stream of streams) stream.end("data: [DONE]\n\n");
    expect([await first, await second]).toMatchObject([
      { status: 200, body: "data: 0\n\ndata: [DONE]\n\n", whole: true },
      { status: 200, body: "data: 1\n\ndata: [DONE]\n\n", whole: true },
    ]);
  });

  it("an engine's limit on streams costs another connection and no request", async () => {
    const { engine, streams } = await streaming({ maxConcurrentStreams: 3 });
    const url = await start(engine);
    const warm = ask(url, { body: "{}" });
    await until(() => streams.length === 1);
    const all = [warm, ...Array.from({ length: 6 }, () => ask(url, { body: "{}" }))];
    await until(() => streams.length === 7);
    for (const stream of streams) stream.end();
    expect((await Promise.all(all)).every(({ status, whole }) => status === 200 && whole)).toBe(true);
    expect(engine.sessions.length).toBeGreaterThan(2);
  });

  it("a refused stream was not processed: it is sent again, even where a hand-off is on it", async () => {
    const engine = await upstream("{}");
    const prefiller = await upstream(HANDOFF);
    const url = await start(engine);
    engine.onStream = (stream, call) => {
      if (call > 0) return true;
      stream.close(7);
      return false;
    };
    const answered = await ask(url, { headers: ["x-prefiller-host-port", prefiller.authority], body: "{}" });
    expect([answered.status, engine.received.length, prefiller.received.length]).toEqual([200, 1, 1]);
    expect(engine.received[0]?.body.toString()).toBe('{"kv_transfer_params":{"a":1}}');
  });

  it("a stream that was reset for any other reason is not, where a hand-off is on it", async () => {
    const engine = await upstream("{}");
    const prefiller = await upstream(HANDOFF);
    const url = await start(engine);
    expect((await ask(url, { body: "{}" })).status).toBe(200);
    engine.handler = (_, stream) => {
      stream.close(2);
    };
    const answered = await ask(url, { headers: ["x-prefiller-host-port", prefiller.authority], body: "{}" });
    // The kept connection may be at fault: the request begins again from prefill, once, with new parameters.
    expect([answered.status, prefiller.received.length, engine.received.length]).toEqual([502, 2, 3]);
  });

  it("a connection that was lost while it was idle costs no request", async () => {
    const engine = await upstream("{}");
    const url = await start(engine);
    for (let round = 0; round < 5; round++) {
      expect((await ask(url, { body: "{}" })).status).toBe(200);
      engine.sessions.at(-1)?.destroy();
    }
    expect(engine.received).toHaveLength(5);
  });

  it("an answer that breaks stays broken, and one that comes too late is a 504", async () => {
    const { engine, streams } = await streaming();
    const url = await start(engine, "--decode-first-byte-timeout=100ms");
    const broken = ask(url, { body: "{}" });
    await until(() => streams.length === 1);
    await sleep(30);
    streams[0]?.close(2);
    expect(await broken).toMatchObject({ status: 200, body: "data: 0\n\n", whole: false });
    engine.handler = () => undefined;
    expect((await ask(url, { body: "{}" })).status).toBe(504);
    await until(() => engine.received.at(-1)?.aborted === true);
  });

  it("a connection that leads nowhere any more is given up when a request on it was", async () => {
    const engine = await upstream("{}");
    const pairs: Socket[] = [];
    const between = createServer((socket) => {
      const onward = connect(engine.port, "127.0.0.1");
      pairs.push(socket, onward);
      socket.pipe(onward).pipe(socket);
      for (const one of [socket, onward]) one.on("error", () => undefined);
    });
    await new Promise<void>((resolve) => between.listen(0, "127.0.0.1", resolve));
    running.push({
      close: async () => {
        for (const socket of pairs) socket.destroy();
        await new Promise((resolve) => between.close(resolve));
      },
    });
    sidecar = await startTestSidecar((between.address() as AddressInfo).port, [...TLS, "--decode-first-byte-timeout=100ms"]);
    running.push(sidecar);
    expect((await ask(sidecar.url, { body: "{}" })).status).toBe(200);
    // As when a host is gone: nothing comes any more, and nothing says so.
    for (const socket of pairs) socket.unpipe().pause();
    expect((await ask(sidecar.url, { body: "{}" })).status).toBe(504);
    await sleep(5200);
    expect([(await ask(sidecar.url, { body: "{}" })).status, engine.sessions.length]).toEqual([200, 2]);
  });

  it("a client that reads nothing stops the engine", async () => {
    const { engine, streams } = await streaming();
    const url = await start(engine);
    const { head } = open(url, { body: "{}" });
    const response = await head;
    response.pause();
    await until(() => streams.length === 1);
    const stream = streams[0];
    const chunk = Buffer.alloc(256 * 1024, "x");
    let written = 0;
    let full = false;
    while (written < 256 * 1024 * 1024 && !full) {
      written += chunk.length;
      if (stream?.write(chunk) === false) {
        full = !(await Promise.race([new Promise<boolean>((resolve) => stream.once("drain", () => { resolve(true); })), sleep(500, false)]));
      }
    }
    expect(full).toBe(true);
    expect(written).toBeLessThan(32 * 1024 * 1024);
    // And another one on the same connection is served meanwhile.
    engine.handler = (_, other) => {
      sendJson2(other, "{}");
    };
    const served = await ask(url, { body: "{}" });
    expect([served.status, engine.sessions.length, header(served, "content-type")]).toEqual([200, 1, ["application/json"]]);
    let read = 0;
    response.on("data", (piece: Buffer) => (read += piece.length));
    response.resume();
    stream?.end();
    await new Promise((resolve) => response.once("end", resolve));
    expect(read).toBe(written + "data: 0\n\n".length);
  });
});
