/** Why a call to an engine ended without a whole answer. */
export type LegFailure =
  /** Nothing listens there. */
  | "refused"
  /** Name not resolved, host or network unreachable, no connection in time. */
  | "unreachable"
  /** The certificate or the handshake was not accepted. */
  | "tls"
  /** Connected, and the connection broke before or in the answer. */
  | "broken"
  /** The answer was no HTTP. */
  | "protocol"
  /** The answer is larger than we read. */
  | "too_large"
  /** A stream that began well and then told of an error. */
  | "error_event"
  /** Our deadline. */
  | "timeout"
  /** We ended it: the client left, or another leg failed. */
  | "aborted";

export class LegError extends Error {
  /** @param detail the transport's own words, for the log only: they never reach a client (D21) */
  constructor(
    readonly failure: LegFailure,
    readonly detail: string,
  ) {
    super(`${failure}: ${detail}`);
  }
}

const UNREACHABLE = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT", "EADDRNOTAVAIL", "UND_ERR_CONNECT_TIMEOUT", "EHOSTDOWN", "ENETDOWN"]);

/** Puts a transport error into the vocabulary. */
export function legErrorOf(error: unknown): LegError {
  if (error instanceof LegError) return error;
  const code = codeOf(error);
  const detail = error instanceof Error ? (code === "" ? error.message : `${code} ${error.message}`) : String(error);
  if (code === "ECONNREFUSED") return new LegError("refused", detail);
  if (UNREACHABLE.has(code)) return new LegError("unreachable", detail);
  if (/^(?:ERR_TLS|ERR_SSL|EPROTO|CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|HOSTNAME_MISMATCH)/.test(code)) return new LegError("tls", detail);
  if (/^HPE_/.test(code) || (error instanceof Error && error.name === "HTTPParserError")) return new LegError("protocol", detail);
  return new LegError("broken", detail);
}

/** The error's code; of several attempts (one per address of a name) the one that says most. */
function codeOf(error: unknown): string {
  if (error instanceof AggregateError) {
    const codes = error.errors.map(codeOf);
    return codes.find((code) => code === "ECONNREFUSED") ?? codes[0] ?? "";
  }
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}
