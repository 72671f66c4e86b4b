/** Members of a leg's body by their own text: numbers as they were written, of repeated names the last one, as engines read them. */
import { compact, type Json, parse } from "../cases/json.js";

function valueAt(body: Buffer | string, path: string): Json | undefined {
  let value: Json | undefined;
  try {
    value = parse(body).value;
  } catch {
    return undefined;
  }
  for (const name of path.split(".")) {
    if (value instanceof Map) value = value.get(name);
    else if (Array.isArray(value) && /^\d+$/.test(name)) value = value[Number(name)];
    else return undefined;
  }
  return value;
}

/** Compact JSON of the member at a dotted path, escapes of names resolved; "absent" where there is none, or the body is no JSON. */
export function textAt(body: Buffer | string, path: string): string {
  const value = valueAt(body, path);
  return value === undefined ? "absent" : compact(value);
}

/** The string at a path, empty where there is none. */
export function stringAt(body: Buffer | string, path: string): string {
  const value = valueAt(body, path);
  return typeof value === "string" ? value : "";
}

/** The bytes of all top-level members of that name, in order. */
export function copiesAt(body: Buffer, name: string): string[] {
  try {
    return (parse(body).members ?? []).filter((member) => member.name === name).map(({ valueStart, valueEnd }) => body.toString("utf8", valueStart, valueEnd));
  } catch {
    return [];
  }
}

/** Whether the bytes are one JSON text in UTF-8. */
export function isJson(body: Buffer): boolean {
  try {
    parse(body);
    return true;
  } catch {
    return false;
  }
}
