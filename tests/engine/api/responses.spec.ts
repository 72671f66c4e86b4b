import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, EngineHouse, send, type Reply } from "../testing.js";
import type { Engine } from "../types.js";

const house = new EngineHouse();
let engine: Engine;
let keeper: Engine;
beforeAll(async () => {
  engine = await house.start({ role: "decode" });
  keeper = await house.start({ role: "decode", responsesStore: true });
});
afterAll(() => house.closeAll());

const base = { model: "m", input: "Which tide?", temperature: 0, max_output_tokens: 4 };
const post = (body: object, url = engine.url): Promise<Reply> => send(url, "/v1/responses", { body: { ...base, ...body } });
const text = (reply: Reply): unknown => at(reply.json, "output.0.content.0.text");

describe("responses", () => {
  it("answers in the Responses shape", async () => {
    const reply = await post({ max_output_tokens: 500 });
    expect(reply.json).toMatchObject({ object: "response", status: "completed", model: "m", kv_transfer_params: null, ec_transfer_params: null });
    expect(reply.json["id"]).toMatch(/^resp_[0-9a-f]{32}$/);
    const usage = reply.json["usage"] as Record<string, number>;
    expect(usage["total_tokens"]).toBe((usage["input_tokens"] ?? 0) + (usage["output_tokens"] ?? 0));
    expect((await post({})).json).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
  });

  it("sees the same prompt in a string and in a message, another one with instructions", async () => {
    const plain = text(await post({}));
    expect(text(await post({ input: [{ role: "user", content: [{ type: "input_text", text: "Which tide?" }] }] }))).toBe(plain);
    expect(text(await post({ instructions: "Short." }))).not.toBe(plain);
    const picture = (url: string) => post({ input: [{ role: "user", content: [{ type: "input_image", image_url: url }] }] });
    expect(text(await picture("https://media.example.test/a.png"))).not.toBe(text(await picture("https://media.example.test/b.png")));
    const call = (output: string) => post({ input: [{ type: "function_call", name: "tide", arguments: "{}", call_id: "c" }, { type: "function_call_output", call_id: "c", output }] });
    expect(text(await call("high"))).not.toBe(text(await call("low")));
  });

  it("streams created to completed and adds up to the same text, without [DONE]", async () => {
    const reply = await post({ stream: true });
    expect(reply.events).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
      ...Array<string>(4).fill("response.output_text.delta"),
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
    const events = reply.data.map((line) => JSON.parse(line) as unknown);
    expect(events.map((event) => at(event, "sequence_number"))).toEqual(events.map((_, index) => index));
    expect(events.filter((event) => at(event, "type") === "response.output_text.delta").map((event) => at(event, "delta")).join("")).toBe(text(await post({})));
    expect(at(events.at(-1), "response.usage.output_tokens")).toBe(4);
    expect(at(events.at(-1), "response.output.0.content.0.text")).toBe(text(await post({})));
  });

  it("calls a tool when it must", async () => {
    const tools = [{ type: "function", name: "tide", parameters: { type: "object", properties: { berth: { type: "integer" } } } }];
    const reply = await post({ tools, tool_choice: { type: "function", name: "tide" }, max_output_tokens: 60 });
    expect(at(reply.json, "output.0")).toMatchObject({ type: "function_call", name: "tide" });
    expect(JSON.parse(String(at(reply.json, "output.0.arguments")))).toHaveProperty("berth");
    const streamed = await post({ tools, tool_choice: "required", max_output_tokens: 60, stream: true });
    expect(streamed.events).toContain("response.function_call_arguments.done");
  });

  it("does not know a previous response that another engine gave", async () => {
    const first = await post({}, keeper.url);
    const id = first.json["id"];
    const there = await post({ previous_response_id: id, input: "And now?" }, keeper.url);
    expect(there.status).toBe(200);
    expect(text(there)).not.toBe(text(await post({ input: "And now?" }, keeper.url)));
    const elsewhere = await post({ previous_response_id: id });
    expect(elsewhere.status).toBe(404);
    expect(at(elsewhere.json, "error.type")).toBe("NotFoundError");
    expect((await send(keeper.url, `/v1/responses/${String(id)}`)).json["id"]).toBe(id);
    expect((await send(engine.url, `/v1/responses/${String(id)}`)).status).toBe(404);
  });

  it("starts a follow-up from what was said before", async () => {
    const first = await post({}, keeper.url);
    const followUp = await post({ previous_response_id: first.json["id"], input: "And now?" }, keeper.url);
    const written = await post({ input: [{ role: "user", content: "Which tide?" }, ...(first.json["output"] as unknown[]), { role: "user", content: "And now?" }] }, keeper.url);
    expect(text(followUp)).toBe(text(written));
  });

  it.each<[object, string]>([
    [{ input: undefined }, "input"],
    [{ input: 3 }, "input"],
    [{ max_output_tokens: 0 }, "max_output_tokens must be at least 1, got 0."],
    [{ background: true }, "background"],
    [{ previous_response_id: "x" }, "previous_response_id"],
    [{ input: [{ type: "smell" }] }, "input.0"],
  ])("refuses %j", async (body, wanted) => {
    const reply = await post(body);
    expect(reply.status).toBe(400);
    expect(at(reply.json, "error.message")).toContain(wanted);
  });
});
