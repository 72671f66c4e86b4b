/** Server-sent events as the APIs write them. */

import { stringify, type Json } from "../json.js";

export const SSE_TYPE = "text/event-stream; charset=utf-8";
export const DONE = "data: [DONE]\n\n";

/** An event without a name (OpenAI's). */
export function dataEvent(value: Json): string {
  return `data: ${stringify(value)}\n\n`;
}

/** An event with a name (Anthropic's and Responses'). */
export function namedEvent(name: string, value: Json): string {
  return `event: ${name}\ndata: ${stringify(value)}\n\n`;
}
