import { createServer as createHttp2Server } from "node:http2";
import type { AddressInfo } from "node:net";
import { InMemorySpanExporter, type ReadableSpan } from "@opentelemetry/sdk-trace-base";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Sidecar } from "../server.js";
import { ask, header, startTestSidecar } from "../testkit/harness.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";
import { startTracing } from "./otel.js";

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = `00-${TRACE}-00f067aa0ba902b7-01`;
const IMAGES = '{"messages":[{"content":[{"type":"image_url","image_url":{"url":"u"}},{"type":"image_url","image_url":{"url":"v"}}]}],"stream":true}';
const silent = pino({ level: "silent" });

describe("tracing", () => {
  let engine: TestUpstream;
  let prefiller: TestUpstream;
  let encoder: TestUpstream;
  let sidecar: Sidecar | null = null;
  let exporter: InMemorySpanExporter;

  beforeEach(async () => {
    engine = await TestUpstream.start((_, response) => {
      sendJson(response, "{}");
    });
    prefiller = await TestUpstream.start((_, response) => {
      sendJson(response, '{"kv_transfer_params":{"a":1}}');
    });
    encoder = await TestUpstream.start();
  });
  afterEach(async () => {
    await Promise.all([sidecar?.close(), engine.close(), prefiller.close(), encoder.close()]);
    sidecar = null;
  });

  async function start(env: Record<string, string> = {}, ...flags: string[]): Promise<string> {
    exporter = new InMemorySpanExporter();
    sidecar = await startTestSidecar(engine, ["--ec-connector=ec-example", ...flags], {}, [], await startTracing(env, silent, exporter));
    return sidecar.url;
  }

  /** Ends the sidecar, which sends what it has. */
  async function spans(): Promise<ReadableSpan[]> {
    const kept: ReadableSpan[] = [];
    exporter.shutdown = () => {
      kept.push(...exporter.getFinishedSpans());
      return Promise.resolve();
    };
    await sidecar?.close();
    sidecar = null;
    return kept;
  }

  const headers = (...more: string[]): string[] => ["x-prefiller-host-port", prefiller.authority, "x-encoder-hosts-ports", encoder.authority, "x-request-id", "r-1", ...more];
  const sent = (upstream: TestUpstream, name: string, call = 0): string[] => header({ rawHeaders: upstream.received[call]?.rawHeaders ?? [] }, name);

  it("C-TR-01: every leg has a span of its own in the client's trace", async () => {
    const url = await start();
    expect((await ask(url, { headers: headers("traceparent", PARENT, "tracestate", "a=b", "baggage", "tenant=x"), body: IMAGES })).status).toBe(200);
    const all = await spans();
    const server = all.find(({ name }) => name === "llm_d.pd_proxy.POST /v1/chat/completions");
    expect(all.map(({ name }) => name).sort()).toEqual(["llm_d.ec_proxy.encode", "llm_d.ec_proxy.encode", "llm_d.pd_proxy.POST /v1/chat/completions", "llm_d.pd_proxy.decode", "llm_d.pd_proxy.prefill"]);
    expect([server?.spanContext().traceId, server?.parentSpanContext?.spanId]).toEqual([TRACE, "00f067aa0ba902b7"]);
    const legs = all.filter((span) => span !== server);
    for (const leg of legs) expect([leg.spanContext().traceId, leg.parentSpanContext?.spanId]).toEqual([TRACE, server?.spanContext().spanId]);
    const seen = [sent(encoder, "traceparent"), sent(encoder, "traceparent", 1), sent(prefiller, "traceparent"), sent(engine, "traceparent")];
    expect(seen.map((values) => values[0]).sort()).toEqual(legs.map((leg) => `00-${TRACE}-${leg.spanContext().spanId}-01`).sort());
    for (const upstream of [encoder, prefiller, engine]) expect([sent(upstream, "traceparent").length, sent(upstream, "tracestate"), sent(upstream, "baggage")]).toEqual([1, ["a=b"], ["tenant=x"]]);
    expect(server?.attributes).toMatchObject({
      "llm_d.pd_proxy.connector": "nixlv2",
      "llm_d.pd_proxy.disaggregation_used": true,
      "llm_d.pd_proxy.prefill_target": prefiller.authority,
      "llm_d.pd_proxy.prefill_candidates": 1,
      "llm_d.pd_proxy.request_path": "/v1/chat/completions",
      "llm_d.pd_proxy.request_id": "r-1",
      "llm_d.pd_proxy.decode.streaming": true,
      "llm_d.ec_proxy.encode_disaggregation_used": true,
      "llm_d.ec_proxy.encoder_allowed": 1,
      "llm_d.openai.api": "chat",
      "http.response.status_code": 200,
    });
    expect(server?.attributes["llm_d.pd_proxy.true_ttft_ms"]).toBeGreaterThan(0);
    const prefill = all.find(({ name }) => name === "llm_d.pd_proxy.prefill");
    expect(prefill?.attributes).toMatchObject({ "server.address": "127.0.0.1", "server.port": prefiller.port, "llm_d.pd_proxy.prefill.status_code": 200 });
    expect(prefill?.events.map(({ name }) => name)).toEqual(["first_byte"]);
  });

  it("what failed is told in its span and in the request's", async () => {
    const url = await start({ OTEL_TRACES_SAMPLER: "always_on" });
    const port = await TestUpstream.refusedPort();
    await ask(url, { headers: ["x-prefiller-host-port", `127.0.0.1:${String(port)}`], body: "{}" });
    const all = await spans();
    expect(all.map(({ name, status, attributes }) => [name, status.code, attributes["error.type"]])).toEqual([
      ["llm_d.pd_proxy.prefill", 2, "refused"],
      ["llm_d.pd_proxy.POST /v1/chat/completions", 2, undefined],
    ]);
    expect(all[1]?.attributes).toMatchObject({ "http.response.status_code": 502, "llm_d.pd_proxy.error": "prefill failed: it refuses connections" });
  });

  it("a trace that is not marked is not sent, and stays one trace", async () => {
    const url = await start();
    await ask(url, { headers: headers("traceparent", `00-${TRACE}-00f067aa0ba902b7-00`), body: "{}" });
    expect(await spans()).toEqual([]);
    for (const upstream of [prefiller, engine]) expect(sent(upstream, "traceparent")[0]).toMatch(new RegExp(`^00-${TRACE}-[0-9a-f]{16}-00$`));
  });

  it("begins a tenth of the traces by itself, or as many as it is told to", async () => {
    for (const [arg, low, high] of [[undefined, 2, 45], ["1", 200, 200], ["0", 0, 0]] as const) {
      const url = await start(arg === undefined ? {} : { OTEL_TRACES_SAMPLER_ARG: arg });
      for (let index = 0; index < 200; index++) await ask(url, { method: "GET", target: "/v1/models" });
      const begun = (await spans()).filter(({ name }) => name === "llm_d.pd_proxy.GET /v1/models").length;
      expect([arg, begun >= low, begun <= high]).toEqual([arg, true, true]);
    }
  });

  it("switched off, what the client says of its trace passes through", async () => {
    sidecar = await startTestSidecar(engine);
    await ask(sidecar.url, { headers: headers("traceparent", PARENT), body: "{}" });
    expect([sent(prefiller, "traceparent"), sent(engine, "traceparent")]).toEqual([[PARENT], [PARENT]]);
  });

  it("health and readiness are not traced", async () => {
    const url = await start({ OTEL_TRACES_SAMPLER: "always_on" });
    for (const target of ["/health", "/ready"]) await ask(url, { method: "GET", target });
    expect(await spans()).toEqual([]);
  });

  it("sends by OTLP over HTTP, under the reference's service name or the one that the environment gives", async () => {
    const collector = await TestUpstream.start((_, response) => {
      response.writeHead(200, { "content-type": "application/x-protobuf" }).end();
    });
    const before = { ...process.env };
    try {
      process.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = `http://${collector.authority}`;
      for (const name of ["llm-d-disagg-sidecar", "mine"]) {
        if (name === "mine") process.env["OTEL_SERVICE_NAME"] = name;
        const tracing = await startTracing({ OTEL_TRACES_EXPORTER: "otlp", OTEL_EXPORTER_OTLP_PROTOCOL: "http/protobuf", OTEL_TRACES_SAMPLER_ARG: "1" }, silent);
        sidecar = await startTestSidecar(engine, [], {}, [], tracing);
        await ask(sidecar.url, { headers: headers(), body: "{}" });
        await sidecar.close();
        sidecar = null;
        const call = collector.received.at(-1);
        expect([call?.target, call?.body.includes(name), call?.body.includes("llm_d.pd_proxy.prefill")]).toEqual(["/v1/traces", true, true]);
      }
    } finally {
      process.env = before;
      await collector.close();
    }
  });

  it("sends by OTLP over gRPC", async () => {
    let received = Buffer.alloc(0);
    const collector = createHttp2Server();
    collector.on("stream", (stream, requestHeaders) => {
      stream.on("data", (chunk: Buffer) => (received = Buffer.concat([received, chunk])));
      stream.once("end", () => {
        received = Buffer.concat([Buffer.from(String(requestHeaders[":path"])), received]);
        stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
        stream.on("wantTrailers", () => {
          stream.sendTrailers({ "grpc-status": "0" });
        });
        stream.end(Buffer.alloc(5));
      });
    });
    await new Promise<void>((resolve) => collector.listen(0, "127.0.0.1", resolve));
    const before = { ...process.env };
    try {
      process.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = `http://127.0.0.1:${String((collector.address() as AddressInfo).port)}`;
      const tracing = await startTracing({ OTEL_TRACES_EXPORTER: "otlp", OTEL_TRACES_SAMPLER: "parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG: "1.0" }, silent);
      sidecar = await startTestSidecar(engine, [], {}, [], tracing);
      await ask(sidecar.url, { body: "{}" });
      await sidecar.close();
      sidecar = null;
      await until(() => received.includes("llm_d.pd_proxy.decode"));
      expect(received.includes("/opentelemetry.proto.collector.trace.v1.TraceService/Export")).toBe(true);
    } finally {
      process.env = before;
      collector.close();
    }
  });

  it("names what it cannot follow", async () => {
    await expect(startTracing({ OTEL_TRACES_EXPORTER: "zipkin" }, silent)).rejects.toThrow('OTEL_TRACES_EXPORTER: "zipkin" is not console, otlp or none');
    await expect(startTracing({ OTEL_TRACES_EXPORTER: "otlp", OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" }, silent)).rejects.toThrow("OTEL_EXPORTER_OTLP_PROTOCOL");
  });
});
