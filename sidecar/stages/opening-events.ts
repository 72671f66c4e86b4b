import type { ApiShape } from "../body/types.js";

const RESPONSES_OPENING = new Set(["response.created", "response.queued", "response.in_progress"]);
const MESSAGES_OPENING = new Set(["message_start", "content_block_start", "ping"]);

/**
 * Watches a decode stream for its first event with content. Engines send the opening events (a role, an id) before the handed blocks are there
 * (real-engine §7): only content proves that they were taken.
 */
export class ContentWatch {
  readonly #shape: ApiShape;
  #line = "";
  #seen = false;

  constructor(shape: ApiShape) {
    this.#shape = shape;
  }

  /** Whether an event with content has passed, `chunk` included. */
  push(chunk: Buffer): boolean {
    if (this.#seen) return true;
    // Opening events are short and ASCII where it matters: a character cut in two only spoils text that is not looked at.
    const lines = (this.#line + chunk.toString("latin1")).split(/\r\n|[\r\n]/);
    this.#line = lines.pop() ?? "";
    this.#seen = lines.some((line) => line.startsWith("data:") && !isOpening(line.slice("data:".length), this.#shape));
    return this.#seen;
  }
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
