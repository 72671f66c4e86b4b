import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, EngineHouse, send } from "../testing.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
let engine: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "decode", embeddingDimensions: 8 });
});
afterAll(() => house.closeAll());

const embed = (body: object) => send(engine.url, "/v1/embeddings", { body: { model: "embed-a", ...body } });

describe("embeddings", () => {
  it("gives one dense vector of length 1 per input, the same for the same text", async () => {
    const reply = await embed({ input: ["berth", "tide table", "berth"], encoding_format: "float" });
    const data = (reply.json["data"] as unknown[]).map((item) => at(item, "embedding") as number[]);
    expect(data.map((vector) => vector.length)).toEqual([8, 8, 8]);
    expect(Math.hypot(...(data[0] ?? []))).toBeCloseTo(1);
    expect(data[0]).toEqual(data[2]);
    expect(data[0]).not.toEqual(data[1]);
    expect(reply.json).toMatchObject({ object: "list", model: "embed-a", usage: { completion_tokens: 0 } });
  });

  it("gives base64 of the same floats", async () => {
    const floats = at((await embed({ input: "berth" })).json, "data.0.embedding") as number[];
    const packed = Buffer.from(String(at((await embed({ input: "berth", encoding_format: "base64" })).json, "data.0.embedding")), "base64");
    floats.forEach((value, index) => {
      expect(packed.readFloatLE(index * 4)).toBeCloseTo(value, 5);
    });
  });

  it("answers large ones whole", async () => {
    const reply = await embed({ input: Array.from({ length: 64 }, (_, index) => `text ${String(index)}`), dimensions: 4096 });
    expect(reply.text.length).toBeGreaterThan(4_000_000);
    expect((reply.json["data"] as unknown[]).length).toBe(64);
    expect(reply.headers["content-length"]).toBe(String(Buffer.byteLength(reply.text)));
  });

  it("takes ids and conversations", async () => {
    expect((await embed({ input: [1, 2, 3] })).json["data"]).toHaveLength(1);
    expect((await embed({ input: [[1, 2], [3]] })).json["data"]).toHaveLength(2);
    expect((await embed({ messages: [{ role: "user", content: "x" }] })).status).toBe(200);
  });

  it.each([{}, { input: [] }, { input: 3 }, { input: "x", encoding_format: "owl" }, { input: "x", dimensions: 0 }])("refuses %j", async (body) => {
    expect((await embed(body)).status).toBe(400);
  });
});

describe("the other pooling APIs", () => {
  it("rerank sorts by relevance and honours top_n", async () => {
    for (const path of ["/rerank", "/v1/rerank", "/v2/rerank"]) {
      const { json } = await send(engine.url, path, { body: { query: "tide", documents: ["a", "b", "c"], top_n: 2 } });
      const scores = (json["results"] as unknown[]).map((item) => Number(at(item, "relevance_score")));
      expect(scores.length).toBe(2);
      expect(scores[0]).toBeGreaterThanOrEqual(scores[1] ?? 1);
    }
  });

  it("score pairs one with many and many with many", async () => {
    expect((await send(engine.url, "/score", { body: { text_1: "a", text_2: ["b", "c"] } })).json["data"]).toHaveLength(2);
    expect((await send(engine.url, "/score", { body: { text_1: ["a", "d"], text_2: ["b", "c"] } })).json["data"]).toHaveLength(2);
    expect((await send(engine.url, "/score", { body: { text_1: ["a"] } })).status).toBe(400);
  });

  it("pooling and classify answer per input", async () => {
    expect((await send(engine.url, "/pooling", { body: { input: ["a", "b"] } })).json["data"]).toHaveLength(2);
    const { json } = await send(engine.url, "/classify", { body: { input: "a" } });
    expect((at(json, "data.0.probs") as number[]).reduce((sum, value) => sum + value, 0)).toBeCloseTo(1);
  });
});

describe("tokenize", () => {
  it("counts what a generation counts, for text and for a conversation", async () => {
    const messages = [{ role: "user", content: "Which tide?" }];
    const chat = await send(engine.url, "/v1/chat/completions", { body: { messages, max_tokens: 1 } });
    expect((await send(engine.url, "/tokenize", { body: { messages } })).json["count"]).toBe(at(chat.json, "usage.prompt_tokens"));
    const completion = await send(engine.url, "/v1/completions", { body: { prompt: "Which tide?", max_tokens: 1 } });
    expect((await send(engine.url, "/tokenize", { body: { prompt: "Which tide?" } })).json["count"]).toBe(at(completion.json, "usage.prompt_tokens"));
  });

  it("gives texts back", async () => {
    const { json } = await send(engine.url, "/tokenize", { body: { prompt: "Tíde 🌊", add_special_tokens: false, return_token_strs: true } });
    expect((json["token_strs"] as string[]).join("")).toBe("Tíde 🌊");
    expect((await send(engine.url, "/detokenize", { body: { tokens: json["tokens"] } })).json["prompt"]).toBe("Tíde 🌊");
  });

  it("refuses what is neither", async () => {
    expect((await send(engine.url, "/tokenize", { body: {} })).status).toBe(400);
    expect((await send(engine.url, "/detokenize", { body: { tokens: "x" } })).status).toBe(400);
  });
});
