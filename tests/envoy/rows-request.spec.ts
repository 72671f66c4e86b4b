/**
 * Conformance rows about requests, headers and answers (contract scheduler §11.3 and §11.10) that only an Envoy can show. Where we differ on purpose the test shows what we do, and
 * tests/conformance/differs.json says why.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { headerLines, type Answer, type HeaderLine } from "../fleet/http.js";
import { pickerDocument, type PickerDocument } from "../fleet/picker.js";
import { Bed, chat, decisionOf, promptText } from "./filter-bed.js";
import { errorOf, json, until } from "./gateway.js";
import type { Echo, Pod } from "./pod.js";

const JSON_TYPE: HeaderLine = ["content-type", "application/json"];
const DROPPED = "x-llm-d-request-dropped-reason";

/** The lines of one header that the pod got. */
function got(echo: Pick<Echo, "rawHeaders">, name: string): string[] {
  const lines: string[] = [];
  for (let i = 0; i < echo.rawHeaders.length; i += 2) if (echo.rawHeaders[i]?.toLowerCase() === name) lines.push(echo.rawHeaders[i + 1] ?? "");
  return lines;
}

function echoOf(answer: Answer): Echo {
  expect(answer.status).toBe(200);
  return json(answer) as Echo;
}

/** What vLLM would say of its load. */
function load(pod: Pod, waiting: number, kvUsage: number): void {
  pod.metrics = `vllm:num_requests_waiting ${String(waiting)}\nvllm:num_requests_running 0\nvllm:kv_cache_usage_perc ${String(kvUsage)}\n`;
}

describe("requests", () => {
  let bed: Bed;
  const picker: PickerDocument = pickerDocument({ prefill: true, encode: true });
  picker.plugins.push({ type: "p2p-source-producer" });

  beforeAll(async () => {
    bed = await Bed.start({ picker, options: { allowExperimentalPlugins: true, objectives: { batch: -1, urgent: 5 } }, pods: { decode: 2, prefill: 1, encode: 1 } });
    for (const pod of bed.pods) load(pod, 0, 0.1);
    await bed.settled();
    await loadIsKnown(0);
  });
  afterAll(() => bed.stop());

  async function loadIsKnown(waiting: number): Promise<void> {
    await until("every load known", async () => (await bed.state()).endpoints.every((each) => each.load.waiting === waiting));
  }

  /** A prompt that nobody has. */
  let salt = 0;
  const cold = (tokens = 100): Record<string, unknown> => chat(tokens, `rows ${String(++salt)} `);
  const post = (body: unknown, ...headers: HeaderLine[]) => bed.post(body, "/v1/chat/completions", { headers: [JSON_TYPE, ...headers] });

  it("S-HD-03 a prefiller that the client names is overwritten by the picked one", async () => {
    const { answer, decision } = await post(cold(), ["x-prefiller-host-port", "10.9.9.9:80"], ["X-Prefiller-Host-Port", "10.9.9.8:80"]);
    expect(decision.prefill).toEqual({ reason: "run_uncached", endpoint: bed.pod("p0").address });
    expect(got(echoOf(answer), "x-prefiller-host-port")).toEqual([bed.pod("p0").address]);
  });

  it("S-HD-11 a request that nothing is known of: no headers of ours beside the destination, and no error", async () => {
    const { answer, decision } = await bed.decide({ method: "GET", path: "/v1/models" });
    expect(decision).toMatchObject({ decode: { reason: "no_body" }, prefill: { reason: "", endpoint: "" }, encode: { reason: "", endpoints: [] } });
    const echo = echoOf(answer);
    for (const name of ["x-prefiller-host-port", "x-encoder-hosts-ports", "x-kv-cache-source-host-port", "x-data-parallel-host-port"]) expect(got(echo, name), name).toEqual([]);
    expect(got(echo, "x-gateway-destination-endpoint")).toEqual([decision.decode.endpoint]);
  });

  it("S-HD-17 headers that belong to the system are not passed on as a client sent them", async () => {
    const poison = "10.9.9.9:80";
    const names = ["x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset", "x-kv-cache-source-host-port", "x-encoder-hosts-ports", "x-data-parallel-host-port", "x-envoy-original-dst-host"];
    const { answer } = await post(cold(), ...names.map((name): HeaderLine => [name, poison]));
    const echo = echoOf(answer);
    for (const name of names) expect(got(echo, name), name).not.toContain(poison);
    const body = Buffer.byteLength(JSON.stringify(chat(100, `rows ${String(salt)} `)));
    expect(got(echo, "content-length")).toEqual([String(body)]);
  });

  it("S-HD-18 names of headers count in any case", async () => {
    for (const name of ["prefer", "Prefer", "PREFER"]) {
      const answer = await bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE, [name, "return=minimal, If-Available;x=1"]], body: Buffer.from(JSON.stringify(cold())) });
      expect(answer.status, name).toBe(412);
      expect(errorOf(answer).message).toBe("no decode worker has the requested KV cache");
    }
  });

  it("S-HD-19 of an old and a new name of one header the new one counts", async () => {
    for (const pod of bed.pods) load(pod, 50, 0.99);
    await loadIsKnown(50);
    try {
      const status = async (...headers: HeaderLine[]): Promise<number | null> => (await bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE, ...headers], body: Buffer.from(JSON.stringify(cold())) })).status;
      expect(await status(["x-gateway-inference-objective", "batch"])).toBe(429);
      expect(await status(["x-llm-d-inference-objective", "batch"])).toBe(429);
      expect(await status(["x-gateway-inference-objective", "batch"], ["x-llm-d-inference-objective", "urgent"])).toBe(200);
      expect(await status(["x-gateway-inference-objective", "urgent"], ["x-llm-d-inference-objective", "batch"])).toBe(429);
    } finally {
      for (const pod of bed.pods) load(pod, 0, 0.1);
      await loadIsKnown(0);
    }
  });

  it("S-DC-21 a request without a model is counted like any other: counters carry no model at all", async () => {
    const before = await bed.gateway.stat("wasmcustom.crosspoint.decisions.decision_type.prefill-decode");
    const { answer, decision } = await post({ messages: [{ role: "user", content: promptText(100, `rows ${String(++salt)} `) }] });
    expect(answer.status).toBe(200);
    expect(decision).toMatchObject({ decision: "prefill-decode", model: "" });
    expect(await bed.gateway.stat("wasmcustom.crosspoint.decisions.decision_type.prefill-decode")).toBe(before + 1);
  });

  it("S-PX-29 in Envoy: a video is as long as the request's headers say", async () => {
    const video = (text: string) => ({ model: "m", messages: [{ role: "user", content: [{ type: "text", text }, { type: "video_url", video_url: { url: "https://v.test/1" } }] }] });
    const plain = await post(video("1234"));
    // The role's four bytes and four of text.
    expect(plain.decision.tokens).toBe(2 + 4500);
    const hinted = await post(video("1234"), ["x-llm-d-video-duration-seconds", "30"], ["X-LLM-D-Video-Resolution", "1280x720"]);
    expect(hinted.decision.tokens).toBe(2 + 60 * 900);
    const bad = await post(video("1234"), ["x-llm-d-video-duration-seconds", "-1"], ["x-llm-d-video-resolution", "big"], ["x-llm-d-video-fps", "1"]);
    expect(bad.decision.tokens).toBe(2 + 4500);
  });

  it("S-P2-10 a KV source that the client names is removed where none is picked", async () => {
    const { answer } = await post(cold(), ["x-kv-cache-source-host-port", "10.9.9.9:80"]);
    expect(got(echoOf(answer), "x-kv-cache-source-host-port")).toEqual([]);
  });

  it("a KV source that is picked is named in the header", async () => {
    const text = promptText(200, "source ");
    // The engine prefilled by itself, so only the decode pod holds the prompt.
    const first = await post(chat(200, "source "), ["x-pod-set", "x-crosspoint-prefilled-by=local"]);
    const longer = { model: "m", messages: [{ role: "user", content: `${text} and ${promptText(300, "more ")}` }] };
    const second = await post(longer);
    expect(second.decision).toMatchObject({ prefill: { reason: "run_uncached", endpoint: bed.pod("p0").address }, decode: { endpoint: first.decision.decode.endpoint } });
    expect(got(echoOf(second.answer), "x-kv-cache-source-host-port")).toEqual([first.decision.decode.endpoint]);
    // Now the prefiller holds all of it, and there is nothing to pull.
    const third = await post({ ...longer, messages: [...longer.messages, { role: "user", content: promptText(300, "even more ") }] });
    expect(third.decision.prefill.reason).toBe("run_uncached");
    expect(got(echoOf(third.answer), "x-kv-cache-source-host-port")).toEqual([]);
  });

  it("S-RQ-01 a body that is no JSON goes to a decode pod as it came, and is counted", async () => {
    for (const text of ["{", "not json", '{"model":"m","messages":[}', "", "\u0000"]) {
      const { answer, decision } = await bed.post(text);
      expect(decision.decode.reason, text).toBe(text === "" ? "no_body" : "undecided_body");
      expect(decision.decision).toBe("decode-only");
      expect(echoOf(answer).head).toBe(text);
    }
  });

  it("S-RQ-03 a prompt is a text, a list of texts, ids or lists of ids", async () => {
    const tokens = async (prompt: unknown): Promise<{ tokens: number; reason: string }> => {
      const { decision } = await bed.post({ model: "m", prompt }, "/v1/completions");
      return { tokens: decision.tokens, reason: decision.prefill.reason };
    };
    expect(await tokens("1234567890")).toEqual({ tokens: 3, reason: "skip_short_prompt" });
    expect(await tokens(["1234567890", "1234"])).toEqual({ tokens: 4, reason: "multiple_prompts" });
    expect(await tokens([1, 2, 3, 4, 5, 6, 7, 8, 9])).toEqual({ tokens: 9, reason: "run_uncached" });
    expect(await tokens([[1, 2], [3, 4, 5]])).toEqual({ tokens: 5, reason: "multiple_prompts" });
    expect((await tokens([])).tokens).toBe(0);
  });

  it("S-RQ-06 an unknown path passes by load where passthrough is a parser", async () => {
    const { answer, decision } = await bed.post("whatever", "/v1/rerank");
    expect(decision).toMatchObject({ decode: { reason: "unknown_path" }, prefill: { reason: "" }, tokens: 0 });
    expect(echoOf(answer).head).toBe("whatever");
  });

  it("S-RQ-07 in Envoy: slash, query and /render are read alike, and rendering teaches the index nothing", async () => {
    const body = cold(60);
    for (const path of ["/v1/chat/completions/", "/v1/chat/completions?beta=true", "/v1/chat/completions/?a=b"]) {
      expect((await bed.post(cold(60), path)).decision, path).toMatchObject({ tokens: 60, prefill: { reason: "run_uncached" } });
    }
    for (let i = 0; i < 2; i++) {
      const render = await bed.post(body, "/v1/chat/completions/render");
      expect(render.answer.status).toBe(200);
      expect(render.decision).toMatchObject({ decision: "decode-only", tokens: 60, cachedTokens: 0, decode: { reason: "picked" }, prefill: { reason: "skip_no_decider" } });
    }
    const { decision } = await bed.post(body);
    expect(decision.cachedTokens).toBe(0);
    // Then it goes where the prompt is.
    expect((await bed.post(body, "/v1/chat/completions/render")).decision).toMatchObject({ cachedTokens: 60, decode: { endpoint: decision.decode.endpoint } });
  });

  it("S-RQ-08 a GET goes to a pod that may decode, and to no other", async () => {
    const seen = new Set<string>();
    for (let i = 0; i < 40; i++) {
      const { answer, decision } = await bed.decide({ method: "GET", path: "/v1/models" });
      expect(decision.decode.reason).toBe("no_body");
      seen.add(echoOf(answer).pod);
    }
    expect([...seen].sort()).toEqual(["d0", "d1"]);
  });

  it("S-RQ-19 what cannot be counted is not looked up in the index, and the request goes on", async () => {
    const before = (await bed.state()).endpoints.map((each) => each.prefixBlocks);
    const { answer, decision } = await bed.post({ model: "m", prompt: [{ a: 1 }] }, "/v1/completions");
    expect(answer.status).toBe(200);
    expect(decision).toMatchObject({ decode: { reason: "picked" }, prefill: { reason: "skip_no_tokens" }, tokens: 0, cachedTokens: 0 });
    expect((await bed.state()).endpoints.map((each) => each.prefixBlocks)).toEqual(before);
  });

  it("S-RQ-15 in Envoy: a negative priority is refused under saturation, with its reason, and served otherwise", async () => {
    const send = (objective: string) => bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE, ["x-llm-d-inference-objective", objective]], body: Buffer.from(JSON.stringify(cold())) });
    expect((await send("batch")).status).toBe(200);
    for (const pod of bed.pods) load(pod, 50, 0.99);
    await loadIsKnown(50);
    const refused = await send("batch");
    expect(refused.status).toBe(429);
    expect(errorOf(refused)).toMatchObject({ type: "RateLimitError", code: 429 });
    expect(headerLines(refused.headers, DROPPED)).toEqual(["rejected-saturated"]);
    for (const objective of ["urgent", "nobody knows this"]) expect((await send(objective)).status, objective).toBe(200);
    for (const pod of bed.pods) load(pod, 0, 0.1);
    await loadIsKnown(0);
    expect((await send("batch")).status).toBe(200);
  });

  it("S-RQ-21 an answer's usage is not the filter's: whatever it looks like it arrives as it was sent", async () => {
    const pod = bed.pod("d0");
    const before = pod.sent;
    const { answer } = await post(cold(), ["x-pod-stream", "200"], ["x-pod-piece", "7"]);
    expect(answer.end).toBe("clean");
    expect(answer.body.toString()).toBe("x".repeat(1400));
    expect(bed.pods.reduce((sum, each) => sum + each.sent, 0)).toBeGreaterThanOrEqual(before + 1400);
  });

  it("S-RQ-22 streams keep their pieces in order and to themselves, with equal request ids too", async () => {
    const streams = await Promise.all(
      Array.from({ length: 6 }, (_, i) => post(cold(), ["x-request-id", "the-same"], ["x-pod-stream", String(100 + i)], ["x-pod-piece", "16"])),
    );
    expect(streams.map(({ answer }) => answer.body.length)).toEqual([0, 1, 2, 3, 4, 5].map((i) => (100 + i) * 16));
    expect(streams.every(({ answer }) => answer.end === "clean")).toBe(true);
    await until("nothing in flight", async () => (await bed.state()).endpoints.every((each) => each.inFlight.requests === 0 && each.inFlight.tokens === 0));
  });

  it("S-RQ-23 image generation is not read: with and without model and prompt it is the engine's to judge", async () => {
    for (const body of [{ prompt: "a boat" }, { model: "m" }, { model: "m", prompt: "a boat" }]) {
      const { answer, decision } = await bed.post(body, "/v1/images/generations");
      expect(decision.decode.reason).toBe("unknown_path");
      expect(echoOf(answer).head).toBe(JSON.stringify(body));
    }
  });

  it("S-RQ-24 a count_tokens body that is no JSON is forwarded", async () => {
    const { answer } = await bed.post("not json at all", "/v1/messages/count_tokens");
    expect(echoOf(answer)).toMatchObject({ url: "/v1/messages/count_tokens", head: "not json at all" });
  });

  it("every answer has a body: no empty error, whatever is refused", async () => {
    const answers = [
      await bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE, ["prefer", "if-available"]], body: Buffer.from(JSON.stringify(cold())) }),
      await bed.gateway.send({ method: "POST", path: "/nobody/serves/this", body: Buffer.from("{}") }),
    ];
    for (const answer of answers) expect(errorOf(answer).message).not.toBe("");
  });
});

describe("autoTune", () => {
  let bed: Bed;
  afterAll(() => bed.stop());

  it("S-PX-06 the engines say 128, the configuration 256: 192 tokens are two blocks", async () => {
    const picker = pickerDocument({ prefill: false, encode: false });
    const scorer = picker.plugins.find(({ type }) => type === "prefix-cache-scorer");
    if (scorer !== undefined) scorer.parameters = { autoTune: true, blockSizeTokens: 256 };
    bed = await Bed.start({ picker, pods: { decode: 1, prefill: 0, encode: 0 } });
    expect((await until("a state", async () => bed.state().catch(() => null))).blockTokens).toBe(256);
    bed.pod("d0").metrics = 'vllm:num_requests_waiting 0\nvllm:cache_config_info{block_size="128",num_gpu_blocks="1000"} 1\n';
    await until("the engines' block size", async () => (await bed.state()).blockTokens === 128);
    const { decision } = await bed.post(chat(192));
    expect(decision).toMatchObject({ tokens: 192, cachedTokens: 0 });
    expect(await bed.endpoint("d0")).toMatchObject({ prefixBlocks: 2, prefixCapacity: 1000 });
    expect((await bed.post(chat(192))).decision.cachedTokens).toBe(192);
  });
});

describe("a fleet that cannot serve", () => {
  it("S-RQ-10 S-RQ-08 no endpoints at all: 503 with its reason, for requests with and without a body", async () => {
    const bed = await Bed.start({ pods: { decode: 0, prefill: 0, encode: 0 } });
    try {
      for (const request of [{ method: "GET", path: "/v1/models" }, { method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE], body: Buffer.from(JSON.stringify(chat(50))) }, { method: "POST", path: "/v1/rerank", body: Buffer.from("x") }]) {
        const answer = await until("an answer of the filter", async () => {
          const each = await bed.gateway.send(request);
          return headerLines(each.headers, DROPPED).length > 0 ? each : null;
        });
        expect(answer.status).toBe(503);
        expect(errorOf(answer)).toMatchObject({ type: "ServiceUnavailable", code: 503 });
        expect(headerLines(answer.headers, DROPPED)).toEqual(["rejected-no-endpoints"]);
      }
    } finally {
      await bed.stop();
    }
  });

  it("S-RQ-11 nobody who may decode: 503, or 429 where parity is asked for, through every handler", async () => {
    for (const [noDecodeStatus, type, reason] of [[503, "ServiceUnavailable", "rejected-no-endpoints"], [429, "RateLimitError", "rejected-saturated"]] as const) {
      const bed = await Bed.start({ pods: { decode: 0, prefill: 1, encode: 1 }, options: { noDecodeStatus } });
      try {
        await bed.settled();
        for (const body of [chat(100), { model: "m", messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "u" } }] }] }]) {
          const answer = await bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE], body: Buffer.from(JSON.stringify(body)) });
          expect(answer.status).toBe(noDecodeStatus);
          expect(errorOf(answer)).toMatchObject({ type, code: noDecodeStatus });
          expect(headerLines(answer.headers, DROPPED)).toEqual([reason]);
        }
        expect(bed.pods.flatMap((pod) => pod.requests)).toEqual([]);
      } finally {
        await bed.stop();
      }
    }
  });

  it("a wanted stage is missing and onMissingStage is fail: 503 that names the stage", async () => {
    const bed = await Bed.start({ pods: { decode: 1, prefill: 0, encode: 0 }, options: { onMissingStage: "fail" } });
    try {
      await bed.settled();
      const post = (body: unknown) => bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE], body: Buffer.from(JSON.stringify(body)) });
      const prefill = await post(chat(100));
      expect(prefill.status).toBe(503);
      expect(errorOf(prefill).message).toContain("prefill");
      const encode = await post({ model: "m", messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "u" } }] }] });
      expect(errorOf(encode).message).toContain("encode");
      expect(headerLines(encode.headers, DROPPED)).toEqual(["rejected-no-endpoints"]);
      expect((await post(chat(2))).status).toBe(200);
    } finally {
      await bed.stop();
    }
  });
});

describe("an admitter", () => {
  it("S-RQ-14 in Envoy: its refusal is 429, not a fault of ours", async () => {
    const picker = pickerDocument({ prefill: false, encode: false });
    // Drops whatever has a load at all.
    picker.plugins.push({ type: "probabilistic-admitter", parameters: { power: 1, k: 1_000_000 } });
    const bed = await Bed.start({ picker, options: { objectives: { batch: -1 } }, pods: { decode: 1, prefill: 0, encode: 0 } });
    try {
      load(bed.pod("d0"), 1, 0.1);
      await until("its load", async () => (await bed.state().catch(() => null))?.endpoints[0]?.load.waiting === 1);
      const send = (...headers: HeaderLine[]) => bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [JSON_TYPE, ...headers], body: Buffer.from(JSON.stringify(chat(50))) });
      const refused = await send(["x-llm-d-inference-objective", "batch"]);
      expect(refused.status).toBe(429);
      expect(errorOf(refused).type).toBe("RateLimitError");
      expect((await send()).status).toBe(200);
    } finally {
      await bed.stop();
    }
  });
});

describe("parsers", () => {
  it("S-RQ-06 without passthrough an unknown path is 400; a parser behind passthrough is skipped, one named twice counts once (S-RQ-05)", async () => {
    const picker = (...names: string[]) => ({ ...pickerDocument({ prefill: false, encode: false }), requestHandler: { parsers: names.map((pluginRef) => ({ pluginRef })) } });
    const bed = await Bed.start({ picker: picker("openai-parser", "openai-parser"), pods: { decode: 1, prefill: 0, encode: 0 } });
    try {
      await bed.settled();
      const refused = await bed.gateway.send({ method: "POST", path: "/v1/messages", headers: [JSON_TYPE], body: Buffer.from("{}") });
      expect(refused.status).toBe(400);
      expect(errorOf(refused).type).toBe("BadRequestError");
      expect((await bed.post(chat(50))).decision).toMatchObject({ tokens: 50, decode: { reason: "picked" } });
      // From a client without a body nothing has to be read.
      expect((await bed.decide({ method: "GET", path: "/v1/models" })).decision.decode.reason).toBe("no_body");

      bed.gateway.writePicker(picker("passthrough-parser", "openai-parser"));
      const { problems } = await bed.gateway.renderAgain();
      expect(problems.map(({ message }) => message).join("\n")).toContain("behind passthrough-parser");
      await until("chat to pass unread", async () => (await bed.post(chat(50))).decision.decode.reason === "unknown_path");
    } finally {
      await bed.stop();
    }
  });
});

describe("strict bodies", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ options: { strict: true }, pods: { decode: 1, prefill: 1, encode: 0 } });
    await bed.settled();
  });
  afterAll(() => bed.stop());
  let before = 0;
  beforeEach(() => {
    before = bed.pods.flatMap((pod) => pod.requests).length;
  });

  async function refused(path: string, body: unknown): Promise<string> {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    const answer = await bed.gateway.send({ method: "POST", path, headers: [JSON_TYPE], body: Buffer.from(text) });
    expect(answer.status, text).toBe(400);
    expect(errorOf(answer)).toMatchObject({ type: "BadRequestError", code: 400 });
    return errorOf(answer).message;
  }

  async function served(path: string, body: unknown): Promise<void> {
    expect((await bed.post(body, path)).answer.status, JSON.stringify(body)).toBe(200);
  }

  it("S-RQ-01 a body that is no JSON is 400 and reaches no pod", async () => {
    for (const text of ["{", "not json", '{"model":"m","messages":[}']) expect(await refused("/v1/chat/completions", text)).toContain("not JSON");
    expect(bed.pods.flatMap((pod) => pod.requests)).toHaveLength(before);
  });

  it("S-RQ-02 no messages, none in the list, a role that is no text, content that is a number: 400", async () => {
    const bad = [
      { model: "m" },
      { model: "m", messages: null },
      { model: "m", messages: [] },
      { model: "m", messages: "hello" },
      { model: "m", messages: {} },
      { model: "m", messages: ["hello"] },
      { model: "m", messages: [{ role: 5, content: "x" }] },
      { model: "m", messages: [{ role: null, content: "x" }] },
      { model: "m", messages: [{ role: "user", content: 42 }] },
      { model: "m", messages: [{ role: "user", content: true }] },
      { model: "m", messages: [{ role: "user", content: { text: "x" } }] },
      { model: "m", messages: [{ role: "user", content: "fine" }, { role: "user", content: 1 }] },
    ];
    for (const path of ["/v1/chat/completions", "/v1/messages"]) for (const body of bad) expect(await refused(path, body)).toContain("no valid messages or prompt");
    expect(await refused("/v1/responses", { model: "m" })).toContain("no valid messages or prompt");
    expect(await refused("/v1/responses", { model: "m", input: [] })).toContain("no valid messages or prompt");
    expect(bed.pods.flatMap((pod) => pod.requests)).toHaveLength(before);
    await served("/v1/chat/completions", { model: "m", messages: [{ role: "assistant", content: null, tool_calls: [] }, { role: "user", content: [] }] });
    await served("/v1/responses", { model: "m", input: "hello" });
    await served("/v1/responses", { model: "m", input: [{ role: "user", content: "x" }] });
  });

  it("S-RQ-03 every form of a prompt, and 400 for an empty list and for what is none", async () => {
    for (const prompt of ["text", ["a", "b"], [1, 2, 3], [[1], [2, 3]]]) await served("/v1/completions", { model: "m", prompt });
    for (const prompt of [[], 5, {}, [{}], null]) expect(await refused("/v1/completions", { model: "m", prompt })).toContain("no valid messages or prompt");
    expect(await refused("/v1/completions", { model: "m" })).toContain("no valid messages or prompt");
    expect(await refused("/v1/embeddings", { model: "m" })).toContain("no valid messages or prompt");
    await served("/v1/embeddings", { model: "m", input: ["a"] });
    await served("/inference/v1/generate", { model: "m", token_ids: [1, 2, 3] });
  });

  it("S-RQ-17 no model: 400", async () => {
    for (const body of [{ messages: chat(20)["messages"] }, { model: null, messages: chat(20)["messages"] }, { model: 5, messages: chat(20)["messages"] }, { model: "", messages: chat(20)["messages"] }]) {
      expect(await refused("/v1/chat/completions", body)).toContain("model not found in request body");
    }
  });

  it("S-RQ-24 a path that is not read is not judged", async () => {
    await served("/v1/messages/count_tokens", "not json");
  });
});

describe("the decision header", () => {
  it("says of a refused request, too, why", async () => {
    const bed = await Bed.start({ pods: { decode: 0, prefill: 1, encode: 0 } });
    try {
      await bed.settled();
      const answer = await bed.gateway.send({ method: "GET", path: "/v1/models" });
      expect(answer.status).toBe(503);
      expect(decisionOf(answer)).toMatchObject({ decode: { reason: "no_decode_endpoint", endpoint: "" } });
    } finally {
      await bed.stop();
    }
  });
});
