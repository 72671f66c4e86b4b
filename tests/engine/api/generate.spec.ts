import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, EngineHouse, send, type Reply } from "../testing.js";
import { encode } from "../tokenizer.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
let engine: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "decode" });
});
afterAll(() => house.closeAll());

const base = { model: "m", token_ids: [9906, 1917, 374, 264, 1296], sampling_params: { max_tokens: 4, temperature: 0 } };
const post = (body: object): Promise<Reply> => send(engine.url, "/inference/v1/generate", { body: { ...base, ...body }, headers: { "x-request-id": "r-9" } });
const ids = (reply: Reply): unknown => at(reply.json, "choices.0.token_ids");

describe("generate", () => {
  it("answers tokens, with the limits of sampling_params", async () => {
    const reply = await post({});
    expect(reply.json).toMatchObject({ request_id: "generate-tokens-r-9", kv_transfer_params: null, ec_transfer_params: null });
    expect(at(reply.json, "choices.0")).toMatchObject({ finish_reason: "length" });
    expect((ids(reply) as unknown[]).length).toBe(4);
    expect(at(reply.json, "usage.prompt_tokens")).toBe(5);
    expect((ids(await post({ max_tokens: 9 })) as unknown[]).length).toBe(4);
  });

  it("is told apart by its ids", async () => {
    expect(ids(await post({}))).toEqual(ids(await post({})));
    expect(ids(await post({ token_ids: [9906, 1917, 374, 264, 1297] }))).not.toEqual(ids(await post({})));
  });

  it("streams a token per event and the finish reason with the last", async () => {
    const reply = await post({ stream: true, stream_options: { include_usage: true } });
    expect(reply.data.at(-1)).toBe("[DONE]");
    const events = reply.data.slice(0, -1).map((line) => JSON.parse(line) as unknown);
    expect(events.flatMap((event) => at(event, "choices.0.token_ids") ?? [])).toEqual(ids(await post({})));
    expect(events.map((event) => at(event, "choices.0.finish_reason") ?? null)).toEqual([null, null, null, "length", null]);
    expect(at(events.at(-1), "usage.completion_tokens")).toBe(4);
  });

  it("gives log-probabilities by id", async () => {
    const reply = await post({ sampling_params: { max_tokens: 2, temperature: 0, logprobs: 1, prompt_logprobs: 1 } });
    expect(at(reply.json, "choices.0.logprobs.content.0.token")).toBe(`token_id:${String((ids(reply) as unknown[])[0])}`);
    expect((reply.json["prompt_logprobs"] as unknown[]).length).toBe(5);
  });

  it("takes media that was processed elsewhere", async () => {
    const features = (hash: string) => ({ features: { mm_hashes: { image: [hash] }, mm_placeholders: { image: [{ offset: 1, length: 2 }] } } });
    expect((await post(features("h1"))).status).toBe(200);
    expect(engine.records().at(-1)?.media).toMatchObject([{ hash: "h1", modality: "image", source: "local" }]);
    expect((await post({ features: { mm_hashes: { image: ["h"] }, mm_placeholders: {} } })).status).toBe(400);
  });

  it("detokenizes to the text of chat's words", async () => {
    const tokens = ids(await post({})) as number[];
    const { json } = await send(engine.url, "/detokenize", { body: { tokens } });
    expect([...encode(String(json["prompt"]))]).toEqual(tokens);
  });

  it.each<[object, string]>([
    [{ token_ids: undefined }, "token_ids"],
    [{ token_ids: [] }, "token_ids"],
    [{ token_ids: ["x"] }, "token_ids"],
    [{ sampling_params: undefined }, "sampling_params"],
    [{ sampling_params: 3 }, "sampling_params"],
    [{ sampling_params: { max_tokens: 0 } }, "max_tokens must be at least 1, got 0."],
    [{ sampling_params: { max_tokens: 2, min_tokens: 3 } }, "min_tokens"],
  ])("refuses %j", async (body, wanted) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(wanted);
  });

  it("is closed without --enable-scale-out", async () => {
    const closed = await house.start({ role: "decode", scaleOut: false });
    expect((await send(closed.url, "/inference/v1/generate", { body: base })).status).toBe(403);
  });
});
