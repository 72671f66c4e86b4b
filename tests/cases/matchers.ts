/** The values of `expect`: a plain value, or one of the matchers. */
import { equal, JsonNumber, mapStrings, type Json } from "./json.js";
import { show } from "./paths.js";

export type Matcher =
  | { kind: "equals"; value: Json }
  | { kind: "absent" }
  | { kind: "present" }
  | { kind: "max"; limit: number }
  | { kind: "not"; value: Json }
  | { kind: "same_as_prefill" };

const NAMES: readonly string[] = ["absent", "present", "max", "not", "same_as_prefill"];

/**
 * Reads a matcher or a value. An object with a matcher's name has to be that matcher and nothing else; any other object is a value.
 * Throws an Error that says what is wrong.
 */
export function readMatcher(value: Json): Matcher {
  if (!(value instanceof Map)) return { kind: "equals", value };
  const names = [...value.keys()].filter((name) => NAMES.includes(name));
  if (names.length === 0) return { kind: "equals", value };
  const [name] = names;
  if (name === undefined || value.size !== 1) throw new Error(`a matcher stands alone, found ${[...value.keys()].join(", ")}`);
  const argument = value.get(name) ?? null;
  switch (name) {
    case "absent":
    case "present":
    case "same_as_prefill":
      if (argument !== true) throw new Error(`the matcher "${name}" takes true`);
      return { kind: name };
    case "max":
      if (!(argument instanceof JsonNumber)) throw new Error('the matcher "max" takes a number');
      return { kind: "max", limit: Number(argument.text) };
    default:
      return { kind: "not", value: argument };
  }
}

export interface MatchContext {
  /** Address mapping of an expected text, see addresses.ts. */
  map: (text: string) => string;
  /** The same path's value on the prefill leg; undefined when that leg was not called or has no such member. */
  prefill?: () => Json | undefined;
}

/** Texts of a case name addresses of its topology; what a run saw names loopback ones. What the client's body carried is not mapped, so both count. */
function equalMapped(expected: Json, seen: Json, context: MatchContext): boolean {
  return equal(mapStrings(expected, context.map), seen) || equal(expected, seen);
}

/** null when what was seen (undefined: nothing) matches, otherwise what was expected and what was seen. */
export function mismatch(matcher: Matcher, seen: Json | undefined, context: MatchContext): string | null {
  switch (matcher.kind) {
    case "equals":
      return seen !== undefined && equalMapped(matcher.value, seen, context) ? null : `expected ${show(matcher.value)}, saw ${show(seen)}`;
    case "absent":
      return seen === undefined ? null : `expected nothing, saw ${show(seen)}`;
    case "present":
      return seen !== undefined && seen !== null ? null : `expected a value, saw ${show(seen)}`;
    case "max":
      if (seen === undefined) return null;
      return seen instanceof JsonNumber && Number(seen.text) <= matcher.limit ? null : `expected at most ${matcher.limit.toString()}, saw ${show(seen)}`;
    case "not":
      return seen !== undefined && equalMapped(matcher.value, seen, context) ? `expected anything but ${show(matcher.value)}` : null;
    case "same_as_prefill": {
      const other = context.prefill?.();
      if (seen === undefined || other === undefined) return `expected the prefill leg's value ${show(other)}, saw ${show(seen)}`;
      return equal(other, seen) ? null : `expected the prefill leg's value ${show(other)}, saw ${show(seen)}`;
    }
  }
}
