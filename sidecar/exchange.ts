import type { Allowlist } from "./allowlist/index.js";
import { controlMembers } from "./body/control-members.js";
import type { BodyBudget, BodyShare } from "./body/budget.js";
import { BodyEditor } from "./body/edits.js";
import type { ScannerFactory } from "./body/make-scanner.js";
import type { Pieces } from "./body/pieces.js";
import { removeTopLevel } from "./body/prefill-caps.js";
import type { ApiShape, BodyView } from "./body/types.js";
import type { Candidate } from "./candidates.js";
import { answerError, type ClientMessage, type ClientResponse, cut, discardBody, type ReaderWatch, watchReader } from "./client.js";
import type { KvConnector } from "./connectors/connector.js";
import type { EcConnector } from "./connectors/ec-connector.js";
import type { Engine } from "./engine.js";
import type { ApiError } from "./errors.js";
import { type FlatHeaders, legHeaders, requestIdOf, withoutHeader } from "./headers.js";
import { bodyForLog, type Logger } from "./log.js";
import type { Metrics } from "./metrics.js";
import type { SidecarOptions } from "./options.js";
import type { Rarely } from "./rare.js";
import type { Turn } from "./stages/encode.js";
import { NO_TRACE, type RequestTrace, type Tracing } from "./telemetry/trace.js";
import type { Upstreams } from "./upstream/pools.js";

/** What all requests share. */
export interface Services {
  readonly options: SidecarOptions;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly upstreams: Upstreams;
  /** By data-parallel rank; one without ranks. */
  readonly engines: readonly Engine[];
  readonly makeScanner: ScannerFactory;
  readonly kvConnector: KvConnector;
  /** Null: no encode stage. */
  readonly ecConnector: EcConnector | null;
  readonly encoderTurn: Turn;
  readonly allowlist: Allowlist;
  readonly tracing: Tracing;
  readonly bodyBudget: BodyBudget;
  /** When to tell again that routing headers ask for what this sidecar is not set up for. */
  readonly ignoredPlanSeen: Readonly<Record<"encode" | "kv_source", Rarely>>;
}

/** A request whose body was read, with what is known of it. */
export interface ReadRequest {
  readonly shape: ApiShape;
  readonly body: Pieces;
  readonly view: BodyView;
}

/** What is to be carried out for a request. */
export interface Job {
  readonly request: ReadRequest;
  /** What the encode stage handed over. */
  readonly ecParams: EcParams;
  /** Entries of the prefill header in the order in which they are asked; one at least. */
  readonly prefillers: readonly string[];
  /** A pod that holds more of the prompt's prefix than the one that prefills; null: none, or none that this connector can pull from. */
  readonly kvSource: Candidate | null;
}

/** One client request on its way: its id, its answer, and whether somebody still waits for that. */
export class Exchange {
  readonly services: Services;
  readonly request: ClientMessage;
  readonly response: ClientResponse;
  readonly requestId: string;
  readonly trace: RequestTrace;
  /** Path and query as they go to engines. */
  readonly target: string;
  /** A prefill leg was asked for, whatever becomes of it. */
  prefillAsked = false;
  readonly #peerAddress: string;
  readonly #gone = new AbortController();
  readonly #arrivedAt: Engine;
  #engine: Engine;
  #answered = false;
  #bodyOpened = false;
  #body: Pieces | null = null;
  #bodyShare: BodyShare | null = null;
  readonly #reader: ReaderWatch;

  /**
   * @param engine the one behind the listener that the request came to
   * @param traced questions about our own state are not
   */
  constructor(services: Services, engine: Engine, request: ClientMessage, response: ClientResponse, target: string, traced = true) {
    this.services = services;
    this.#arrivedAt = engine;
    this.#engine = engine;
    this.request = request;
    this.response = response;
    this.target = target;
    this.requestId = requestIdOf(request.rawHeaders);
    const [path = ""] = target.split("?", 1);
    this.trace = traced ? services.tracing.begin({ headers: request.rawHeaders, method: request.method ?? "GET", path, requestId: this.requestId }) : NO_TRACE;
    this.#peerAddress = unmapped(request.socket.remoteAddress);
    response.once("close", () => {
      if (!this.#answered) this.#gone.abort();
    });
    this.#reader = watchReader(response, services.options.clientIdleTimeoutMs, () => {
      services.metrics.clientsCut.inc({ reason: "unread" });
      services.log.info({ requestId: this.requestId }, "the client leaves its answer unread: cut");
      cut(response);
    });
  }

  /** The engine that decodes. */
  get engine(): Engine {
    return this.#engine;
  }

  /** Has another rank's engine decode. */
  useEngine(engine: Engine): void {
    this.#engine = engine;
  }

  /** Whether the request came to the base listener, which speaks for all ranks. */
  get cameToBase(): boolean {
    return this.#arrivedAt.rank === 0;
  }

  /** Our own address in routing headers: the pod's, or the one that the connection came to; the port is that of the rank's listener. */
  ownAddress(engine: Engine): { readonly host: string; readonly port: number } {
    const { localAddress, localPort } = this.request.socket;
    const { podIp } = this.services.options;
    return { host: podIp === "" ? unmapped(localAddress) : podIp, port: (localPort ?? 0) - this.#arrivedAt.rank + engine.rank };
  }

  /** Aborted when the client has left before its answer was whole. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  get log(): Logger {
    return this.services.log;
  }

  /** The answer is given to its end: from now on a closed connection means nothing. */
  markAnswered(): void {
    this.#answered = true;
    if (!this.response.writableFinished) this.#reader.blocked();
  }

  /** What was written waits for the client to read. */
  readerBlocked(): void {
    this.#reader.blocked();
  }

  readerFlows(): void {
    this.#reader.flows();
  }

  markBodyOpened(): void {
    this.#bodyOpened = true;
  }

  /** The request's body, as long as a stage may need it, and what it takes of the budget for all. */
  holdBody(body: Pieces, share: BodyShare): void {
    this.#body = body;
    this.#bodyShare = share;
  }

  /** No leg is begun any more: an answer may go on for minutes, and a body may hold megabytes. */
  releaseBody(): void {
    this.#body?.release();
    this.#body = null;
    this.#bodyShare?.giveBack();
    this.#bodyShare = null;
  }

  get headers(): FlatHeaders {
    return this.request.rawHeaders;
  }

  /** Gives the client an error of ours; nothing when it has left or has its answer already. */
  fail(error: ApiError): void {
    if (this.gone.aborted || this.response.headersSent) return;
    this.markAnswered();
    this.trace.set({ "llm_d.pd_proxy.error": error.message });
    answerError(this.response, error, this.requestId);
    discardBody(this.request);
  }

  /** Headers of a prefill or decode leg. `readAnswer`: we read the answer, so it must not come compressed (D15). */
  legHeaders(readAnswer: boolean): FlatHeaders {
    const headers = legHeaders({ rawHeaders: this.headers, peerAddress: this.#peerAddress, requestId: this.requestId, bodyOpened: this.#bodyOpened });
    return readAnswer ? withoutHeader(headers, "accept-encoding") : headers;
  }

  /**
   * The client's bytes for a leg: without the members that clients may not set (unless they are trusted), with what the encode stage handed over, and with
   * the edits of the leg itself.
   */
  legBody({ body, view }: ReadRequest, ecParams: EcParams, edit?: (editor: BodyEditor) => void): Buffer[] {
    const editor = new BodyEditor(body, view);
    if (!this.services.options.trustClientControlMembers) for (const member of controlMembers(view)) editor.remove(member);
    if (ecParams !== null) {
      removeTopLevel(editor, view, "ec_transfer_params");
      editor.insert("ec_transfer_params", ecParams);
    }
    edit?.(editor);
    const edited = editor.apply();
    this.logBody("the body of a leg", edited);
    return edited;
  }

  /** Bodies are in the log at the level trace only, with their media shortened. */
  logBody(what: string, body: readonly Buffer[]): void {
    if (this.log.isLevelEnabled("trace")) this.log.trace({ requestId: this.requestId, body: bodyForLog(body) }, what);
  }
}

/** An address as it is written: on a socket for both families IPv4 has another form. */
function unmapped(address: string | undefined): string {
  return (address ?? "").replace(/^::ffff:(?=\d+\.)/, "");
}

/** The encode stage's hand-over as JSON bytes; null: none. */
export type EcParams = readonly Buffer[] | null;
