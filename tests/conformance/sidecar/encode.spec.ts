/** The encode stage (EC), and who may be named in a routing header at all (SR). */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { errorOf, open } from "../../../sidecar/testkit/harness.js";
import { TestUpstream, until } from "../../../sidecar/testkit/upstream.js";
import type { Engine, EngineRecord, ScriptEntry } from "../../engine/index.js";
import { addressOf, callsOf, headerOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { at, CHAT } from "./bodies.js";

let fresh = 0;
const unique = (): string => `https://media.example.test/${String(fresh++)}.png`;
const image = (url = unique()): Record<string, unknown> => ({ type: "image_url", image_url: { url } });
const chat = (...parts: Record<string, unknown>[]): string => CHAT.body({ messages: [{ role: "system", content: "s" }, { role: "user", content: [{ type: "text", text: "what is that" }, ...parts] }] });
const handed = (params: unknown): ScriptEntry => ({ json: { choices: [], ec_transfer_params: params } });

describe("encode stage", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "nixlv2", encoders: 2 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  const [first, second] = [(): Engine => bed.encoder, (): Engine => bed.encoders[1] ?? bed.encoder];
  /** In order of their start. */
  const encoded = async (): Promise<EngineRecord[]> => [...(await bed.calls(first())), ...(await bed.calls(second()))].sort((a, b) => a.startedAtMs - b.startedAtMs);
  const part = (record: EngineRecord | undefined): unknown => at(record?.json, ["messages", "0", "content", "0"]);
  const decoded = async (): Promise<Record<string, unknown>> => jsonOf((await bed.calls(bed.decoder))[0]);
  const onlyFirst = (): string[] => ["x-encoder-hosts-ports", addressOf(first())];

  row("C-EC-01: text alone calls no encoder", async () => {
    const door = await bed.sidecar();
    expect((await post(door, { headers: bed.encoderHeader(), body: CHAT.body() })).status).toBe(200);
    expect([(await encoded()).length, (await bed.calls(bed.decoder)).length]).toEqual([0, 1]);
  });

  row("C-EC-02: images, audio and video are encoded, each by itself, and nothing else", async () => {
    const door = await bed.sidecar();
    const parts = [image(), { type: "audio_url", audio_url: { url: unique() } }, { type: "video_url", video_url: { url: unique() } }, { type: "input_audio", input_audio: { data: "UklGRg==", format: "wav" } }];
    first().setScript(handed({ h: { peer_port: 1 } }));
    bed.decoder.setScript({ json: {} });
    expect((await post(door, { headers: onlyFirst(), body: chat(...parts) })).status).toBe(200);
    const seen = (await encoded()).map((record) => JSON.stringify(part(record))).sort();
    expect(seen).toEqual(parts.map((one) => JSON.stringify(one)).sort());
  });

  row("C-EC-03: an image that stands there twice is encoded once, inline audio each time", async () => {
    const door = await bed.sidecar();
    const picture = image();
    const audio = { type: "input_audio", input_audio: { data: "UklGRg==", format: "wav" } };
    first().setScript(handed(null));
    bed.decoder.setScript({ json: {} });
    await post(door, { headers: onlyFirst(), body: chat(picture, picture, audio, audio) });
    expect((await encoded()).map((record) => String(at(part(record), ["type"]))).sort()).toEqual(["image_url", "input_audio", "input_audio"]);
  });

  row("C-EC-04: an encoder gets one user message with one item, capped to one token", async () => {
    const door = await bed.sidecar();
    const picture = image();
    first().setScript(handed(null));
    bed.decoder.setScript({ json: {} });
    const body = JSON.parse(chat(picture)) as Record<string, unknown>;
    await post(door, { headers: onlyFirst(), body: JSON.stringify({ ...body, stream: true }) });
    await post(door, { headers: onlyFirst(), body: JSON.stringify({ ...body, max_completion_tokens: 9 }) });
    const [without, capped] = (await encoded()).map(jsonOf);
    expect([without?.["messages"], without?.["max_tokens"], without?.["stream"], without?.["model"]]).toEqual([[{ role: "user", content: [picture] }], 1, false, "m"]);
    expect([without?.["max_completion_tokens"], capped?.["max_completion_tokens"]]).toEqual([undefined, 1]);
    expect((await encoded()).map(({ path }) => path)).toEqual(["/v1/chat/completions", "/v1/chat/completions"]);
  });

  row("C-EC-05: items go to the encoders in turn, each under an id of its own", async () => {
    const door = await bed.sidecar();
    const urls = [unique(), unique(), unique()];
    expect((await post(door, { headers: bed.encoderHeader(), body: chat(...urls.map((url) => image(url))) })).status).toBe(200);
    const of = async (engine: Engine): Promise<unknown[]> => (await bed.calls(engine)).map((record) => at(part(record), ["image_url", "url"])).sort();
    expect([await of(first()), await of(second())]).toEqual([[urls[0], urls[2]].sort(), [urls[1]]]);
    const ids = (await encoded()).map((record) => headerOf(record, "x-request-id")[0] ?? "").sort();
    const [start] = (ids[0] ?? "").split("-enc-");
    expect(ids).toEqual([0, 1, 2].map((index) => `${start ?? ""}-enc-${String(index)}`));
  });

  row("C-EC-06: what the encoders hand over reaches the engine as one map", async () => {
    const door = await bed.sidecar();
    first().setScript(handed({ "hash-1": { peer_host: "10.0.0.3", peer_port: 5500 } }));
    second().setScript(handed({ "hash-2": { peer_host: "10.0.0.4", peer_port: 5500 } }));
    bed.decoder.setScript({ json: {} });
    await post(door, { headers: bed.encoderHeader(), body: chat(image(), image()) });
    expect((await decoded())["ec_transfer_params"]).toEqual({ "hash-1": { peer_host: "10.0.0.3", peer_port: 5500 }, "hash-2": { peer_host: "10.0.0.4", peer_port: 5500 } });
  });

  row("C-EC-07: with nothing handed over there is no member, with some of it what there is", async () => {
    const door = await bed.sidecar();
    bed.decoder.setScript({ json: {} });
    first().setScript(handed(null));
    second().setScript({ json: {} });
    expect((await post(door, { headers: bed.encoderHeader(), body: chat(image(), image()) })).status).toBe(200);
    expect(await decoded()).not.toHaveProperty("ec_transfer_params");
    second().setScript(handed({ "hash-2": { peer_port: 1 } }));
    expect((await post(door, { headers: bed.encoderHeader(), body: chat(image(), image()) })).status).toBe(200);
    expect(jsonOf((await bed.calls(bed.decoder))[1])["ec_transfer_params"]).toEqual({ "hash-2": { peer_port: 1 } });
  });

  row("C-EC-08: the first failure is a 502 at once, and ends the others", async () => {
    const door = await bed.sidecar();
    first().setScript({ status: 500, json: {} });
    second().setScript({ delay_ms: 10_000 });
    const startedAt = performance.now();
    const answered = await post(door, { headers: bed.encoderHeader(), body: chat(image(), image()) });
    expect([answered.status, performance.now() - startedAt < 5000, answered.body.includes("BadGateway")]).toEqual([502, true, true]);
    await until(() => callsOf(second()).every(({ aborted }) => aborted));
    expect((await bed.calls(bed.decoder)).length).toBe(0);
  });

  row("C-EC-09: a client that leaves ends the encoders' calls", async () => {
    const door = await bed.sidecar();
    for (const encoder of bed.encoders) encoder.setScript({ delay_ms: 10_000 });
    const { request } = open(door.url, { headers: bed.encoderHeader(), body: chat(image(), image()) });
    await until(() => bed.encoders.every((encoder) => callsOf(encoder).length === 1));
    request.destroy();
    await until(() => bed.encoders.every((encoder) => callsOf(encoder)[0]?.aborted === true));
  });

  row("C-EC-10: each item that failed has its line in the log", async () => {
    const door = await bed.sidecar("--on-stage-failure=local");
    for (const encoder of bed.encoders) encoder.setScript({ status: 500, json: {} });
    bed.decoder.setScript({ json: {} });
    await post(door, { headers: bed.encoderHeader(), body: chat(image(), image(), image()) });
    await until(() => [0, 1, 2].every((item) => door.log().includes(`"item":${String(item)},`)));
    expect(door.log().split("\n").filter((line) => line.includes('"encode failed"')).length).toBe(3);
  }, { ours: true });

  row("C-EC-11: without a prefiller the engine gets them directly, C-EC-12: with one both later legs do, in order", async () => {
    const door = await bed.sidecar();
    expect((await post(door, { headers: bed.encoderHeader(), body: chat(image()) })).status).toBe(200);
    const [alone] = await bed.calls(bed.decoder);
    expect([alone?.media.map(({ source, reference }) => [source, reference]), (await bed.calls(bed.prefiller)).length]).toEqual([[["reference", "found"]], 0]);
    expect((await post(door, { headers: [...bed.encoderHeader(), ...bed.routed(bed.prefiller)], body: chat(image(), image()) })).status).toBe(200);
    const [prefill] = await bed.calls(bed.prefiller);
    const decode = (await bed.calls(bed.decoder))[1];
    const encodes = (await encoded()).slice(-2);
    expect(encodes.every((record) => (record.endedAtMs ?? Infinity) <= (prefill?.startedAtMs ?? 0))).toBe(true);
    expect((prefill?.endedAtMs ?? Infinity) <= (decode?.startedAtMs ?? 0)).toBe(true);
    expect(jsonOf(prefill)["ec_transfer_params"]).toEqual(jsonOf(decode)["ec_transfer_params"]);
    expect(Object.keys((jsonOf(decode)["ec_transfer_params"] ?? {}) as object)).toHaveLength(2);
  });

  row("C-EC-14: without an EC connector the header means nothing", async () => {
    const door = await bed.sidecar("--ec-connector=");
    expect((await post(door, { headers: [...bed.encoderHeader(), ...bed.routed(bed.prefiller)], body: chat(image()) })).status).toBe(200);
    expect((await post(door, { headers: bed.encoderHeader(), body: chat(image()) })).status).toBe(200);
    expect([(await encoded()).length, (await bed.calls(bed.prefiller)).length, (await bed.calls(bed.decoder)).length]).toEqual([0, 1, 2]);
  });

  row(
    "C-EC-15: an encoder that breaks its answer off is a 502, and the process serves on",
    async () => {
      const door = await bed.sidecar();
      first().setScript({ headers: { "content-type": "application/json" }, chunks: ['{"choices":['], then: "reset" });
      expect((await post(door, { headers: onlyFirst(), body: chat(image()) })).status).toBe(502);
      expect((await post(door, { body: CHAT.body() })).status).toBe(200);
    },
    { fix: true },
  );

  row(
    "C-EC-17: an empty header is an absent one",
    async () => {
      const door = await bed.sidecar();
      expect((await post(door, { headers: ["x-encoder-hosts-ports", ""], body: chat(image()) })).status).toBe(200);
      expect((await encoded()).length).toBe(0);
    },
    { fix: true },
  );

  describe("who may be named", () => {
    let folder: string;
    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), "conformance-allow-"));
    });
    afterAll(() => {
      rmSync(folder, { recursive: true, force: true });
    });

    const allow = (...entries: string[]): string => {
      const path = join(folder, `${String(fresh++)}.txt`);
      writeFileSync(path, entries.join("\n"));
      return `--allow-endpoints=${path}`;
    };

    row("C-SR-01: with the allowlist off everybody may be", async () => {
      const door = await bed.sidecar();
      expect((await post(door, { headers: bed.routed(bed.prefiller), body: CHAT.body() })).status).toBe(200);
    });

    row(
      "C-SR-02: with it on a host of the list on its ports, C-SR-03: and nobody else, before any leg",
      async () => {
        const stranger = await TestUpstream.start();
        const door = await bed.sidecar(allow(addressOf(bed.prefiller), `localhost:${String(bed.prefiller.port)}`));
        expect((await post(door, { headers: bed.routed(bed.prefiller), body: CHAT.body() })).status).toBe(200);
        expect((await post(door, { headers: ["x-prefiller-host-port", `localhost:${String(bed.prefiller.port)}`], body: CHAT.body() })).status).toBe(200);
        const before = (await bed.calls(bed.decoder)).length;
        for (const entry of [stranger.authority, `localhost:${String(stranger.port)}`, "10.1.2.3:8000"]) {
          const denied = await post(door, { headers: ["x-prefiller-host-port", entry], body: CHAT.body() });
          expect([entry, denied.status, errorOf(denied).type]).toEqual([entry, 403, "ForbiddenError"]);
        }
        expect([stranger.received.length, (await bed.calls(bed.decoder)).length]).toEqual([0, before]);
        await stranger.close();
      },
      { ours: true },
    );

    row(
      "C-EC-13: encoders that are not of the list are left out; where none is left the request is P/D or decode alone",
      async () => {
        const door = await bed.sidecar(allow(addressOf(first()), addressOf(bed.prefiller)));
        expect((await post(door, { headers: bed.encoderHeader(), body: chat(image(), image()) })).status).toBe(200);
        expect([(await bed.calls(first())).length, (await bed.calls(second())).length]).toEqual([2, 0]);
        const none = await bed.sidecar(allow(addressOf(bed.prefiller)));
        for (const more of [bed.routed(bed.prefiller), []]) expect((await post(none, { headers: [...bed.encoderHeader(), ...more], body: chat(image()) })).status).toBe(200);
        expect([(await encoded()).length, (await bed.calls(bed.prefiller)).length, (await bed.calls(bed.decoder)).length]).toEqual([2, 1, 3]);
      },
      { ours: true },
    );
  });
});
