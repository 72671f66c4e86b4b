import { request as httpRequest } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTcp } from "node:net";
import { connect as connectTls } from "node:tls";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ROUTING_HEADERS } from "./headers.js";
import type { Sidecar } from "./server.js";
import { type Ask, ask, errorOf, header, metric, startTestSidecar } from "./testkit/harness.js";
import { sendJson, TestUpstream, until } from "./testkit/upstream.js";

const ORCHESTRATED = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/inference/v1/generate"];

describe("sidecar", () => {
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

  describe("routes", () => {
    it.each(ORCHESTRATED)("C-RT-01: %s without routing headers: the client's bytes, in one call", async (target) => {
      const body = ' { "seed" : 9007199254740993, "b":1.0,"c":1e400, "messages":[],"a":1,"a":2,"é":"\\u00e9" } \n';
      const answered = await send({ target: `${target}?beta=true`, body, headers: ["content-type", "application/json; charset=utf-8"] });
      expect([answered.status, engine.received.length, engine.text(), engine.received[0]?.target]).toEqual([200, 1, body, `${target}?beta=true`]);
    });

    it.each([
      ["GET", "/v1/chat/completions"],
      ["GET", "/v1/completions"],
      ["GET", "/v1/messages"],
      ["POST", "/v1/embeddings"],
      ["POST", "/score"],
      ["GET", "/healthz"],
      ["GET", "/metrics"],
      ["OPTIONS", "/v1/models"],
      ["DELETE", "/v1/responses/r-1"],
      ["POST", "/health"],
    ])("C-RT-02: %s %s is passed through, plain and by TLS", async (method, target) => {
      const body = method === "POST" ? '{"input":"x"}' : undefined;
      for (const secure of ["--secure-proxy=false", "--secure-proxy"]) {
        const { url } = await start(secure);
        expect((await ask(url, { method, target, ...(body === undefined ? {} : { body }) })).status).toBe(200);
        expect(engine.received.at(-1)).toMatchObject({ method, target });
        expect(engine.text()).toBe(body ?? "");
        await sidecar?.close();
      }
    });

    it("C-RT-02: HTTP/2 over TLS, with repeated headers both ways", async () => {
      engine.handler = (_, response) => {
        sendJson(response, '{"ok":true}', 200, { "set-cookie": ["a", "b"], "x-r": "1" });
      };
      const { url } = await start("--secure-proxy");
      const session = connectHttp2(url, { rejectUnauthorized: false });
      const stream = session.request({ ":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json", "x-m": ["1", "2"], "x-request-id": "r" });
      stream.end('{"a":1}');
      const [head, body] = await new Promise<[Record<string, unknown>, string]>((resolve, reject) => {
        let headers: Record<string, unknown> = {};
        let text = "";
        stream.on("response", (received) => (headers = received));
        stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
        stream.on("end", () => {
          resolve([headers, text]);
        });
        stream.on("error", reject);
      });
      session.close();
      expect([head[":status"], head["set-cookie"], head["x-r"], head["x-request-id"], body]).toEqual([200, ["a", "b"], "1", "r", '{"ok":true}']);
      const rawHeaders = engine.received[0]?.rawHeaders ?? [];
      expect([engine.text(), header({ rawHeaders }, "x-m"), header({ rawHeaders }, "host")]).toEqual(['{"a":1}', ["1", "2"], [new URL(url).host]]);
      expect(rawHeaders.some((name) => name.startsWith(":"))).toBe(false);
    });

    it("C-RT-03: health is answered here, the engine is not asked", async () => {
      const { url } = await start();
      for (const method of ["GET", "HEAD"]) {
        const answered = await ask(url, { method, target: "/health" });
        expect([answered.status, answered.body]).toEqual([200, ""]);
      }
      expect(engine.received.length).toBe(0);
    });

    it("C-RT-04: a prefill header on other methods and paths means nothing, and goes nowhere", async () => {
      const { url } = await start();
      const headers = ["x-prefiller-host-port", prefiller.authority];
      await ask(url, { method: "GET", target: "/v1/models", headers });
      await ask(url, { target: "/v1/embeddings", headers, body: "{}" });
      expect([engine.received.length, prefiller.received.length]).toEqual([2, 0]);
      for (const { rawHeaders } of engine.received) expect(header({ rawHeaders }, "x-prefiller-host-port")).toEqual([]);
    });

    it.each(["/sleep", "/v1/load_lora_adapter", "/inference/v1/abort_requests", "/kv_event_sources", "/collective_rpc", "/v1/..%2fsleep", "//sleep", "/v1/%6coad_lora_adapter/", "/v1/%252e%252e/sleep"])(
      "%s is no client's",
      async (target) => {
        const { url } = await start();
        const answered = await ask(url, { target, body: "{}" });
        expect([answered.status, errorOf(answered).type, header(answered, "content-type"), engine.received.length]).toEqual([404, "NotFoundError", ["application/json"], 0]);
      },
    );

    it("sends the path that it judged", async () => {
      await send({ target: "//v1//chat/./x/../completions/?a=%2F", body: '{"a":1}' });
      expect(engine.received[0]?.target).toBe("/v1/chat/completions?a=%2F");
    });

    it("offers no upgrades", async () => {
      const { url } = await start();
      const answered = await ask(url, { method: "GET", target: "/v1/realtime", headers: ["upgrade", "websocket"] });
      expect([answered.status, header({ rawHeaders: engine.received[0]?.rawHeaders ?? [] }, "upgrade")]).toEqual([200, []]);
    });
  });

  describe("bodies", () => {
    it("C-RT-05: a body that cannot be read reaches no engine, on any path", async () => {
      const { url } = await start();
      for (const target of [...ORCHESTRATED, "/v1/embeddings", "/tokenize", "/v1/anything"]) {
        for (const body of ['{"a":', "{'a':1}", "\u0000{}", '{"text":"the ledger was']) {
          const answered = await ask(url, { target, body });
          expect([answered.status, errorOf(answered).type, header(answered, "content-type")]).toEqual([400, "BadRequestError", ["application/json"]]);
          expect(answered.body).not.toContain("ledger");
        }
      }
      expect(engine.received.length).toBe(0);
    });

    it("C-RT-05: a trusted client's broken body is the engine's to judge", async () => {
      await send({ body: '{"a":' }, "--trust-client-control-members");
      expect(engine.text()).toBe('{"a":');
      expect((await send({ body: '{"a":', headers: ["x-prefiller-host-port", prefiller.authority] })).status).toBe(400);
      await send({ body: "opaque", headers: ["content-encoding", "x-opaque"] });
      expect([engine.text(), header({ rawHeaders: engine.received[1]?.rawHeaders ?? [] }, "content-encoding")]).toEqual(["opaque", ["x-opaque"]]);
    });

    it("C-RT-06: nor with a prefill header", async () => {
      const answered = await send({ body: '{"a":', headers: ["x-prefiller-host-port", prefiller.authority] });
      expect([answered.status, errorOf(answered).code, engine.received.length, prefiller.received.length]).toEqual([400, 400, 0, 0]);
    });

    it.each(["null", "[]", "3", '"x"', ""])("C-RT-07: %j is no request, and hurts nobody", async (body) => {
      const answered = await send({ body, headers: ["x-prefiller-host-port", prefiller.authority] });
      expect([answered.status, errorOf(answered).type, engine.received.length, prefiller.received.length]).toEqual([400, "BadRequestError", 0, 0]);
      expect((await send({ body: "{}" })).status).toBe(200);
    });

    it("refuses UTF-16 and UTF-32, takes a UTF-8 BOM", async () => {
      const { url } = await start();
      const text = '{"messages":[],"kv_transfer_params":{"remote_host":"169.254.169.254"}}';
      const utf16 = Buffer.from(text, "utf16le");
      const utf32 = Buffer.from([...text].flatMap((letter) => [letter.charCodeAt(0), 0, 0, 0]));
      for (const body of [utf16, Buffer.from(utf16).swap16(), Buffer.concat([Buffer.from([0xff, 0xfe]), utf16]), utf32, Buffer.from(utf32).swap32()]) {
        expect((await ask(url, { body })).status).toBe(400);
      }
      expect(engine.received.length).toBe(0);
      expect((await ask(url, { body: Buffer.from("\ufeff{}") })).status).toBe(200);
      expect(engine.received[0]?.body).toEqual(Buffer.from("\ufeff{}"));
    });

    const HOSTILE =
      '{"model":"m","kv_transfer_params":{"remote_host":"169.254.169.254"},"\\u0065c_transfer_params":{"a":1},"bootstrap_host":"h","bootstrap\\u005froom":1,"vllm_xargs":{"kv_transfer_param\\u0073":{},"tag":"t-1"},"sampling_params":{"extra_args":{"ec_transfer_params":1,"tag":"t"},"max_tokens":8},"n":1}';
    const CLEAN = '{"model":"m","vllm_xargs":{"tag":"t-1"},"sampling_params":{"extra_args":{"tag":"t"},"max_tokens":8},"n":1}';

    it.each([...ORCHESTRATED, "/v1/embeddings", "/tokenize", "/v1/chat/completions/batch", "/v2/rerank"])("removes control members on %s", async (target) => {
      await send({ target, body: HOSTILE });
      expect(engine.text()).toBe(CLEAN);
    });

    it("removes them in every encoding that it opens, sends the plain body, and counts without values", async () => {
      const lines: string[] = [];
      sidecar = await startTestSidecar(engine, [], {}, lines);
      for (const [coding, packed] of [
        ["gzip", gzipSync(HOSTILE)],
        ["deflate", deflateSync(HOSTILE)],
        ["br", brotliCompressSync(HOSTILE)],
        ["gzip, br", brotliCompressSync(gzipSync(HOSTILE))],
      ] as const) {
        await ask(sidecar.url, { body: packed, headers: ["content-encoding", coding] });
        const rawHeaders = engine.received.at(-1)?.rawHeaders ?? [];
        expect([engine.text(), header({ rawHeaders }, "content-encoding"), header({ rawHeaders }, "content-length")]).toEqual([CLEAN, [], [String(CLEAN.length)]]);
      }
      expect(await metric(sidecar, "control_members_removed_total", { member: "kv_transfer_params" })).toBe(4);
      expect(await metric(sidecar, "control_members_removed_total", { member: "bootstrap_*" })).toBe(8);
      expect(await metric(sidecar, "control_members_removed_total", { member: "sampling_params.extra_args.ec_transfer_params" })).toBe(4);
      expect(lines.join("")).toContain("control members removed");
      expect(lines.join("")).not.toContain("169.254");
    });

    it("removes them from bodies of other methods too, chunked or not", async () => {
      const { url } = await start();
      for (const method of ["GET", "DELETE", "PUT", "PATCH"]) {
        await ask(url, { method, target: "/v1/models", body: HOSTILE });
        expect([engine.received.at(-1)?.method, engine.text()]).toEqual([method, CLEAN]);
      }
      await ask(url, { method: "POST", body: [HOSTILE.slice(0, 30), HOSTILE.slice(30, 60), HOSTILE.slice(60)] });
      expect(engine.text()).toBe(CLEAN);
      expect((await ask(url, { method: "GET", target: "/v1/models", body: "not json" })).status).toBe(400);
    });

    it("leaves them where clients are trusted", async () => {
      await send({ body: HOSTILE }, "--trust-client-control-members");
      expect(engine.text()).toBe(HOSTILE);
    });

    it.each(["x-opaque", "zstd", "gzip, zstd", "constructor"])("answers 415 to content-encoding %s, and calls it no broken JSON", async (coding) => {
      const answered = await send({ body: "\u0007\u0001", headers: ["content-encoding", coding] });
      expect([answered.status, errorOf(answered).type, engine.received.length]).toEqual([415, "UnsupportedMediaTypeError", 0]);
      expect(answered.body).not.toContain("invalid JSON");
    });

    it("answers 400 to a body that does not open", async () => {
      const answered = await send({ body: "no gzip", headers: ["content-encoding", "gzip"] });
      expect([answered.status, engine.received.length]).toEqual([400, 0]);
    });

    it("answers 413 beyond the limit: announced, streamed, and opened", async () => {
      const { url } = await start("--body-limit=1000");
      const large = `{"a":"${"x".repeat(5000)}"}`;
      for (const what of [{ body: large }, { body: [large.slice(0, 2500), large.slice(2500)] }, { body: gzipSync(large), headers: ["content-encoding", "gzip"] }]) {
        const answered = await ask(url, what);
        expect([answered.status, errorOf(answered).type, header(answered, "content-type")]).toEqual([413, "PayloadTooLargeError", ["application/json"]]);
      }
      expect([engine.received.length, await metric(sidecar ?? (await start()), "bodies_refused_total", { reason: "too_large" })]).toEqual([0, 3]);
      expect((await ask(url, { body: "{}" })).status).toBe(200);
    });

    it("answers 408 to a body that does not come to its end in time, and ends the connection", async () => {
      const { url } = await start("--body-timeout=150ms");
      const { port } = new URL(url);
      const text = await new Promise<string>((resolve) => {
        const socket = connectTcp(Number(port), "127.0.0.1", () => socket.write('POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"a":'));
        socket.once("data", (chunk: Buffer) => {
          resolve(chunk.toString());
          socket.destroy();
        });
      });
      expect(text).toMatch(/^HTTP\/1\.1 408 [^]*connection: close[^]*"RequestTimeoutError"/i);
      expect([engine.received.length, await metric(sidecar ?? (await start()), "clients_cut_total", { reason: "slow_body" })]).toEqual([0, 1]);
    });

    it("passes forms on the audio routes, and no form that could hold a control member", async () => {
      const { url } = await start();
      const form = (name: string): string => `--b\r\nContent-Disposition: form-data; name="${name}"\r\n\r\nv\r\n--b--\r\n`;
      const headers = ["content-type", "multipart/form-data; boundary=b"];
      expect((await ask(url, { target: "/v1/audio/transcriptions", headers, body: form("model") })).status).toBe(200);
      expect(engine.text()).toBe(form("model"));
      expect((await ask(url, { target: "/v1/audio/transcriptions", headers, body: form("kv_transfer_params") })).status).toBe(400);
      expect((await ask(url, { target: "/v1/embeddings", headers, body: form("model") })).status).toBe(400);
      expect((await ask(url, { target: "/v1/chat/completions", headers, body: form("model") })).status).toBe(400);
      expect(engine.received.length).toBe(1);
    });

    it("passes POSTs without a body on, but not to the five routes", async () => {
      const { url } = await start();
      expect((await ask(url, { target: "/v1/responses/r-1/cancel", headers: ["content-length", "0"] })).status).toBe(200);
      expect((await ask(url, { target: "/v1/responses/r-1/cancel" })).status).toBe(200);
      expect((await ask(url, { target: "/v1/responses", headers: ["content-length", "0"] })).status).toBe(400);
      expect(engine.received.length).toBe(2);
    });
  });

  describe("headers", () => {
    it("C-HDR-06 C-HDR-10: routing and hop-by-hop headers are on no leg, the peer is named", async () => {
      await start();
      await send({ body: "{}", headers: ["host", "gw.test", ...ROUTING_HEADERS.filter((name) => name !== "x-prefiller-host-port" && name !== "x-data-parallel-host-port").flatMap((name) => [name.toUpperCase(), "10.9.9.9:80"]), "X-Data-Parallel-Host-Port", `127.0.0.1:${String(sidecar?.port)}`, "connection", "x-foo", "x-foo", "1", "x-forwarded-for", "1.1.1.1", "x-bar", "1", "x-bar", "2"] });
      const rawHeaders = engine.received[0]?.rawHeaders ?? [];
      for (const name of [...ROUTING_HEADERS, "x-foo"]) expect(header({ rawHeaders }, name)).toEqual([]);
      expect([header({ rawHeaders }, "x-forwarded-for"), header({ rawHeaders }, "x-bar"), header({ rawHeaders }, "host")]).toEqual([["1.1.1.1, 127.0.0.1"], ["1", "2"], ["gw.test"]]);
    });

    it.each([
      ["absent", []],
      ["empty", ["x-prefiller-host-port", ""]],
      ["quoted empties", ["x-prefiller-host-port", '"",""']],
    ])("C-HDR-01: a prefill header that is %s: decode alone", async (_, headers) => {
      await send({ body: "{}", headers });
      expect([engine.received.length, prefiller.received.length]).toEqual([1, 0]);
    });

    it("C-HDR-02: the first candidate without sampling", async () => {
      prefiller.handler = (_, response) => {
        sendJson(response, '{"kv_transfer_params":{"a":1}}');
      };
      await send({ body: "{}", headers: ["x-prefiller-host-port", `,${prefiller.authority},127.0.0.1:9`] });
      expect([engine.received.length, prefiller.received.length]).toEqual([1, 1]);
    });

    it("C-HDR-03 C-HDR-04 C-HDR-08: all candidates of all lines with sampling", async () => {
      const second = await TestUpstream.start();
      for (const upstream of [prefiller, second]) {
        upstream.handler = (_, response) => {
          sendJson(response, '{"kv_transfer_params":{"a":1}}');
        };
      }
      const { url } = await start("--enable-prefiller-sampling");
      for (let tries = 0; tries < 40; tries++) {
        const headers = tries % 2 === 0 ? ["x-prefiller-host-port", ` ${prefiller.authority}, ${second.authority}`] : ["x-prefiller-host-port", prefiller.authority, "x-prefiller-host-port", second.authority];
        await ask(url, { body: "{}", headers });
      }
      // Each misses out once in 2^39.
      expect([prefiller.received.length > 0, second.received.length > 0, prefiller.received.length + second.received.length]).toEqual([true, true, 40]);
      await second.close();
    });

    it("C-HDR-07: http:// before a candidate is tolerated", async () => {
      prefiller.handler = (_, response) => {
        sendJson(response, '{"kv_transfer_params":{"a":1}}');
      };
      await send({ body: "{}", headers: ["x-prefiller-host-port", `http://${prefiller.authority}`] });
      expect(prefiller.received.length).toBe(1);
    });

    it("C-HDR-09: exactly one x-request-id per leg", async () => {
      const given = await send({ body: "{}", headers: ["x-request-id", "a", "X-Request-Id", "b"] });
      await send({ method: "GET", target: "/v1/models" });
      const ids = engine.received.map(({ rawHeaders }) => header({ rawHeaders }, "x-request-id"));
      expect([ids[0], ids[1]?.length, header(given, "x-request-id")]).toEqual([["a"], 1, ["a"]]);
    });

    it("C-RT-12: a header block above 1 MiB is a 431, one below passes", async () => {
      const big = ["x-big", "a".repeat(600_000)];
      for (const secure of ["--secure-proxy=false", "--secure-proxy"]) {
        const { url } = await start(secure);
        expect((await ask(url, { method: "GET", target: "/v1/models", headers: big })).status).toBe(200);
        const answered = await ask(url, { method: "GET", target: "/v1/models", headers: ["x-a", "a".repeat(550_000), ...big] });
        expect([answered.status, errorOf(answered).type, header(answered, "content-type")]).toEqual([431, "RequestHeaderFieldsTooLargeError", ["application/json"]]);
        await sidecar?.close();
      }
    });

    describe("what Node would refuse with no more than a status", () => {
      const post = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n";
      it.each([
        ["no Host", "GET /v1/models HTTP/1.1\r\n\r\n", 400, "BadRequestError"],
        ["an expectation", `${post}expect: foo\r\ncontent-length: 2\r\n\r\n{}`, 417, "ExpectationFailedError"],
        ["CONNECT", "CONNECT engine:80 HTTP/1.1\r\nhost: engine:80\r\n\r\n", 405, "MethodNotAllowedError"],
        ["a chunk size", `${post}transfer-encoding: chunked\r\n\r\nzz\r\n`, 400, "BadRequestError"],
        ["a transfer coding", `${post}transfer-encoding: xchunked\r\n\r\n2\r\n{}\r\n`, 400, "BadRequestError"],
        ["chunk extensions", `${post}transfer-encoding: chunked\r\n\r\n1;${"a".repeat(20_000)}\r\n`, 413, "PayloadTooLargeError"],
      ])("%s", async (_, text, status, type) => {
        for (const secure of [false, true]) {
          const { port } = await start(secure ? "--secure-proxy" : "--secure-proxy=false");
          const received = await new Promise<string>((resolve) => {
            let all = "";
            const socket = secure ? connectTls({ port, host: "127.0.0.1", rejectUnauthorized: false, ALPNProtocols: ["http/1.1"] }) : connectTcp(port, "127.0.0.1");
            socket.write(text);
            socket.on("data", (chunk: Buffer) => (all += chunk.toString()));
            socket.on("close", () => {
              resolve(all);
            });
          });
          const [head = "", body = ""] = received.split("\r\n\r\n");
          expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${String(status)} [^]*content-type: application/json`, "i"));
          expect([Buffer.byteLength(body), JSON.parse(body)]).toMatchObject([Number(/content-length: (\d+)/i.exec(head)?.[1]), { error: { type, code: status } }]);
          await sidecar?.close();
          expect(engine.received.length).toBe(0);
        }
      });

      it("an expectation and CONNECT by HTTP/2", async () => {
        const { url } = await start("--secure-proxy");
        const session = connectHttp2(url, { rejectUnauthorized: false });
        for (const [headers, status] of [
          [{ ":method": "POST", ":path": "/v1/completions", expect: "foo" }, 417],
          [{ ":method": "CONNECT", ":authority": "engine:80" }, 405],
        ] as const) {
          const stream = session.request(headers, { endStream: false });
          const head = await new Promise<Record<string, unknown>>((resolve) => stream.once("response", resolve));
          let text = "";
          for await (const chunk of stream) text += String(chunk);
          expect([head[":status"], head["content-type"], JSON.parse(text)]).toMatchObject([status, "application/json", { error: { code: status } }]);
          stream.close();
        }
        session.close();
      });

      it("but an answer that has begun has no other in its middle, nor takes one request the answer of another", async () => {
        engine.handler = (_, response) => {
          response.writeHead(200, { "content-type": "text/event-stream" }).write("data: 1\n\n");
        };
        const { port } = await start();
        const received = await new Promise<string>((resolve) => {
          let all = "";
          const socket = connectTcp(port, "127.0.0.1", () => socket.write(`${post}content-length: 2\r\n\r\n{}`));
          socket.on("data", (chunk: Buffer) => {
            if (all === "") socket.write("NOT HTTP\r\n\r\n");
            all += chunk.toString();
          });
          socket.on("close", () => {
            resolve(all);
          });
        });
        expect(received.match(/HTTP\/1\.1/g)).toHaveLength(1);
        expect(received).not.toContain("not valid HTTP");
      });
    });

    it("plain HTTP to a TLS port is counted, and told once", async () => {
      const lines: string[] = [];
      const running = await startTestSidecar(engine, ["--secure-proxy"], {}, lines);
      sidecar = running;
      for (const text of ["GET /health HTTP/1.1\r\nhost: x\r\n\r\n", "POST /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]) {
        await new Promise<void>((resolve) => {
          const socket = connectTcp(running.port, "127.0.0.1", () => socket.write(text));
          socket.on("error", () => undefined).resume();
          socket.on("close", () => {
            resolve();
          });
        });
      }
      const told = lines.filter((line) => line.includes("--secure-proxy"));
      expect([await metric(running, "tls_refused_total", { reason: "plain_text" }), told.length, told[0]?.includes("127.0.0.1")]).toEqual([3, 1, true]);
    });

    it("what is no HTTP is a JSON 400", async () => {
      const { port } = await start();
      const text = await new Promise<string>((resolve) => {
        const socket = connectTcp(port, "127.0.0.1", () => socket.write("NOT HTTP\r\n\r\n"));
        let received = "";
        socket.on("data", (chunk: Buffer) => (received += chunk.toString()));
        socket.on("close", () => {
          resolve(received);
        });
      });
      expect(text).toMatch(/^HTTP\/1\.1 400 [^]*application\/json[^]*"BadRequestError"/);
    });
  });

  describe("life", () => {
    it("/ready asks the engine", async () => {
      const { url } = await start();
      expect((await ask(url, { method: "GET", target: "/ready" })).status).toBe(200);
      expect(engine.received[0]).toMatchObject({ method: "GET", target: "/health" });
      engine.handler = (_, response) => {
        response.writeHead(503).end();
      };
      const answered = await ask(url, { method: "GET", target: "/ready" });
      expect([answered.status, header(answered, "retry-after").length]).toEqual([503, 1]);
    });

    it("C-ST-01: draining fails health, lets open streams end, then closes", async () => {
      let finish: (() => void) | null = null;
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\n\n");
        finish = () => void response.end("data: [DONE]\n\n");
      };
      const running = await start();
      const stream = ask(running.url, { body: "{}" });
      await until(() => finish !== null);
      const drained = running.drain();
      const health = await ask(running.url, { method: "GET", target: "/health" });
      const ready = await ask(running.url, { method: "GET", target: "/ready" });
      (finish as (() => void) | null)?.();
      expect([health.status, ready.status, await stream.then(({ body, whole }) => [body, whole])]).toEqual([503, 503, ["data: 1\n\ndata: [DONE]\n\n", true]]);
      await drained;
      await expect(ask(running.url, { method: "GET", target: "/health" })).rejects.toThrow();
      sidecar = null;
    });

    it("draining tells HTTP/2 clients to go elsewhere, and lets their streams end", async () => {
      let finish: (() => void) | null = null;
      engine.handler = (_, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: 1\n\n");
        finish = () => void response.end("data: [DONE]\n\n");
      };
      const running = await start("--secure-proxy");
      const session = connectHttp2(running.url, { rejectUnauthorized: false });
      const away = new Promise<number>((resolve) => session.once("goaway", resolve));
      const stream = session.request({ ":method": "POST", ":path": "/v1/chat/completions" });
      stream.end("{}");
      let text = "";
      stream.on("data", (chunk: Buffer) => (text += chunk.toString()));
      await until(() => finish !== null);
      const drained = running.drain();
      expect(await away).toBe(0);
      (finish as (() => void) | null)?.();
      await new Promise((resolve) => stream.once("end", resolve));
      expect(text).toBe("data: 1\n\ndata: [DONE]\n\n");
      await drained;
      sidecar = null;
    });

    it("draining ends at its timeout", async () => {
      engine.handler = () => undefined;
      const running = await start("--drain-timeout=50ms");
      const stream = ask(running.url, { body: "{}" }).catch(() => "cut");
      await until(() => engine.received.length === 1);
      await running.drain();
      expect(await stream).toBe("cut");
      sidecar = null;
    });

    it("serves its own metrics on a port of their own", async () => {
      const port = await TestUpstream.refusedPort();
      const running = await start(`--metrics-port=${String(port)}`);
      await ask(running.url, { body: "{}" });
      const answered = await ask(running.metricsUrl ?? "", { method: "GET", target: "/metrics" });
      expect([answered.status, header(answered, "content-type")[0]?.startsWith("text/plain")]).toEqual([200, true]);
      expect(answered.body).toContain('crosspoint_sidecar_requests_total{route="orchestrated",status="200"} 1');
      expect(answered.body).toContain('crosspoint_sidecar_leg_bytes_total{stage="decode",direction="sent"} 2');
      expect(answered.body).toContain('crosspoint_sidecar_leg_bytes_total{stage="decode",direction="received"} 11');
      expect(answered.body).toContain('crosspoint_sidecar_handoff_invalid_total{reason="missing"} 0');
      expect((await ask(running.metricsUrl ?? "", { method: "GET", target: "/" })).status).toBe(404);
      // The data port's is the engine's.
      expect((await ask(running.url, { method: "GET", target: "/metrics" })).body).toBe('{"ok":true}');
    });

    it("bodies are in the log at the level trace only, their media shortened; credentials at none", async () => {
      const media = "QUJD".repeat(1000);
      const body = `{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,${media}"}},{"type":"text","text":"a-secret-word"}]}]}`;
      for (const level of ["debug", "trace"]) {
        const lines: string[] = [];
        sidecar = await startTestSidecar(engine, [`--log-level=${level}`], {}, lines);
        await ask(sidecar.url, { headers: ["x-prefiller-host-port", prefiller.authority, "authorization", "Bearer a-key"], body });
        await ask(sidecar.url, { headers: ["authorization", "Bearer a-key"], body });
        await sidecar.close();
        const text = lines.join("");
        expect([level, text.includes("a-secret-word"), text.includes("a-key"), text.includes(media), lines.length > 0]).toEqual([level, level === "trace", false, false, true]);
        expect(lines.filter((line) => line.includes("a-secret-word")).every((line) => (JSON.parse(line) as { level: number }).level === 10)).toBe(true);
      }
      sidecar = null;
    });

    it("keeps the client's connection open between requests, also after refusals", async () => {
      const { port } = await start();
      const { Agent } = await import("node:http");
      const agent = new Agent({ keepAlive: true, maxSockets: 1 });
      const once = (body: string): Promise<[number, boolean]> =>
        new Promise((resolve, reject) => {
          const request = httpRequest({ port, host: "127.0.0.1", agent, method: "POST", path: "/v1/chat/completions" }, (response) => {
            response.resume();
            response.once("end", () => {
              resolve([response.statusCode ?? 0, request.reusedSocket]);
            });
          });
          request.once("error", reject);
          request.end(body);
        });
      const results = [await once("{}"), await once("broken"), await once("{}")];
      agent.destroy();
      expect(results).toEqual([
        [200, false],
        [400, true],
        [200, true],
      ]);
    });
  });
});
