/** Dotted member paths of the cases: names and list indices, `messages.0.content`. */
import { compact, type Json } from "./json.js";

const INDEX = /^(?:0|[1-9][0-9]*)$/;

/** The value at the path; undefined when it is not there (a null that is there is null). */
export function get(value: Json, path: string): Json | undefined {
  let at: Json | undefined = value;
  for (const step of path.split(".")) {
    if (at instanceof Map) at = at.get(step);
    else if (Array.isArray(at) && INDEX.test(step)) at = at[Number(step)];
    else return undefined;
    if (at === undefined) return undefined;
  }
  return at;
}

/**
 * Changes the member at the path in place. A new name is added to its object, the index one past the end appends to its list.
 * Throws an Error that names the step of the path that is not there.
 */
export function set(value: Json, path: string, member: Json): void {
  const steps = path.split(".");
  const last = steps.pop() ?? "";
  const parent = steps.length === 0 ? value : get(value, steps.join("."));
  if (parent instanceof Map) {
    parent.set(last, member);
    return;
  }
  if (Array.isArray(parent) && INDEX.test(last) && Number(last) <= parent.length) {
    parent[Number(last)] = member;
    return;
  }
  throw new Error(`set "${path}": there is no object or list${steps.length === 0 ? "" : ` at "${steps.join(".")}"`} that could take "${last}"`);
}

/** A value in a message: compact and cut. */
export function show(value: Json | undefined): string {
  if (value === undefined) return "nothing";
  const text = compact(value);
  return text.length <= 160 ? text : `${text.slice(0, 157)}...`;
}
