/** What engines ask each other over their control ports: hand-offs, embeddings, stored KV. */

import type { Incarnation } from "../incarnation.js";
import { isObject, member, type Json, type JsonObject } from "../json.js";

export interface SideChannelAnswer {
  readonly status: number;
  readonly json: JsonObject;
}

function strings(value: Json | undefined): string[] {
  return Array.isArray(value) ? value.filter((item): item is string => typeof item === "string") : [];
}

/** Null: not a path of the side channel. */
export function answerSideChannel(path: string, body: Json, life: Incarnation): SideChannelAnswer | null {
  const fields: JsonObject = isObject(body) ? body : {};
  const { engineId, transfers, pool, directory } = life.services;
  switch (path) {
    case "/_sim/handoff/handshake":
      return { status: 200, json: { engineId } };
    case "/_sim/handoff/read": {
      const ids = member(fields, "blockIds");
      const requestId = member(fields, "requestId");
      const result = transfers.read(typeof requestId === "string" ? requestId : "", pool, Array.isArray(ids) ? ids.map(Number) : []);
      return { status: 200, json: { engineId, status: result.status, contents: result.contents, params: result.params } };
    }
    case "/_sim/embedding": {
      const hash = member(fields, "hash");
      return { status: 200, json: { engineId, entry: typeof hash === "string" ? life.encoder.entry(hash) : null } };
    }
    case "/_sim/kv/match": {
      const contents = strings(member(fields, "contents"));
      let blocks = 0;
      while (blocks < contents.length && directory.hasKv(contents[blocks] ?? "")) blocks += 1;
      return { status: 200, json: { engineId, blocks } };
    }
    default:
      return null;
  }
}
