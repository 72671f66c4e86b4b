import { describe, expect, it } from "vitest";
import { compact, JsonNumber, parseValue, type Json } from "./json.js";
import { mismatch, readMatcher, type MatchContext } from "./matchers.js";
import { get, set, show } from "./paths.js";

const plain: MatchContext = { map: (text) => text };
const match = (matcher: string, seen: string | undefined, context: MatchContext = plain): string | null => mismatch(readMatcher(parseValue(matcher)), seen === undefined ? undefined : parseValue(seen), context);

describe("matchers", () => {
  it.each([
    ['{"absent":true}', undefined, true],
    ['{"absent":true}', "null", false],
    ['{"present":true}', "0", true],
    ['{"present":true}', "null", false],
    ['{"present":true}', undefined, false],
    ['{"max":8}', undefined, true],
    ['{"max":8}', "8", true],
    ['{"max":8}', "8.5", false],
    ['{"max":8}', '"8"', false],
    ['{"not":"x"}', '"y"', true],
    ['{"not":"x"}', undefined, true],
    ['{"not":"x"}', '"x"', false],
    ['{"not":{"a":1}}', '{"a":1.0}', false],
    ["1", "1.0", true],
    ["1", undefined, false],
    ["null", "null", true],
    ["null", undefined, false],
    ['{"a":[1,{"b":null}]}', '{"a":[1,{"b":null}]}', true],
    ['{"a":1}', '{"a":1,"b":2}', false],
    ["{}", "{}", true],
    ["9007199254740993", "9007199254740992", false],
  ])("%s against %s: %s", (matcher, seen, matches) => {
    expect(match(matcher, seen) === null).toBe(matches);
  });

  it("compares with the prefill leg's value", () => {
    const context = (value: string | undefined): MatchContext => ({ ...plain, prefill: () => (value === undefined ? undefined : parseValue(value)) });
    expect(match('{"same_as_prefill":true}', "42", context("42"))).toBeNull();
    expect(match('{"same_as_prefill":true}', "42", context("43"))).not.toBeNull();
    expect(match('{"same_as_prefill":true}', "42", context(undefined))).not.toBeNull();
    expect(match('{"same_as_prefill":true}', undefined, context(undefined))).not.toBeNull();
  });

  it("maps addresses of expected texts, and takes what the client's body carried for equal too", () => {
    const context: MatchContext = { map: (text) => text.replace("10.0.1.20", "127.0.0.1") };
    expect(match('{"host":"10.0.1.20"}', '{"host":"127.0.0.1"}', context)).toBeNull();
    expect(match('"10.0.1.20"', '"10.0.1.20"', context)).toBeNull();
    expect(match('"10.0.1.20"', '"127.0.0.2"', context)).not.toBeNull();
    expect(match('{"not":"10.0.1.20"}', '"127.0.0.1"', context)).not.toBeNull();
    expect(match('{"not":"10.0.1.20"}', '"10.0.1.20"', context)).not.toBeNull();
  });

  it.each(['{"absent":false}', '{"present":1}', '{"max":"8"}', '{"same_as_prefill":false}', '{"absent":true,"present":true}', '{"not":1,"other":2}'])("refuses %s", (matcher) => {
    expect(() => readMatcher(parseValue(matcher))).toThrow("matcher");
  });
});

describe("paths", () => {
  const value = (): Json => parseValue('{"messages":[{"content":"a"},{"0":"zero"}],"n":null,"":1}');

  it("walks names and indices", () => {
    expect(get(value(), "messages.0.content")).toBe("a");
    expect(get(value(), "messages.1.0")).toBe("zero");
    expect(get(value(), "n")).toBeNull();
    expect(get(value(), "messages.2")).toBeUndefined();
    expect(get(value(), "messages.00.content")).toBeUndefined();
    expect(get(value(), "messages.-1")).toBeUndefined();
    expect(get(value(), "messages.length")).toBeUndefined();
    expect(get(value(), "n.x")).toBeUndefined();
    expect(get(value(), "__proto__")).toBeUndefined();
  });

  it("changes, adds and appends", () => {
    const changed = value();
    set(changed, "messages.0.content", "b");
    set(changed, "messages.2", new JsonNumber("7"));
    set(changed, "background", true);
    expect(compact(changed)).toBe('{"messages":[{"content":"b"},{"0":"zero"},7],"n":null,"":1,"background":true}');
  });

  it.each(["messages.4", "messages.x", "a.b", "n.x", "messages.0.content.x"])("cannot set %s", (path) => {
    expect(() => { set(value(), path, true); }).toThrow(`set "${path}"`);
  });

  it("cuts long values in messages", () => {
    expect(show("x".repeat(500))).toHaveLength(160);
    expect(show(undefined)).toBe("nothing");
  });
});
