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

/** A first event tells of the whole response, with its instructions and tools; one that is longer has its id unread. */
const MAX_LINE_BYTES = 1 << 20;
const [CR, LF] = [0x0d, 0x0a];

/** Reads the id from a stream's first event. */
export class FirstEventId {
  /** The line that is not at its end. */
  #line: Buffer[] = [];
  #lineBytes = 0;
  /** Undefined: the first event's data is not complete. */
  #id: string | null | undefined;

  /** @returns whether the answer is known: nothing is held back for it any longer */
  push(chunk: Buffer): boolean {
    for (let start = 0; this.#id === undefined; ) {
      let end = start;
      while (end < chunk.length && chunk[end] !== CR && chunk[end] !== LF) end += 1;
      this.#line.push(chunk.subarray(start, end));
      this.#lineBytes += end - start;
      if (this.#lineBytes > MAX_LINE_BYTES) this.#settle(null);
      else if (end === chunk.length) return false;
      else this.#lineEnds();
      start = end + 1;
    }
    return true;
  }

  #lineEnds(): void {
    const line = Buffer.concat(this.#line);
    this.#line = [];
    this.#lineBytes = 0;
    if (line.toString("latin1", 0, "data:".length) === "data:") this.#settle(responseIdIn(line.subarray("data:".length)));
  }

  #settle(id: string | null): void {
    this.#id = id;
    this.#line = [];
  }

  get id(): string | null {
    return this.#id ?? null;
  }
}
