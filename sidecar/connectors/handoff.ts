import { elementsOf, lastMember, membersOf, readValue, type Span, stringOf } from "../body/json-spans.js";

export type HandoffProblem = "missing" | "not_object" | "empty" | "remote_block_ids" | "remote_request_id" | "remote_port";

export type Handoff =
  | { readonly kind: "handoff"; readonly answer: Span; readonly params: Span }
  | { readonly kind: "invalid"; readonly reason: HandoffProblem }
  /** The answer is no JSON object at all. */
  | { readonly kind: "unreadable" };

/**
 * Finds `kv_transfer_params` in a prefill's answer and checks what kills or hangs a real engine if it is otherwise (DESIGN, decision 8): everything else is
 * opaque and goes on as the bytes that came.
 */
export function readHandoff(body: Buffer): Handoff {
  const answer = readValue(body);
  if (answer?.kind !== "object") return { kind: "unreadable" };
  const params = lastMember(body, answer, "kv_transfer_params");
  const reason = problemOf(body, params);
  return reason === null && params !== null ? { kind: "handoff", answer, params } : { kind: "invalid", reason: reason ?? "missing" };
}

function problemOf(body: Buffer, params: Span | null): HandoffProblem | null {
  if (params === null || params.kind === "null") return "missing";
  if (params.kind !== "object") return "not_object";
  if (membersOf(body, params).length === 0) return "empty";

  const requestId = lastMember(body, params, "remote_request_id");
  if (requestId !== null && requestId.kind !== "string") return "remote_request_id";

  const blocks = lastMember(body, params, "remote_block_ids");
  if (blocks !== null) {
    if (blocks.kind !== "array") return "remote_block_ids";
    // One list per KV group: engines that speak so look the request up by its id.
    const nested = elementsOf(body, blocks).some(({ kind }) => kind === "array");
    if (nested && requestId === null) return "remote_request_id";
  }

  const port = lastMember(body, params, "remote_port");
  if (port !== null && port.kind !== "number" && !/^\d+$/.test(stringOf(body, port) ?? "")) return "remote_port";
  return null;
}
