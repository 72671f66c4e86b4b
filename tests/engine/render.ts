/**
 * The chat template: messages to tokens. Everything that a real template renders takes part (roles, names, text, media, tools, tool calls and their
 * results), and so do the members that change how it renders, so that two requests have the same tokens only when an engine would see the same prompt.
 */

import { ApiError } from "./errors.js";
import { canonical, isObject, member, stringify, type Json, type JsonObject } from "./json.js";
import { modalityOf, pushMedia, readMediaPart, type PlacedMedia } from "./media.js";
import type { Prompt } from "./prompt.js";
import { Special, TokenBuffer } from "./tokenizer.js";

/** One turn, whatever API it came by. */
export interface Turn {
  readonly role: string;
  /** A string, a list of content parts, or null. */
  readonly content: Json;
  readonly name?: string;
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: string }[];
}

export interface ChatInput {
  readonly turns: readonly Turn[];
  readonly tools: Json;
  readonly addGenerationPrompt: boolean;
  readonly continueFinalMessage: boolean;
  /** Members that change the rendering (`chat_template`, `chat_template_kwargs`, `documents`, `reasoning_effort`); null when there are none. */
  readonly config: Json;
  /** `mm_processor_kwargs`. */
  readonly processing: Json;
}

const ROLES: Readonly<Record<string, number>> = {
  system: Special.system,
  user: Special.user,
  assistant: Special.assistant,
  tool: Special.tool,
  developer: Special.developer,
};
const TEXT_TYPES: readonly string[] = ["text", "input_text", "output_text", "refusal"];

/** @throws ApiError 400 for a part of an unknown type */
export function renderChat(input: ChatInput): Prompt {
  const buffer = new TokenBuffer();
  const media: PlacedMedia[] = [];
  buffer.push(Special.begin);
  if (input.config !== null) {
    buffer.push(Special.config);
    buffer.pushText(canonical(input.config));
  }
  if (Array.isArray(input.tools) && input.tools.length > 0) {
    buffer.push(Special.tools);
    buffer.pushText(stringify(input.tools));
    buffer.push(Special.end);
  }
  input.turns.forEach((turn, index) => {
    renderTurn(buffer, media, turn, input.processing);
    const open = input.continueFinalMessage && index === input.turns.length - 1;
    if (!open) buffer.push(Special.end);
  });
  if (input.addGenerationPrompt && !input.continueFinalMessage) buffer.push(Special.assistant);
  return { tokens: buffer.toArray(), media, echoText: "" };
}

function renderTurn(buffer: TokenBuffer, media: PlacedMedia[], turn: Turn, processing: Json): void {
  const role = ROLES[turn.role];
  buffer.push(role ?? Special.otherRole);
  if (role === undefined) buffer.pushText(turn.role);
  if (turn.name !== undefined) buffer.pushText(`${turn.name}: `);
  if (typeof turn.content === "string") buffer.pushText(turn.content);
  else if (Array.isArray(turn.content)) for (const part of turn.content) renderPart(buffer, media, part, processing);
  for (const call of turn.toolCalls ?? []) {
    buffer.push(Special.toolCall);
    buffer.pushText(`${call.name} ${call.arguments}`);
  }
}

function renderPart(buffer: TokenBuffer, media: PlacedMedia[], part: Json, processing: Json): void {
  if (typeof part === "string") {
    buffer.pushText(part);
    return;
  }
  if (!isObject(part)) throw new ApiError(400, "content part: an object is wanted", "messages");
  const type = member(part, "type");
  const kind = typeof type === "string" ? type : impliedType(part);
  if (TEXT_TYPES.includes(kind)) {
    const text = member(part, kind === "refusal" ? "refusal" : "text");
    if (typeof text !== "string") throw new ApiError(400, `content part of type ${kind}: text is missing`, "messages");
    buffer.pushText(text);
    return;
  }
  const item = readMediaPart(part, kind, processing);
  if (item === null) throw new ApiError(400, `Unknown part type: ${kind}`, "messages");
  pushMedia(buffer, media, item);
}

/** vLLM takes a part without `type` by the member that it has. */
function impliedType(part: JsonObject): string {
  return Object.keys(part).find((name) => name === "text" || modalityOf(name) !== null) ?? "";
}

/** A prompt of plain text, as completions and tokenize take it. */
export function renderText(text: string, addSpecialTokens = true): Prompt {
  const buffer = new TokenBuffer();
  if (addSpecialTokens) buffer.push(Special.begin);
  buffer.pushText(text);
  return { tokens: buffer.toArray(), media: [], echoText: text };
}
