import { connect as connectHttp2 } from "node:http2";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Sidecar } from "../server.js";
import { type Ask, ask, errorOf, header, metric, open, startTestSidecar } from "../testkit/harness.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";

describe("relay", () => {
  let engine: TestUpstream;
  let prefiller: TestUpstream;
  let sidecar: Sidecar | null = null;

  beforeEach(async () => {
    engine = await TestUpstream.start((_, response) => {
      sendJson(response, '{"ok":true}');
    });
    prefiller = await TestUpstream.start();
  });

  afterEach(async () => {
    await Promise.all([sidecar?.close(), engine.close(), prefiller.close()]);
    sidecar = null;
  });

  async function start(...flags: string[]): Promise<Sidecar> {
    sidecar = await startTestSidecar(engine, flags);
    return sidecar;
  }

  /** Sends to a sidecar with these flags and says what became of it. */
  async function send(what: Ask, ...flags: string[]): Promise<Awaited<ReturnType<typeof ask>>> {
    const { url } = sidecar ?? (await start(...flags));
    return ask(url, what);
  }

  describe("the engine's failures", () => {
    it("C-RT-08: an engine that refuses connections is a 503 with Retry-After, and not ready", async () => {
      const port = await TestUpstream.refusedPort();
      sidecar = await startTestSidecar(port);
      for (const what of [{ body: "{}" }, { method: "GET", target: "/v1/models" }, { method: "GET", target: "/ready" }]) {
        const answered = await ask(sidecar.url, what);
        expect([answered.status, errorOf(answered).type, header(answered, "retry-after").length, header(answered, "content-type")]).toEqual([503, "ServiceUnavailable", 1, ["application/json"]]);
        expect(answered.body).not.toMatch(/ECONN/);
      }
      expect((await ask(sidecar.url, { method: "GET", target: "/health" })).status).toBe(200);
    });

    it("spends no prefill while the engine is known to be away, and serves again once it is back", async () => {
      const port = await TestUpstream.refusedPort();
      sidecar = await startTestSidecar(port);
      const what = { body: "{}", headers: ["x-prefiller-host-port", prefiller.authority] };
      expect((await ask(sidecar.url, { body: "{}" })).status).toBe(503);
      expect([(await ask(sidecar.url, what)).status, prefiller.received.length]).toEqual([503, 0]);
    });


    it("C-RT-09: an engine that closes without an answer is a 502", async () => {
      engine.handler = (_, response) => {
        response.destroy();
      };
      const answered = await send({ body: "{}" });
      expect([answered.status, errorOf(answered).type, engine.received.length]).toEqual([502, "BadGateway", 1]);
      expect(answered.body).not.toMatch(/socket|reset|closed by/i);
    });

    it("C-RT-10: a stream that breaks stays broken, and the next request is served", async () => {
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\n\n");
        setTimeout(() => response.destroy(), 30);
      };
      const answered = await send({ body: "{}" });
      expect([answered.status, answered.body, answered.whole]).toEqual([200, "data: 1\n\n", false]);
      engine.handler = (_, response) => {
        sendJson(response, "{}");
      };
      expect((await send({ body: "{}" })).status).toBe(200);
    });

    it("C-RT-10: so over HTTP/2", async () => {
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\n\n");
        setTimeout(() => response.destroy(), 30);
      };
      const { url } = await start("--secure-proxy");
      const session = connectHttp2(url, { rejectUnauthorized: false });
      const stream = session.request({ ":method": "POST", ":path": "/v1/chat/completions" });
      stream.end("{}");
      let text = "";
      stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
      const error = await new Promise<Error | null>((resolve) => {
        stream.once("error", resolve);
        stream.once("end", () => {
          resolve(null);
        });
      });
      session.destroy();
      expect([text, error === null]).toEqual(["data: 1\n\n", false]);
    });

    it("an engine that does not answer in time is a 504", async () => {
      engine.handler = () => undefined;
      const answered = await send({ body: "{}" }, "--decode-first-byte-timeout=50ms");
      expect([answered.status, errorOf(answered).type]).toEqual([504, "GatewayTimeout"]);
      await until(() => engine.received[0]?.aborted === true);
    });

    it("once the first byte is there, an answer may take as long as it takes", async () => {
      engine.handler = async (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\n\n");
        await sleep(200);
        response.end("data: 2\n\n");
      };
      const answered = await send({ body: "{}" }, "--decode-first-byte-timeout=100ms");
      expect([answered.body, answered.whole]).toEqual(["data: 1\n\ndata: 2\n\n", true]);
    });

    it("a status of the engine is the client's", async () => {
      engine.handler = (_, response) => {
        sendJson(response, { error: { message: "no such response" } }, 404, { "x-e": "1" });
      };
      const answered = await send({ target: "/v1/responses", body: '{"previous_response_id":"r"}' });
      expect([answered.status, answered.body, header(answered, "x-e")]).toEqual([404, '{"error":{"message":"no such response"}}', ["1"]]);
    });
  });

  describe("streams", () => {
    it("C-RT-11: each event arrives when the engine has sent it, the head before the first", async () => {
      const steps: (() => void)[] = [];
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.flushHeaders();
        steps.push(
          () => void response.write("data: 1\n\n"),
          () => void response.write("data: 2\n\n"),
          () => void response.end(),
        );
      };
      const { url } = await start();
      const response = await open(url, { body: "{}" }).head;
      for (const expected of ["data: 1\n\n", "data: 2\n\n"]) {
        const next = new Promise<string>((resolve) => response.once("data", (chunk: Buffer) => { resolve(chunk.toString()); }));
        steps.shift()?.();
        expect(await next).toBe(expected);
      }
      steps.shift()?.();
      await new Promise((resolve) => response.once("end", resolve));
    });

    it("a client that leaves ends the engine's call", async () => {
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\n\n");
      };
      const running = await start();
      const { request, head } = open(running.url, { body: "{}" });
      await head;
      request.destroy();
      await until(() => engine.received[0]?.aborted === true, 1000);
      engine.handler = () => undefined;
      const waiting = open(running.url, { body: "{}" });
      await until(() => engine.received.length === 2);
      waiting.request.destroy();
      await until(() => engine.received[1]?.aborted === true, 1000);
      await sleep(20);
      expect([await metric(running, "in_flight_requests"), await metric(running, "in_flight_legs")]).toEqual([0, 0]);
    });

    it.each(["--secure-proxy=false", "--secure-proxy"])("a client that reads nothing stops the engine and grows no memory (%s)", async (secure) => {
      let written = 0;
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        const chunk = `data: ${"x".repeat(64 * 1024)}\n\n`;
        const more = (): void => {
          while (!response.destroyed) {
            written += chunk.length;
            if (!response.write(chunk)) {
              response.once("drain", more);
              return;
            }
          }
        };
        more();
      };
      const { url } = await start(secure);
      const { request, head } = open(url, { body: "{}" });
      const response = await head;
      response.pause();
      await sleep(300);
      const before = written;
      await sleep(300);
      // What the sockets hold, on loopback some megabytes each, and no more.
      expect([written - before, before < 40_000_000]).toEqual([0, true]);
      request.destroy();
    });

    it("so does one over HTTP/2", async () => {
      let written = 0;
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        const more = (): void => {
          while (!response.destroyed) {
            written += 65_536;
            if (!response.write(Buffer.alloc(65_536, "x"))) {
              response.once("drain", more);
              return;
            }
          }
        };
        more();
      };
      const { url } = await start("--secure-proxy");
      const session = connectHttp2(url, { rejectUnauthorized: false });
      const stream = session.request({ ":method": "POST", ":path": "/v1/chat/completions" });
      stream.end("{}");
      stream.on("error", () => undefined);
      await new Promise((resolve) => stream.once("response", resolve));
      await sleep(300);
      const before = written;
      await sleep(300);
      expect([written - before, before > 0, before < 40_000_000]).toEqual([0, true, true]);
      session.destroy();
      await until(() => engine.received[0]?.aborted === true, 1000);
    });

    it.each(["--secure-proxy=false", "--secure-proxy"])("a client that leaves its answer unread is cut, a stream or a whole answer (%s)", async (secure) => {
      const running = await start(secure, "--client-idle-timeout=300ms");
      for (const type of ["text/event-stream", "application/json"]) {
        const calls = engine.received.length;
        engine.handler = (_, response) => {
          response.writeHead(200, { "content-type": type });
          for (let pieces = 0; pieces < 64; pieces++) response.write(Buffer.alloc(1_000_000, "x"));
        };
        const { head } = open(running.url, { body: "{}" });
        const response = await head;
        response.on("error", () => undefined);
        response.pause();
        await until(() => engine.received[calls]?.aborted === true, 15_000);
      }
      expect([await metric(running, "clients_cut_total", { reason: "unread" }), await metric(running, "in_flight_requests")]).toEqual([2, 0]);
    });

    it("so is one whose answer is there to its end already, and one stream of many over HTTP/2", async () => {
      const running = await start("--secure-proxy", "--client-idle-timeout=300ms");
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "application/json" });
        // Less than what the engine is stopped at, more than what the client's window takes.
        response.end(Buffer.alloc(150_000, "x"));
      };
      const session = connectHttp2(running.url, { rejectUnauthorized: false });
      const ask2 = (): ReturnType<typeof session.request> => {
        const stream = session.request({ ":method": "POST", ":path": "/v1/chat/completions" });
        stream.on("error", () => undefined);
        stream.end("{}");
        return stream;
      };
      const unread = ask2();
      await new Promise((resolve) => unread.once("response", resolve));
      const closed = new Promise((resolve) => unread.once("close", resolve));
      // Others on the connection are served meanwhile, and keep it busy.
      for (let round = 0; round < 8; round++) {
        const other = ask2();
        let bytes = 0;
        other.on("data", (chunk: Buffer) => (bytes += chunk.length));
        await new Promise((resolve) => other.once("close", resolve));
        expect(bytes).toBe(150_000);
        await sleep(60);
      }
      await closed;
      expect(await metric(running, "clients_cut_total", { reason: "unread" })).toBe(1);
      session.destroy();
    });

    it("a client that reads slowly is not cut, and a kept connection is not either", async () => {
      const running = await start("--client-idle-timeout=300ms");
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.end(Buffer.alloc(8_000_000, "x"));
      };
      const response = await open(running.url, { body: "{}" }).head;
      let bytes = 0;
      for await (const chunk of response) {
        bytes += (chunk as Buffer).length;
        await sleep(3);
      }
      expect([bytes, await metric(running, "clients_cut_total", { reason: "unread" })]).toEqual([8_000_000, 0]);
    });

    it("keeps the order and the bytes of a long stream to a slow client", async () => {
      const text = Array.from({ length: 20_000 }, (_, index) => `data: {"n":${String(index)}}\n\n`).join("");
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" }).end(text);
      };
      const { url } = await start();
      const response = await open(url, { body: "{}" }).head;
      let received = "";
      for await (const chunk of response) {
        received += String(chunk);
        await sleep(1);
      }
      expect(received === text).toBe(true);
    });
  });
});
