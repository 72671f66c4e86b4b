import type { FlatHeaders } from "../headers.js";
import type { Stage } from "../metrics.js";

// What the rest of the sidecar knows of tracing. OpenTelemetry itself is in otel.ts, which is loaded only where it is switched on.

export type Attributes = Readonly<Record<string, string | number | boolean>>;

/** The span of a call to an engine. */
export interface LegTrace {
  /** The headers of the call with this span's context in the place of the client's. */
  inject(headers: FlatHeaders): FlatHeaders;
  firstByte(status: number): void;
  resent(): void;
  /** @param failure null: the engine has answered to its end */
  end(failure: string | null): void;
}

/** The span of a client's request. */
export interface RequestTrace {
  set(attributes: Attributes): void;
  /** What the engine has not sent alone: the first byte of the client's answer. Only the first call counts. */
  firstByte(): void;
  leg(stage: Stage, authority: string): LegTrace;
  /** @param status that the client got; 0: it left first */
  end(status: number): void;
}

export interface Tracing {
  begin(request: { readonly headers: FlatHeaders; readonly method: string; readonly path: string; readonly requestId: string }): RequestTrace;
  /** Sends what is there, and ends. Never rejects. */
  close(): Promise<void>;
}

const NO_LEG: LegTrace = { inject: (headers) => headers, firstByte: () => undefined, resent: () => undefined, end: () => undefined };

/** Of a request that is not traced: what the client says of its trace passes through as any other header. */
export const NO_TRACE: RequestTrace = { set: () => undefined, firstByte: () => undefined, leg: () => NO_LEG, end: () => undefined };

export const NO_TRACING: Tracing = { begin: () => NO_TRACE, close: () => Promise.resolve() };
