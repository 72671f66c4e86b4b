/** What clients get of a real prefiller and decoder: where prompts were computed, and that the words are the decoder's own. */
import { expect, it } from "vitest";
import { type Answer, headerLines, send } from "../fleet/http.js";
import { stringAt, textAt } from "../wire/json-text.js";
import { dataOf, freshText, type Shape, SHAPES } from "../wire/shapes.js";
import { BLOCK_TOKENS, MODEL } from "./engine.js";
import { sourcesOf, sourcesSince } from "./sources.js";
import { decisionOf, type Stack } from "./stack.js";

interface Variant {
  readonly name: string;
  readonly shape: Shape;
  readonly stream: boolean;
  /** Further members of the body. */
  readonly more: string;
  /** Numbers that the answer carries beside its text. */
  readonly numbers?: (body: Buffer, stream: boolean) => number[];
}

const TOOLS =
  ',"tool_choice":"auto","tools":[{"type":"function","function":{"name":"tide","description":"When the tide turns at a pier","parameters":{"type":"object","properties":{"pier":{"type":"string"}},"required":["pier"]}}}]';

/** Log-probabilities of the chosen tokens, in order. */
function logprobs(body: Buffer, stream: boolean): number[] {
  const events = stream ? dataOf(body).filter((data) => data !== "[DONE]") : [body.toString("utf8")];
  return events.flatMap((event) => {
    const { choices = [] } = JSON.parse(event) as { choices?: { logprobs?: { content?: { logprob: number }[]; token_logprobs?: number[] } | null }[] };
    const found = choices[0]?.logprobs;
    return found?.content?.map(({ logprob }) => logprob) ?? found?.token_logprobs ?? [];
  });
}

function variants(): Variant[] {
  const both = [false, true];
  const chat = SHAPES.find(({ name }) => name === "chat");
  const completions = SHAPES.find(({ name }) => name === "completions");
  if (chat === undefined || completions === undefined) throw new Error("no such shape");
  return [
    ...SHAPES.flatMap((shape) => both.map((stream) => ({ name: shape.name, shape, stream, more: "" }))),
    ...both.map((stream) => ({ name: "chat with tools", shape: chat, stream, more: TOOLS })),
    ...both.map((stream) => ({ name: "chat with logprobs", shape: chat, stream, more: ',"logprobs":true,"top_logprobs":2', numbers: logprobs })),
    ...both.map((stream) => ({ name: "completions with logprobs", shape: completions, stream, more: ',"logprobs":2', numbers: logprobs })),
  ];
}

/** bfloat16 in another order of summation. */
const LOGPROB_TOLERANCE = 0.05;

function wellEnded(answer: Answer): void {
  expect({ status: answer.status, end: answer.end, text: answer.status === 200 ? "" : answer.body.toString("utf8", 0, 400) }).toEqual({ status: 200, end: "clean", text: "" });
}

export function answerTests(stack: () => Stack): void {
  it.each(variants().map((variant) => [`${variant.name}${variant.stream ? ", streamed" : ""}`, variant] as const))("a long cold prompt (%s) is prefilled by the prefiller alone, and the words are the decoder's own", async (_, { shape, stream, more, numbers }) => {
    const { prefill, decode } = stack();
    const body = shape.body(MODEL, { stream, more });
    // Tools and system prompts begin many prompts.
    await decode.engine.forget();
    const before = [await sourcesOf(prefill.engine), await sourcesOf(decode.engine)] as const;
    const answer = await stack().ask(shape.path, body);
    wellEnded(answer);
    expect(decisionOf(answer)).toMatchObject({ decision: "prefill-decode", prefill: { reason: "run_uncached" } });
    const prefilled = await sourcesSince(prefill.engine, before[0]);
    const decoded = await sourcesSince(decode.engine, before[1]);
    expect(prefilled.prompt).toBeGreaterThan(BLOCK_TOKENS);
    expect(decoded).toMatchObject({ served: 1, prompt: prefilled.prompt, external: prefilled.prompt, computed: 0, cached: 0 });

    // The decoder's own: it has forgotten what it was given, and computes the whole prompt.
    await decode.engine.forget();
    const { host, port } = decode.engine;
    const idle = await sourcesOf(decode.engine);
    const alone = await send({ host, port, method: "POST", path: shape.path, headers: [["content-type", "application/json"]], body: Buffer.from(body) });
    wellEnded(alone);
    expect(await sourcesSince(decode.engine, idle)).toMatchObject({ served: 1, computed: prefilled.prompt, external: 0 });
    expect(shape.textOf(answer.body, stream)).not.toBe("");
    expect(shape.textOf(answer.body, stream)).toBe(shape.textOf(alone.body, stream));
    if (stream) expect(answer.body.toString("utf8")).toContain(shape.lastLine);
    if (numbers === undefined) return;
    const [seen, wanted] = [numbers(answer.body, stream), numbers(alone.body, stream)];
    expect(wanted.length).toBeGreaterThanOrEqual(8);
    expect(seen.length).toBe(wanted.length);
    for (const [index, value] of seen.entries()) expect(Math.abs(value - (wanted[index] ?? Number.NaN))).toBeLessThan(LOGPROB_TOLERANCE);
  });

  it("the same prompt again is decode-only by the filter's prefix index, and the decoder has it cached", async () => {
    const { prefill, decode } = stack();
    const body = { model: MODEL, temperature: 0, max_tokens: 8, messages: [{ role: "user", content: freshText() }] };
    const first = await stack().ask("/v1/chat/completions", body);
    wellEnded(first);
    expect(decisionOf(first).decision).toBe("prefill-decode");
    const before = [await sourcesOf(prefill.engine), await sourcesOf(decode.engine)] as const;
    const again = await stack().ask("/v1/chat/completions", body);
    wellEnded(again);
    expect(decisionOf(again)).toMatchObject({ decision: "decode-only", prefill: { reason: "skip_cached" } });
    const decoded = await sourcesSince(decode.engine, before[1]);
    expect(decoded.cached).toBeGreaterThanOrEqual(BLOCK_TOKENS);
    expect(decoded).toMatchObject({ served: 1, external: 0, cached: decoded.prompt - decoded.computed });
    expect((await sourcesOf(prefill.engine)).prompt).toBe(before[0].prompt);
    expect(stringAt(again.body, "choices.0.message.content")).toBe(stringAt(first.body, "choices.0.message.content"));
  });

  it("a short prompt is decode-only, and the decoder computes it", async () => {
    const { decode } = stack();
    const before = await sourcesOf(decode.engine);
    const answer = await stack().ask("/v1/chat/completions", { model: MODEL, max_tokens: 4, messages: [{ role: "user", content: `Which pier, ${freshText().slice(0, 8)}?` }] });
    wellEnded(answer);
    expect(decisionOf(answer)).toMatchObject({ decision: "decode-only", prefill: { reason: "skip_short_prompt" } });
    expect((await sourcesSince(decode.engine, before)).external).toBe(0);
  });

  it.each([
    ["of equal lengths", [4, 4]],
    ["of unequal lengths", [2, 6, 1]],
  ])("a list of prompts %s is decode-only, and every answer is right", async (_, lengths) => {
    const { prefill, decode } = stack();
    const prompts = lengths.map((times) => `${freshText().slice(0, 36)} ${"the tide of the bay ".repeat(times * 5)}`);
    const ask = (prompt: string | string[]): object => ({ model: MODEL, prompt, temperature: 0, max_tokens: 8 });
    const before = await sourcesOf(prefill.engine);
    const answer = await stack().ask("/v1/completions", ask(prompts));
    wellEnded(answer);
    expect(decisionOf(answer)).toMatchObject({ decision: "decode-only", prefill: { reason: "multiple_prompts" } });
    expect((await sourcesOf(prefill.engine)).prompt).toBe(before.prompt);
    for (const [index, prompt] of prompts.entries()) {
      await decode.engine.forget();
      const alone = await decode.engine.post("/v1/completions", ask(prompt));
      expect(stringAt(answer.body, `choices.${index.toString()}.text`)).toBe(stringAt(alone.body, "choices.0.text"));
    }
  });

  it.each(SHAPES.filter(({ name }) => name !== "generate").flatMap((shape) => [false, true].map((stream) => [`${shape.name}${stream ? ", streamed" : ""}`, shape, stream] as const)))(
    "cached_tokens are the prefiller's (%s)",
    async (_, shape, stream) => {
      const { prefill } = stack();
      const body = shape.body(MODEL, { stream });
      // The prefiller knows the prompt, the decoder and the filter do not.
      wellEnded(await prefill.engine.post(shape.path, body));
      const again = await prefill.engine.post(shape.path, body);
      wellEnded(again);
      const cachedAt = (answer: Answer): number => {
        const texts = (stream ? dataOf(answer.body) : [answer.body.toString("utf8")]).map((event) => textAt(event, stream ? streamed(shape) : shape.cachedAt)).filter((text) => /^\d+$/.test(text));
        return Number(texts.at(-1) ?? Number.NaN);
      };
      const answer = await stack().ask(shape.path, body);
      wellEnded(answer);
      expect(decisionOf(answer).decision).toBe("prefill-decode");
      expect(cachedAt(answer)).toBeGreaterThanOrEqual(BLOCK_TOKENS);
      expect(cachedAt(answer)).toBe(cachedAt(again));
    },
  );

  it("has an id of its own on every answer, the same on both legs", async () => {
    const id = `real-${Date.now().toString(36)}`;
    const answer = await stack().ask("/v1/chat/completions", { model: MODEL, max_tokens: 4, messages: [{ role: "user", content: freshText() }] }, { headers: [["x-request-id", id]] });
    wellEnded(answer);
    // vLLM makes the answer's id of the request's.
    expect(stringAt(answer.body, "id")).toBe(`chatcmpl-${id}`);
    expect(headerLines(answer.headers, "x-request-id")).toEqual([id]);
  });
}

/** Where a stream's event has the count: Responses' last event holds the response as a whole. */
function streamed(shape: Shape): string {
  return shape.name === "responses" ? `response.${shape.cachedAt}` : shape.cachedAt;
}
