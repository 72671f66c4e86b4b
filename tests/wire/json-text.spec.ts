import { describe, expect, it } from "vitest";
import { copiesAt, isJson, stringAt, textAt } from "./json-text.js";

describe("members by their text", () => {
  const body = Buffer.from('{"a":1.0,"b":{"c":[9007199254740993,{"\\u0064":"x"}]},"a": 2E3 }');

  it("keeps numbers as they are written, takes the last of a name, resolves escapes", () => {
    expect([textAt(body, "a"), textAt(body, "b.c.0"), textAt(body, "b.c.1.d"), textAt(body, "b.x"), textAt(body, "a.b")]).toEqual(["2E3", "9007199254740993", '"x"', "absent", "absent"]);
    expect([stringAt(body, "b.c.1.d"), stringAt(body, "a")]).toEqual(["x", ""]);
    expect(copiesAt(body, "a")).toEqual(["1.0", "2E3"]);
  });

  it("finds nothing in what is no JSON", () => {
    expect([textAt("{", "a"), copiesAt(Buffer.from("{"), "a"), isJson(Buffer.from("{")), isJson(Buffer.from(" [] "))]).toEqual(["absent", [], false, true]);
  });
});
