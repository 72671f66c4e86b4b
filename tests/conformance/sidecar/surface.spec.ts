/** Paths, bodies and the engine's failures (RT), routing and other headers (HDR), the end of the process (ST), traces (TR). */
import { connect as connectTcp } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { errorOf, open } from "../../../sidecar/testkit/harness.js";
import { until } from "../../../sidecar/testkit/upstream.js";
import { addressOf, callsOf, type Door, headerOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { CHAT, chatText, eventsOf, SHAPES } from "./bodies.js";

const IMAGE = { type: "image_url", image_url: { url: "https://media.example.test/quay.png" } };

describe("surface", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "nixlv2", prefillers: 3, encoders: 1 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  const prefillers = (...indexes: number[]): string => indexes.map((index) => addressOf(bed.prefillers[index] ?? bed.prefiller)).join(",");
  const counts = async (): Promise<number[]> => Promise.all(bed.prefillers.map(async (engine) => (await bed.calls(engine)).length));
  const prefilledBy = (value: string): string[] => ["x-prefiller-host-port", value];

  row("C-RT-01: without routing headers the client's bytes reach the engine, once, on each of the five paths", async () => {
    const door = await bed.sidecar();
    for (const shape of SHAPES) {
      const body = shape.body({ seed: 1.0, vendor: { a: [1e2, "\u00e9"] } }).replace('"seed":1', '"seed" : 1.0');
      expect((await post(door, { target: `${shape.target}?beta=true`, body })).status).toBe(200);
      const call = (await bed.calls(bed.decoder)).at(-1);
      expect([shape.name, call?.path, call?.body.toString()]).toEqual([shape.name, `${shape.target}?beta=true`, body]);
    }
    expect((await bed.calls(bed.decoder)).length).toBe(SHAPES.length);
  });

  for (const secure of [false, true]) {
    row(`C-RT-02: other methods and paths are passed through (TLS ${String(secure)})`, async () => {
      const door = await bed.sidecar(`--secure-proxy=${String(secure)}`);
      // What the engine says, whatever that is: it is the engine that says it.
      for (const [method, target, body] of [["GET", "/v1/models", undefined], ["GET", "/v1/chat/completions", undefined], ["GET", "/v1/messages", undefined], ["GET", "/healthz", undefined], ["POST", "/v1/embeddings", '{"model":"m","input":"quay"}'], ["POST", "/score", '{"model":"m","text_1":"a","text_2":"b"}']] as const) {
        const before = bed.decoder.records().length;
        await post(door, { method, target, ...(body === undefined ? {} : { body }) });
        const seen = bed.decoder.records().slice(before).at(-1);
        expect([seen?.method, seen?.path, seen?.body.toString()]).toEqual([method, target, body ?? ""]);
      }
      expect((await post(door, { method: "GET", target: "/v1/models" })).status).toBe(200);
    });
  }

  row("C-RT-03: GET and HEAD /health are answered without the engine", async () => {
    const door = await bed.sidecar();
    const before = bed.decoder.records().length;
    for (const method of ["GET", "HEAD"]) {
      const answered = await post(door, { method, target: "/health" });
      expect([answered.status, answered.body]).toEqual([200, ""]);
    }
    expect(bed.decoder.records().length).toBe(before);
  });

  row("C-RT-04: a prefill header on another method or path calls no prefiller", async () => {
    const door = await bed.sidecar();
    await post(door, { method: "GET", target: "/v1/models", headers: bed.routed(bed.prefiller) });
    await post(door, { target: "/v1/embeddings", headers: bed.routed(bed.prefiller), body: '{"model":"m","input":"quay"}' });
    expect(await counts()).toEqual([0, 0, 0]);
    expect((await bed.calls(bed.decoder)).length).toBeGreaterThan(0);
  });

  row(
    "C-RT-05: a body that cannot be read reaches no engine",
    async () => {
      const door = await bed.sidecar();
      for (const shape of SHAPES) {
        const answered = await post(door, { target: shape.target, body: '{"model":"m",' });
        expect([answered.status, errorOf(answered).type]).toEqual([400, "BadRequestError"]);
      }
      expect((await bed.calls(bed.decoder)).length).toBe(0);
    },
    { fix: true },
  );

  row("C-RT-06: nor does it with a prefill header", async () => {
    const door = await bed.sidecar();
    const answered = await post(door, { headers: bed.routed(bed.prefiller), body: '{"model":"m",' });
    expect([answered.status, answered.body.includes("BadRequestError"), await counts(), (await bed.calls(bed.decoder)).length]).toEqual([400, true, [0, 0, 0], 0]);
  });

  row(
    "C-RT-07: a body that is no object is a 400, and the process serves on",
    async () => {
      const door = await bed.sidecar();
      for (const body of ["null", "[]", "3"]) {
        const answered = await post(door, { headers: bed.routed(bed.prefiller), body });
        expect([body, answered.status, errorOf(answered).type]).toEqual([body, 400, "BadRequestError"]);
      }
      expect((await post(door, { body: CHAT.body() })).status).toBe(200);
      expect(await counts()).toEqual([0, 0, 0]);
    },
    { fix: true },
  );

  row("C-RT-08: an engine that refuses connections is a 503", async () => {
    const door = await bed.sidecar();
    bed.decoder.setScript({ tcp: "refused" });
    await sleep(50);
    const answered = await post(door, { body: CHAT.body() });
    expect([answered.status, answered.body.includes("ServiceUnavailable")]).toEqual([503, true]);
  });

  row("C-RT-09: an engine that closes without an answer is a 502", async () => {
    const door = await bed.sidecar();
    bed.decoder.setScript({ tcp: "reset" });
    const answered = await post(door, { body: CHAT.body() });
    expect([answered.status, answered.body.includes("BadGateway")]).toEqual([502, true]);
  });

  row("C-RT-10: a stream that breaks is cut without a clean end", async () => {
    const door = await bed.sidecar();
    bed.decoder.setScript({ headers: { "content-type": "text/event-stream" }, chunks: ["data: 1\n\n"], then: "reset" });
    const answered = await post(door, { body: CHAT.body({ stream: true }) });
    expect([answered.status, answered.body, answered.whole]).toEqual([200, "data: 1\n\n", false]);
  });

  row("C-RT-11: events arrive one by one", async () => {
    const door = await bed.sidecar();
    bed.decoder.setScript({ headers: { "content-type": "text/event-stream" }, chunks: ["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"], gap_ms: 250 });
    const response = await open(door.url, { body: CHAT.body({ stream: true }) }).head;
    const at: number[] = [];
    const seen: string[] = [];
    response.on("data", (chunk: Buffer) => {
      at.push(performance.now());
      seen.push(chunk.toString());
    });
    await new Promise((resolve) => response.once("end", resolve));
    expect(seen).toEqual(["data: 1\n\n", "data: 2\n\n", "data: 3\n\n"]);
    expect(at.slice(1).every((ms, index) => ms - (at[index] ?? 0) > 100)).toBe(true);
  });

  row("C-RT-12: a header block of more than a mebibyte is a 431", async () => {
    const door = await bed.sidecar();
    const status = await new Promise<string>((resolve) => {
      const socket = connectTcp(door.port, "127.0.0.1", () => {
        socket.write("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n");
        for (let line = 0; line < 110; line++) socket.write(`x-${String(line)}: ${"a".repeat(10_000)}\r\n`);
        socket.write("content-length: 2\r\n\r\n{}");
      });
      let text = "";
      socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
      socket.on("error", () => undefined);
      socket.on("close", () => {
        resolve(text.split(" ")[1] ?? "");
      });
      setTimeout(() => socket.destroy(), 5000).unref();
    });
    expect(status).toBe("431");
  });

  row("C-HDR-01: an absent, empty or quoted-empty prefill header is decode alone", async () => {
    const door = await bed.sidecar();
    for (const headers of [[], prefilledBy(""), prefilledBy('""'), prefilledBy('"",""')].slice(0, 4)) expect((await post(door, { headers, body: CHAT.body() })).status).toBe(200);
    expect([await counts(), (await bed.calls(bed.decoder)).length]).toEqual([[0, 0, 0], 4]);
  });

  row("C-HDR-02: without sampling the first candidate prefills", async () => {
    const door = await bed.sidecar();
    for (let round = 0; round < 4; round++) expect((await post(door, { headers: prefilledBy(prefillers(0, 1)), body: CHAT.body() })).status).toBe(200);
    expect(await counts()).toEqual([4, 0, 0]);
  });

  /** Until each of the candidates was asked: with uniform sampling 40 requests leave one of three out once in ten million runs. */
  async function sampled(door: Door, headers: readonly string[], rounds = 40): Promise<number[]> {
    for (let round = 0; round < rounds; round++) expect((await post(door, { headers, body: CHAT.body() })).status).toBe(200);
    return counts();
  }

  row("C-HDR-03: with sampling all candidates of a line prefill, trimmed", async () => {
    const [first, second, third] = await sampled(await bed.sidecar("--enable-prefiller-sampling"), prefilledBy(` ${prefillers(0)} , ${prefillers(1)}`));
    expect([(first ?? 0) > 0, (second ?? 0) > 0, third]).toEqual([true, true, 0]);
  });

  row("C-HDR-04: so do those of two lines", async () => {
    const [first, second, third] = await sampled(await bed.sidecar("--enable-prefiller-sampling"), [...prefilledBy(prefillers(0)), ...prefilledBy(prefillers(1))]);
    expect([(first ?? 0) > 0, (second ?? 0) > 0, third]).toEqual([true, true, 0]);
  });

  row("C-HDR-05: a candidate that stands there twice is one", async () => {
    expect(await sampled(await bed.sidecar("--enable-prefiller-sampling"), prefilledBy(prefillers(0, 0)), 5)).toEqual([5, 0, 0]);
  });

  row("C-HDR-06: routing headers are on no leg", async () => {
    const door = await bed.sidecar();
    const headers = [...prefilledBy(prefillers(0)), ...bed.encoderHeader(), "x-kv-cache-source-host-port", "10.9.9.9:8000"];
    expect((await post(door, { headers, body: CHAT.body({ messages: [{ role: "user", content: [IMAGE] }] }) })).status).toBe(200);
    for (const engine of [bed.prefiller, bed.decoder, bed.encoder]) {
      const [call] = await bed.calls(engine);
      for (const name of ["x-prefiller-host-port", "x-encoder-hosts-ports", "x-kv-cache-source-host-port"]) expect([engine.role, name, headerOf(call, name)]).toEqual([engine.role, name, []]);
    }
  });

  row("C-HDR-07: http:// before a candidate is tolerated", async () => {
    const door = await bed.sidecar();
    expect([(await post(door, { headers: prefilledBy(`http://${prefillers(0)}`), body: CHAT.body() })).status, await counts()]).toEqual([200, [1, 0, 0]]);
  });

  row(
    "C-HDR-08: the candidates of all lines and lists count, empty ones do not",
    async () => {
      const counted = await sampled(await bed.sidecar("--enable-prefiller-sampling"), [...prefilledBy(`${prefillers(0)},,${prefillers(1)}`), ...prefilledBy(`,${prefillers(2)}`)], 60);
      expect(counted.every((count) => count > 0)).toBe(true);
    },
    { fix: true },
  );

  row(
    "C-HDR-09: each leg has exactly one x-request-id, the client's or one that begins with it",
    async () => {
      const door = await bed.sidecar();
      const headers = [...prefilledBy(prefillers(0)), ...bed.encoderHeader(), "x-request-id", "job-1"];
      await post(door, { headers, body: CHAT.body({ messages: [{ role: "user", content: [IMAGE] }] }) });
      for (const engine of [bed.prefiller, bed.decoder, bed.encoder]) {
        const ids = headerOf((await bed.calls(engine))[0], "x-request-id");
        expect([engine.role, ids.length, ids[0]?.startsWith("job-1")]).toEqual([engine.role, 1, true]);
      }
    },
    { fix: true },
  );

  row("C-HDR-10: hop-by-hop headers and those that Connection names end here; the peer is appended to X-Forwarded-For", async () => {
    const door = await bed.sidecar();
    await post(door, { headers: [...prefilledBy(prefillers(0)), "connection", "x-foo", "x-foo", "1", "keep-alive", "timeout=5", "proxy-authorization", "x", "te", "gzip", "x-forwarded-for", "10.1.1.1", "x-kept", "2"], body: CHAT.body() });
    for (const engine of [bed.prefiller, bed.decoder]) {
      const [call] = await bed.calls(engine);
      for (const name of ["x-foo", "keep-alive", "proxy-authorization", "te"]) expect([name, headerOf(call, name)]).toEqual([name, []]);
      expect([headerOf(call, "x-forwarded-for"), headerOf(call, "x-kept")]).toEqual([["10.1.1.1, 127.0.0.1"], ["2"]]);
    }
  });

  row(
    "C-ST-01: TERM with an open stream: the stream ends whole, then the process with 0",
    async () => {
      const door = await bed.sidecar();
      bed.decoder.setScript({ headers: { "content-type": "text/event-stream" }, chunks: ["data: 1\n\n", "data: [DONE]\n\n"], gap_ms: 500 });
      const streamed = post(door, { body: CHAT.body({ stream: true }) });
      await until(() => callsOf(bed.decoder).length === 1);
      await sleep(50);
      const ended = door.terminate();
      expect(await streamed).toMatchObject({ status: 200, body: "data: 1\n\ndata: [DONE]\n\n", whole: true });
      expect(await ended).toBe(0);
    },
    { fix: true },
  );

  row("C-TR-01: with tracing on every leg is in the client's trace", async () => {
    const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    const door = await bed.launch(["--tracing"], { OTEL_TRACES_EXPORTER: "console" });
    if ("code" in door) throw new Error(door.text);
    const headers = [...prefilledBy(prefillers(0)), ...bed.encoderHeader(), "traceparent", `00-${trace}-00f067aa0ba902b7-00`];
    expect((await post(door, { headers, body: CHAT.body({ messages: [{ role: "user", content: [IMAGE] }] }) })).status).toBe(200);
    const parents = await Promise.all([bed.prefiller, bed.decoder, bed.encoder].map(async (engine) => headerOf((await bed.calls(engine))[0], "traceparent")));
    for (const parent of parents) expect(parent.map((value) => value.split("-")[1])).toEqual([trace]);
    // A span of its own each.
    expect(new Set(parents.map(([value]) => value?.split("-")[2])).size).toBe(3);
  });

  row("an answer is whole, streamed or not", async () => {
    const door = await bed.sidecar();
    const whole = await post(door, { body: CHAT.body() });
    const streamed = await post(door, { body: CHAT.body({ stream: true }) });
    expect([whole.status, streamed.status, chatText(whole.body).length > 0, chatText(streamed.body).length > 0, streamed.body.endsWith("data: [DONE]\n\n"), eventsOf(streamed.body).length > 2]).toEqual([200, 200, true, true, true, true]);
    expect(jsonOf((await bed.calls(bed.decoder))[1])["stream"]).toBe(true);
  });
});
