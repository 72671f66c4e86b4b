import { afterEach, describe, expect, it } from "vitest";

import { EngineDirectory } from "../directory.js";
import type { JsonObject } from "../json.js";
import { at, chatText, EngineHouse, NIXL_PREFILL, send, type Reply } from "../testing.js";
import type { Engine, EngineOptions } from "../types.js";

const house = new EngineHouse();
afterEach(() => house.closeAll());

const CHAT = "/v1/chat/completions";
const image = (url: string): JsonObject => ({ type: "image_url", image_url: { url } });
const A = image("https://media.example.test/a.png");
const B = image("https://media.example.test/b.png");
const audio: JsonObject = { type: "input_audio", input_audio: { data: "UklGRiQAAABXQVZF", format: "wav" } };
const video: JsonObject = { type: "video_url", video_url: { url: "https://media.example.test/v.mp4" } };

const encodeLeg = (...items: JsonObject[]): JsonObject => ({ model: "m", messages: [{ role: "user", content: items }], max_tokens: 1, stream: false });
const question = (...items: JsonObject[]): JsonObject => ({ model: "m", messages: [{ role: "user", content: [...items, { type: "text", text: "what is it?" }] }], temperature: 0, max_tokens: 6 });

const encoder = (more: Partial<EngineOptions> = {}): Promise<Engine> => house.start({ role: "encode", ...more });
const encode = (engine: Engine, ...items: JsonObject[]): Promise<Reply> => send(engine.url, CHAT, { body: encodeLeg(...items) });
const references = (reply: Reply): JsonObject => reply.json["ec_transfer_params"] as JsonObject;

describe("the encode leg", () => {
  it("answers a reference per distinct item, and no text", async () => {
    const e = await encoder();
    const reply = await encode(e, A, B, A);
    expect(reply.status).toBe(200);
    expect(at(reply.json, "choices.0")).toMatchObject({ finish_reason: "stop", message: { content: "" } });
    expect(at(reply.json, "usage.completion_tokens")).toBe(0);
    const params = references(reply);
    expect(Object.keys(params).length).toBe(2);
    for (const hash of Object.keys(params)) expect(hash).toMatch(/^[0-9a-f]{64}$/);
    const [first, second] = Object.values(params);
    expect(first).toMatchObject({ item_indices: [0, 2], metadata: { image_grid_thw: [1, expect.any(Number), expect.any(Number)] }, peer_host: "127.0.0.1", peer_port: e.controlPort });
    expect(second).toMatchObject({ item_indices: [1] });
    expect(e.state().heldEmbeddings.sort()).toEqual(Object.keys(params).sort());
    expect(e.records()[0]).toMatchObject({ stage: "encode", error: null, media: [{ source: "local" }, { source: "local" }] });
  });

  it("works for every kind of media and API shape that carries it", async () => {
    const e = await encoder();
    expect(Object.keys(references(await encode(e, audio, video, A))).length).toBe(3);
    const input = [{ role: "user", content: [{ type: "input_image", image_url: "https://media.example.test/a.png" }] }];
    const responses = await send(e.url, "/v1/responses", { body: { input, max_output_tokens: 1, stream: false } });
    const messages = [{ role: "user", content: [{ type: "image", source: { type: "url", url: "https://media.example.test/a.png" } }] }];
    const anthropic = await send(e.url, "/v1/messages", { body: { model: "m", messages, max_tokens: 1 } });
    const hash = Object.keys(references(await encode(e, A)))[0];
    expect([Object.keys(references(responses)), Object.keys(references(anthropic))]).toEqual([[hash], [hash]]);
  });

  it("names an item by its bytes, its uuid and its processing", async () => {
    const e = await encoder();
    const hashOf = async (item: JsonObject, more: JsonObject = {}): Promise<string | undefined> =>
      Object.keys(references(await send(e.url, CHAT, { body: { ...encodeLeg(item), ...more } })))[0];
    const plain = await hashOf(image("data:image/png;base64,AAAA"));
    expect(await hashOf(image("data:image/jpeg;base64,AAAA"))).toBe(plain);
    expect(await hashOf(image("data:image/png;base64,AAAB"))).not.toBe(plain);
    expect(await hashOf({ ...A, uuid: "u" })).toBe(await hashOf({ ...B, uuid: "u" }));
    expect(await hashOf(A, { mm_processor_kwargs: { fps: 1 } })).not.toBe(await hashOf(A));
    expect(await hashOf({ type: "image_url", image_url: { url: "https://media.example.test/a.png", detail: "high" } })).toBe(await hashOf(A));
  });

  it("has no bytes for a uuid that it never saw", async () => {
    const e = await encoder();
    const reply = await encode(e, { type: "image_url", image_url: null, uuid: "scan-12" });
    expect([reply.status, at(reply.json, "error.message")]).toEqual([400, "Cache miss for image at index 0 but data is not provided."]);
    await encode(e, { ...A, uuid: "scan-12" });
    expect((await encode(e, { type: "image_url", image_url: null, uuid: "scan-12" })).status).toBe(200);
  });

  it("takes its time per item, once per item", async () => {
    const e = await encoder({ msPerMediaItem: 200 });
    const timed = async (...items: JsonObject[]): Promise<number> => {
      const startedAt = performance.now();
      await encode(e, ...items);
      return performance.now() - startedAt;
    };
    expect(await timed(A, B)).toBeGreaterThanOrEqual(390);
    expect(await timed(A, B)).toBeLessThan(200);
    expect(e.records()[1]?.media.map(({ source }) => source)).toEqual(["cache", "cache"]);
  });

  it.each<[string, JsonObject, string]>([
    ["text beside the media", encodeLeg(A, { type: "text", text: "x" }), "messages.0.content"],
    ["no media", { ...encodeLeg(), messages: [{ role: "user", content: "x" }] }, "messages.0.content"],
    ["a system message", { ...encodeLeg(A), messages: [{ role: "system", content: "x" }, { role: "user", content: [A] }] }, "messages"],
    ["another role", { ...encodeLeg(A), messages: [{ role: "assistant", content: [A] }] }, "messages.0.role"],
    ["no cap", { ...encodeLeg(A), max_tokens: null }, "max_tokens"],
    ["a cap that is not 1", { ...encodeLeg(A), max_completion_tokens: 64 }, "max_completion_tokens"],
    ["stream", { ...encodeLeg(A), stream: true }, "stream"],
    ["kv_transfer_params", { ...encodeLeg(A), kv_transfer_params: NIXL_PREFILL }, "kv_transfer_params"],
  ])("refuses %s by name", async (_name, body, member) => {
    const e = await encoder();
    const reply = await send(e.url, CHAT, { body });
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(member);
    expect(e.records()[0]?.error).toContain(member);
    expect(e.state().heldEmbeddings).toEqual([]);
  });

  it("is lenient where the real one is: text only, and a stream without references", async () => {
    const e = await encoder({ strictness: "real" });
    const text = await send(e.url, CHAT, { body: { messages: [{ role: "user", content: "x" }] } });
    expect([text.status, text.json["ec_transfer_params"]]).toEqual([200, null]);
    const streamed = await send(e.url, CHAT, { body: { ...question(A), stream: true } });
    expect(streamed.data.length).toBe(2);
    expect(streamed.data[1]).toBe("[DONE]");
    expect(streamed.text).not.toContain("ec_transfer_params");
  });
});

describe("who takes the embeddings", () => {
  const ask = (engine: Engine, body: JsonObject, params: unknown = null): Promise<Reply> => send(engine.url, CHAT, { body: { ...body, ...(params === null ? {} : { ec_transfer_params: params }) } });

  it("by reference, over the encoder's side channel", async () => {
    const [e, pd] = [await encoder(), await house.start({ role: "prefill-decode", ecConnector: "ec-nixl" })];
    const params = { ...references(await encode(e, A)), ...references(await encode(e, B)) };
    const reply = await ask(pd, question(A, B), params);
    const peer = `127.0.0.1:${String(e.controlPort)}`;
    expect(pd.records()[0]).toMatchObject({ stage: "decode", error: null, controlMembers: ["ec_transfer_params"], media: [{ source: "reference", reference: "found", peer }, { source: "reference", reference: "found", peer }] });
    const alone = await house.start({ role: "decode" });
    expect(chatText(reply)).toBe(chatText(await ask(alone, question(A, B))));
  });

  it("an item without a reference is encoded here, and takes its time", async () => {
    const [e, pd] = [await encoder(), await house.start({ role: "decode", ecConnector: "ec-nixl", msPerMediaItem: 80 })];
    const params = references(await encode(e, A));
    const startedAt = performance.now();
    await ask(pd, question(A, B), params);
    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(75);
    expect(pd.records()[0]?.media.map(({ source, reference }) => [source, reference])).toEqual([
      ["reference", "found"],
      ["local", "none"],
    ]);
  });

  it("checks references: edited, malformed, unknown to the encoder, or of no item", async () => {
    const [e, pd] = [await encoder(), await house.start({ role: "decode", ecConnector: "ec-nixl" })];
    const params = references(await encode(e, A));
    const [hash, entry] = Object.entries(params)[0] ?? ["", null];
    const check = async (changed: unknown): Promise<(string | undefined)[]> => {
      await pd.reset();
      expect((await ask(pd, question(A), { [hash]: changed })).status).toBe(200);
      const record = pd.records()[0];
      expect(record?.error).toBe(`ec_transfer_params.${hash}: ${String(record?.media[0]?.reference)}`);
      return [record?.media[0]?.source, record?.media[0]?.reference];
    };
    const original = entry as JsonObject;
    expect(await check({ ...original, metadata: { image_grid_thw: [1, 99, 99] } })).toEqual(["local", "edited"]);
    expect(await check("x")).toEqual(["local", "malformed"]);
    expect(await check({ ...original, peer_port: 1 })).toEqual(["local", "missing"]);
    await e.reset();
    expect(await check(original)).toEqual(["local", "missing"]);
    await pd.reset();
    await ask(pd, question(B), params);
    expect(pd.records()[0]?.error).toContain("no such item");
  });

  it("by content in the shared store of one process, without references", async () => {
    const peers = new EngineDirectory();
    const [e, pd] = [await encoder({ peers }), await house.start({ role: "decode", ecConnector: "ec-example", peers })];
    await encode(e, A);
    await ask(pd, question(A, B));
    expect(pd.records()[0]?.media.map(({ source }) => source)).toEqual(["store", "local"]);
    expect(pd.records()[0]?.media[0]?.peer).toBe(`127.0.0.1:${String(e.controlPort)}`);
  });

  it("by content from encoders of other processes", async () => {
    const [e, other] = [await encoder(), await encoder()];
    const encoders = [`127.0.0.1:${String(other.controlPort)}`, `127.0.0.1:${String(e.controlPort)}`];
    const pd = await house.start({ role: "decode", ecConnector: "ec-example", encoders });
    await encode(e, A);
    await ask(pd, question(A));
    expect(pd.records()[0]).toMatchObject({ media: [{ source: "store", peer: encoders[1] }], outbound: encoders });
  });

  it("has what it has met before", async () => {
    const pd = await house.start({ role: "decode" });
    await ask(pd, question(A));
    await ask(pd, { ...question(A), cache_salt: "other" });
    expect(pd.records().map((record) => record.media[0]?.source)).toEqual(["local", "cache"]);
  });

  it("ec-example's references name no peer", async () => {
    const e = await encoder({ ecConnector: "ec-example" });
    expect(Object.values(references(await encode(e, A)))[0]).toEqual({ item_indices: [0], metadata: expect.anything() as object });
  });

  it("through encode, prefill and decode the answer is that of one engine", async () => {
    const [e, p, d, alone] = [await encoder(), await house.start({ role: "prefill", ecConnector: "ec-nixl" }), await house.start({ role: "decode", ecConnector: "ec-nixl" }), await house.start({ role: "decode" })];
    const body = question(A, audio);
    const ec_transfer_params = { ...references(await encode(e, A)), ...references(await encode(e, audio)) };
    const first = await send(p.url, CHAT, { body: { ...body, max_tokens: 1, stream: false, ec_transfer_params, kv_transfer_params: NIXL_PREFILL } });
    const reply = await send(d.url, CHAT, { body: { ...body, ec_transfer_params, kv_transfer_params: first.json["kv_transfer_params"] } });
    expect(chatText(reply)).toBe(chatText(await ask(alone, body)));
    expect(p.records()[0]?.media.map(({ source }) => source)).toEqual(["reference", "reference"]);
    // The KV of the media's tokens came from the prefiller, but the references are checked here too.
    expect(d.records()[0]?.media.map(({ source, reference }) => [source, reference])).toEqual([
      ["kv", "found"],
      ["kv", "found"],
    ]);
  });
});

describe("an engine with every role", () => {
  it("serves each request as what it asks for", async () => {
    const all = await house.start({ role: "encode-prefill-decode" });
    await encode(all, A);
    await send(all.url, CHAT, { body: { ...question(A), max_tokens: 1, stream: false, kv_transfer_params: NIXL_PREFILL } });
    await send(all.url, CHAT, { body: question(A) });
    expect(all.records().map(({ stage, status }) => [stage, status])).toEqual([
      ["encode", 200],
      ["prefill", 200],
      ["decode", 200],
    ]);
    expect(all.state().calls).toEqual({ encode: 1, prefill: 1, decode: 1 });
  });
});
