import { request as httpRequest, type IncomingMessage } from "node:http";
import { connect } from "node:net";

import { generate } from "selfsigned";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Agent, request } from "undici";

import { at, chatBody, EngineHouse, PATIENT, send } from "../testing.js";
import type { Engine } from "../types.js";
import { CONTROL_PATHS } from "./app.js";

const house = new EngineHouse();
let engine: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "decode", model: ["base", "base-vl"], loraAdapters: ["tides-lora-3"] });
});
afterAll(() => house.closeAll());

const CHAT = "/v1/chat/completions";

describe("reads", () => {
  it("lists its models", async () => {
    const { json } = await send(engine.url, "/v1/models");
    expect((json["data"] as unknown[]).map((model) => [at(model, "id"), at(model, "parent")])).toEqual([
      ["base", null],
      ["base-vl", null],
      ["tides-lora-3", "base"],
    ]);
  });

  it("answers health, ping, version and load", async () => {
    for (const path of ["/health", "/ping"]) expect(await send(engine.url, path)).toMatchObject({ status: 200, text: "" });
    expect((await send(engine.url, "/ping", { method: "POST" })).status).toBe(200);
    expect((await send(engine.url, "/version")).json).toEqual({ version: "0.32.0" });
    expect((await send(engine.url, "/load")).json).toEqual({ server_load: 0 });
    expect(await send(engine.url, "/health", { method: "HEAD" })).toMatchObject({ status: 200, text: "" });
  });

  it("says 404 and 405 as the framework does", async () => {
    for (const [method, path, status] of [["GET", "/nothing", 404], ["POST", "/nothing", 404], ["GET", CHAT, 405], ["PUT", CHAT, 405]] as const) {
      const reply = await send(engine.url, path, { method });
      expect([method, path, reply.status, at(reply.json, "detail")]).toEqual([method, path, status, status === 404 ? "Not Found" : "Method Not Allowed"]);
    }
  });
});

describe("bodies", () => {
  const text = JSON.stringify(chatBody("bodies"));
  it("needs the JSON media type", async () => {
    expect((await send(engine.url, CHAT, { body: text, headers: { "content-type": "text/plain" } })).status).toBe(400);
    expect((await send(engine.url, CHAT, { body: text, headers: { "content-type": "application/json; charset=utf-8" } })).status).toBe(200);
  });

  it.each<[string, string | Uint8Array]>([
    ["broken JSON", '{"model":"base","messages":[{"role":"user","content":"the ledger was'],
    ["compressed bytes", Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3])],
    ["null", "null"],
    ["a list", "[]"],
    ["a number", "3"],
  ])("answers 400 to %s", async (_name, body) => {
    const reply = await send(engine.url, CHAT, { body });
    expect([reply.status, at(reply.json, "error.code")]).toEqual([400, 400]);
  });

  it("answers 400 to an empty body", async () => {
    expect((await send(engine.url, CHAT, { method: "POST", headers: { "content-type": "application/json" } })).status).toBe(400);
  });

  it("takes any body size, without a limit of its own", async () => {
    const long = chatBody("x", 10, { messages: [{ role: "user", content: "tide ".repeat(400_000) }], max_tokens: 2 });
    const reply = await send(engine.url, CHAT, { body: long });
    expect(reply.status).toBe(200);
    expect(at(reply.json, "usage.prompt_tokens")).toBeGreaterThan(500_000);
  });

  it("answers 400 with param input_tokens to a prompt that is longer than its context", async () => {
    const short = await house.start({ role: "decode", maxModelLen: 100 });
    const reply = await send(short.url, CHAT, { body: chatBody("long", 120) });
    expect(reply.status).toBe(400);
    expect(reply.json["error"]).toMatchObject({ type: "BadRequestError", param: "input_tokens", code: 400 });
    expect((await send(short.url, CHAT, { body: chatBody("long", 120, { stream: true }) })).status).toBe(400);
    expect((await send(short.url, CHAT, { body: chatBody("fits", 60) })).status).toBe(200);
  });

  it("knows no model that it does not serve, when it is strict about it", async () => {
    const strict = await house.start({ role: "decode", model: ["base"], strictModels: true });
    const reply = await send(strict.url, CHAT, { body: chatBody("m") });
    expect([reply.status, reply.json["error"]]).toEqual([404, { message: "The model `m` does not exist.", type: "NotFoundError", param: "model", code: 404 }]);
  });
});

describe("records", () => {
  it("keep bytes, headers, trailers and times as they were", async () => {
    engine.clearRecords();
    const body = Buffer.from(JSON.stringify(chatBody("record")));
    await new Promise<void>((resolve, reject) => {
      const socket = connect(engine.port, "127.0.0.1");
      socket.on("error", reject);
      socket.once("data", () => {
        socket.destroy();
        resolve();
      });
      const third = Math.floor(body.length / 3);
      socket.write(`POST ${CHAT}?beta=true HTTP/1.1\r\nHost: h\r\nX-One: a\r\nx-ONE: b\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: x-checksum\r\n\r\n`);
      for (const piece of [body.subarray(0, third), body.subarray(third)]) {
        socket.write(`${piece.length.toString(16)}\r\n`);
        socket.write(piece);
        socket.write("\r\n");
      }
      socket.write("0\r\nx-checksum: 1\r\n\r\n");
    });
    await engine.idle();
    const [record] = engine.records();
    expect(record?.body.equals(body)).toBe(true);
    expect(record).toMatchObject({ seq: 1, method: "POST", path: `${CHAT}?beta=true`, modelCall: true, stage: "decode", status: 200, open: false, rawTrailers: [["x-checksum", "1"]], scripted: false });
    expect(record?.rawHeaders.slice(0, 3)).toEqual([
      ["Host", "h"],
      ["X-One", "a"],
      ["x-ONE", "b"],
    ]);
    const times = [record?.startedAtMs, record?.readAtMs, record?.firstByteAtMs, record?.endedAtMs].map(Number);
    expect([...times].sort((a, b) => a - b)).toEqual(times);
    expect(Math.abs((times[0] ?? 0) - Date.now())).toBeLessThan(60_000);
  });

  it.each([
    ["/v1/embeddings", { input: "x", kv_transfer_params: { a: 1 }, ec_transfer_params: {} }, ["kv_transfer_params", "ec_transfer_params"]],
    [CHAT, { ...chatBody("x"), bootstrap_host: "h", bootstrap_room: 1, bootstrap_other: 2 }, ["bootstrap_host", "bootstrap_room", "bootstrap_other"]],
    [CHAT, { ...chatBody("x"), kv_transfer_params: null, metadata: { kv_transfer_params: {} } }, []],
    ["/nothing", { vllm_xargs: { kv_transfer_params: {}, ec_transfer_params: {} }, sampling_params: { extra_args: { ec_transfer_params: {} } } }, ["vllm_xargs.kv_transfer_params", "vllm_xargs.ec_transfer_params", "sampling_params.extra_args.ec_transfer_params"]],
  ])("name the control members that reached %s", async (path, body, members) => {
    engine.clearRecords();
    await send(engine.url, path, { body });
    expect(engine.records()[0]?.controlMembers).toEqual(members);
  });

  it("show every control path that was reached", async () => {
    engine.clearRecords();
    for (const path of [...CONTROL_PATHS, "/invocations"]) await send(engine.url, path, { body: path === "/invocations" ? chatBody("i") : {} });
    expect(engine.records().map(({ path, status }) => [path, status])).toEqual([...CONTROL_PATHS, "/invocations"].map((path) => [path, 200]));
    for (const path of ["/sleep", "/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weights", "/v1/load_lora_adapter", "/inference/v1/abort_requests", "/kv_event_sources"]) expect(CONTROL_PATHS).toContain(path);
    expect((await send(engine.url, "/kv_event_sources")).status).toBe(200);
  });

  it("see a client that leaves, and the work stops", async () => {
    const slow = await house.start({ role: "decode", msPerDecodeToken: 40 });
    const abort = new AbortController();
    const reply = send(slow.url, CHAT, { body: chatBody("abort", 40, { max_tokens: 200, min_tokens: 200, stream: true }), signal: abort.signal }).catch(() => "gone");
    await expect.poll(() => slow.records()[0]?.firstByteAtMs ?? null, PATIENT).not.toBe(null);
    abort.abort();
    await reply;
    await expect.poll(() => slow.state().running, PATIENT).toBe(0);
    const record = slow.records()[0];
    expect(record).toMatchObject({ aborted: true, open: false, status: 200 });
    expect((record?.abortedAtMs ?? 0) - (record?.startedAtMs ?? 0)).toBeLessThan(3_000);
    expect(slow.state().blocks.used).toBe(0);
  });

  it("see a client that leaves before it has sent its body, and count no call", async () => {
    engine.clearRecords();
    const socket = connect(engine.port, "127.0.0.1");
    socket.write(`POST ${CHAT} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`);
    await expect.poll(() => engine.records().length, PATIENT).toBe(1);
    socket.destroy();
    await expect.poll(() => engine.records()[0]?.aborted, PATIENT).toBe(true);
    expect(engine.records()[0]).toMatchObject({ readAtMs: null, status: 0 });
    expect(engine.state().calls.decode).toBe(0);
  });

  it("drop the oldest bodies to stay within their budget", async () => {
    const small = await house.start({ role: "decode", maxRecordedBytes: 2_000, maxRecords: 3 });
    for (let index = 0; index < 5; index += 1) await send(small.url, CHAT, { body: chatBody(String(index), 200) });
    expect(small.records().map(({ seq }) => seq)).toEqual([3, 4, 5]);
    expect(small.records().map(({ bodyDropped }) => bodyDropped)).toEqual([true, false, false]);
    expect(small.records()[0]?.body.length).toBe(0);
  });
});

describe("connections", () => {
  it("does not wait for a client that does not read, nor buffer for it", async () => {
    const wide = await house.start({ role: "decode", embeddingDimensions: 60_000 });
    const request = httpRequest(`${wide.url}/v1/embeddings`, { method: "POST", headers: { "content-type": "application/json" } });
    const response = new Promise<IncomingMessage>((resolve) => request.once("response", resolve));
    request.end(JSON.stringify({ input: Array.from({ length: 20 }, (_, index) => String(index)) }));
    const stalled = await response;
    expect((await send(wide.url, "/health")).status).toBe(200);
    let bytes = 0;
    for await (const piece of stalled) bytes += (piece as Buffer).length;
    expect(bytes).toBe(Number(stalled.headers["content-length"]));
  });

  it("wants the key on /v1 when it has one", async () => {
    const locked = await house.start({ role: "decode", requireApiKey: "k" });
    expect(await send(locked.url, CHAT, { body: chatBody("k") })).toMatchObject({ status: 401, json: { error: "Unauthorized" } });
    expect((await send(locked.url, CHAT, { body: chatBody("k"), headers: { authorization: "Bearer k" } })).status).toBe(200);
    expect((await send(locked.url, "/health")).status).toBe(200);
  });

  it("speaks TLS on the service port only", async () => {
    const { cert, private: key } = await generate([{ name: "commonName", value: "engine" }]);
    const secure = await house.start({ role: "decode", tls: { cert, key } });
    expect(secure.url).toMatch(/^https:/);
    const dispatcher = new Agent({ connect: { rejectUnauthorized: false } });
    const reply = await request(`${secure.url}/version`, { dispatcher });
    expect([reply.statusCode, await reply.body.json()]).toEqual([200, { version: "0.32.0" }]);
    await dispatcher.close();
    expect((await send(secure.controlUrl, "/_sim/state")).status).toBe(200);
  });

  it("closes an idle connection as uvicorn does, without announcing it", async () => {
    const hasty = await house.start({ role: "decode", keepAliveMs: 50 });
    const closed = await new Promise<string>((resolve) => {
      let text = "";
      const socket = connect(hasty.port, "127.0.0.1");
      socket.on("data", (piece) => {
        text += piece.toString();
      });
      socket.on("close", () => {
        resolve(text);
      });
      socket.write("GET /version HTTP/1.1\r\nHost: h\r\n\r\n");
    });
    expect(closed).toContain('{"version":"0.32.0"}');
    expect(closed.toLowerCase()).not.toContain("keep-alive:");
  });

  it("refuses a port that is taken", async () => {
    await expect(house.start({ role: "decode", port: engine.port })).rejects.toThrow(/EADDRINUSE/);
  });

  it.each<[object, string]>([
    [{ role: "owl" }, "role"],
    [{ role: "decode", host: "0.0.0.0" }, "host"],
    [{ role: "decode", blockSize: 0 }, "blockSize"],
    [{ role: "decode", port: 70_000 }, "port"],
    [{ role: "decode", leaseMs: -1 }, "leaseMs"],
    [{ role: "decode", encoders: ["10.0.0.1:80"] }, "encoders"],
    [{ role: "decode", kvConnector: "lmcache" }, "kvConnector"],
  ])("refuses the options %j", async (options, name) => {
    await expect(house.start(options as never)).rejects.toThrow(`option ${name}:`);
  });
});
