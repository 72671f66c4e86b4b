/** An answer as a client of the API reads it: JSON, or the events of a stream. */
import { JsonError, JsonNumber, parseValue, type Json } from "./json.js";
import { get } from "./paths.js";
import type { SendSeen } from "./seen.js";

export interface ServerSentEvent {
  event: string;
  data: string;
}

/** The events of a text/event-stream body (lines end in LF, CR or CRLF); an event that was not finished by a blank line is no event. */
export function readEvents(text: string): ServerSentEvent[] {
  const events: ServerSentEvent[] = [];
  let event = "";
  let data: string[] = [];
  const lines = text.split(/\r\n|\n|\r/);
  // What follows the last line end is no line yet.
  lines.pop();
  for (const line of lines) {
    if (line === "") {
      if (data.length > 0) events.push({ event, data: data.join("\n") });
      event = "";
      data = [];
      continue;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") data.push(value);
    else if (field === "event") event = value;
  }
  return events;
}

export function headerValues(headers: SendSeen["headers"], name: string): string[] {
  const wanted = name.toLowerCase();
  return headers.filter(([header]) => header.toLowerCase() === wanted).map(([, value]) => value);
}

/** A content type without its parameters, lower-cased. */
export function mediaType(value: string): string {
  return (value.split(";")[0] ?? "").trim().toLowerCase();
}

export function isStream(send: SendSeen): boolean {
  return mediaType(headerValues(send.headers, "content-type")[0] ?? "") === "text/event-stream";
}

function tryParse(text: Buffer | string): Json | undefined {
  try {
    return parseValue(text);
  } catch (error) {
    if (error instanceof JsonError) return undefined;
    throw error;
  }
}

/** The JSON objects of an answer: the body's one, or those of a stream's events, in order. */
export function answerValues(send: SendSeen): Json[] {
  if (!isStream(send)) {
    const value = tryParse(send.body);
    return value === undefined ? [] : [value];
  }
  return readEvents(send.body.toString("utf8"))
    .map((event) => tryParse(event.data))
    .filter((value) => value !== undefined);
}

/** The value at the path: of the answer's JSON, in a stream of the last event that has the path. */
export function answerAt(send: SendSeen, path: string): Json | undefined {
  return answerValues(send)
    .map((value) => get(value, path))
    .filter((value) => value !== undefined)
    .at(-1);
}

/** How many choices came: of the body, in a stream the distinct indices of all its events. */
export function choices(send: SendSeen): number {
  const indices = new Set<string>();
  let most = 0;
  for (const value of answerValues(send)) {
    const list = get(value, "choices");
    if (!Array.isArray(list)) continue;
    most = Math.max(most, list.length);
    for (const choice of list) {
      const index = get(choice, "index");
      if (index instanceof JsonNumber) indices.add(index.text);
    }
  }
  return isStream(send) ? indices.size : most;
}

/** The stream's last event is `[DONE]`. */
export function saysDone(send: SendSeen): boolean {
  return isStream(send) && readEvents(send.body.toString("utf8")).at(-1)?.data === "[DONE]";
}

/** A stream that tells its reader that it broke: cut off, or an event that carries an error. */
export function saysBroken(send: SendSeen): boolean {
  return send.end !== "clean" || answerValues(send).some((value) => (get(value, "error") ?? null) !== null);
}

/** 200 and everything there: a stream of chat chunks or completions ends with `[DONE]`. */
export function isWhole(send: SendSeen): boolean {
  if (send.status !== 200 || send.end !== "clean") return false;
  const path = send.path.split("?")[0] ?? "";
  if (isStream(send) && (path === "/v1/chat/completions" || path === "/v1/completions")) return saysDone(send) && !saysBroken(send);
  return true;
}
