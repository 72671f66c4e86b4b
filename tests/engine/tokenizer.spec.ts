import { describe, expect, it } from "vitest";

import { decode, encode, Special, tokenCount, TokenBuffer, VOCABULARY_END } from "./tokenizer.js";

describe("tokenizer", () => {
  it("costs a token per four ASCII characters and per other character", () => {
    expect(encode("").length).toBe(0);
    expect(encode("abcd").length).toBe(1);
    expect(encode("abcde").length).toBe(2);
    expect(encode("ab🌊cd").length).toBe(3);
    expect(encode("潮汐").length).toBe(2);
  });

  it.each(["", "tide", "the tide table\n", "tïde", "潮 and tide 🌊🌊 x", "\u0000\u007f\u0080"])("gives %j back", (text) => {
    expect(decode(encode(text))).toBe(text);
    expect(tokenCount(text)).toBe(encode(text).length);
  });

  it("does not change tokens by what follows them", () => {
    const short = [...encode("the harbour office ")];
    expect([...encode("the harbour office keeps a ledger")].slice(0, 4)).toEqual(short.slice(0, 4));
  });

  it("has different ids for different pieces, all inside the vocabulary and outside the special ones", () => {
    const texts = ["a", "aa", "aaa", "aaaa", "aaab", "\u0000", "\u0000\u0000", "é", "🌊"];
    const ids = texts.map((text) => encode(text)[0] ?? -1);
    expect(new Set(ids).size).toBe(texts.length);
    for (const id of ids) {
      expect(id).toBeLessThan(VOCABULARY_END);
      expect(Object.values(Special).map(Number)).not.toContain(id);
    }
  });

  it("grows", () => {
    const buffer = new TokenBuffer();
    buffer.pushText("x".repeat(10_001));
    buffer.pushRepeated(7, 1000);
    buffer.push(9);
    const ids = buffer.toArray();
    expect(ids.length).toBe(2501 + 1000 + 1);
    expect(ids[2501]).toBe(7);
    expect(ids.at(-1)).toBe(9);
  });
});
