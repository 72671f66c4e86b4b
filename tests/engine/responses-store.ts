/** Stored responses, for `previous_response_id` and `GET /v1/responses/{id}`; the engine that answered keeps them, no other one knows them. */

import type { Json, JsonObject } from "./json.js";

const MOST_STORED = 1000;

interface Stored {
  /** Input items and the answer's, what a follow-up starts from. */
  readonly items: Json[];
  readonly response: JsonObject;
}

export class ResponsesStore {
  private readonly stored = new Map<string, Stored>();

  put(id: string, items: Json[], response: JsonObject): void {
    this.stored.set(id, { items, response });
    const oldest = this.stored.keys().next();
    if (this.stored.size > MOST_STORED && oldest.done !== true) this.stored.delete(oldest.value);
  }

  items(id: string): Json[] | null {
    return this.stored.get(id)?.items ?? null;
  }

  response(id: string): JsonObject | null {
    return this.stored.get(id)?.response ?? null;
  }
}
