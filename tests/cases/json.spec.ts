import { describe, expect, it } from "vitest";
import { compact, equal, fromPlain, JsonError, JsonNumber, mapStrings, numberKey, parse, parseValue, toPlain } from "./json.js";

describe("JSON reader of the runner", () => {
  it("keeps the text of numbers that a double cannot hold", () => {
    expect(compact(parseValue('{"seed":9007199254740993,"weight":1e400,"t":1.0,"n":-0}'))).toBe('{"seed":9007199254740993,"weight":1e400,"t":1.0,"n":-0}');
  });

  it("compares numbers by value, not by text and not as doubles", () => {
    expect(equal(parseValue("[1, 1.0, 10e-1, 0.1e1]"), parseValue("[1.00, 1, 1, 1]"))).toBe(true);
    expect(equal(parseValue("9007199254740993"), parseValue("9007199254740992"))).toBe(false);
    expect(equal(parseValue("-0.0"), parseValue("0"))).toBe(true);
    expect(equal(parseValue("1e400"), parseValue("1e401"))).toBe(false);
    expect(numberKey("100")).toBe(numberKey("1E+2"));
  });

  it("takes the last of two equal names, written with escapes or not, and lists both as members", () => {
    const { value, members } = parse('{"model":"a", "x":1, "mod\\u0065l" : "b"}');
    expect(toPlain(value)).toEqual({ model: "b", x: 1 });
    expect(members?.map((member) => member.name)).toEqual(["model", "x", "model"]);
  });

  it("knows the bytes of each top-level member, white space outside, nested members not listed", () => {
    const text = Buffer.from(' { "a" : [ 1, {"b":2} ] , "é":"ü" } ');
    const { members } = parse(text);
    const spans = members?.map((member) => [text.toString("utf8", member.nameStart, member.nameEnd), text.toString("utf8", member.valueStart, member.valueEnd)]);
    expect(spans).toEqual([
      ['"a"', '[ 1, {"b":2} ]'],
      ['"é"', '"ü"'],
    ]);
    expect(parse("[1]").members).toBeNull();
    expect(parse("{}").members).toEqual([]);
  });

  it("resolves escapes, also surrogate pairs and a backslash before the closing quote", () => {
    expect(parseValue('"a\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude00\\\\"')).toBe('a"\\/\b\f\n\r\té😀\\');
  });

  it("reads 100,000 nested lists without the stack", () => {
    const depth = 100_000;
    const { members } = parse(`{"x":${"[".repeat(depth)}${"]".repeat(depth)}}`);
    expect(members).toHaveLength(1);
  });

  it.each([
    ["", "ends early"],
    ['{"a":"b', "string without an end"],
    ['{"a":1', "ends early"],
    ["[1,]", "unexpected ']'"],
    ['{"a":1,}', "member name"],
    ['{"a" 1}', "expected ':'"],
    ["[1 2]", "unexpected 'number'"],
    ["{} {}", "text after the value"],
    ["01", "bad number"],
    ["1.", "bad number"],
    ["+1", "unexpected byte"],
    ["NaN", "unexpected byte"],
    ["nul", "unknown word"],
    ['"\\x"', "unknown escape"],
    ['"\\u12"', "unknown escape"],
    ['"a\nb"', "control character"],
    ["\ufeff{}", "unexpected byte"],
    [Buffer.from([0x22, 0xff, 0x22]), "not UTF-8"],
  ])("refuses %j", (text, message) => {
    expect(() => parseValue(text)).toThrow(JsonError);
    expect(() => parseValue(text)).toThrow(message);
  });

  it("goes to plain values and back, and maps texts but not names", () => {
    const value = fromPlain({ a: [1, "x", null, true], skip: undefined });
    expect(compact(value)).toBe('{"a":[1,"x",null,true]}');
    expect(compact(mapStrings(value, (text) => text + text))).toBe('{"a":[1,"xx",null,true]}');
    expect(toPlain(new JsonNumber("2.5"))).toBe(2.5);
    expect(() => fromPlain(() => 1)).toThrow("no JSON for a function");
  });

  it("tells objects and lists of other members apart", () => {
    expect(equal(parseValue('{"a":1,"b":2}'), parseValue('{"b":2,"a":1}'))).toBe(true);
    expect(equal(parseValue('{"a":1}'), parseValue('{"a":1,"b":2}'))).toBe(false);
    expect(equal(parseValue('{"a":1}'), parseValue('{"b":1}'))).toBe(false);
    expect(equal(parseValue("[1,2]"), parseValue("[2,1]"))).toBe(false);
    expect(equal(parseValue("1"), parseValue('"1"'))).toBe(false);
    expect(equal(parseValue("null"), parseValue("false"))).toBe(false);
  });
});
