/** Answers whose form the request dictates: a forced tool call, a JSON object. */

import { randomStream, randomWord } from "../answer.js";
import { ApiError } from "../errors.js";
import { isObject, member, stringify, type Json, type JsonObject } from "../json.js";
import type { ForcedOutput } from "./request.js";

interface Tool {
  readonly name: string;
  readonly parameters: Json;
}

/** Tools in the form of chat (`function` inside), responses (flat) or messages (`input_schema`). */
export function readTools(tools: Json): Tool[] {
  if (!Array.isArray(tools)) return [];
  return tools.map((tool, index) => {
    const inner = isObject(tool) ? (member(tool, "function") ?? tool) : null;
    const name = isObject(inner) ? member(inner, "name") : undefined;
    if (!isObject(inner) || typeof name !== "string") throw new ApiError(400, `tools.${String(index)}: a name is missing`, "tools");
    return { name, parameters: member(inner, "parameters") ?? member(inner, "input_schema") ?? null };
  });
}

/** `tool_choice` in any API's form: the tool that must be called, or null when the model may answer with text. */
function chosenTool(choice: Json, tools: readonly Tool[]): Tool | null {
  if (choice === null || choice === "auto" || choice === "none") return null;
  if (choice === "required") return firstTool(tools);
  if (isObject(choice)) {
    const type = member(choice, "type");
    if (type === "auto" || type === "none") return null;
    if (type === "any") return firstTool(tools);
    const inner = member(choice, "function") ?? choice;
    const name = isObject(inner) ? member(inner, "name") : undefined;
    const tool = tools.find((candidate) => candidate.name === name);
    if (tool === undefined) throw new ApiError(400, "The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice");
    return tool;
  }
  throw new ApiError(400, "Invalid value for `tool_choice`", "tool_choice");
}

function firstTool(tools: readonly Tool[]): Tool {
  const tool = tools[0];
  if (tool === undefined) throw new ApiError(400, "When using `tool_choice`, `tools` must be set.", "tool_choice");
  return tool;
}

/**
 * A value that satisfies the schema in the plainest way. Strings are words of three letters and numbers have one digit, so that the length of the text
 * does not depend on the seed.
 */
function fill(schema: Json, next: () => number, depth = 0): Json {
  if (!isObject(schema) || depth > 8) return randomWord(next);
  const choices = member(schema, "enum");
  if (Array.isArray(choices) && choices.length > 0) return choices[0] ?? null;
  const constant = member(schema, "const");
  if (constant !== undefined) return constant;
  switch (member(schema, "type")) {
    case "integer":
    case "number":
      return next() % 10;
    case "boolean":
      return true;
    case "null":
      return null;
    case "array":
      return [fill(member(schema, "items") ?? null, next, depth + 1)];
    case "string":
      return randomWord(next);
    default: {
      const properties = member(schema, "properties");
      if (!isObject(properties)) return {};
      const filled: JsonObject = {};
      for (const [name, inner] of Object.entries(properties)) filled[name] = fill(inner, next, depth + 1);
      return filled;
    }
  }
}

function filled(schema: Json): (seed: string) => string {
  return (seed) => stringify(fill(schema, randomStream(`forced:${seed}`)));
}

/**
 * @param format `response_format` (chat, completions) or `text.format` (responses)
 * @throws ApiError 400 for a choice that no tool meets
 */
export function readForced(tools: Json, toolChoice: Json, format: Json): ForcedOutput | null {
  const tool = chosenTool(toolChoice, readTools(tools));
  if (tool !== null) return { kind: "tool", toolName: tool.name, render: filled(tool.parameters) };
  if (!isObject(format)) return null;
  const type = member(format, "type");
  if (type === "json_object") return { kind: "json", toolName: "", render: filled({ type: "object", properties: { answer: { type: "string" } } }) };
  if (type === "json_schema") {
    const inner = member(format, "json_schema") ?? format;
    return { kind: "json", toolName: "", render: filled(isObject(inner) ? (member(inner, "schema") ?? null) : null) };
  }
  return null;
}
