/** What holds for every connector whose legs run at the same time. */
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { errorOf, header, open } from "../../../sidecar/testkit/harness.js";
import { until } from "../../../sidecar/testkit/upstream.js";
import { addressOf, callsOf, post, row, SidecarBed } from "./bed.js";
import { CHAT, chatText } from "./bodies.js";

const ROLE = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n';

describe.each(["sglang", "mooncake", "offloading"] as const)("%s", (connector) => {
  let bed: SidecarBed;
  const alone = connector !== "sglang";

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector, prefillers: 2, encoders: 2 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  const routed = (): string[] => bed.routed(bed.prefiller);
  const body = (stream: boolean): string => CHAT.body({ stream });
  const picture = { type: "image_url", image_url: { url: "https://media.example.test/quay.png" } };

  for (const stream of [false, true]) {
    row(
      `C-DG-01: a prefill that fails before decode's output is the client's answer, and decode is cancelled (stream ${String(stream)})`,
      async () => {
        bed.prefiller.setScript({ delay_ms: 100, status: 500, headers: { "x-why": "memory" }, text: "out of memory" });
        const door = await bed.sidecar();
        const answered = await post(door, { headers: routed(), body: body(stream) });
        expect([answered.status, answered.body, header(answered, "x-why")]).toEqual([500, "out of memory", ["memory"]]);
        const decodes = await bed.calls(bed.decoder);
        expect([decodes.length, decodes[0]?.aborted, decodes[0]?.handoff?.found ?? false]).toEqual([1, true, false]);
      },
      { fix: true },
    );

    row(
      `a prefill that breaks off, or that nobody answers, too (stream ${String(stream)})`,
      async () => {
        bed.prefiller.setScript({ delay_ms: 50, tcp: "reset" });
        const broken = await post(await bed.sidecar(), { headers: routed(), body: body(stream) });
        expect([broken.status, errorOf(broken).type]).toEqual([502, "BadGateway"]);
        bed.prefiller.setScript({ delay_ms: 5000 });
        const door = await bed.sidecar("--prefill-timeout=300ms");
        const late = await post(door, { headers: routed(), body: body(stream) });
        expect([late.status, errorOf(late).type]).toEqual([504, "GatewayTimeout"]);
        expect((await bed.calls(bed.decoder)).map(({ aborted }) => aborted)).toEqual([true, true]);
        expect(callsOf(bed.prefiller)[1]?.aborted).toBe(true);
      },
      { ours: true },
    );

    row(
      `prefill's 4xx is the client's own error under local too (stream ${String(stream)})`,
      async () => {
        bed.prefiller.setScript({ delay_ms: 50, status: 400, json: { error: { message: "too long", param: "input_tokens" } } });
        const door = await bed.sidecar("--on-stage-failure=local");
        const answered = await post(door, { headers: routed(), body: body(stream) });
        expect([answered.status, errorOf(answered).param]).toEqual([400, "input_tokens"]);
        expect((await bed.calls(bed.decoder))[0]?.aborted).toBe(true);
      },
      { ours: true },
    );

    if (alone) {
      row(
        `under local decode begins again without parameters, and nothing of the first is seen (stream ${String(stream)})`,
        async () => {
          bed.prefiller.setScript({ delay_ms: 100, status: 500, json: {} });
          const door = await bed.sidecar("--on-stage-failure=local");
          const text = body(stream);
          const answered = await post(door, { headers: routed(), body: text });
          expect([answered.status, answered.whole, header(answered, "x-crosspoint-prefilled-by")]).toEqual([200, true, ["local"]]);
          const decodes = await bed.calls(bed.decoder);
          expect([decodes.length, decodes[0]?.aborted, decodes[1]?.body.toString(), decodes[1]?.error]).toEqual([2, true, text, null]);
          expect(chatText(answered.body)).toBe(chatText((await post(door, { body: text })).body));
          expect(answered.body.match(/"role":"assistant"/g)).toHaveLength(1);
        },
        { ours: true },
      );

      row(
        `under local a decode that fails with the hand-off is run without it (stream ${String(stream)})`,
        async () => {
          const door = await bed.sidecar("--on-stage-failure=local");
          const error = 'data: {"error":{"message":"Internal server error","code":500}}\n\ndata: [DONE]\n\n';
          bed.decoder.setScript([stream ? { delay_ms: 50, headers: { "content-type": "text/event-stream" }, chunks: [ROLE, error], gap_ms: 20 } : { delay_ms: 50, status: 500, json: {} }, {}]);
          const text = body(stream);
          const answered = await post(door, { headers: routed(), body: text });
          expect([answered.status, answered.whole, answered.body.includes("error"), header(answered, "x-crosspoint-prefilled-by")]).toEqual([200, true, false, ["local"]]);
          const decodes = await bed.calls(bed.decoder);
          expect([decodes.length, decodes[1]?.body.toString()]).toEqual([2, text]);
        },
        { ours: true },
      );
    }

    row(
      `with retries on, the next candidate prefills, with keys that nobody had (stream ${String(stream)})`,
      async () => {
        const [first, second] = [bed.prefiller, bed.prefillers[1] ?? bed.prefiller];
        first.setScript({ delay_ms: 50, status: 503, json: {} });
        const door = await bed.sidecar("--prefill-max-retries=1", "--prefill-retry-backoff=10s");
        const startedAt = performance.now();
        const answered = await post(door, { headers: bed.routed(first, second), body: body(stream) });
        expect([answered.status, answered.whole, header(answered, "x-crosspoint-prefilled-by")]).toEqual([200, true, [addressOf(second)]]);
        // One that was not asked yet is asked at once.
        expect(performance.now() - startedAt).toBeLessThan(5000);
        const decodes = await bed.calls(bed.decoder);
        expect([decodes.length, decodes[0]?.aborted, decodes[1]?.error, decodes[1]?.handoff?.found]).toEqual([2, true, null, true]);
        const key = /"(?:bootstrap_room|transfer_id|kv_request_id)":"?[^",}]*/g;
        const keys = decodes.flatMap(({ body: sent }) => sent.toString().match(key) ?? []);
        expect([keys.length, new Set(keys).size]).toEqual([2, 2]);
        expect(bed.held()).toBe(0);
      },
      { ours: true },
    );
  }

  row(
    "a client that leaves ends both legs within a second",
    async () => {
      bed.prefiller.setScript({ delay_ms: 5000 });
      const door = await bed.sidecar();
      const { request } = open(door.url, { headers: routed(), body: body(true) });
      await until(() => callsOf(bed.prefiller).length === 1 && callsOf(bed.decoder).length === 1);
      await sleep(30);
      request.destroy();
      await until(() => callsOf(bed.prefiller)[0]?.aborted === true && callsOf(bed.decoder)[0]?.aborted === true, 1000);
      expect(bed.held()).toBe(0);
    },
    { fix: true },
  );

  row(
    "what decode opens with is kept back until prefill has answered, and content never",
    async () => {
      const door = await bed.sidecar();
      const content = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n';
      for (const [prefillMs, gapMs, first] of [
        // Prefill answers between the role and the content, or after the content.
        [300, 900, ROLE],
        [1500, 200, ROLE + content],
      ] as const) {
        bed.prefiller.setScript({ delay_ms: prefillMs, json: {} });
        bed.decoder.setScript({ headers: { "content-type": "text/event-stream" }, chunks: [ROLE, content, "data: [DONE]\n\n"], gap_ms: gapMs });
        const response = await open(door.url, { headers: routed(), body: body(true) }).head;
        expect([prefillMs, callsOf(bed.prefiller).at(-1)?.open]).toEqual([prefillMs, prefillMs > gapMs]);
        const chunks: string[] = [];
        for await (const chunk of response) chunks.push(String(chunk));
        expect([chunks[0], chunks.join("")]).toEqual([first, `${ROLE}${content}data: [DONE]\n\n`]);
      }
      await bed.settled();
    },
    { ours: true },
  );

  row(
    "a prefill that fails once decode gives content changes nothing, and is counted",
    async () => {
      bed.prefiller.setScript({ delay_ms: 200, status: 500, json: {} });
      bed.decoder.setScript({ sse: ["a", "b", "c"], gap_ms: 100 });
      const door = await bed.sidecar();
      const answered = await post(door, { headers: routed(), body: body(true) });
      expect([answered.status, answered.whole, chatText(answered.body)]).toEqual([200, true, "abc"]);
      expect((await bed.calls(bed.decoder))[0]?.aborted).toBe(false);
    },
    { ours: true },
  );

  row(
    "decode's deadline runs from prefill's answer, and ends both",
    async () => {
      const door = await bed.sidecar("--decode-first-byte-timeout=200ms");
      bed.prefiller.setScript({ delay_ms: 400, json: {} });
      bed.decoder.setScript({ delay_ms: 5000, json: {} });
      const startedAt = performance.now();
      const answered = await post(door, { headers: routed(), body: body(false) });
      const took = performance.now() - startedAt;
      expect([answered.status, errorOf(answered).type, took > 550, took < 4000]).toEqual([504, "GatewayTimeout", true, true]);
      expect((await bed.calls(bed.decoder))[0]?.aborted).toBe(true);
    },
    { ours: true },
  );

  row(
    "an engine that is not there is a 503, and prefill is not left running for it",
    async () => {
      bed.prefiller.setScript({ delay_ms: 5000 });
      const door = await bed.sidecar(`--model-server-port=${String(bed.meetingPort === 65_535 ? 65_534 : bed.meetingPort + 1)}`);
      const answered = await post(door, { headers: routed(), body: body(false) });
      expect([answered.status, errorOf(answered).type]).toEqual([503, "ServiceUnavailable"]);
      await until(() => callsOf(bed.prefiller).every(({ aborted }) => aborted), 1000);
    },
    { ours: true },
  );

  row(
    "a decode leg on a kept connection that the engine closed begins again, with keys that nobody had",
    async () => {
      const door = await bed.sidecar();
      await post(door, { headers: routed(), body: body(false) });
      // As an engine does that gave the connection up in the moment in which it was used.
      bed.decoder.setScript([{ tcp: "reset" }, {}]);
      const answered = await post(door, { headers: routed(), body: body(false) });
      expect(answered.status).toBe(200);
      const decodes = await bed.calls(bed.decoder);
      expect([decodes.length, decodes[2]?.handoff?.found, decodes[2]?.error]).toEqual([3, true, null]);
    },
    { ours: true },
  );

  row("C-EC-12: encoders first, then both legs with what they handed over", async () => {
    const door = await bed.sidecar();
    const media = CHAT.body({ messages: [{ role: "user", content: [{ type: "text", text: "What is this? ".repeat(40) }, picture] }] });
    expect((await post(door, { headers: [...routed(), ...bed.encoderHeader()], body: media })).status).toBe(200);
    const [encode, prefill, decode] = [await bed.calls(bed.encoders[0] ?? bed.prefiller), await bed.calls(bed.prefiller), await bed.calls(bed.decoder)];
    expect([encode.length, prefill.length, decode.length]).toEqual([1, 1, 1]);
    expect(prefill[0]?.startedAtMs).toBeGreaterThanOrEqual(encode[0]?.endedAtMs ?? 0);
    expect(decode[0]?.startedAtMs).toBeGreaterThanOrEqual(encode[0]?.endedAtMs ?? 0);
    expect([prefill[0]?.media[0]?.reference, decode[0]?.media[0]?.reference, prefill[0]?.error, decode[0]?.error]).toEqual(["found", "found", null, null]);
  });

  row(
    "no control member of a client reaches an engine",
    async () => {
      const door = await bed.sidecar();
      const hostile = { kv_transfer_params: { remote_host: "10.9.9.9" }, bootstrap_host: "10.9.9.9", bootstrap_room: 7, bootstrap_port: 9, vllm_xargs: { kv_transfer_params: {} } };
      await post(door, { headers: routed(), body: CHAT.body(hostile) });
      for (const record of [...(await bed.calls(bed.prefiller)), ...(await bed.calls(bed.decoder))]) {
        expect(record.body.toString()).not.toMatch(/10\.9\.9\.9|"bootstrap_room":7\b/);
        expect(record.controlMembers.every((name) => !name.startsWith("vllm_xargs"))).toBe(true);
      }
    },
    { ours: true },
  );
});
