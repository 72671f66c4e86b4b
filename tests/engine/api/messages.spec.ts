import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, EngineHouse, send, type Reply } from "../testing.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
let engine: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "decode" });
});
afterAll(() => house.closeAll());

const base = { model: "m", max_tokens: 4, temperature: 0, messages: [{ role: "user", content: "Which tide?" }] };
const post = (body: object): Promise<Reply> => send(engine.url, "/v1/messages?beta=true", { body: { ...base, ...body } });
const text = (reply: Reply): unknown => at(reply.json, "content.0.text");

describe("messages", () => {
  it("answers in Anthropic's shape", async () => {
    const reply = await post({});
    expect(reply.status).toBe(200);
    expect(reply.json).toMatchObject({ type: "message", role: "assistant", model: "m", stop_reason: "max_tokens" });
    // What is null is left out; all input is the sum of three counts.
    expect(Object.keys(reply.json)).toEqual(expect.not.arrayContaining(["stop_sequence", "kv_transfer_params", "ec_transfer_params"]));
    const usage = reply.json["usage"] as Record<string, number>;
    expect((usage["input_tokens"] ?? 0) + (usage["cache_creation_input_tokens"] ?? 0) + (usage["cache_read_input_tokens"] ?? 0)).toBeGreaterThan(5);
    expect(at(reply.json, "usage.output_tokens")).toBe(4);
    expect(typeof text(reply)).toBe("string");
  });

  it("renders the prompt as chat does", async () => {
    const chat = await send(engine.url, "/v1/chat/completions", { body: { ...base, messages: [{ role: "system", content: "Short." }, ...base.messages] } });
    expect(text(await post({ system: "Short." }))).toBe(at(chat.json, "choices.0.message.content"));
    expect(text(await post({ system: [{ type: "text", text: "Short." }] }))).toBe(at(chat.json, "choices.0.message.content"));
    expect(text(await post({}))).not.toBe(at(chat.json, "choices.0.message.content"));
  });

  it("streams message_start to message_stop and adds up to the same text", async () => {
    const reply = await post({ stream: true });
    expect(reply.events).toEqual(["message_start", "content_block_start", ...Array<string>(4).fill("content_block_delta"), "content_block_stop", "message_delta", "message_stop"]);
    const events = reply.data.map((line) => JSON.parse(line) as unknown);
    expect(events.map((event) => at(event, "delta.text") ?? "").join("")).toBe(text(await post({})));
    const delta = events.find((event) => at(event, "type") === "message_delta");
    expect(delta).toMatchObject({ delta: { stop_reason: "max_tokens" }, usage: { output_tokens: 4 } });
    // The first event knows of no cache.
    const counts = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"].map((name) => Number(at(delta, `usage.${name}`)));
    expect(at(events[0], "message.usage.input_tokens")).toBe(counts.reduce((sum, count) => sum + count, 0));
  });

  it("reports what was cached", async () => {
    const long = { messages: [{ role: "user", content: "the ledger of every vessel ".repeat(20) }] };
    await post(long);
    expect(at((await post(long)).json, "usage.cache_read_input_tokens")).toBeGreaterThan(100);
  });

  it("calls a tool when it must", async () => {
    const tools = [{ name: "tide", input_schema: { type: "object", properties: { berth: { type: "integer" } } } }];
    const reply = await post({ tools, tool_choice: { type: "tool", name: "tide" }, max_tokens: 40 });
    expect(reply.json).toMatchObject({ stop_reason: "tool_use", content: [{ type: "tool_use", name: "tide" }] });
    expect(typeof at(reply.json, "content.0.input.berth")).toBe("number");
    const streamed = await post({ tools, tool_choice: { type: "tool", name: "tide" }, max_tokens: 40, stream: true });
    const json = streamed.data.map((line) => at(JSON.parse(line), "delta.partial_json") ?? "").join("");
    expect(JSON.parse(json)).toEqual(at(reply.json, "content.0.input"));
    expect((await post({ tools, tool_choice: { type: "any" }, max_tokens: 40 })).json).toMatchObject({ stop_reason: "tool_use", content: [{ name: "tide" }] });
  });

  it("lets tool use, tool results and pictures change the prompt", async () => {
    const turns = (content: unknown) => post({ messages: [...base.messages, { role: "assistant", content: [{ type: "tool_use", id: "t", name: "tide", input: { berth: 4 } }] }, { role: "user", content }] });
    const one = text(await turns([{ type: "tool_result", tool_use_id: "t", content: "high" }]));
    expect(text(await turns([{ type: "tool_result", tool_use_id: "t", content: "low" }]))).not.toBe(one);
    const image = (data: string) => post({ messages: [{ role: "user", content: [{ type: "image", source: { type: "base64", media_type: "image/png", data } }] }] });
    expect(text(await image("AAAA"))).not.toBe(text(await image("AAAB")));
  });

  it("honours stop_sequences", async () => {
    const whole = String(text(await post({ max_tokens: 10 })));
    const word = whole.split(" ")[3] ?? "";
    expect(text(await post({ max_tokens: 10, stop_sequences: [word] }))).toBe(whole.slice(0, whole.indexOf(word)));
  });

  it.each<[object, string]>([
    [{ max_tokens: undefined }, "max_tokens"],
    [{ max_tokens: 0 }, "max_tokens must be at least 1, got 0."],
    [{ messages: [] }, "messages"],
    [{ messages: [{ role: "owl", content: "x" }] }, "messages.0.role"],
    [{ system: 3 }, "system"],
  ])("refuses %j", async (body, wanted) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(wanted);
  });

  it("counts tokens", async () => {
    const { json } = await send(engine.url, "/v1/messages/count_tokens", { body: base });
    expect(json["input_tokens"]).toBe(at((await post({})).json, "usage.input_tokens"));
  });
});
