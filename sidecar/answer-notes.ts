import { lastMember, readValue, stringOf } from "./body/json-spans.js";
import type { FlatHeaders } from "./headers.js";

/** Who computed the prompt: `host:port` of the prefiller whose result was used, or `local` where one was asked for and the engine did it after all. */
export const PREFILLED_BY = "x-crosspoint-prefilled-by";

/** The id of a response of `POST /v1/responses`, which a follow-up will name. */
export const RESPONSE_ID = "x-crosspoint-response-id";

/** Both are for the filter in front, which removes them; an engine that sends them is not believed. */
const NOTES: readonly string[] = [PREFILLED_BY, RESPONSE_ID];

/** What the sidecar tells of an answer, beside what the engine says. */
export interface AnswerNotes {
  /** Null: no prefill leg was asked for. */
  readonly prefilledBy: string | null;
  /** Null: not known when the head leaves. */
  readonly responseId: string | null;
}

/** The answer's headers with our notes in the place of whatever an engine has under their names. Only an answer with 2xx has any. */
export function withNotes(headers: FlatHeaders, status: number, { prefilledBy, responseId }: AnswerNotes): string[] {
  const kept: string[] = [];
  for (let index = 0; index + 1 < headers.length; index += 2) {
    const name = headers[index] ?? "";
    if (!NOTES.includes(name.toLowerCase())) kept.push(name, headers[index + 1] ?? "");
  }
  if (status < 200 || status >= 300) return kept;
  if (prefilledBy !== null) kept.push(PREFILLED_BY, prefilledBy);
  if (responseId !== null) kept.push(RESPONSE_ID, responseId);
  return kept;
}

/** The id of a whole response, or of the one that an event (`response.created`) tells of; null where there is none that can stand in a header. */
export function responseIdIn(json: Buffer): string | null {
  const root = readValue(json);
  const response = lastMember(json, root, "response");
  const id = stringOf(json, lastMember(json, response ?? root, "id"));
  return id !== null && /^[\x21-\x7e]{1,512}$/.test(id) ? id : null;
}

const LINE_END = /\r\n|[\r\n]/;

/** Reads the id from a stream's first event. */
export class FirstEventId {
  #text: Buffer[] = [];
  /** Undefined: the first event is not complete. */
  #id: string | null | undefined;

  /** @returns whether the answer is known: nothing is held back for it any longer */
  push(chunk: Buffer): boolean {
    if (this.#id !== undefined) return true;
    this.#text.push(chunk);
    // A line's end is looked for in what is new: an event may come in many pieces.
    if (!LINE_END.test(chunk.toString("latin1"))) return false;
    const lines = Buffer.concat(this.#text).toString("latin1").split(LINE_END);
    const data = lines.slice(0, -1).find((line) => line.startsWith("data:"));
    if (data === undefined) return false;
    this.#id = responseIdIn(Buffer.from(data.slice("data:".length), "latin1"));
    this.#text = [];
    return true;
  }

  get id(): string | null {
    return this.#id ?? null;
  }
}
