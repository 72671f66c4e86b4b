import { controlMembers } from "./body/control-members.js";
import { BodyEditor } from "./body/edits.js";
import type { ScannerFactory } from "./body/make-scanner.js";
import type { Pieces } from "./body/pieces.js";
import type { ApiShape, BodyView } from "./body/types.js";
import { answerError, type ClientMessage, type ClientResponse, discardBody } from "./client.js";
import type { KvConnector } from "./connectors/connector.js";
import type { EcConnector } from "./connectors/ec-connector.js";
import type { Engine } from "./engine.js";
import type { ApiError } from "./errors.js";
import { type FlatHeaders, legHeaders, requestIdOf, withoutHeader } from "./headers.js";
import type { Logger } from "./log.js";
import type { Metrics } from "./metrics.js";
import type { SidecarOptions } from "./options.js";
import type { Upstreams } from "./upstream/pools.js";

/** What all requests share. */
export interface Services {
  readonly options: SidecarOptions;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly upstreams: Upstreams;
  readonly engine: Engine;
  readonly makeScanner: ScannerFactory;
  readonly kvConnector: KvConnector;
  /** Null: no encode stage. */
  readonly ecConnector: EcConnector | null;
}

/** A request whose body was read, with what is known of it. */
export interface ReadRequest {
  readonly shape: ApiShape;
  readonly body: Pieces;
  readonly view: BodyView;
}

/** One client request on its way: its id, its answer, and whether somebody still waits for that. */
export class Exchange {
  readonly services: Services;
  readonly request: ClientMessage;
  readonly response: ClientResponse;
  readonly requestId: string;
  /** Path and query as they go to engines. */
  readonly target: string;
  readonly #peerAddress: string;
  readonly #gone = new AbortController();
  #answered = false;
  #bodyOpened = false;
  #body: Pieces | null = null;

  constructor(services: Services, request: ClientMessage, response: ClientResponse, target: string) {
    this.services = services;
    this.request = request;
    this.response = response;
    this.target = target;
    this.requestId = requestIdOf(request.rawHeaders);
    // An IPv4 peer of a socket for both families.
    this.#peerAddress = (request.socket.remoteAddress ?? "").replace(/^::ffff:(?=\d+\.)/, "");
    response.once("close", () => {
      if (!this.#answered) this.#gone.abort();
    });
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
  }

  markBodyOpened(): void {
    this.#bodyOpened = true;
  }

  /** The request's body, as long as a stage may need it. */
  holdBody(body: Pieces): void {
    this.#body = body;
  }

  /** No leg is begun any more: an answer may go on for minutes, and a body may hold megabytes. */
  releaseBody(): void {
    this.#body?.release();
    this.#body = null;
  }

  get headers(): FlatHeaders {
    return this.request.rawHeaders;
  }

  /** Gives the client an error of ours; nothing when it has left or has its answer already. */
  fail(error: ApiError): void {
    if (this.gone.aborted || this.response.headersSent) return;
    this.markAnswered();
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
      for (const member of view.members) if (member.name === "ec_transfer_params" && member.parent === "") editor.remove(member);
      editor.insert("ec_transfer_params", ecParams);
    }
    edit?.(editor);
    return editor.apply();
  }
}

/** The encode stage's hand-over as JSON bytes; null: none. */
export type EcParams = readonly Buffer[] | null;
