import { describe, expect, it } from "vitest";

import { mostTokens, planAnswer, type AnswerPlan } from "./answer.js";
import { encode } from "./tokenizer.js";

const base: AnswerPlan = { seed: "s", maxTokens: 8, minTokens: 0, ignoreEos: false, stop: [], forcedText: null };

describe("planAnswer", () => {
  it("is a function of the seed", () => {
    expect(planAnswer(base)).toEqual(planAnswer({ ...base }));
    expect(planAnswer(base).pieces).not.toEqual(planAnswer({ ...base, seed: "t" }).pieces);
  });

  it("only cuts when the limit is lower", () => {
    const long = planAnswer({ ...base, maxTokens: 20 });
    expect(planAnswer({ ...base, maxTokens: 3 }).tokens).toEqual(long.tokens.slice(0, 3));
    expect(planAnswer({ ...base, maxTokens: 3 }).finish).toBe("length");
  });

  it("ends by itself between 24 and 64 tokens, later when more are wanted", () => {
    const free = planAnswer({ ...base, maxTokens: null });
    expect(free.finish).toBe("stop");
    expect(free.tokens.length).toBeGreaterThanOrEqual(24);
    expect(free.tokens.length).toBeLessThanOrEqual(64);
    expect(planAnswer({ ...base, maxTokens: 500, minTokens: 100 }).tokens.length).toBe(100);
    expect(planAnswer({ ...base, maxTokens: 500, ignoreEos: true })).toMatchObject({ finish: "length" });
    expect(planAnswer({ ...base, maxTokens: 500, ignoreEos: true }).tokens.length).toBe(500);
  });

  it("has tokens that the tokenizer gives for its text", () => {
    const answer = planAnswer({ ...base, maxTokens: 30, minTokens: 30 });
    expect([...encode(answer.pieces.join(""))]).toEqual(answer.tokens);
  });

  it("ends before a stop string", () => {
    const whole = planAnswer({ ...base, maxTokens: 20 });
    const word = (whole.pieces[4] ?? "").trim();
    const first = whole.pieces.findIndex((piece) => piece.includes(word));
    const cut = planAnswer({ ...base, maxTokens: 20, stop: [word] });
    expect(cut.pieces.join("")).toBe(whole.pieces.slice(0, first).join(""));
    expect(cut.finish).toBe("stop");
    expect(cut.tokens.length).toBe(first + 1);
  });

  it("says a forced text, cut by the limit", () => {
    expect(planAnswer({ ...base, maxTokens: null, forcedText: '{"berth":4}' })).toMatchObject({ finish: "stop", pieces: ['{"be', 'rth"', ":4}"] });
    expect(planAnswer({ ...base, maxTokens: 1, forcedText: '{"berth":4}' })).toMatchObject({ finish: "length", pieces: ['{"be'] });
  });

  it("never makes more tokens than it announced", () => {
    for (const plan of [base, { ...base, maxTokens: null }, { ...base, maxTokens: 500, minTokens: 90 }, { ...base, maxTokens: 700, ignoreEos: true }, { ...base, forcedText: "x".repeat(99), maxTokens: null }]) {
      expect(planAnswer(plan).tokens.length).toBeLessThanOrEqual(mostTokens(plan));
    }
  });
});
