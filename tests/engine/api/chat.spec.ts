import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, chatBody, chatText, EngineHouse, send } from "../testing.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
let engine: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "decode" });
});
afterAll(() => house.closeAll());

const post = (body: unknown, headers: Record<string, string> = {}) => send(engine.url, "/v1/chat/completions", { body, headers });
const tools = [
  { type: "function", function: { name: "tide", parameters: { type: "object", properties: { berth: { type: "integer" }, name: { type: "string" } } } } },
  { type: "function", function: { name: "wind", parameters: { type: "object", properties: { side: { type: "string", enum: ["lee"] } } } } },
];

describe("chat completions", () => {
  it("answers in the real shape, with the request's id", async () => {
    const reply = await post(chatBody("shape"), { "x-request-id": "r-1" });
    expect(reply.status).toBe(200);
    expect(reply.headers).toMatchObject({ server: "uvicorn", "content-type": "application/json", "content-length": String(Buffer.byteLength(reply.text)) });
    expect(reply.json).toMatchObject({ id: "chatcmpl-r-1", object: "chat.completion", model: "m", kv_transfer_params: null, ec_transfer_params: null });
    expect(at(reply.json, "choices.0")).toMatchObject({ index: 0, finish_reason: "length", message: { role: "assistant", refusal: null } });
    expect(at(reply.json, "choices.0.message.tool_calls")).toBeUndefined();
    const usage = reply.json["usage"] as Record<string, number>;
    expect(usage).toMatchObject({ completion_tokens: 8, total_tokens: (usage["prompt_tokens"] ?? 0) + 8, prompt_tokens_details: { cached_tokens: 0, multimodal_tokens: null }, completion_tokens_details: null });
  });

  it("says the same for the same request, and something else for another prompt, tool, system text, model or seed", async () => {
    const body = chatBody("same", 40, { temperature: 0.5, seed: 1 });
    const text = chatText(await post(body));
    expect(chatText(await post(body))).toBe(text);
    const user = { role: "user", content: "and the tide" };
    const others = [
      { ...body, messages: [...(body["messages"] as unknown[]), user] },
      { ...body, messages: [{ role: "system", content: "short" }, ...(body["messages"] as unknown[])] },
      { ...body, tools },
      { ...body, model: "other" },
      { ...body, seed: 2 },
      { ...body, temperature: 0.6 },
      { ...body, messages: [...(body["messages"] as unknown[]), { role: "assistant", content: null, tool_calls: [{ function: { name: "tide", arguments: "{}" } }] }] },
    ];
    for (const other of others) expect(chatText(await post(other))).not.toBe(text);
  });

  it("tells seeds apart that a double cannot hold", async () => {
    const raw = (seed: string) => send(engine.url, "/v1/chat/completions", { body: JSON.stringify(chatBody("seed", 20, { temperature: 1 })).replace(/}$/, `,"seed":${seed}}`) });
    const texts = [chatText(await raw("9007199254740993")), chatText(await raw("9007199254740992"))];
    expect(texts[0]).not.toBe(texts[1]);
  });

  it("is told apart by media, not by detail", async () => {
    const image = (url: string, detail?: string) =>
      chatBody("x", 10, { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url, ...(detail === undefined ? {} : { detail }) } }, { type: "text", text: "what?" }] }] });
    const text = chatText(await post(image("https://media.example.test/a.png")));
    expect(chatText(await post(image("https://media.example.test/a.png", "low")))).toBe(text);
    expect(chatText(await post(image("https://media.example.test/b.png")))).not.toBe(text);
    expect(chatText(await post({ ...image("https://media.example.test/a.png"), mm_processor_kwargs: { fps: 2 } }))).not.toBe(text);
  });

  it("streams role, content, finish, usage and [DONE]", async () => {
    const body = chatBody("stream", 30, { stream: true, stream_options: { include_usage: true } });
    const whole = await post({ ...body, stream: false, stream_options: null });
    const reply = await post(body);
    expect(reply.headers["content-type"]).toBe("text/event-stream; charset=utf-8");
    expect(reply.data.at(-1)).toBe("[DONE]");
    const chunks = reply.data.slice(0, -1).map((line) => JSON.parse(line) as unknown);
    expect(at(chunks[0], "choices.0.delta")).toEqual({ role: "assistant", content: "" });
    expect(chunks.every((chunk) => at(chunk, "object") === "chat.completion.chunk")).toBe(true);
    expect(chatText(reply)).toBe(chatText(whole));
    expect(at(chunks.at(-2), "choices.0.finish_reason")).toBe("length");
    expect(at(chunks.at(-1), "choices")).toEqual([]);
    expect(at(chunks.at(-1), "usage")).toMatchObject({ completion_tokens: 8, prompt_tokens: at(whole.json, "usage.prompt_tokens") });
  });

  it("sends no usage unasked, and running usage when asked", async () => {
    const silent = await post(chatBody("usage", 30, { stream: true }));
    expect(silent.text).not.toContain("usage");
    const running = await post(chatBody("usage", 30, { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } }));
    const counts = running.data.slice(0, -1).map((line) => at(JSON.parse(line), "usage.completion_tokens"));
    expect(counts).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]);
  });

  it("gives n different choices, also streamed", async () => {
    const body = chatBody("n", 30, { n: 3, temperature: 0.8 });
    const reply = await post(body);
    const choices = reply.json["choices"] as unknown[];
    expect(choices.map((choice) => at(choice, "index"))).toEqual([0, 1, 2]);
    expect(new Set(choices.map((choice) => at(choice, "message.content"))).size).toBe(3);
    expect(at(reply.json, "usage.completion_tokens")).toBe(24);
    const streamed = await post({ ...body, stream: true });
    const texts = [0, 1, 2].map((index) =>
      streamed.data
        .slice(0, -1)
        .map((line) => JSON.parse(line) as unknown)
        .filter((chunk) => at(chunk, "choices.0.index") === index)
        .map((chunk) => at(chunk, "choices.0.delta.content"))
        .join(""),
    );
    expect(texts).toEqual(choices.map((choice) => at(choice, "message.content")));
  });

  it("gives log-probabilities of the answer and of the prompt", async () => {
    const reply = await post(chatBody("lp", 30, { logprobs: true, top_logprobs: 2, prompt_logprobs: 1, max_tokens: 4 }));
    const content = at(reply.json, "choices.0.logprobs.content") as unknown[];
    expect(content.length).toBe(4);
    expect(content.map((entry) => at(entry, "token")).join("")).toBe(chatText(reply));
    expect((at(content[0], "top_logprobs") as unknown[]).length).toBe(2);
    const prompt = reply.json["prompt_logprobs"] as unknown[];
    expect(prompt.length).toBe(at(reply.json, "usage.prompt_tokens"));
    expect(prompt[0]).toBe(null);
    expect(Object.values(prompt[1] as object)[0]).toMatchObject({ rank: 1 });
  });

  it("calls a tool when it must, streamed too", async () => {
    const body = chatBody("tool", 30, { tools, tool_choice: { type: "function", function: { name: "tide" } }, max_tokens: 60 });
    const reply = await post(body);
    expect(at(reply.json, "choices.0.finish_reason")).toBe("tool_calls");
    expect(at(reply.json, "choices.0.message.content")).toBe(null);
    const call = at(reply.json, "choices.0.message.tool_calls.0.function");
    expect(at(call, "name")).toBe("tide");
    const args = JSON.parse(String(at(call, "arguments"))) as Record<string, unknown>;
    expect([typeof args["berth"], typeof args["name"]]).toEqual(["number", "string"]);
    const streamed = await post({ ...body, stream: true });
    const joined = streamed.data.slice(0, -1).map((line) => at(JSON.parse(line), "choices.0.delta.tool_calls.0.function.arguments") ?? "");
    expect(joined.join("")).toBe(at(call, "arguments"));
    expect(at((await post({ ...body, tool_choice: "required" })).json, "choices.0.message.tool_calls.0.function.name")).toBe("tide");
    expect(at((await post({ ...body, tool_choice: "auto" })).json, "choices.0.message.tool_calls")).toBeUndefined();
  });

  it("answers JSON when it must", async () => {
    const schema = { type: "object", properties: { tide: { type: "string" }, high: { type: "boolean" } } };
    const reply = await post(chatBody("json", 30, { max_tokens: 60, response_format: { type: "json_schema", json_schema: { name: "t", schema } } }));
    expect(JSON.parse(chatText(reply))).toMatchObject({ high: true });
  });

  it("uses max_completion_tokens before max_tokens", async () => {
    expect(at((await post(chatBody("cap", 30, { max_tokens: 5, max_completion_tokens: 3 }))).json, "usage.completion_tokens")).toBe(3);
  });

  it("sees the same prompt in a string and in one text part", async () => {
    const text = "which tide?";
    const asString = await post(chatBody("x", 10, { messages: [{ role: "user", content: text }] }));
    const asPart = await post(chatBody("x", 10, { messages: [{ role: "user", content: [{ type: "text", text }] }] }));
    expect(chatText(asPart)).toBe(chatText(asString));
  });

  it.each<[string, object, string]>([
    ["max_tokens 0", { max_tokens: 0 }, "max_tokens must be at least 1, got 0."],
    ["min_tokens above max_tokens", { min_tokens: 9 }, "min_tokens must be less than or equal to max_tokens=8, got 9."],
    ["no messages", { messages: null }, "messages"],
    ["messages of a wrong type", { messages: "x" }, "messages"],
    ["a message without a role", { messages: [{ content: "x" }] }, "messages.0.role"],
    ["content of a wrong type", { messages: [{ role: "user", content: 3 }] }, "messages.0.content"],
    ["an unknown part", { messages: [{ role: "user", content: [{ type: "smell", smell: 1 }] }] }, "Unknown part type: smell"],
    ["a negative temperature", { temperature: -1 }, "temperature"],
    ["stream as a list", { stream: [] }, "stream"],
    ["stream_options without stream", { stream_options: { include_usage: true } }, "stream=True"],
    ["n with greedy sampling", { n: 2 }, "greedy"],
    ["best_of below n", { n: 3, best_of: 2, temperature: 1 }, "best_of"],
    ["prompt_logprobs streamed", { prompt_logprobs: 1, stream: true }, "prompt_logprobs"],
    ["top_logprobs alone", { top_logprobs: 2 }, "logprobs"],
    ["a forced tool that is not there", { tools, tool_choice: { type: "function", function: { name: "no" } } }, "tool_choice"],
    ["kv_transfer_params as text", { kv_transfer_params: "x" }, "dict_type"],
    ["ec_transfer_params as a list", { ec_transfer_params: [] }, "dict_type"],
  ])("refuses %s", async (_name, more, text) => {
    const reply = await post(chatBody("bad", 30, more as never));
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(text);
    expect(reply.json["error"]).toMatchObject({ code: 400 });
    expect(Object.keys(reply.json["error"] as object).sort()).toEqual(["code", "message", "param", "type"]);
  });

  it("collects all wrong members into one answer", async () => {
    const reply = await post(chatBody("bad", 30, { max_tokens: "x", min_tokens: 1.5 }));
    expect(at(reply.json, "error.message")).toMatch(/^2 validation errors/);
    expect(at(reply.json, "error.param")).toBe("body.max_tokens");
  });

  it("takes null and {} as no control members, and numbers in pydantic's lax forms", async () => {
    expect((await post(chatBody("lax", 30, { kv_transfer_params: null, ec_transfer_params: {}, max_tokens: "8", stream: "false" }))).status).toBe(200);
  });
});
