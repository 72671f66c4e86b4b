import { describe, expect, it } from "vitest";
import { bytesOf, elementsOf, lastMember, membersOf, readValue, stringOf } from "./json-spans.js";

const TEXTS = ['{"a":[1,-0,0.5,1e5,1E+2,-1.25e-3]}', "[]", "{}", " \t\r\n{ } ", '"\\u0041\\n\\/"', "null", "true", "3", '{"a":{"b":[[],{}]}}', "", " ", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '"abc', '"abc\\', '"abc\\u00', "tru", "-", "1.", "1e", "[1,2", "{]", "{,}", '{"a":1,}', "[1,]", "[1 2]", "01", "+1", ".5", "1.e3", "NaN", "nul!", "{a:1}", '"\t"', '"\\x41"', '"\\u00g0"', '"\\u001\u0001"', "{} {}", "[]]", "-01", "1e+", "\u00a0{}", "{}\0"];

describe("readValue", () => {
  it.each(TEXTS)("agrees with JSON.parse on %j", (text) => {
    let valid = true;
    try {
      JSON.parse(text);
    } catch {
      valid = false;
    }
    expect(readValue(Buffer.from(text)) !== null).toBe(valid);
  });

  it("agrees with JSON.parse on every cut and on every changed byte of a document", () => {
    const text = Buffer.from('{"a":[1.5e-3,{"b":"x\\u00e9\\n"},null,true,false,[]],"c":-0}');
    const check = (candidate: Buffer): void => {
      let valid = true;
      try {
        JSON.parse(candidate.toString("latin1"));
      } catch {
        valid = false;
      }
      expect(readValue(candidate) !== null, candidate.toString("latin1")).toBe(valid);
    };
    for (let at = 0; at < text.length; at++) {
      check(text.subarray(0, at));
      for (const byte of ['"', "{", "}", "[", "]", ",", ":", "0", "1", "-", "e", ".", "\\", "u", " ", "t"]) {
        const changed = Buffer.from(text);
        changed.write(byte, at, "latin1");
        check(changed);
      }
    }
  });

  it("refuses text that is not UTF-8", () => {
    expect(readValue(Buffer.from([0x22, 0xff, 0x22]))).toBeNull();
  });

  it("steps over any depth", () => {
    expect(readValue(Buffer.from(`${"[".repeat(100_000)}${"]".repeat(100_000)}`))?.kind).toBe("array");
  });

  it("stays inside its bounds", () => {
    const text = Buffer.from('data: {"a":1}\n');
    expect(readValue(text, 6, 13)).toEqual({ kind: "object", start: 6, end: 13 });
    expect(readValue(text, 6, 12)).toBeNull();
  });
});

describe("members", () => {
  const text = Buffer.from('{ "a" : 1 , "b\\u0063": {"x":[1,2]},"a":9007199254740993 }');
  const root = readValue(text);

  it("lists them in order with their bytes", () => {
    if (root === null) throw new Error("invalid");
    expect(membersOf(text, root).map(({ name, value }) => [name, bytesOf(text, value).toString()])).toEqual([
      ["a", "1"],
      ["bc", '{"x":[1,2]}'],
      ["a", "9007199254740993"],
    ]);
  });

  it("takes the last of equal names", () => {
    const last = lastMember(text, root, "a");
    expect(last === null ? "" : bytesOf(text, last).toString()).toBe("9007199254740993");
    expect(lastMember(text, root, "z")).toBeNull();
    expect(lastMember(text, null, "z")).toBeNull();
  });

  it("lists elements", () => {
    const list = Buffer.from(' [ 1, "a" , [2],{}] ');
    const span = readValue(list);
    if (span === null) throw new Error("invalid");
    expect(elementsOf(list, span).map((element) => bytesOf(list, element).toString())).toEqual(["1", '"a"', "[2]", "{}"]);
    const empty = Buffer.from("[ ]");
    expect(elementsOf(empty, readValue(empty) ?? span)).toEqual([]);
  });

  it("resolves escapes in strings", () => {
    const value = Buffer.from('"a\\u0062"');
    expect(stringOf(value, readValue(value))).toBe("ab");
    expect(stringOf(Buffer.from("1"), readValue(Buffer.from("1")))).toBeNull();
  });
});
