/** The real client of the field, through Envoy, filter and sidecar to encoders, prefillers and decoders. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import OpenAI from "openai";
import { EngineDirectory, startEngine, type Engine, type EngineRecord } from "../engine/index.js";
import { Fleet } from "../fleet/fleet.js";
import { pickerDocument } from "../fleet/picker.js";

const LONG = "The harbour office keeps a ledger of every vessel that enters the bay, with its tide, cargo and berth. ".repeat(8);
const IMAGE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const WEATHER: OpenAI.Chat.Completions.ChatCompletionTool = {
  type: "function",
  function: { name: "tide", description: "The tide at a quay", parameters: { type: "object", properties: { quay: { type: "string" }, hour: { type: "integer" } }, required: ["quay", "hour"] } },
};

describe("the openai client", { timeout: 60_000 }, () => {
  let fleet: Fleet<Engine>;
  let client: OpenAI;
  let fresh = 0;
  const prompt = (): string => `${String(fresh++)} ${LONG}`;

  beforeAll(async () => {
    const peers = new EngineDirectory();
    fleet = await Fleet.start<Engine>({
      pods: { decode: 2, prefill: 2, encode: 2 },
      startEngine: ({ name, role, host }) => startEngine({ name, role, host, peers, ecConnector: "ec-nixl", responsesStore: true, requireApiKey: "sk-quay" }),
      envoy: { picker: pickerDocument({ prefill: true, encode: true, encoders: 2 }), filterOptions: { reasonHeader: true } },
      sidecarFlags: [["ec-connector", "ec-nixl"]],
      taps: false,
    });
    if (fleet.running === null) throw new Error("no Envoy");
    const { host, port } = fleet.running.listen;
    client = new OpenAI({ apiKey: "sk-quay", baseURL: `http://${host}:${String(port)}/v1`, maxRetries: 0 });
  }, 120_000);
  afterEach(async () => {
    for (const { engine } of fleet.pods) {
      await engine.idle();
      engine.setScript(null);
      await engine.reset();
    }
  });
  afterAll(async () => {
    await fleet.close();
  });

  async function legs(): Promise<EngineRecord[]> {
    for (const { engine } of fleet.pods) await engine.idle();
    return fleet.pods
      .flatMap(({ engine }) => engine.records())
      .filter(({ modelCall }) => modelCall)
      .sort((a, b) => a.startedAtMs - b.startedAtMs);
  }

  async function stages(): Promise<string> {
    const seen = await legs();
    for (const leg of seen) expect([leg.stage, leg.error, leg.rawHeaders.filter(([name]) => name.toLowerCase() === "authorization").map(([, value]) => value)]).toEqual([leg.stage, null, ["Bearer sk-quay"]]);
    return seen.map(({ stage }) => stage).join(" ");
  }

  it("chat: prefilled elsewhere, the answer and its usage as the engine alone would give them", async () => {
    const messages = [{ role: "user" as const, content: prompt() }];
    const answer = await client.chat.completions.create({ model: "m", messages, max_tokens: 12, seed: 7 });
    expect(await stages()).toBe("prefill decode");
    const [, decode] = await legs();
    expect(decode?.handoff).toMatchObject({ found: true, correct: true });
    expect([answer.choices[0]?.finish_reason, answer.usage?.completion_tokens, answer.usage?.prompt_tokens_details?.cached_tokens]).toEqual(["length", 12, 0]);
    const other = await startEngine({ role: "prefill-decode", requireApiKey: "sk-quay" });
    const direct = await new OpenAI({ apiKey: "sk-quay", baseURL: `${other.url}/v1` }).chat.completions.create({ model: "m", messages, max_tokens: 12, seed: 7 });
    await other.close();
    expect(direct.choices[0]?.message.content).toBe(answer.choices[0]?.message.content);
  });

  it("a stream: role, content and usage, in order and to its end", async () => {
    const stream = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: prompt() }], max_tokens: 20, stream: true, stream_options: { include_usage: true } });
    const chunks: OpenAI.Chat.Completions.ChatCompletionChunk[] = [];
    for await (const chunk of stream) chunks.push(chunk);
    expect([chunks[0]?.choices[0]?.delta.role, chunks.at(-1)?.usage?.completion_tokens, chunks.at(-1)?.choices.length]).toEqual(["assistant", 20, 0]);
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("").length).toBeGreaterThan(20);
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
    expect(await stages()).toBe("prefill decode");
  });

  it("tools: a call, its result, and an answer to that; streamed too", async () => {
    const first: OpenAI.Chat.Completions.ChatCompletionMessageParam = { role: "user", content: prompt() };
    const called = await client.chat.completions.create({ model: "m", messages: [first], tools: [WEATHER], tool_choice: { type: "function", function: { name: "tide" } } });
    const message = called.choices[0]?.message;
    const [call] = message?.tool_calls ?? [];
    if (message === undefined || call?.type !== "function") throw new Error("no tool was called");
    expect([called.choices[0]?.finish_reason, call.function.name, Object.keys(JSON.parse(call.function.arguments) as object)]).toEqual(["tool_calls", "tide", ["quay", "hour"]]);
    const answer = await client.chat.completions.create({ model: "m", messages: [first, message, { role: "tool", tool_call_id: call.id, content: "high at nine" }], tools: [WEATHER], max_tokens: 6 });
    expect(answer.choices[0]?.message.content?.length).toBeGreaterThan(0);

    const runner = client.chat.completions.stream({ model: "m", messages: [{ role: "user", content: prompt() }], tools: [WEATHER], tool_choice: "required" });
    const done = await runner.finalChatCompletion();
    const [streamed] = done.choices[0]?.message.tool_calls ?? [];
    expect(streamed?.type === "function" && Object.keys(JSON.parse(streamed.function.arguments) as object)).toEqual(["quay", "hour"]);
    expect((await stages()).split(" ").filter((stage) => stage === "decode")).toHaveLength(3);
  });

  it("images: encoded by encoders, prefilled, decoded, each once", async () => {
    const answer = await client.chat.completions.create({
      model: "m",
      messages: [{ role: "user", content: [{ type: "text", text: prompt() }, { type: "image_url", image_url: { url: IMAGE } }, { type: "image_url", image_url: { url: "https://media.example.test/quay.png", detail: "low" } }, { type: "image_url", image_url: { url: IMAGE } }] }],
      max_tokens: 5,
    });
    expect([answer.choices.length, await stages()]).toEqual([1, "encode encode prefill decode"]);
    const seen = await legs();
    expect(seen.at(-2)?.media.map(({ source, reference }) => [source, reference])).toEqual([["reference", "found"], ["reference", "found"]]);
    expect(new Set(seen.slice(0, 2).map(({ engine }) => engine)).size).toBe(2);
  });

  it("abort in a stream ends the engine's work, and the next request is served", async () => {
    for (const { engine, role } of fleet.pods) if (role === "decode") engine.setScript({ sse: Array.from({ length: 200 }, (_none, index) => `w${String(index)} `), gap_ms: 20 });
    const controller = new AbortController();
    const stream = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: prompt() }], stream: true }, { signal: controller.signal });
    let seen = 0;
    for await (const chunk of stream) {
      if ((chunk.choices[0]?.delta.content ?? "") !== "" && ++seen === 3) controller.abort();
    }
    expect(seen).toBe(3);
    const decode = (await legs()).at(-1);
    expect([decode?.stage, decode?.aborted, (decode?.abortedAtMs ?? 0) - (decode?.startedAtMs ?? 0) < 3000]).toEqual(["decode", true, true]);
    for (const { engine } of fleet.pods) engine.setScript(null);
    expect((await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: prompt() }], max_tokens: 2 })).choices.length).toBe(1);
  });

  it("abort while prefill runs ends that, and nothing is decoded", async () => {
    for (const { engine, role } of fleet.pods) if (role === "prefill") engine.setScript({ delay_ms: 10_000 });
    const controller = new AbortController();
    const asked = client.chat.completions.create({ model: "m", messages: [{ role: "user", content: prompt() }] }, { signal: controller.signal });
    const running = (): boolean => fleet.pods.some(({ engine }) => engine.records().some(({ stage, open }) => stage === "prefill" && open));
    while (!running()) await new Promise((resolve) => setTimeout(resolve, 10));
    controller.abort();
    await expect(asked).rejects.toThrow(OpenAI.APIUserAbortError);
    const [prefill, ...more] = await legs();
    expect([prefill?.stage, prefill?.aborted, more.length]).toEqual(["prefill", true, 0]);
    for (const { engine } of fleet.pods) expect(engine.state().blocks.pinned).toBe(0);
  });

  it("responses, whole, streamed, and one that goes on from another", async () => {
    const whole = await client.responses.create({ model: "m", input: prompt(), max_output_tokens: 6, store: true });
    expect([whole.object, whole.output_text.length > 0, whole.usage?.output_tokens]).toEqual(["response", true, 6]);
    const types: string[] = [];
    for await (const event of await client.responses.create({ model: "m", input: prompt(), max_output_tokens: 6, stream: true })) types.push(event.type);
    expect([types[0], ["response.completed", "response.incomplete"].includes(types.at(-1) ?? ""), types.includes("response.output_text.delta")]).toEqual(["response.created", true, true]);
    expect(await stages()).toBe("prefill decode prefill decode");
    const next = await client.responses.create({ model: "m", input: "and then", previous_response_id: whole.id, max_output_tokens: 3 });
    expect(next.previous_response_id).toBe(whole.id);
    // Never split, and at the engine that has the first one.
    const seen = await legs();
    expect([seen.at(-1)?.stage, seen.length, seen.at(-1)?.engine]).toEqual(["decode", 5, seen[1]?.engine]);
  });

  it("completions, embeddings and the list of models", async () => {
    const text = await client.completions.create({ model: "m", prompt: prompt(), max_tokens: 4 });
    const embedding = await client.embeddings.create({ model: "m", input: ["quay", "berth"], encoding_format: "float" });
    const models = await client.models.list();
    expect([text.choices[0]?.text.length ?? 0, embedding.data.length, models.data.length].every((count) => count > 0)).toBe(true);
  });

  it("errors are the client's own kinds, with their message and type", async () => {
    const chat = (more: Record<string, unknown>): Promise<unknown> => client.chat.completions.create({ model: "m", messages: [{ role: "user", content: prompt() }], ...more });
    await expect(chat({ max_tokens: 0 })).rejects.toMatchObject({ status: 400, message: expect.stringContaining("max_tokens") as string });
    await expect(chat({ max_tokens: 0 })).rejects.toThrow(OpenAI.BadRequestError);
    await expect(client.get("/nowhere/else")).rejects.toThrow(OpenAI.NotFoundError);
    await expect(client.withOptions({ apiKey: "wrong" }).chat.completions.create({ model: "m", messages: [{ role: "user", content: "hi" }] })).rejects.toThrow(OpenAI.AuthenticationError);
    for (const { engine, role } of fleet.pods) if (role === "prefill") engine.setScript({ status: 500, json: { error: { message: "out of memory", type: "InternalServerError", param: null, code: 500 } } });
    await expect(chat({})).rejects.toMatchObject({ status: 500, type: "InternalServerError", message: "500 out of memory" });
    for (const { engine, role } of fleet.pods) if (role === "prefill") engine.setScript({ tcp: "reset" });
    await expect(chat({})).rejects.toMatchObject({ status: 502, type: "BadGateway" });
  });

  it("an error in the middle of a stream is an error of the client's iteration, and a stream that breaks is one too", async () => {
    const head = 'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}]}\n\n';
    const told = 'data: {"error":{"message":"Internal server error","type":"InternalServerError","code":500}}\n\ndata: [DONE]\n\n';
    const read = async (): Promise<number> => {
      let count = 0;
      for await (const chunk of await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "short" }], stream: true })) count += chunk.choices.length;
      return count;
    };
    for (const { engine, role } of fleet.pods) if (role === "decode") engine.setScript({ headers: { "content-type": "text/event-stream" }, chunks: [head, told] });
    await expect(read()).rejects.toThrow("Internal server error");
    for (const { engine, role } of fleet.pods) if (role === "decode") engine.setScript({ headers: { "content-type": "text/event-stream" }, chunks: [head], then: "reset", gap_ms: 50 });
    await expect(read()).rejects.toThrow();
  });
});
