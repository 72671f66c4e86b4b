import { type Context, diag, DiagLogLevel, ROOT_CONTEXT, type Span, SpanKind, SpanStatusCode, type TextMapGetter, type TextMapSetter, trace, type Tracer } from "@opentelemetry/api";
import { CompositePropagator, W3CBaggagePropagator, W3CTraceContextPropagator } from "@opentelemetry/core";
import { detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import { BasicTracerProvider, BatchSpanProcessor, ConsoleSpanExporter, ParentBasedSampler, type SpanExporter, TraceIdRatioBasedSampler } from "@opentelemetry/sdk-trace-base";
import { type FlatHeaders, valuesOf } from "../headers.js";
import type { Logger } from "../log.js";
import type { Stage } from "../metrics.js";
import type { Attributes, LegTrace, RequestTrace, Tracing } from "./trace.js";

type Environment = Readonly<Record<string, string | undefined>>;

/** Names and defaults are the reference's (sidecar §8.2). */
const SERVICE_NAME = "llm-d-disagg-sidecar";
const DEFAULT_RATIO = 0.1;
const CLOSE_MS = 3000;

/** Also what the names of a leg's attributes begin with. */
const SPAN_NAMES: Readonly<Record<Stage, string>> = {
  encode: "llm_d.ec_proxy.encode",
  prefill: "llm_d.pd_proxy.prefill",
  decode: "llm_d.pd_proxy.decode",
  bootstrap: "llm_d.pd_proxy.bootstrap",
  pass_through: "llm_d.pd_proxy.forward",
};
const PROPAGATED = ["traceparent", "tracestate", "baggage"];
const propagator = new CompositePropagator({ propagators: [new W3CTraceContextPropagator(), new W3CBaggagePropagator()] });

const GETTER: TextMapGetter<FlatHeaders> = {
  get: (headers, name) => {
    const values = valuesOf(headers, name.toLowerCase());
    return name.toLowerCase() === "traceparent" ? values[0] : values.length === 0 ? undefined : values.join(",");
  },
  keys: () => PROPAGATED,
};
const SETTER: TextMapSetter<string[]> = {
  set: (headers, name, value) => {
    headers.push(name, value);
  },
};

/** Where spans go: `OTEL_TRACES_EXPORTER` is `console` (default, one line each on stdout), `otlp` (`OTEL_EXPORTER_OTLP_PROTOCOL` `grpc`, the default, or `http/protobuf`) or `none`. */
async function exporterOf(env: Environment): Promise<SpanExporter | null> {
  const kind = env["OTEL_TRACES_EXPORTER"] ?? "console";
  switch (kind) {
    case "console":
    case "":
      return new ConsoleSpanExporter();
    case "none":
      return null;
    case "otlp": {
      const protocol = env["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] ?? env["OTEL_EXPORTER_OTLP_PROTOCOL"] ?? "grpc";
      if (protocol === "http/protobuf") return new (await import("@opentelemetry/exporter-trace-otlp-proto")).OTLPTraceExporter();
      if (protocol === "grpc") return new (await import("@opentelemetry/exporter-trace-otlp-grpc")).OTLPTraceExporter();
      throw new Error(`OTEL_EXPORTER_OTLP_PROTOCOL: "${protocol}" is not grpc or http/protobuf`);
    }
    default:
      throw new Error(`OTEL_TRACES_EXPORTER: "${kind}" is not console, otlp or none`);
  }
}

/** A tenth of the traces that begin here, and of those that come from outside the ones that are marked, unless `OTEL_TRACES_SAMPLER` and its `_ARG` say otherwise. */
function samplerOf(env: Environment): { readonly sampler?: ParentBasedSampler } {
  if ((env["OTEL_TRACES_SAMPLER"] ?? "parentbased_traceidratio") !== "parentbased_traceidratio") return {};
  const text = env["OTEL_TRACES_SAMPLER_ARG"] ?? "";
  const ratio = Number(text);
  return { sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(text !== "" && ratio >= 0 && ratio <= 1 ? ratio : DEFAULT_RATIO) }) };
}

/**
 * Starts OpenTelemetry as the environment says.
 *
 * @param exporter in the place of the one that the environment names
 * @throws Error naming the variable that cannot be followed
 */
export async function startTracing(env: Environment, log: Logger, exporter?: SpanExporter): Promise<Tracing> {
  const target = exporter ?? (await exporterOf(env));
  const told = (message: string, ...more: unknown[]): void => {
    log.warn({ detail: more.map(String).join(" ").slice(0, 500) }, `tracing: ${message.slice(0, 500)}`);
  };
  diag.setLogger({ error: told, warn: told, info: () => undefined, debug: () => undefined, verbose: () => undefined }, { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true });
  const resource = resourceFromAttributes({ "service.name": SERVICE_NAME }).merge(detectResources({ detectors: [envDetector] }));
  const provider = new BasicTracerProvider({ resource, ...samplerOf(env), spanProcessors: target === null ? [] : [new BatchSpanProcessor(target)] });
  const tracer = provider.getTracer("crosspoint-sidecar");
  return {
    begin: (request) => new RequestSpan(tracer, request),
    close: async () => {
      let timer: NodeJS.Timeout | null = null;
      const late = new Promise<void>((resolve) => {
        timer = setTimeout(resolve, CLOSE_MS);
      });
      await Promise.race([provider.shutdown().catch(() => undefined), late]);
      if (timer !== null) clearTimeout(timer);
    },
  };
}

class RequestSpan implements RequestTrace {
  readonly #tracer: Tracer;
  readonly #span: Span;
  readonly #context: Context;
  readonly #startedAtMs = performance.now();
  #firstByte = false;

  constructor(tracer: Tracer, { headers, method, path, requestId }: Parameters<Tracing["begin"]>[0]) {
    const parent = propagator.extract(ROOT_CONTEXT, headers, GETTER);
    const attributes = { "http.request.method": method, "url.path": path, "llm_d.pd_proxy.request_path": path, "llm_d.pd_proxy.request_id": requestId };
    this.#tracer = tracer;
    this.#span = tracer.startSpan(`llm_d.pd_proxy.${method} ${path}`, { kind: SpanKind.SERVER, attributes }, parent);
    this.#context = trace.setSpan(parent, this.#span);
  }

  set(attributes: Attributes): void {
    this.#span.setAttributes({ ...attributes });
  }

  firstByte(): void {
    if (this.#firstByte) return;
    this.#firstByte = true;
    this.#span.setAttribute("llm_d.pd_proxy.true_ttft_ms", performance.now() - this.#startedAtMs);
  }

  leg(stage: Stage, authority: string): LegTrace {
    return new LegSpan(this.#tracer, this.#context, stage, authority);
  }

  end(status: number): void {
    this.set({ "http.response.status_code": status, "llm_d.pd_proxy.total_duration_ms": performance.now() - this.#startedAtMs });
    if (status === 0) this.#span.setStatus({ code: SpanStatusCode.ERROR, message: "the client left" });
    else if (status >= 500) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#span.end();
  }
}

class LegSpan implements LegTrace {
  readonly #span: Span;
  readonly #context: Context;
  readonly #prefix: string;
  readonly #startedAtMs = performance.now();
  #status = 0;

  constructor(tracer: Tracer, parent: Context, stage: Stage, authority: string) {
    const at = authority.lastIndexOf(":");
    const attributes = { "server.address": authority.slice(0, at), "server.port": Number(authority.slice(at + 1)), [`${SPAN_NAMES[stage]}.target`]: authority };
    this.#prefix = SPAN_NAMES[stage];
    this.#span = tracer.startSpan(SPAN_NAMES[stage], { kind: SpanKind.CLIENT, attributes }, parent);
    this.#context = trace.setSpan(parent, this.#span);
  }

  inject(headers: FlatHeaders): FlatHeaders {
    const injected: string[] = [];
    for (let index = 0; index + 1 < headers.length; index += 2) {
      if (!PROPAGATED.includes(headers[index]?.toLowerCase() ?? "")) injected.push(headers[index] ?? "", headers[index + 1] ?? "");
    }
    propagator.inject(this.#context, injected, SETTER);
    return injected;
  }

  firstByte(status: number): void {
    this.#status = status;
    this.#span.addEvent("first_byte");
    this.#span.setAttributes({ "http.response.status_code": status, [`${this.#prefix}.status_code`]: status });
  }

  resent(): void {
    this.#span.addEvent("resent");
  }

  end(failure: string | null): void {
    this.#span.setAttribute(`${this.#prefix}.duration_ms`, performance.now() - this.#startedAtMs);
    if (failure === null && this.#status >= 500) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    if (failure !== null) {
      this.#span.setAttribute("error.type", failure);
      // Ended by ourselves is no error of the engine's.
      if (failure !== "aborted") this.#span.setStatus({ code: SpanStatusCode.ERROR, message: failure });
    }
    this.#span.end();
  }
}
