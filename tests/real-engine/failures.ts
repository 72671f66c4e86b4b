/** A prefiller that hangs, lies or is gone, and a decoder that cannot fetch what was handed over: what a client then gets, by the sidecar's policy. */
import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compact, JsonNumber, type JsonObject, parse } from "../cases/json.js";
import { type Answer, headerLines, send } from "../fleet/http.js";
import { freePort } from "../fleet/ports.js";
import { type Sidecar } from "../fleet/sidecar.js";
import { stringAt } from "../wire/json-text.js";
import { CHAT, dataOf } from "../wire/shapes.js";
import type { Deadly } from "./attacks.js";
import { MODEL } from "./engine.js";
import { untilFree } from "./leaving.js";
import { stateOf } from "./load.js";
import { Middleman } from "./middleman.js";
import { sourcesOf } from "./sources.js";
import { decisionOf, PATIENCE_MS, type Stack } from "./stack.js";

const PREFILL_TIMEOUT_MS = 3000;
/** Beyond a deadline of ours, on two busy cores. */
const SLACK_MS = 4000;
/** vLLM waits five seconds for a prefiller's side channel. */
const HANDSHAKE_MS = 5000;

type Policy = "fail" | "local";

/** Changes to the member of the prefiller's answer, which then holds no usable hand-off. */
const LIES: readonly (readonly [string, (answer: JsonObject, params: JsonObject) => void])[] = [
  ["no remote_request_id", (_, params) => params.delete("remote_request_id")],
  ["a remote_request_id that is null", (_, params) => params.set("remote_request_id", null)],
  ["block ids that are text", (_, params) => params.set("remote_block_ids", "1,2")],
  ["block ids that are null", (_, params) => params.set("remote_block_ids", null)],
  ["a port that is a word", (_, params) => params.set("remote_port", "http")],
  ["parameters that are empty", (answer) => answer.set("kv_transfer_params", new Map())],
  ["parameters that are null", (answer) => answer.set("kv_transfer_params", null)],
  ["parameters that are a list", (answer) => answer.set("kv_transfer_params", [null])],
];

function changed(body: Buffer, change: (answer: JsonObject, params: JsonObject) => void): Buffer {
  const { value } = parse(body);
  const params = value instanceof Map ? value.get("kv_transfer_params") : null;
  if (!(value instanceof Map) || !(params instanceof Map)) throw new Error(`no hand-off in the prefiller's answer: ${body.toString("utf8", 0, 200)}`);
  change(value, params);
  return Buffer.from(compact(value));
}

export function failureTests(stack: () => Stack): void {
  let middleman: Middleman;
  const doors = new Map<Policy, Sidecar>();
  beforeAll(async () => {
    middleman = await Middleman.start(stack().prefill.engine);
    const flags = [`--prefill-timeout=${PREFILL_TIMEOUT_MS.toString()}ms`];
    doors.set("fail", await stack().door("hurried-fail", flags));
    doors.set("local", await stack().door("hurried-local", [...flags, "--on-stage-failure=local"]));
  });
  afterAll(async () => {
    await middleman.close();
  });

  const ask = (policy: Policy, body: string, prefiller: string): Promise<Answer> => {
    const door = doors.get(policy);
    if (door === undefined) throw new Error("no door");
    return send({ host: door.host, port: door.port, method: "POST", path: CHAT.path, headers: [["content-type", "application/json"], ["x-prefiller-host-port", prefiller]], body: Buffer.from(body), timeoutMs: PATIENCE_MS });
  };
  const whole = (answer: Answer, status: number): void => {
    expect({ status: answer.status, end: answer.end, text: answer.status === status ? "" : answer.body.toString("utf8", 0, 300) }).toEqual({ status, end: "clean", text: "" });
  };
  /** An answer that shows nothing of what went wrong, in the decoder's own words. */
  const invisible = async (answer: Answer, body: string, stream: boolean): Promise<void> => {
    whole(answer, 200);
    const text = answer.body.toString("utf8");
    expect(text).not.toMatch(/"error":\{/);
    if (stream) {
      expect(dataOf(answer.body).filter((data) => data.includes('"role":"assistant"'))).toHaveLength(1);
      expect(text).toContain(CHAT.lastLine);
    }
    await stack().decode.engine.forget();
    const alone = await stack().decode.engine.post(CHAT.path, body);
    whole(alone, 200);
    expect(CHAT.textOf(answer.body, stream)).not.toBe("");
    expect(CHAT.textOf(answer.body, stream)).toBe(CHAT.textOf(alone.body, stream));
  };

  it.each(LIES)("a prefiller that answers with %s: a typed 502 at once or the invisible fallback, and the decoder never hears of it", async (_, change) => {
    middleman.behave({ onAnswer: (body) => changed(body, change) });
    const before = await sourcesOf(stack().decode.engine);
    const answer = await ask("fail", CHAT.body(MODEL), middleman.address);
    whole(answer, 502);
    expect(stringAt(answer.body, "error.message")).toContain("handoff_invalid");
    expect((await sourcesOf(stack().decode.engine)).prompt).toBe(before.prompt);
    const body = CHAT.body(MODEL);
    await invisible(await ask("local", body, middleman.address), body, false);
    expect((await sourcesOf(stack().decode.engine)).external).toBe(before.external);
    expect(await stack().fallen()).toEqual([]);
  });

  it.each([
    // Of an engine that it has not met: one that it has met it does not look up again.
    ["a side channel where nobody listens", async (params: JsonObject) => params.set("remote_engine_id", randomUUID()).set("remote_port", new JsonNumber((await freePort()).toString()))],
    ["the id of an engine that is none", (params: JsonObject) => Promise.resolve(params.set("remote_engine_id", "0f0f0f0f-0000-4000-8000-000000000000"))],
  ] as const)("the decoder's handshake fails (%s): its own error, or the invisible fallback", async (_, change) => {
    middleman.behave({
      onAnswer: async (body) => {
        const { value } = parse(body);
        const params = value instanceof Map ? value.get("kv_transfer_params") : null;
        if (!(value instanceof Map) || !(params instanceof Map)) throw new Error("no hand-off");
        await change(params);
        return Buffer.from(compact(value));
      },
    });
    const startedAt = performance.now();
    const answer = await ask("fail", CHAT.body(MODEL), middleman.address);
    whole(answer, 500);
    expect(performance.now() - startedAt).toBeLessThan(HANDSHAKE_MS + 2 * SLACK_MS);
    expect(stringAt(answer.body, "error.type")).toBe("InternalServerError");
    // A stream was opened before the engine knew: the error is an event, as vLLM writes it, and the stream ends.
    const streamed = await ask("fail", CHAT.body(MODEL, { stream: true }), middleman.address);
    expect(streamed.end).toBe("clean");
    expect(streamed.body.toString("utf8")).toMatch(/"error":\s*\{/);
    for (const stream of [false, true]) {
      const body = CHAT.body(MODEL, { stream });
      await invisible(await ask("local", body, middleman.address), body, stream);
    }
    expect(await stack().fallen()).toEqual([]);
  });

  it("a prefiller that hangs: a typed 504 or the fallback within its deadline, and the filter knows", { timeout: 240_000 }, async () => {
    const { prefill } = stack();
    middleman.behave({});
    prefill.engine.signal("SIGSTOP");
    try {
      for (const stream of [false, true]) {
        const failed = await ask("fail", CHAT.body(MODEL, { stream }), prefill.engine.address);
        whole(failed, 504);
        expect(stringAt(failed.body, "error.type")).toBe("GatewayTimeout");
        expect(failed.endedAtMs - failed.startedAtMs).toBeGreaterThanOrEqual(PREFILL_TIMEOUT_MS - 50);
        expect(failed.endedAtMs - failed.startedAtMs).toBeLessThan(PREFILL_TIMEOUT_MS + SLACK_MS);
        const body = CHAT.body(MODEL, { stream });
        await invisible(await ask("local", body, prefill.engine.address), body, stream);
      }
      await saidToBeOut(stack(), 0);
    } finally {
      prefill.engine.signal("SIGCONT");
    }
    // What it began for clients that are gone it gives up.
    expect(await untilFree(prefill.engine, PATIENCE_MS)).not.toBeNull();
    await expect.poll(async () => decisionOf(await stack().ask(CHAT.path, CHAT.body(MODEL))).decision, { timeout: PATIENCE_MS, interval: 500 }).toBe("prefill-decode");
  });

  it("a prefiller that is gone: a typed 502 or the fallback at once, and the filter knows", { timeout: 240_000 }, async () => {
    const { prefill } = stack();
    await prefill.engine.close();
    for (const stream of [false, true]) {
      const failed = await ask("fail", CHAT.body(MODEL, { stream }), prefill.engine.address);
      whole(failed, 502);
      expect(headerLines(failed.headers, "content-type")).toEqual(["application/json"]);
      expect(failed.endedAtMs - failed.startedAtMs).toBeLessThan(SLACK_MS);
      const body = CHAT.body(MODEL, { stream });
      await invisible(await ask("local", body, prefill.engine.address), body, stream);
    }
    await saidToBeOut(stack(), 502);
  });
}

/**
 * The filter learns from its scrapes that the prefiller does not answer. It is the only one, so requests still go there (an endpoint that is out is used where no other is left),
 * and the sidecar's policy, the default here, is the answer.
 */
async function saidToBeOut(stack: Stack, status: number): Promise<void> {
  await expect.poll(async () => (await stateOf(stack, "p0")).health, { timeout: PATIENCE_MS, interval: 250 }).toBe("unreachable");
  const short = await stack.ask(CHAT.path, { model: MODEL, max_tokens: 4, messages: [{ role: "user", content: "which pier?" }] });
  expect(short.status).toBe(200);
  if (status === 0) return;
  const long = await stack.ask(CHAT.path, CHAT.body(MODEL));
  expect(long.status).toBe(status);
}

/**
 * What the attacks send, straight to the decoder: it ends. This is what the sidecar keeps away, and shows that the attacks are ones; it comes last, since nothing can be asked of
 * the engine afterwards.
 *
 * @param params made while there was a prefiller
 */
export function controlTest(stack: () => Stack, params: () => Deadly): void {
  it("and the same parameters, sent to the decoder past the sidecar, end it", { timeout: 240_000 }, async () => {
    const { decode } = stack();
    expect(await decode.engine.healthy()).toBe(true);
    void decode.engine.post(CHAT.path, CHAT.body(MODEL, { more: `,"kv_transfer_params":${params()["flat block ids"]}` }));
    await expect.poll(() => decode.engine.healthy(), { timeout: PATIENCE_MS, interval: 250 }).toBe(false);
  });
}
