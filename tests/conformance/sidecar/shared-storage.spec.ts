import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { header, open } from "../../../sidecar/testkit/harness.js";
import { until } from "../../../sidecar/testkit/upstream.js";
import { callsOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { at, CHAT, chatText, eventsOf, SHAPES } from "./bodies.js";

describe("shared-storage", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "shared-storage", encoders: 2 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  row("C-SS-01: without a threshold prefill runs, then decode, and both carry the threshold 0", async () => {
    const door = await bed.sidecar();
    expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(200);
    const [prefill, decode] = [await bed.calls(bed.prefiller), await bed.calls(bed.decoder)];
    expect([prefill.length, decode.length]).toEqual([1, 1]);
    expect([jsonOf(prefill[0])["cache_hit_threshold"], jsonOf(decode[0])["cache_hit_threshold"]]).toEqual([0, 0]);
    expect(decode[0]?.startedAtMs).toBeGreaterThanOrEqual(prefill[0]?.endedAtMs ?? 0);
    expect(decode[0]?.handoff).toMatchObject({ found: true, correct: true, recomputed: false });
    for (const { json } of [...prefill, ...decode]) expect(json).not.toHaveProperty("kv_transfer_params");
  });

  row("C-SS-02: the completion limit is 1 on prefill; decode has the client's, or none", async () => {
    const door = await bed.sidecar();
    for (const limits of [{ max_completion_tokens: 5, max_tokens: 7 }, { max_tokens: undefined }]) {
      await post(door, { headers: bed.routed(), body: CHAT.body(limits) });
      const [prefill, decode] = [(await bed.calls(bed.prefiller)).at(-1), (await bed.calls(bed.decoder)).at(-1)];
      expect([jsonOf(prefill)["max_completion_tokens"], jsonOf(prefill)["max_tokens"]]).toEqual([1, 1]);
      expect([jsonOf(decode)["max_completion_tokens"], jsonOf(decode)["max_tokens"]]).toEqual([limits.max_completion_tokens, limits.max_tokens]);
    }
  });

  for (const stream of [false, true]) {
    row(`C-SS-03: with a threshold, an engine that has enough answers alone (stream ${String(stream)})`, async () => {
      const door = await bed.sidecar();
      const body = CHAT.body({ stream, cache_hit_threshold: 0.5 });
      await post(door, { body: body.replace('"cache_hit_threshold":0.5', '"cache_hit_threshold":0') });
      const answered = await post(door, { headers: bed.routed(), body });
      expect([answered.status, answered.whole, chatText(answered.body) !== ""]).toEqual([200, true, true]);
      expect([(await bed.calls(bed.prefiller)).length, (await bed.calls(bed.decoder)).length]).toEqual([0, 2]);
      expect(callsOf(bed.decoder)[1]?.body.toString()).toBe(body);
    });

    row(`C-SS-04: with a threshold, a miss is thrown away, prefill runs once, then decode (stream ${String(stream)})`, async () => {
      const door = await bed.sidecar();
      const body = CHAT.body({ stream, cache_hit_threshold: 0.5 });
      const answered = await post(door, { headers: bed.routed(), body });
      expect([answered.status, answered.whole]).toEqual([200, true]);
      expect(answered.body).not.toContain("cache_threshold");
      const [prefill, decode] = [await bed.calls(bed.prefiller), await bed.calls(bed.decoder)];
      expect([prefill.length, decode.length]).toEqual([1, 2]);
      expect([jsonOf(decode[0])["cache_hit_threshold"], jsonOf(prefill[0])["cache_hit_threshold"], jsonOf(decode[1])["cache_hit_threshold"]]).toEqual([0.5, 0, 0]);
      expect(decode[1]?.handoff).toMatchObject({ found: true });
      expect(chatText(answered.body)).toBe(chatText((await post(door, { body: body.replace('"cache_hit_threshold":0.5', '"cache_hit_threshold":0') })).body));
    });
  }

  row("C-SS-05: a probe that fails is the client's answer, without a prefill", async () => {
    bed.decoder.setScript({ status: 500, json: { error: { message: "out of memory", code: 500 } } });
    const door = await bed.sidecar();
    for (const stream of [false, true]) {
      const answered = await post(door, { headers: bed.routed(), body: CHAT.body({ stream, cache_hit_threshold: 0.5 }) });
      expect([answered.status, answered.body]).toEqual([500, '{"error":{"message":"out of memory","code":500}}']);
    }
    expect([(await bed.calls(bed.prefiller)).length, (await bed.calls(bed.decoder)).length]).toEqual([0, 2]);
  });

  row("C-SS-06: a prefill that fails is the client's answer, without decode", async () => {
    bed.prefiller.setScript({ status: 503, text: "busy" });
    const door = await bed.sidecar();
    const answered = await post(door, { headers: bed.routed(), body: CHAT.body() });
    expect([answered.status, answered.body, (await bed.calls(bed.decoder)).length]).toEqual([503, "busy", 0]);
  });

  row(
    "C-SS-07: a streamed miss leaves no second copy of any header, and its call is ended",
    async () => {
      const door = await bed.sidecar();
      const { rawHeaders } = await post(door, { headers: bed.routed(), body: CHAT.body({ stream: true, cache_hit_threshold: 0.5 }) });
      const names = rawHeaders.filter((_, index) => index % 2 === 0).map((name) => name.toLowerCase());
      expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual([]);
      expect(header({ rawHeaders }, "content-type")).toEqual(["text/event-stream; charset=utf-8"]);
      // An engine that goes on after its word must not be left to.
      await bed.clear();
      bed.decoder.setScript([{ chunks: ['data: {"choices":[{"index":0,"delta":{"content":""},"finish_reason":"cache_threshold"}]}\n\n', "data: [DONE]\n\n"], gap_ms: 2000 }, {}]);
      const again = await bed.sidecar();
      await post(again, { headers: bed.routed(), body: CHAT.body({ stream: true, cache_hit_threshold: 0.5 }) });
      await until(() => callsOf(bed.decoder)[0]?.aborted === true, 1000);
    },
    { fix: true },
  );

  row(
    "C-SS-08: of a streamed request prefill is not streamed, and capped in all limits, for every API",
    async () => {
      const door = await bed.sidecar();
      for (const shape of SHAPES) {
        const limits = shape.name === "chat" ? { min_tokens: 3, stream_options: { include_usage: true } } : {};
        const answered = await post(door, { target: shape.target, headers: bed.routed(), body: shape.body({ stream: true, ...limits }) });
        expect([shape.name, answered.status, answered.whole]).toEqual([shape.name, 200, true]);
        const [prefill, decode] = [(await bed.calls(bed.prefiller)).at(-1), (await bed.calls(bed.decoder)).at(-1)];
        expect([shape.name, prefill?.error, prefill?.completionTokens, decode?.error]).toEqual([shape.name, null, 1, null]);
        expect([at(prefill?.json, shape.limit), jsonOf(prefill)["stream"], jsonOf(prefill)["stream_options"]]).toEqual([1, false, undefined]);
        expect([at(decode?.json, shape.limit), jsonOf(decode)["stream"]]).toEqual([8, true]);
        expect(decode?.handoff).toMatchObject({ found: true, correct: true, recomputed: false });
        if (shape.name === "chat") expect([jsonOf(prefill)["min_tokens"], jsonOf(decode)["min_tokens"]]).toEqual([1, 3]);
        if (shape.name === "generate") expect([at(prefill?.json, ["sampling_params", "min_tokens"]), at(decode?.json, ["sampling_params", "min_tokens"]), jsonOf(prefill)["max_tokens"]]).toEqual([1, 2, undefined]);
      }
    },
    { fix: true },
  );

  row(
    "C-SS-09: a streamed probe that the client leaves, or that breaks off, ends that request and nothing else",
    async () => {
      const opening = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n';
      const door = await bed.sidecar();
      bed.decoder.setScript([{ chunks: [opening, "data: never\n\n"], gap_ms: 5000 }, { chunks: [opening], then: "reset" }, {}]);
      const { request } = open(door.url, { headers: bed.routed(), body: CHAT.body({ stream: true, cache_hit_threshold: 0.5 }) });
      await until(() => callsOf(bed.decoder).length === 1);
      await sleep(50);
      request.destroy();
      await until(() => callsOf(bed.decoder)[0]?.aborted === true, 1000);
      const broken = await post(door, { headers: bed.routed(), body: CHAT.body({ stream: true, cache_hit_threshold: 0.5 }) });
      expect([broken.status, broken.body.includes("[DONE]")]).toEqual([502, false]);
      expect((await bed.calls(bed.prefiller)).length).toBe(0);
      expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(200);
    },
    { fix: true },
  );

  row(
    "C-EC-16: after encoders the prefill leg really runs",
    async () => {
      const door = await bed.sidecar();
      const image = { type: "image_url", image_url: { url: "https://media.example.test/harbour.png" } };
      const body = CHAT.body({ messages: [{ role: "user", content: [{ type: "text", text: "What is this? ".repeat(40) }, image] }] });
      expect((await post(door, { headers: [...bed.routed(), ...bed.encoderHeader()], body })).status).toBe(200);
      const [prefill, decode] = [await bed.calls(bed.prefiller), await bed.calls(bed.decoder)];
      expect([prefill.length, decode.length, prefill[0]?.error, prefill[0]?.media[0]?.reference]).toEqual([1, 1, null, "found"]);
      expect(decode[0]?.handoff).toMatchObject({ found: true, recomputed: false });
    },
    { fix: true },
  );

  row(
    "the probe of every API that has a word for a miss: prefill runs once, and the answer is decode's",
    async () => {
      const door = await bed.sidecar();
      for (const shape of SHAPES) {
        for (const stream of [false, true]) {
          const answered = await post(door, { target: shape.target, headers: bed.routed(), body: shape.body({ stream, cache_hit_threshold: 0.5 }) });
          expect([shape.name, stream, answered.status, answered.whole, answered.body.includes('cache_threshold"')]).toEqual([shape.name, stream, 200, true, false]);
          expect([shape.name, stream, header(answered, "x-crosspoint-prefilled-by")]).toEqual([shape.name, stream, [`127.0.0.1:${String(bed.prefiller.port)}`]]);
        }
      }
      // Responses have none: two legs each, never three.
      expect([(await bed.calls(bed.prefiller)).length, (await bed.calls(bed.decoder)).length]).toEqual([10, 18]);
    },
    { ours: true },
  );

  row(
    "a probe that hits is the engine's own work",
    async () => {
      const door = await bed.sidecar();
      const body = CHAT.body({ stream: true, cache_hit_threshold: 0.1 });
      await post(door, { body: body.replace('"cache_hit_threshold":0.1', '"cache_hit_threshold":0') });
      const hit = await post(door, { headers: bed.routed(), body });
      expect([header(hit, "x-crosspoint-prefilled-by"), eventsOf(hit.body).length > 1]).toEqual([["local"], true]);
      expect(header(await post(door, { body }), "x-crosspoint-prefilled-by")).toEqual([]);
    },
    { ours: true },
  );

  row(
    "a failed prefill under local: the engine computes, and is not let off by the client's threshold",
    async () => {
      bed.prefiller.setScript({ status: 500, json: {} });
      const door = await bed.sidecar("--on-stage-failure=local");
      const answered = await post(door, { headers: bed.routed(), body: CHAT.body({ cache_hit_threshold: 0.5 }) });
      expect([answered.status, answered.body.includes("cache_threshold"), header(answered, "x-crosspoint-prefilled-by")]).toEqual([200, false, ["local"]]);
      expect((await bed.calls(bed.decoder)).map((record) => jsonOf(record)["cache_hit_threshold"])).toEqual([0.5, 0]);
    },
    { ours: true },
  );

  row(
    "an abandoned prefill leaves nothing pinned",
    async () => {
      bed.prefiller.setScript({ delay_ms: 3000 });
      const door = await bed.sidecar();
      const { request } = open(door.url, { headers: bed.routed(), body: CHAT.body() });
      await until(() => callsOf(bed.prefiller).length === 1);
      request.destroy();
      await until(() => callsOf(bed.prefiller)[0]?.aborted === true, 1000);
      expect([bed.held(), (await bed.calls(bed.decoder)).length]).toEqual([0, 0]);
    },
    { ours: true },
  );

  it("has engines that are as strict as they come", async () => {
    const door = await bed.sidecar();
    await post(door, { headers: bed.routed(), body: CHAT.body() });
    expect([...(await bed.calls(bed.prefiller)), ...(await bed.calls(bed.decoder))].map(({ error }) => error)).toEqual([null, null]);
  });
});
