/** `/tokenize`, `/detokenize` and Anthropic's `count_tokens`. */

import { ApiError } from "../errors.js";
import { Fields } from "../fields.js";
import { member, type JsonObject } from "../json.js";
import { renderChat, renderText } from "../render.js";
import { decode, tokenText } from "../tokenizer.js";
import { readChatInput } from "./chat.js";
import { promptOfIds } from "./completions.js";
import { readMessagesInput } from "./messages.js";

/** @param maxModelLen 0 where the engine has no limit */
export function tokenize(body: JsonObject, maxModelLen: number): JsonObject {
  const fields = new Fields(body);
  const addSpecial = fields.bool("add_special_tokens") ?? true;
  const withTexts = fields.bool("return_token_strs") ?? false;
  fields.done();
  const prompt = member(body, "prompt");
  if (prompt === undefined && member(body, "messages") === undefined) throw new ApiError(400, "either prompt or messages is wanted", "prompt", "Bad Request");
  if (prompt !== undefined && typeof prompt !== "string") throw new ApiError(400, "prompt: Input should be a valid string", "prompt", "Bad Request");
  const tokens = [...(typeof prompt === "string" ? renderText(prompt, addSpecial) : renderChat(readChatInput(body).input)).tokens];
  return { count: tokens.length, max_model_len: maxModelLen === 0 ? null : maxModelLen, tokens, token_strs: withTexts ? tokens.map(tokenText) : null };
}

export function detokenize(body: JsonObject): JsonObject {
  const fields = new Fields(body);
  fields.required("tokens");
  const tokens = fields.list("tokens");
  fields.done();
  return { prompt: decode(promptOfIds(tokens ?? [], "tokens").tokens) };
}

export function countTokens(body: JsonObject): JsonObject {
  const count = renderChat(readMessagesInput(body).input).tokens.length;
  return { input_tokens: count, context_management: { original_input_tokens: count } };
}
