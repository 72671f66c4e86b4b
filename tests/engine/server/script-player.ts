/** Plays a scripted answer in place of the simulated one. */

import { DONE, SSE_TYPE, dataEvent } from "../api/sse.js";
import { breathe, sleep } from "../core/time.js";
import type { ScriptEntry } from "../types.js";
import type { Exchange } from "./exchange.js";

/** Pieces that are sent one write each, and the one that ends a stream well. */
function pieces(entry: ScriptEntry): { list: (string | Uint8Array)[]; last: string | null } {
  if (entry.chunks !== undefined) return { list: entry.chunks, last: null };
  const events = (entry.sse ?? []).map((content) => dataEvent({ id: "chatcmpl-scripted", object: "chat.completion.chunk", choices: [{ index: 0, delta: { content }, finish_reason: null }] }));
  return { list: events, last: DONE };
}

async function sendPieces(exchange: Exchange, entry: ScriptEntry): Promise<void> {
  const { list, last } = pieces(entry);
  const headers = entry.headers ?? {};
  const typed = Object.keys(headers).some((name) => name.toLowerCase() === "content-type");
  await exchange.head(entry.status ?? 200, { ...(typed ? {} : { "content-type": SSE_TYPE }), ...headers });
  for (const [index, piece] of list.entries()) {
    if (index > 0) {
      if ((entry.gap_ms ?? 0) > 0) await sleep(entry.gap_ms ?? 0, exchange.signal);
      // A turn of the loop each, so that two writes never leave as one.
      else await breathe(exchange.signal);
    }
    await exchange.write(piece);
  }
  if (entry.then === "reset") {
    // What was written has to be on the wire before the reset takes the rest of the buffer with it.
    await sleep(5, exchange.signal);
    exchange.reset();
    return;
  }
  if (last !== null) await exchange.write(last);
  exchange.end();
}

async function sendWhole(exchange: Exchange, entry: ScriptEntry): Promise<void> {
  const json = Object.hasOwn(entry, "json");
  const body = Buffer.from(json ? JSON.stringify(entry.json) : (entry.text ?? ""));
  const headers = entry.headers ?? {};
  const typed = Object.keys(headers).some((name) => name.toLowerCase() === "content-type");
  const type = typed ? {} : { "content-type": json ? "application/json" : "text/plain; charset=utf-8" };
  const length = body.length > 0 || entry.then === undefined ? { "content-length": String(body.length + (entry.then === "reset" ? 1 : 0)) } : {};
  await exchange.head(entry.status ?? 200, { ...type, ...length, ...headers });
  if (body.length > 0) await exchange.write(body);
  if (entry.then === "reset") {
    await sleep(5, exchange.signal);
    exchange.reset();
    return;
  }
  exchange.end();
}

/** @throws ClientGone when the client leaves first */
export async function playScript(exchange: Exchange, entry: ScriptEntry): Promise<void> {
  await sleep(entry.first_byte_delay_ms ?? 0, exchange.signal);
  // `refused` gets here only over a connection that was open before the port was closed.
  if (entry.tcp !== undefined) {
    await sleep(entry.delay_ms ?? 0, exchange.signal);
    exchange.reset();
    return;
  }
  await sleep(entry.delay_ms ?? 0, exchange.signal);
  if (entry.sse !== undefined || entry.chunks !== undefined) await sendPieces(exchange, entry);
  else await sendWhole(exchange, entry);
}
