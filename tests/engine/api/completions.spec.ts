import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, EngineHouse, send, type Reply } from "../testing.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
let engine: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "decode" });
});
afterAll(() => house.closeAll());

const post = (body: object): Promise<Reply> => send(engine.url, "/v1/completions", { body: { model: "m", temperature: 0, max_tokens: 4, ...body } });
const texts = (reply: Reply): unknown[] => (reply.json["choices"] as unknown[]).map((choice) => at(choice, "text"));

describe("completions", () => {
  it("gives one choice per prompt of a list, each as if it were alone", async () => {
    const prompts = ["List three knots.", "What is the tide?"];
    const together = await post({ prompt: prompts });
    expect(together.json).toMatchObject({ object: "text_completion" });
    expect(texts(together)).toEqual([...texts(await post({ prompt: prompts[0] })), ...texts(await post({ prompt: prompts[1] }))]);
    expect(at(together.json, "usage.completion_tokens")).toBe(8);
    expect((together.json["choices"] as unknown[]).map((choice) => at(choice, "index"))).toEqual([0, 1]);
  });

  it("gives n choices per prompt", async () => {
    const reply = await post({ prompt: ["a", "b"], n: 2, temperature: 1 });
    expect((reply.json["choices"] as unknown[]).map((choice) => at(choice, "index"))).toEqual([0, 1, 2, 3]);
    expect(new Set(texts(reply)).size).toBe(4);
  });

  it("takes ids as the text that they stand for", async () => {
    const { json } = await send(engine.url, "/tokenize", { body: { prompt: "List three knots." } });
    const ids = json["tokens"];
    expect(texts(await post({ prompt: ids }))).toEqual(texts(await post({ prompt: "List three knots." })));
    expect(texts(await post({ prompt: [ids, ids] })).length).toBe(2);
  });

  it("makes 16 tokens when nothing is said", async () => {
    expect(at((await post({ prompt: "x", max_tokens: null })).json, "usage.completion_tokens")).toBe(16);
  });

  it("streams each choice and ends with usage and [DONE]", async () => {
    const reply = await post({ prompt: ["a", "b"], stream: true, stream_options: { include_usage: true } });
    const chunks = reply.data.slice(0, -1).map((line) => JSON.parse(line) as unknown);
    const joined = [0, 1].map((index) => chunks.filter((chunk) => at(chunk, "choices.0.index") === index).map((chunk) => at(chunk, "choices.0.text")).join(""));
    expect(joined).toEqual(texts(await post({ prompt: ["a", "b"] })));
    expect(at(chunks.at(-1), "usage.completion_tokens")).toBe(8);
    expect(reply.data.at(-1)).toBe("[DONE]");
  });

  it("echoes the prompt, with log-probabilities for it when they are asked for", async () => {
    const reply = await post({ prompt: "knots", echo: true, logprobs: 1 });
    expect(String(texts(reply)[0]).startsWith("knots")).toBe(true);
    const tokens = at(reply.json, "choices.0.logprobs.tokens") as unknown[];
    expect(tokens.length).toBe(Number(at(reply.json, "usage.total_tokens")));
  });

  it("answers prompt_logprobs per choice", async () => {
    const reply = await post({ prompt: ["knots and ropes", "b"], prompt_logprobs: 1 });
    expect((at(reply.json, "choices.0.prompt_logprobs") as unknown[]).length).toBe(1 + 4);
    expect((at(reply.json, "choices.1.prompt_logprobs") as unknown[]).length).toBe(2);
  });

  it("takes embedded prompts", async () => {
    const one = await post({ prompt_embeds: "AAAA" });
    expect(one.status).toBe(200);
    expect(texts(one)).not.toEqual(texts(await post({ prompt_embeds: "AAAB" })));
  });

  it.each<[object, string]>([
    [{}, "prompt"],
    [{ prompt: [] }, "prompt"],
    [{ prompt: 3 }, "prompt"],
    [{ prompt: [{}] }, "prompt.0"],
    [{ prompt: [1, "x"] }, "prompt.1"],
    [{ prompt: [1, 9_999_999_999] }, "out of vocabulary"],
    [{ prompt: "x", max_tokens: 0 }, "max_tokens must be at least 1, got 0."],
  ])("refuses %j", async (body, text) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(text);
  });
});
