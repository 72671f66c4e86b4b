import { connect } from "node:net";

import { afterEach, describe, expect, it } from "vitest";

import { ScriptQueue } from "../script.js";
import { at, chatBody, EngineHouse, PATIENT, prefillLeg, send } from "../testing.js";
import type { Engine } from "../types.js";
import { failedConnects } from "./refusal.js";

const house = new EngineHouse();
afterEach(() => house.closeAll());

const CHAT = "/v1/chat/completions";
const ask = (engine: Engine, more = {}) => send(engine.url, CHAT, { body: chatBody("scripted", 30, more) });

/** Everything that arrives over one connection, with the time of each piece. */
function rawRequest(engine: Engine, body: string): Promise<{ text: string; pieces: Buffer[]; error: string | null }> {
  return new Promise((resolve) => {
    const pieces: Buffer[] = [];
    let error: string | null = null;
    const socket = connect(engine.port, "127.0.0.1");
    socket.on("data", (piece) => pieces.push(piece));
    socket.on("error", (failure: NodeJS.ErrnoException) => {
      error = failure.code ?? failure.message;
    });
    socket.on("close", () => {
      resolve({ text: Buffer.concat(pieces).toString("utf8"), pieces, error });
    });
    socket.write(`POST ${CHAT} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ${String(body.length)}\r\n\r\n${body}`);
  });
}

describe("scripted answers", () => {
  it("take the place of the simulation, checks included, and the last one repeats", async () => {
    const p = await house.start({ role: "prefill" });
    p.setScript([{ status: 503, text: "busy" }, { status: 200, headers: { "x-a": ["1", "2"] }, json: { kv_transfer_params: { remote_port: "abc" } } }]);
    const replies = [await ask(p), await ask(p), await ask(p)];
    expect(replies.map(({ status }) => status)).toEqual([503, 200, 200]);
    expect(replies[0]).toMatchObject({ text: "busy", headers: { "content-type": "text/plain; charset=utf-8" } });
    expect(replies[1]).toMatchObject({ json: { kv_transfer_params: { remote_port: "abc" } }, headers: { "content-type": "application/json", "x-a": "1, 2" } });
    expect(p.records().map(({ scripted, error, stage }) => [scripted, error, stage])).toEqual(Array(3).fill([true, null, "prefill"]));
  });

  it("count calls over all engines that share a queue", async () => {
    const queue = new ScriptQueue([{ status: 500 }, { status: 501 }, { status: 502 }]);
    const engines = [await house.start({ role: "encode", scripts: { encode: queue } }), await house.start({ role: "encode", scripts: { encode: queue } })];
    const statuses = [];
    for (const engine of [engines[0], engines[1], engines[0]]) statuses.push(engine === undefined ? 0 : (await ask(engine)).status);
    expect(statuses).toEqual([500, 501, 502]);
  });

  it("speak of model calls only", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript({ status: 500 });
    for (const path of ["/health", "/metrics", "/v1/models"]) expect((await send(d.url, path)).status).toBe(200);
    expect((await send(d.url, "/v1/embeddings", { body: { input: "x" } })).status).toBe(500);
  });

  it("hold for the stage that they are for", async () => {
    const both = await house.start({ role: "prefill-decode" });
    both.setScript({ status: 503 }, "prefill");
    expect((await send(both.url, CHAT, { body: prefillLeg(chatBody("stage")) })).status).toBe(503);
    expect((await ask(both)).status).toBe(200);
    both.setScript(null, "prefill");
    expect((await send(both.url, CHAT, { body: prefillLeg(chatBody("stage")) })).status).toBe(200);
  });

  it("send sse deltas and [DONE], or break off before it", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript([{ status: 200, sse: ["one", "two"] }, { status: 200, sse: ["one", "two"], then: "reset" }]);
    const whole = await ask(d, { stream: true });
    expect(whole.data.map((line) => (line === "[DONE]" ? line : at(JSON.parse(line), "choices.0.delta.content")))).toEqual(["one", "two", "[DONE]"]);
    expect(whole.broken).toBe(false);
    const broken = await ask(d, { stream: true });
    expect(broken.data.length).toBe(2);
    expect(broken.broken).toBe(true);
    expect(await d.idle()).toBe(true);
    expect(d.records()[1]).toMatchObject({ status: 200, aborted: false, open: false });
  });

  it("send chunks one write each, bytes as they are", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript({ status: 200, headers: { "content-type": "text/event-stream" }, chunks: ["data: t", new Uint8Array([0xc3]), new Uint8Array([0xaf]), "de\r", "\n\r\n"] });
    const { pieces } = await rawRequest(d, "{}");
    const chunks = Buffer.concat(pieces).toString("latin1").split("\r\n\r\n").slice(1).join("\r\n\r\n");
    expect(chunks).toBe("7\r\ndata: t\r\n1\r\n\u00c3\r\n1\r\n\u00af\r\n3\r\nde\r\r\n3\r\n\n\r\n\r\n0\r\n\r\n");
    expect(pieces.length).toBeGreaterThanOrEqual(4);
  });

  it("keep a gap between pieces when one is asked for", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript({ sse: ["a", "b", "c"], gap_ms: 40 });
    const startedAt = performance.now();
    await ask(d);
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(78);
  });

  it("reset instead of an answer, and break a whole answer off", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript([{ tcp: "reset" }, { status: 200, text: "half", then: "reset" }]);
    const reset = await rawRequest(d, "{}");
    expect(reset).toMatchObject({ text: "", error: "ECONNRESET" });
    await d.idle();
    expect(d.records()[0]).toMatchObject({ status: 0, scripted: true, aborted: false, open: false });
    expect(d.state().calls.decode).toBe(1);
    expect((await ask(d)).broken).toBe(true);
  });
});

describe("scripted timing", () => {
  it("delays the simulated answer", async () => {
    const d = await house.start({ role: "decode" });
    for (const entry of [{ delay_ms: 80 }, { first_byte_delay_ms: 80 }]) {
      d.setScript(entry);
      const startedAt = performance.now();
      const reply = await ask(d);
      expect(performance.now() - startedAt).toBeGreaterThanOrEqual(75);
      expect(at(reply.json, "object")).toBe("chat.completion");
    }
    expect(d.records().every(({ scripted }) => scripted)).toBe(true);
  });

  it("a decoder takes the blocks at the end of first_byte_delay_ms, at once with delay_ms", async () => {
    const [p, d] = [await house.start({ role: "prefill" }), await house.start({ role: "decode" })];
    const body = chatBody("blocks", 60);
    const run = async (entry: object): Promise<{ heldWhileWaiting: number; reply: Promise<unknown> }> => {
      const first = await send(p.url, CHAT, { body: prefillLeg(body) });
      d.setScript(entry);
      const reply = send(d.url, CHAT, { body: { ...body, kv_transfer_params: first.json["kv_transfer_params"] } });
      await new Promise((resolve) => setTimeout(resolve, 120));
      return { heldWhileWaiting: p.state().heldTransfers.length, reply };
    };
    const late = await run({ first_byte_delay_ms: 300 });
    expect(late.heldWhileWaiting).toBe(1);
    await late.reply;
    expect(p.state().heldTransfers.length).toBe(0);
    const early = await run({ delay_ms: 300 });
    expect(early.heldWhileWaiting).toBe(0);
    await early.reply;
    expect(d.records().map(({ handoff, error }) => [handoff?.correct, error])).toEqual(Array(2).fill([true, null]));
  });

  it("a client that leaves during the delay is noticed; a prefiller has pinned nothing, a decoder taken nothing", async () => {
    const [p, d] = [await house.start({ role: "prefill" }), await house.start({ role: "decode" })];
    p.setScript({ delay_ms: 5_000 });
    d.setScript({ first_byte_delay_ms: 5_000 });
    for (const engine of [p, d]) {
      const abort = new AbortController();
      const body = engine === p ? prefillLeg(chatBody("gone")) : chatBody("gone");
      const reply = send(engine.url, CHAT, { body, signal: abort.signal }).catch(() => "gone");
      await expect.poll(() => engine.records()[0]?.readAtMs ?? null, PATIENT).not.toBe(null);
      abort.abort();
      await reply;
      await expect.poll(() => engine.records()[0]?.aborted, PATIENT).toBe(true);
      expect(engine.records()[0]).toMatchObject({ status: 0, open: false, firstByteAtMs: null });
    }
    expect(p.state().heldTransfers).toEqual([]);
  });

  it("closes the connection when it has been idle for so long", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript({ status: 200, json: {}, close_idle_after_ms: 60 });
    const closedAfter = await new Promise<number>((resolve) => {
      let answeredAt = 0;
      const socket = connect(d.port, "127.0.0.1");
      socket.once("data", () => {
        answeredAt = performance.now();
      });
      socket.on("end", () => {
        resolve(performance.now() - answeredAt);
        socket.destroy();
      });
      socket.write(`POST ${CHAT} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`);
    });
    expect(closedAfter).toBeGreaterThanOrEqual(50);
    expect(closedAfter).toBeLessThan(2_000);
  });
});

describe("scripted refusal", () => {
  const refused = (engine: Engine): Promise<string> => send(engine.url, "/health").then(() => "answered", (error: unknown) => (error as NodeJS.ErrnoException).code ?? "failed");

  it("closes the service port, not the control port, until the script changes", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript({ tcp: "refused" });
    expect(await refused(d)).toBe("ECONNREFUSED");
    expect(await refused(d)).toBe("ECONNREFUSED");
    expect((await send(d.controlUrl, "/_sim/state")).status).toBe(200);
    d.setScript(null);
    await expect.poll(() => refused(d), PATIENT).toBe("answered");
  });

  it("closes connections that were opened ahead of a request too", async () => {
    const d = await house.start({ role: "decode" });
    const socket = connect(d.port, "127.0.0.1");
    const closed = new Promise<void>((resolve) => socket.once("close", () => { resolve(); }));
    socket.resume().on("error", () => undefined);
    await expect.poll(() => d.state().connections, PATIENT).toBe(1);
    d.setScript({ tcp: "refused" });
    await closed;
  });

  it("refuses on every engine that shares the queue", async () => {
    const queue = new ScriptQueue({ tcp: "refused" });
    const engines = [await house.start({ role: "prefill" }), await house.start({ role: "prefill" })];
    for (const engine of engines) engine.setScript(queue);
    for (const engine of engines) expect(await refused(engine)).toBe("ECONNREFUSED");
  });

  it("lets a request that is under way end, and keeps no connection for another", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript([{ status: 200, json: {}, delay_ms: 100 }, { tcp: "refused" }]);
    expect((await ask(d)).status).toBe(200);
    expect(await refused(d)).toBe("ECONNREFUSED");
    expect(d.state().connections).toBe(0);
  });

  it.runIf(failedConnects() !== null)("is used up by an attempt when it is not the last entry, and counted", async () => {
    const d = await house.start({ role: "decode" });
    d.setScript([{ tcp: "refused" }, { status: 418, text: "tea" }]);
    expect(await refused(d)).toBe("ECONNREFUSED");
    await expect.poll(() => refused(d), PATIENT).toBe("answered");
    expect((await ask(d)).status).toBe(418);
    expect(d.state().attempts).toBeGreaterThanOrEqual(1);
    expect(d.records()[0]).toMatchObject({ status: 0, error: "tcp: refused", readAtMs: null, stage: "decode" });
  });

  it("is used up by whoever knows of the attempt, when nobody watches the machine's count", async () => {
    const queue = new ScriptQueue([{ tcp: "refused" }, { status: 418 }]);
    const d = await house.start({ role: "decode", watchRefusals: false, scripts: { decode: queue } });
    for (let attempt = 0; attempt < 3; attempt += 1) expect(await refused(d)).toBe("ECONNREFUSED");
    expect([queue.calls, d.state().attempts]).toEqual([0, 0]);
    queue.take();
    await expect.poll(() => refused(d), PATIENT).toBe("answered");
    expect((await ask(d)).status).toBe(418);
  });
});
