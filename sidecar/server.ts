import { BodyBudget } from "./body/budget.js";
import { controlMemberLabel, controlMembers } from "./body/control-members.js";
import { type ContentCoding, contentCodings } from "./body/encodings.js";
import { makeScanner, type ScannerFactory } from "./body/make-scanner.js";
import { isMultipart, multipartProblem } from "./body/multipart.js";
import { readBody } from "./body/read-body.js";
import type { ApiShape, BodyView } from "./body/types.js";
import { startAllowlist } from "./allowlist/index.js";
import { type KeyPair, keyPair, watchPair } from "./certificate.js";
import { answer, type ClientMessage, type ClientResponse, discardBody } from "./client.js";
import { ecConnector, kvConnector } from "./connectors/registry.js";
import { Engine } from "./engine.js";
import { ApiError } from "./errors.js";
import { Exchange, type Services } from "./exchange.js";
import { valuesOf } from "./headers.js";
import { listen, type Listener, type OnTlsRefused } from "./listener.js";
import { type Logger, makeLog } from "./log.js";
import { Metrics } from "./metrics.js";
import type { SidecarOptions } from "./options.js";
import { Rarely } from "./rare.js";
import { type Route, routeOf } from "./routes.js";
import { Turn } from "./stages/encode.js";
import { orchestrate } from "./stages/orchestrate.js";
import { relay } from "./stages/relay.js";
import { NO_TRACING, type Tracing } from "./telemetry/trace.js";
import { Upstreams } from "./upstream/pools.js";
import type { FolderWatch } from "./watch-folder.js";

/** For warnings that every request could give. */
const WARN_EVERY_MS = 60_000;

export interface Sidecar {
  readonly port: number;
  readonly url: string;
  /** By data-parallel rank, the base listener's first. */
  readonly urls: readonly string[];
  /** Null: no metrics listener. */
  readonly metricsUrl: string | null;
  readonly metrics: Metrics;
  /** Fails health and readiness, waits for open requests up to the drain timeout, then closes. */
  drain(): Promise<void>;
  /** Closes at once. */
  close(): Promise<void>;
}

export interface SidecarParts {
  readonly log?: Logger;
  readonly makeScanner?: ScannerFactory;
  /** In the place of what `--tracing` and the environment say. */
  readonly tracing?: Tracing;
  /** Node's own metrics too: once per process. */
  readonly processMetrics?: boolean;
}

/**
 * Starts a sidecar.
 *
 * @throws OptionsError when the certificate or a connector cannot be had
 * @throws Error when the scanner's module is missing
 * @throws the system's error when a port cannot be had
 */
export async function startSidecar(options: SidecarOptions, parts: SidecarParts = {}): Promise<Sidecar> {
  const metrics = new Metrics();
  if (parts.processMetrics === true) metrics.collectProcess();
  const log = parts.log ?? makeLog(options.logLevel);
  const upstreams = new Upstreams(options);
  metrics.observeUpstreams(() => upstreams.stats());
  const tls = options.secureProxy ? await keyPair(options.certPath) : null;
  const services: Services = {
    options,
    log,
    metrics,
    upstreams,
    engines: upstreams.decoders.map((upstream, rank) => new Engine(rank, upstream, metrics)),
    makeScanner: parts.makeScanner ?? makeScanner,
    kvConnector: kvConnector(options.kvConnector),
    ecConnector: ecConnector(options.ecConnector),
    encoderTurn: new Turn(),
    tracing: parts.tracing ?? (options.tracing ? await tracingFromEnvironment(log) : NO_TRACING),
    allowlist: await startAllowlist(options, log, metrics),
    bodyBudget: new BodyBudget(options.maxBufferedBytes),
    ignoredPlanSeen: { encode: new Rarely(WARN_EVERY_MS), kv_source: new Rarely(WARN_EVERY_MS) },
  };
  metrics.observeBodies(() => services.bodyBudget.held);
  // A scanner that cannot be loaded is to be told now, not with the first request.
  services.makeScanner("other").dispose();
  const door = new FrontDoor(services);
  const listeners: Listener[] = [];
  const plainTextSeen = new Rarely(WARN_EVERY_MS);
  const onTlsRefused: OnTlsRefused = (reason, client) => {
    metrics.tlsRefused.inc({ reason });
    if (reason === "plain_text" && plainTextSeen.due) log.warn({ client }, "a client speaks plain HTTP, and this port TLS: --secure-proxy=false has it take plain HTTP");
  };
  let metricsListener: Listener | null = null;
  const pairWatch = tls === null || options.certPath === "" ? null : followPair(options.certPath, tls, services, listeners);
  const close = async (): Promise<void> => {
    pairWatch?.close();
    services.allowlist.close();
    await Promise.all([...listeners.map((listener) => listener.close()), metricsListener?.close(), upstreams.destroy()]);
    await services.tracing.close();
  };
  try {
    for (const engine of services.engines) {
      // Ranks are above the base port (sidecar §7), whichever that is.
      const port = engine.rank === 0 ? options.port : (listeners[0]?.port ?? 0) + engine.rank;
      listeners.push(await listenFor("--port", options.listenAddress, port, tls, door.handlerOf(engine), onTlsRefused));
    }
    if (options.metricsPort > 0) metricsListener = await listenFor("--metrics-port", options.listenAddress, options.metricsPort, null, metricsHandler(metrics));
  } catch (error) {
    await close();
    throw error;
  }
  const [base] = listeners;
  if (base === undefined) throw new Error("there is one rank at least");
  return {
    port: base.port,
    url: base.url,
    urls: listeners.map(({ url }) => url),
    metricsUrl: metricsListener?.url ?? null,
    metrics,
    drain: async () => {
      for (const listener of listeners) listener.drain();
      await door.drain(options.drainTimeoutMs);
      await close();
    },
    close,
  };
}

/** {@link listen}, whose failure names the flag that is to be changed. */
async function listenFor(flag: string, ...where: Parameters<typeof listen>): Promise<Listener> {
  try {
    return await listen(...where);
  } catch (error) {
    const [address, port] = where;
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    const named = code === "EADDRNOTAVAIL" ? "--listen-address" : flag;
    const detail = error instanceof Error ? error.message : String(error);
    throw new Error(`${named}: cannot listen on ${address === "" ? "port" : address} ${String(port)}${code === "EADDRINUSE" ? ", which is taken" : ""} (${detail})`, { cause: error });
  }
}

/** What cannot be traced is told, and served all the same (sidecar §1). */
async function tracingFromEnvironment(log: Logger): Promise<Tracing> {
  try {
    return await (await import("./telemetry/otel.js")).startTracing(process.env, log);
  } catch (error) {
    log.error({ detail: error instanceof Error ? error.message : String(error) }, "tracing cannot be started");
    return NO_TRACING;
  }
}

/** Has the listeners take a key pair that was rotated. */
function followPair(certPath: string, current: KeyPair, { log, metrics }: Services, listeners: readonly Listener[]): FolderWatch {
  return watchPair(
    certPath,
    current,
    (pair) => {
      for (const listener of listeners) listener.usePair(pair);
      metrics.certificateReloads.inc({ outcome: "taken" });
      log.info({ certPath }, "the listener's certificate was rotated");
    },
    (error) => {
      metrics.certificateReloads.inc({ outcome: "refused" });
      log.error({ certPath, detail: error instanceof Error ? error.message : String(error) }, "the listener's new certificate cannot be used: the old one stays");
    },
  );
}

function metricsHandler(metrics: Metrics): (request: ClientMessage, response: ClientResponse) => void {
  return (request, response) => {
    if (request.method !== "GET" || (request.url ?? "").split("?")[0] !== "/metrics") {
      const error = new ApiError(404, "only GET /metrics is served here");
      answer(response, 404, error.headers(), error.body());
      return;
    }
    metrics.registry.metrics().then(
      (text) => {
        answer(response, 200, ["content-type", metrics.registry.contentType], Buffer.from(text));
      },
      () => {
        const error = new ApiError(500, "the metrics cannot be written");
        answer(response, 500, error.headers(), error.body());
      },
    );
  };
}

/** Takes requests in: what is answered here, what is refused, and what goes on to the stages. */
class FrontDoor {
  readonly #services: Services;
  #draining = false;
  #open = 0;
  #onIdle: (() => void) | null = null;

  constructor(services: Services) {
    this.#services = services;
  }

  /** @param engine the one that decodes what comes to this listener */
  handlerOf(engine: Engine): (request: ClientMessage, response: ClientResponse) => void {
    return (request, response) => {
      this.#handle(engine, request, response);
    };
  }

  #handle(engine: Engine, request: ClientMessage, response: ClientResponse): void {
    // A socket that breaks while something is written to it is told by "close" already.
    response.on("error", () => undefined);
    request.on("error", () => undefined);
    const route = routeOf(request.method ?? "GET", request.url ?? "", this.#services.options.allowPaths);
    if (route.kind === "health") {
      answer(response, this.#draining ? 503 : 200, ["content-length", "0"], Buffer.alloc(0));
      discardBody(request);
      return;
    }
    if (this.#draining && "shouldKeepAlive" in response) response.shouldKeepAlive = false;
    const toEngine = "target" in route;
    const exchange = new Exchange(this.#services, engine, request, response, toEngine ? route.target : "/", toEngine);
    this.#count(route.kind, exchange, this.#serve(route, exchange));
  }

  async #serve(route: Exclude<Route, { kind: "health" }>, exchange: Exchange): Promise<void> {
    try {
      switch (route.kind) {
        case "notFound":
          exchange.fail(new ApiError(404, "no such path"));
          return;
        case "ready":
          await this.#ready(exchange);
          return;
        case "orchestrated":
        case "passThrough":
          await serveEngine(exchange, route);
      }
    } catch (error) {
      exchange.log.error({ requestId: exchange.requestId, err: error }, "request failed by our own fault");
      if (exchange.response.headersSent) exchange.response.destroy();
      else exchange.fail(new ApiError(500, "internal error"));
    }
  }

  async #ready(exchange: Exchange): Promise<void> {
    if (this.#draining) {
      exchange.fail(new ApiError(503, "shutting down"));
    } else if (!exchange.services.allowlist.ready) {
      exchange.fail(new ApiError(503, "the allowed endpoints are not known yet"));
    } else if (await exchange.engine.ready()) {
      exchange.markAnswered();
      answer(exchange.response, 200, ["content-length", "0"], Buffer.alloc(0));
      discardBody(exchange.request);
    } else {
      exchange.fail(new ApiError(503, "the decode engine is not ready"));
    }
  }

  /** A request is open until its stages have ended (they may outlive the client) and its answer has left. */
  #count(route: string, exchange: Exchange, served: Promise<void>): void {
    const { metrics, log } = this.#services;
    const { response, requestId, trace } = exchange;
    const startedAtMs = performance.now();
    this.#open += 1;
    metrics.inFlight.inc();
    const closed = new Promise<void>((resolve) => {
      response.once("close", () => {
        resolve();
      });
    });
    void Promise.allSettled([served, closed]).then(() => {
      exchange.releaseBody();
      this.#open -= 1;
      metrics.inFlight.dec();
      const status = response.headersSent ? response.statusCode : 0;
      metrics.requests.inc({ route, status });
      trace.end(status);
      log.debug({ requestId, route, method: exchange.request.method, path: exchange.target.split("?", 1)[0], status, durationMs: Math.round(performance.now() - startedAtMs) }, "request ended");
      if (this.#open === 0) this.#onIdle?.();
    });
  }

  /** Resolves when nothing is open any more, or when the time is over. New requests are still served, health fails. */
  async drain(timeoutMs: number): Promise<void> {
    this.#draining = true;
    if (this.#open === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      this.#onIdle = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** Reads and judges the body of a request for the engine, then hands it on. */
async function serveEngine(exchange: Exchange, route: Extract<Route, { kind: "orchestrated" | "passThrough" }>): Promise<void> {
  const { request, services } = exchange;
  const { options, metrics } = services;
  const shape: ApiShape = route.kind === "orchestrated" ? route.shape : "other";
  const refuse = (reason: string, error: ApiError): void => {
    metrics.bodiesRefused.inc({ reason });
    exchange.log.info({ requestId: exchange.requestId, reason }, "body refused");
    exchange.fail(error);
  };

  if (!mayHaveBody(request)) {
    if (route.kind === "orchestrated") refuse("empty", new ApiError(400, "a JSON body is expected"));
    else await passThrough(exchange, null);
    return;
  }

  const contentType = valuesOf(exchange.headers, "content-type").join("; ");
  const multipart = route.kind === "passThrough" && route.multipart && isMultipart(contentType);
  const trusted = options.trustClientControlMembers;
  const codings = contentCodings(exchange.headers);
  if (codings === null && !trusted) {
    refuse("encoding", new ApiError(415, "the content-encoding of the body is not one of gzip, deflate, br", "content-encoding"));
    return;
  }
  if (Number(valuesOf(exchange.headers, "content-length")[0] ?? 0) > options.bodyLimitBytes) {
    refuse("too_large", new ApiError(413, `the request body is larger than ${String(options.bodyLimitBytes)} bytes`));
    return;
  }

  const opened: readonly ContentCoding[] = codings ?? [];
  const scanner = multipart || codings === null ? null : services.makeScanner(shape);
  const share = services.bodyBudget.open();
  const outcome = await readBody(request, { codings: opened, limitBytes: options.bodyLimitBytes, timeoutMs: options.bodyTimeoutMs, share, gone: exchange.gone, scanner });
  if (outcome.kind === "gone") return;
  if (outcome.kind === "failed") throw outcome.error;
  if (outcome.kind === "refused") {
    if (outcome.reason === "slow") {
      metrics.clientsCut.inc({ reason: "slow_body" });
      // What is left of the body is not waited for.
      if ("shouldKeepAlive" in exchange.response) exchange.response.shouldKeepAlive = false;
    }
    refuse(outcome.reason, outcome.error);
    return;
  }
  if (opened.length > 0) exchange.markBodyOpened();
  const { body, view } = outcome;
  exchange.holdBody(body, share);

  if (multipart) {
    const problem = trusted ? null : await multipartProblem(contentType, body);
    if (problem === null) await passThrough(exchange, [...body.list]);
    else refuse(`multipart_${problem}`, new ApiError(400, MULTIPART_TEXTS[problem]));
    return;
  }
  if (body.length === 0 && route.kind === "passThrough") {
    await passThrough(exchange, []);
    return;
  }
  if (view === null || view.error !== null) {
    // A trusted client's body is the engine's to judge, as long as no stage needs to edit it (RT-05).
    if (trusted && !asksForStages(exchange)) await passThrough(exchange, [...body.list]);
    else refuse("unreadable", unreadable(view));
    return;
  }
  if (route.kind === "orchestrated" && !view.isObject) {
    refuse("not_object", new ApiError(400, "invalid JSON: the body is not an object"));
    return;
  }

  if (!trusted) countControlMembers(exchange, view);
  const read = { shape, body, view };
  if (route.kind === "orchestrated") await orchestrate(exchange, read);
  else await passThrough(exchange, view.isObject ? exchange.legBody(read, null) : [...body.list]);
}

const MULTIPART_TEXTS = {
  charset: "a form must be in UTF-8",
  boundary: "a form must have exactly one boundary",
  control_member: "the form holds a member that clients may not set",
} as const;

function asksForStages(exchange: Exchange): boolean {
  return ["x-prefiller-host-port", "x-encoder-hosts-ports"].some((name) => valuesOf(exchange.headers, name).length > 0);
}

/** Says where reading ended, and nothing of what stands there. */
function unreadable(view: BodyView | null): ApiError {
  if (view === null) return new ApiError(415, "the content-encoding of the body is not one of gzip, deflate, br", "content-encoding");
  if (view.error === "empty") return new ApiError(400, "a JSON body is expected");
  return new ApiError(400, `invalid JSON: ${String(view.error)} at byte ${String(view.errorOffset)}`);
}

function countControlMembers(exchange: Exchange, view: BodyView): void {
  const labels = controlMembers(view).map(controlMemberLabel);
  if (labels.length === 0) return;
  for (const member of labels) exchange.services.metrics.controlMembersRemoved.inc({ member });
  exchange.log.warn({ requestId: exchange.requestId, members: labels }, "control members removed from a client's body");
}

async function passThrough(exchange: Exchange, body: Buffer[] | null): Promise<void> {
  await relay(exchange, {
    stage: "pass_through",
    method: exchange.request.method ?? "GET",
    headers: exchange.legHeaders(false),
    body,
    shape: "other",
    cachedTokens: null,
    handoff: false,
    mayRestart: false,
    prefilledBy: null,
  });
}

/** Whether the request can have a body at all: HTTP/1.1 says so in its headers, HTTP/2 with the end of its stream. */
function mayHaveBody(request: ClientMessage): boolean {
  if (request.httpVersionMajor >= 2) return !("stream" in request && request.stream.endAfterHeaders);
  return request.headers["transfer-encoding"] !== undefined || Number(request.headers["content-length"] ?? 0) > 0;
}
