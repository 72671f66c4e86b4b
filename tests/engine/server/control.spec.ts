import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, chatBody, EngineHouse, PATIENT, prefillLeg, send } from "../testing.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
let engine: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "prefill" });
});
afterAll(() => house.closeAll());

const CHAT = "/v1/chat/completions";

describe("control paths", () => {
  it("give the records on both ports, bodies as base64", async () => {
    await engine.reset();
    const body = Buffer.from(JSON.stringify(prefillLeg(chatBody("control"))));
    await send(engine.url, CHAT, { body });
    for (const url of [engine.url, engine.controlUrl]) {
      const records = JSON.parse((await send(url, "/_sim/requests")).text) as Record<string, unknown>[];
      expect(records.length).toBe(1);
      expect(Buffer.from(String(records[0]?.["bodyBase64"]), "base64").equals(body)).toBe(true);
      expect(records[0]).toMatchObject({ seq: 1, stage: "prefill", path: CHAT, status: 200 });
    }
    const short = JSON.parse((await send(engine.controlUrl, "/_sim/requests?bodies=false")).text) as Record<string, unknown>[];
    expect(short[0]).toMatchObject({ bodyBytes: body.length });
    expect(JSON.parse((await send(engine.controlUrl, "/_sim/requests?since=1")).text)).toEqual([]);
    await send(engine.controlUrl, "/_sim/requests", { method: "DELETE" });
    expect(engine.records()).toEqual([]);
  });

  it("take scripts, one or per stage, and name what is wrong with one", async () => {
    await send(engine.controlUrl, "/_sim/script", { method: "PUT", body: { status: 503 } });
    expect((await send(engine.url, CHAT, { body: {} })).status).toBe(503);
    await send(engine.controlUrl, "/_sim/script", { method: "PUT", body: { prefill: [{ status: 502 }], decode: { status: 200 } } });
    expect((await send(engine.url, CHAT, { body: {} })).status).toBe(502);
    const wrong = await send(engine.controlUrl, "/_sim/script", { method: "PUT", body: { statuss: 1 } });
    expect([wrong.status, at(wrong.json, "error.message")]).toEqual([400, "script.statuss: unknown member"]);
    expect((await send(engine.controlUrl, "/_sim/script", { method: "PUT", body: "{" })).status).toBe(400);
    await send(engine.controlUrl, "/_sim/script", { method: "DELETE" });
    expect((await send(engine.url, CHAT, { body: prefillLeg(chatBody("x")) })).status).toBe(200);
  });

  it("tell the state, and reset it", async () => {
    await engine.reset();
    await send(engine.url, CHAT, { body: prefillLeg(chatBody("state")) });
    const before = await send(engine.controlUrl, "/_sim/state");
    expect(before.json).toMatchObject({ role: "prefill", dead: null, heldTransfers: [{ blocks: expect.any(Number) }], calls: { prefill: 1 }, running: 0, openRequests: 0, maxInFlight: 1 });
    const after = await send(engine.controlUrl, "/_sim/reset", { method: "POST" });
    expect(after.json).toMatchObject({ heldTransfers: [], calls: { prefill: 0 }, maxInFlight: 0, blocks: { used: 0, cached: 0 } });
    expect(after.json["engineId"]).not.toBe(before.json["engineId"]);
    expect(engine.records()).toEqual([]);
  });

  it("are no records, and unknown ones are 404", async () => {
    await engine.reset();
    expect((await send(engine.url, "/_sim/owl")).status).toBe(404);
    expect((await send(engine.controlUrl, "/_sim/owl", { body: {} })).status).toBe(404);
    expect(engine.records()).toEqual([]);
  });

  it("reset an engine with requests under way: they break off, the engine lives", async () => {
    const d = await house.start({ role: "decode", msPerDecodeToken: 50, maxNumSeqs: 2 });
    const hanging = { do_remote_prefill: true, remote_block_ids: [[1]], remote_engine_id: "e", remote_host: "127.0.0.1", remote_port: 1 };
    const bodies = [chatBody("a", 20, { max_tokens: 200, min_tokens: 200 }), chatBody("b", 20, { max_tokens: 200, min_tokens: 200, stream: true }), chatBody("waits"), chatBody("hangs", 20, { kv_transfer_params: hanging })];
    const replies = bodies.map((body) => send(d.url, CHAT, { body }).then((reply) => reply.broken, () => true));
    await expect.poll(() => d.state().calls.decode, PATIENT).toBe(4);
    await d.reset();
    expect(await Promise.all(replies)).toEqual([true, true, true, true]);
    expect(await d.idle()).toBe(true);
    expect(d.state()).toMatchObject({ dead: null, running: 0, waiting: 0, blocks: { used: 0 } });
    expect((await send(d.url, CHAT, { body: chatBody("after", 20, { max_tokens: 1 }) })).status).toBe(200);
  });

  it("keep idle connections over a reset, so that a client's pool does not notice", async () => {
    const { Agent, request } = await import("undici");
    const dispatcher = new Agent({ connections: 1, pipelining: 1 });
    const get = async (): Promise<number> => {
      const reply = await request(`${engine.url}/version`, { dispatcher });
      await reply.body.dump();
      return reply.statusCode;
    };
    expect(await get()).toBe(200);
    await engine.reset();
    expect(await get()).toBe(200);
    expect(engine.state().connections).toBe(1);
    await dispatcher.close();
  });
});
