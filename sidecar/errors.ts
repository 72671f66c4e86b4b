/** The vocabulary of the sidecar's own errors. Types and codes are the reference's (sidecar §2.2), the shape is the field's (DESIGN, decision 4). */
const TYPES = {
  400: "BadRequestError",
  403: "ForbiddenError",
  404: "NotFoundError",
  405: "MethodNotAllowedError",
  408: "RequestTimeoutError",
  413: "PayloadTooLargeError",
  415: "UnsupportedMediaTypeError",
  417: "ExpectationFailedError",
  431: "RequestHeaderFieldsTooLargeError",
  500: "InternalServerError",
  502: "BadGateway",
  503: "ServiceUnavailable",
  504: "GatewayTimeout",
} as const;

export type ErrorStatus = keyof typeof TYPES;

/** Seconds that a client is told to wait while the engine does not answer: an engine's start takes a minute or so, a lost connection less. */
export const RETRY_AFTER_SECONDS = 5;

export class ApiError extends Error {
  readonly status: ErrorStatus;
  /** The header or body member that is at fault; null where none is. */
  readonly param: string | null;

  /** @param message for the client: never text of a body, never the text of a transport error */
  constructor(status: ErrorStatus, message: string, param: string | null = null) {
    super(message);
    this.status = status;
    this.param = param;
  }

  get type(): string {
    return TYPES[this.status];
  }

  /** `{"error":{message,type,param,code}}`, code being the status. */
  body(): Buffer {
    return Buffer.from(JSON.stringify({ error: { message: this.message, type: this.type, param: this.param, code: this.status } }));
  }

  /** Flat list of header names and values, content length included. */
  headers(): string[] {
    const headers = ["content-type", "application/json", "content-length", String(this.body().length)];
    if (this.status === 503) headers.push("retry-after", String(RETRY_AFTER_SECONDS));
    return headers;
  }
}
