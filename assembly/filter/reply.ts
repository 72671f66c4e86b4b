// Answers of the filter's own, in the shape that clients of the field parse: {"error": {message, type, param, code}}.
import { Decision, Outcome, Stage } from "../disagg/decision";
import { Bytes, HeaderPairs, sendLocalResponse, Writer } from "../host";

const CONTENT_TYPE = new Bytes("content-type");
const JSON_TYPE = new Bytes("application/json");
const DROPPED = new Bytes("x-llm-d-request-dropped-reason");
const DETAILS = new Bytes("crosspoint");
const body = new Writer(512);
const pairs = new HeaderPairs();

/** Sends an error. `dropped`: value of `x-llm-d-request-dropped-reason` (scheduler §6.6), "" for none. */
export function sendError(status: u32, type: string, message: string, dropped: string): void {
  body.clear();
  body.text('{"error":{"message":');
  body.json(message);
  body.text(',"type":"');
  body.text(type);
  body.text('","param":null,"code":');
  body.number(status);
  body.text("}}");
  pairs.clear();
  pairs.add(CONTENT_TYPE.at, CONTENT_TYPE.size, JSON_TYPE.at, JSON_TYPE.size);
  const reason = String.UTF8.encode(dropped);
  if (dropped.length) pairs.add(DROPPED.at, DROPPED.size, changetype<usize>(reason), reason.byteLength);
  sendLocalResponse(status, DETAILS, pairs, body.at, body.size);
}

/** Answers a request that the scheduler did not place (scheduler §3.6, with 503 where the reference says 429 unless parity is asked for: L3). */
export function sendOutcome(decision: Decision, noDecodeStatus: u32): void {
  switch (decision.outcome) {
    case Outcome.NoCandidates:
      return sendError(503, "ServiceUnavailable", "no endpoint is known that could serve the request", "rejected-no-endpoints");
    case Outcome.NoDecodeEndpoint:
      return sendError(
        noDecodeStatus,
        noDecodeStatus == 429 ? "RateLimitError" : "ServiceUnavailable",
        "no decode endpoint is available for the request",
        noDecodeStatus == 429 ? "rejected-saturated" : "rejected-no-endpoints",
      );
    case Outcome.MissingStage:
      return sendError(
        503,
        "ServiceUnavailable",
        decision.missing == Stage.Encode ? "no encode endpoint is available for the request" : "no prefill endpoint is available for the request",
        "rejected-no-endpoints",
      );
    case Outcome.Saturated:
      return sendError(429, "RateLimitError", "the fleet is saturated and the request's priority is below zero", "rejected-saturated");
    case Outcome.NotAvailable:
      return sendError(412, "PreconditionFailed", "no decode worker has the requested KV cache", "");
  }
}
