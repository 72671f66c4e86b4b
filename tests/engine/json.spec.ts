import { describe, expect, it } from "vitest";

import { canonical, detectEncoding, isObject, JsonError, member, parseJsonBytes, parseJsonText, stringify, type Json } from "./json.js";

function utf32(text: string, littleEndian: boolean): Buffer {
  const points = [...text].map((char) => char.codePointAt(0) ?? 0);
  const out = Buffer.alloc(points.length * 4);
  points.forEach((point, index) => (littleEndian ? out.writeUInt32LE(point, index * 4) : out.writeUInt32BE(point, index * 4)));
  return out;
}

function utf16(text: string, littleEndian: boolean): Buffer {
  const out = Buffer.from(text, "utf16le");
  return littleEndian ? out : out.swap16();
}

describe("parseJsonBytes", () => {
  const text = '{"name":"tíde 🌊","n":1}';
  const wanted = { name: "tíde 🌊", n: 1 };
  const bom = (bytes: number[], rest: Buffer): Buffer => Buffer.concat([Buffer.from(bytes), rest]);
  it.each<[string, Buffer]>([
    ["utf-8", Buffer.from(text)],
    ["utf-8 with BOM", bom([0xef, 0xbb, 0xbf], Buffer.from(text))],
    ["utf-16le", utf16(text, true)],
    ["utf-16be", utf16(text, false)],
    ["utf-16le with BOM", bom([0xff, 0xfe], utf16(text, true))],
    ["utf-16be with BOM", bom([0xfe, 0xff], utf16(text, false))],
    ["utf-32le", utf32(text, true)],
    ["utf-32be", utf32(text, false)],
    ["utf-32le with BOM", bom([0xff, 0xfe, 0, 0], utf32(text, true))],
    ["utf-32be with BOM", bom([0, 0, 0xfe, 0xff], utf32(text, false))],
  ])("reads %s", (_name, body) => {
    expect(parseJsonBytes(body)).toEqual(wanted);
  });

  it("tells two-byte texts apart", () => {
    expect(detectEncoding(Buffer.from([0, 0x31])).encoding).toBe("utf-16be");
    expect(detectEncoding(Buffer.from([0x31, 0])).encoding).toBe("utf-16le");
  });

  it("refuses bytes that are no text", () => {
    expect(() => parseJsonBytes(Buffer.from([0x22, 0xc3, 0x28, 0x22]))).toThrow(JsonError);
    expect(() => parseJsonBytes(Buffer.from([0x1f, 0x8b, 8, 0, 1, 2, 3, 4]))).toThrow(JsonError);
  });
});

describe("parseJsonText", () => {
  it("keeps integers of any size", () => {
    expect(parseJsonText('{"seed":9007199254740993,"trace":18446744073709551615,"small":12}')).toEqual({ seed: 9007199254740993n, trace: 18446744073709551615n, small: 12 });
  });

  it("reads what Python reads and JSON does not allow", () => {
    const value = parseJsonText('{"a":NaN,"b":Infinity,"c":-Infinity,"d":1e400}');
    expect(isObject(value) && [member(value, "b"), member(value, "c"), member(value, "d")]).toEqual([Infinity, -Infinity, Infinity]);
    expect(isObject(value) && Number.isNaN(member(value, "a"))).toBe(true);
  });

  it("lets the last of two equal names win, also when one is escaped", () => {
    expect(parseJsonText('{"model":"a","mo\\u0064el":"b"}')).toEqual({ model: "b" });
    expect(parseJsonText('{"model":"a","mo\\u0064el":"b","big":12345678901234567890}')).toMatchObject({ model: "b" });
  });

  it("keeps a member called __proto__ as a member", () => {
    for (const text of ['{"__proto__":{"x":1}}', '{"__proto__":{"x":12345678901234567890}}']) {
      const value = parseJsonText(text);
      expect(isObject(value) && Object.hasOwn(value, "__proto__")).toBe(true);
      expect(isObject(value) && member(value, "x")).toBe(undefined);
    }
  });

  it("reads depth without using the stack", () => {
    const depth = 200_000;
    let value: Json = parseJsonText(`${"[".repeat(depth)}${"]".repeat(depth)}`);
    let seen = 0;
    while (Array.isArray(value) && value.length === 1) {
      seen += 1;
      value = value[0] ?? null;
    }
    expect(seen).toBe(depth - 1);
  });

  // The big integer sends each text through the own parser.
  it.each([
    "",
    "{",
    '{"a":1',
    '{"a" 1}',
    "{a:1}",
    "[1,]",
    '{"a":1,}',
    '"open',
    '"\t"',
    "01",
    "[1] 2",
    '"\\x"',
    '"\\u12"',
    "tru",
    "-",
    "[12345678901234567890,]",
    '{"a":12345678901234567890 "b":1}',
  ])("refuses %j", (text) => {
    expect(() => parseJsonText(text)).toThrow(JsonError);
  });
});

describe("writing", () => {
  it("writes big integers digit for digit and names in order where asked", () => {
    const value = parseJsonText('{"b":18446744073709551615,"a":[1,{"d":2,"c":"x"}]}');
    expect(stringify(value)).toBe('{"b":18446744073709551615,"a":[1,{"d":2,"c":"x"}]}');
    expect(canonical(value)).toBe('{"a":[1,{"c":"x","d":2}],"b":18446744073709551615}');
  });
});
