import type { ApiShape } from "../body/types.js";

const RESPONSES_OPENING = new Set(["response.created", "response.queued", "response.in_progress"]);
const MESSAGES_OPENING = new Set(["message_start", "content_block_start", "ping"]);

/** What the first event behind a stream's opening ones is. */
export type FirstEvent =
  | "content"
  /** The engine failed after it had answered 200 (real-engine §7). */
  | "error"
  /** Too little of the prompt was cached for the request's `cache_hit_threshold` (sidecar §4.2). */
  | "missed";

/**
 * Watches a decode stream for its first event with content. Engines send the opening events (a role, an id) before the handed blocks are there
 * (real-engine §7): only content proves that they were taken.
 */
export class ContentWatch {
  readonly #shape: ApiShape;
  #line = "";
  #seen: FirstEvent | null = null;

  constructor(shape: ApiShape) {
    this.#shape = shape;
  }

  /** The first event that does more than open the stream, once it has passed, `chunk` included; null before. */
  push(chunk: Buffer): FirstEvent | null {
    if (this.#seen !== null) return this.#seen;
    // Opening events are short and ASCII where it matters: a character cut in two only spoils text that is not looked at.
    const lines = (this.#line + chunk.toString("latin1")).split(/\r\n|[\r\n]/);
    this.#line = lines.pop() ?? "";
    const first = lines.find((line) => line.startsWith("data:") && !isOpening(line.slice("data:".length), this.#shape));
    if (first !== undefined) this.#seen = kindOf(first.slice("data:".length));
    return this.#seen;
  }
}

/** Whether a whole answer says that too little of its prompt was cached. */
export function isMiss(answer: unknown): boolean {
  const choices = memberOf(answer, "choices");
  if (Array.isArray(choices)) return memberOf(choices[0], "finish_reason") === CACHE_THRESHOLD;
  return memberOf(answer, "stop_reason") === CACHE_THRESHOLD || memberOf(memberOf(answer, "delta"), "stop_reason") === CACHE_THRESHOLD;
}

const CACHE_THRESHOLD = "cache_threshold";

function kindOf(data: string): FirstEvent {
  let event: unknown;
  try {
    event = JSON.parse(data);
  } catch {
    return "content";
  }
  if (isMiss(event)) return "missed";
  const type = textOf(event, "type");
  const error = memberOf(event, "error");
  return (typeof error === "object" && error !== null) || type === "error" || type === "response.failed" ? "error" : "content";
}

/** Whether an event's data only opens a stream. What cannot be read does not open anything. */
export function isOpening(data: string, shape: ApiShape): boolean {
  let event: unknown;
  try {
    event = JSON.parse(data);
  } catch {
    return false;
  }
  switch (shape) {
    case "responses":
      return RESPONSES_OPENING.has(textOf(event, "type"));
    case "messages":
      return MESSAGES_OPENING.has(textOf(event, "type"));
    case "chat": {
      const choices = memberOf(event, "choices");
      return Array.isArray(choices) && choices.length > 0 && choices.every(isRoleChoice);
    }
    case "completions":
    case "generate":
    case "other":
      return false;
  }
}

/** A choice whose delta names the role and says nothing yet. */
function isRoleChoice(choice: unknown): boolean {
  const delta = memberOf(choice, "delta");
  const finish = memberOf(choice, "finish_reason");
  if (typeof delta !== "object" || delta === null || (finish !== null && finish !== undefined)) return false;
  return Object.entries(delta).every(([name, value]) => name === "role" || value === null || value === "" || (Array.isArray(value) && value.length === 0));
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

function textOf(value: unknown, name: string): string {
  const member = memberOf(value, name);
  return typeof member === "string" ? member : "";
}
