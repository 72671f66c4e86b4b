/** Errors as vLLM words them: `{"error": {message, type, param, code}}`. */

import type { JsonObject } from "./json.js";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    /** The member that is wrong, null when no single one is. Where the form of the body is (`Bad Request`), vLLM writes it with `body.` in front. */
    readonly param: string | null = null,
    readonly type: string = errorType(status),
  ) {
    super(message);
    this.name = "ApiError";
  }

  body(): JsonObject {
    const param = this.param !== null && this.type === "Bad Request" ? `body.${this.param}` : this.param;
    return { error: { message: this.message, type: this.type, param, code: this.status } };
  }
}

/** No handler for the path or the method: the framework's own answer, which vLLM does not reword. */
export class NoHandler extends ApiError {
  constructor(status: 404 | 405) {
    super(status, status === 404 ? "Not Found" : "Method Not Allowed");
  }

  override body(): JsonObject {
    return { detail: this.message };
  }
}

function errorType(status: number): string {
  if (status === 400) return "BadRequestError";
  if (status === 401) return "AuthenticationError";
  if (status === 403) return "ForbiddenError";
  if (status === 404) return "NotFoundError";
  if (status === 405) return "MethodNotAllowedError";
  return "InternalServerError";
}

/** Thrown by whatever kills the engine's process (real-engine §4); the engine takes it to every request in flight. */
export class EngineDeath extends Error {
  constructor(readonly reason: string) {
    super(reason);
    this.name = "EngineDeath";
  }
}

/** The client's socket closed. */
export class ClientGone extends Error {
  constructor() {
    super("client closed the connection");
    this.name = "ClientGone";
  }
}

/** The engine was reset by the test: whatever was under way is gone without a trace. */
export class EngineRestart extends ClientGone {}

/** What vLLM answers in flight when its core has died. */
export function engineDeadError(): ApiError {
  return new ApiError(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.");
}

/** What vLLM answers when the KV of a request could not be loaded. */
export function internalError(): ApiError {
  return new ApiError(500, "Internal server error");
}
