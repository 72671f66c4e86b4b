import { describe, expect, it } from "vitest";
import { differenceExcept, memberDifference } from "./tokens.js";

const bytes = (text: string): Buffer => Buffer.from(text);

describe("bytes_identical_except", () => {
  const client = '{ "model": "m", "seed": 9007199254740993, "t": 1.0, "max_tokens": 5, "stream": true, "text": "a\\u0062" }';

  it("takes white space between tokens for nothing and leaves the named members out, wherever they stand", () => {
    expect(differenceExcept(bytes(client), bytes('{"model":"m","seed":9007199254740993,"t":1.0,"text":"a\\u0062","kv_transfer_params":{"x":[1]},"max_tokens":1}'), ["max_tokens", "stream", "kv_transfer_params"])).toBeNull();
  });

  it("leaves a member out whose name is written with escapes", () => {
    expect(differenceExcept(bytes('{"a":1,"kv\\u005fx":2}'), bytes('{"a":1}'), ["kv_x"])).toBeNull();
  });

  it.each([
    ["a number's text", client.replace("9007199254740993", "9007199254740992"), '"seed" is not the client'],
    ["a number that went through a double", client.replace("1.0", "1"), '"t" is not the client'],
    ["another escaping", client.replace("a\\u0062", "ab"), '"text" is not the client'],
    ["another order", '{"seed":9007199254740993,"model":"m","t":1.0,"text":"a\\u0062"}', 'member 1 is "seed" where the client sent "model"'],
    ["a member less", '{"model":"m","seed":9007199254740993,"t":1.0}', 'member 4 is nothing where the client sent "text"'],
    ["a member more", client.replace('"t":', '"extra":0,"t":'), 'member 3 is "extra" where the client sent "t"'],
    ["a duplicate less", '{"model":"m","seed":9007199254740993,"t":1.0,"text":"a\\u0062"}', null],
  ])("sees %s", (_what, leg, message) => {
    const found = differenceExcept(bytes(client), bytes(leg), ["max_tokens", "stream"]);
    if (message === null) expect(found).toBeNull();
    else expect(found).toContain(message);
  });

  it("sees a duplicate that was dropped and a nested member that changed", () => {
    expect(differenceExcept(bytes('{"m":"a","m":"b"}'), bytes('{"m":"b"}'), [])).not.toBeNull();
    expect(differenceExcept(bytes('{"a":{"b":[1,2]}}'), bytes('{"a":{"b":[1,3]}}'), [])).not.toBeNull();
    expect(differenceExcept(bytes('{"a":{"b":[1,2]}}'), bytes('{"a":{"b":[1,2,3]}}'), [])).not.toBeNull();
  });

  it("compares what is no object as a whole", () => {
    expect(differenceExcept(bytes("[1, 2]"), bytes("[1,2]"), [])).toBeNull();
    expect(differenceExcept(bytes("[1,2]"), bytes("[2,1]"), [])).toBe("the bodies differ");
  });

  it("throws for a text that is no JSON", () => {
    expect(() => differenceExcept(bytes("{}"), bytes("{"), [])).toThrow("ends early");
  });
});

describe("untouched", () => {
  it("wants the value's bytes, white space inside included", () => {
    expect(memberDifference(bytes('{"a": [1, 2] }'), bytes('{"x":0,"a":[1, 2]}'), "a")).toBeNull();
    expect(memberDifference(bytes('{"a": [1, 2] }'), bytes('{"a":[1,2]}'), "a")).toContain("byte for byte");
  });

  it("wants every copy of a duplicate", () => {
    expect(memberDifference(bytes('{"a":1,"a":2}'), bytes('{"a":1,"a":2}'), "a")).toBeNull();
    expect(memberDifference(bytes('{"a":1,"a":2}'), bytes('{"a":2}'), "a")).toContain("1 times");
  });

  it("is no empty promise: a member that the client did not send fails", () => {
    expect(memberDifference(bytes('{"b":1}'), bytes('{"b":1}'), "a")).toContain("the client sent no");
  });
});
