/** What an answer looks like, apart from what it says: to hold one engine's answers against another's. */
import { type Answer, headerLines } from "../fleet/http.js";
import { compact, type Json, JsonNumber, parse } from "../cases/json.js";

/** Members whose values are part of the form: they are words of a protocol. */
const WORDS = /(?:^|\.)(?:type|code|param|object|role|finish_reason|stop_reason|status|transfer_mode|do_remote_prefill|do_remote_decode)$/;

function kindOf(value: Json): string {
  if (value === null) return "null";
  if (typeof value === "string") return "text";
  if (value instanceof JsonNumber) return "number";
  return typeof value === "boolean" ? "true or false" : Array.isArray(value) ? "list" : "object";
}

/** Adds a line for each member: its path, and its kind, or its value where that is a word. */
function describe(value: Json, path: string, lines: Set<string>): void {
  if (value instanceof Map) {
    if (value.size === 0) lines.add(`${path}: {}`);
    for (const [name, member] of value) describe(member, path === "" ? name : `${path}.${name}`, lines);
  } else if (Array.isArray(value)) {
    if (value.length === 0) lines.add(`${path}: []`);
    for (const member of value) describe(member, `${path}[]`, lines);
  } else {
    lines.add(`${path}: ${WORDS.test(path) ? compact(value) : kindOf(value)}`);
  }
}

function describeText(text: string, prefix: string, lines: Set<string>): void {
  try {
    describe(parse(text).value, prefix, lines);
  } catch {
    lines.add(`${prefix}: no JSON`);
  }
}

/** The order of a stream's events, each once however often it comes in a row. */
function describeStream(text: string, lines: Set<string>): void {
  const order: string[] = [];
  let event = "";
  for (const line of text.split(/\r\n|\r|\n/)) {
    if (line.startsWith("event:")) event = line.slice("event:".length).trim();
    if (!line.startsWith("data:")) continue;
    const data = line.slice("data:".length).trim();
    const name = data === "[DONE]" ? "[DONE]" : event === "" ? "data" : event;
    if (order.at(-1) !== name) order.push(name);
    if (data !== "[DONE]") describeText(data, event === "" ? "" : `(${event})`, lines);
    event = "";
  }
  lines.add(`events: ${order.join(", ")}`);
}

/** Lines that are equal where two answers have the same form, sorted. */
export function outline(answer: Answer): string[] {
  const type = (headerLines(answer.headers, "content-type")[0] ?? "none").replace(/\s/g, "");
  const lines = new Set([`status ${String(answer.status)}, ${answer.end}`, `content-type ${type}`]);
  const text = answer.body.toString("utf8");
  if (type.startsWith("text/event-stream")) describeStream(text, lines);
  else if (type.startsWith("application/json")) describeText(text, "", lines);
  return [...lines].sort();
}

/** `- line` for each that only the first has, `+ line` for each that only the second has. */
export function difference(first: readonly string[], second: readonly string[]): string[] {
  return [...first.filter((line) => !second.includes(line)).map((line) => `- ${line}`), ...second.filter((line) => !first.includes(line)).map((line) => `+ ${line}`)];
}
