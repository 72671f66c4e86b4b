import { describe, expect, it } from "vitest";
import { caseLines, countsLine, type CaseResult } from "./report.js";

const result = (over: Partial<CaseResult>): CaseResult => ({ name: "06-video-url-part", runs: [], pending: [], error: null, ...over });
const good = { label: [], wrong: [] };

describe("the runner's lines", () => {
  it.each([
    [result({ runs: [good] }), ["06-video-url-part passed"]],
    [result({ runs: [good, good] }), ["06-video-url-part passed (2 runs)"]],
    [result({ pending: [{ value: null, missing: ["generate"] }] }), ["06-video-url-part pending: generate"]],
    [result({ pending: [{ value: null, missing: ["generate", "zstd"] }] }), ["06-video-url-part pending: generate, zstd"]],
    [result({ runs: [good], pending: [{ value: "shared-storage", missing: ["shared-storage"] }] }), ["06-video-url-part passed", "06-video-url-part [shared-storage] pending: shared-storage"]],
    [result({ runs: [{ label: [], wrong: ["a", "b\n  c"] }] }), ["06-video-url-part failed", "    a", "    b | c"]],
    [result({ runs: [good, { label: ["nixlv2", "local"], wrong: ["a"] }] }), ["06-video-url-part failed (1 of 2 runs)", "    [nixlv2, local] a"]],
    [result({ error: "given.x: unknown key" }), ["06-video-url-part failed: given.x: unknown key"]],
  ])("%#", (subject, lines) => {
    expect(caseLines(subject)).toEqual(lines);
  });

  it("count what passed, failed and is pending", () => {
    const counts = countsLine([
      result({ runs: [good], pending: [{ value: "sglang", missing: ["sglang"] }] }),
      result({ runs: [{ label: [], wrong: ["a"] }] }),
      result({ error: "x" }),
      result({ pending: [{ value: null, missing: ["zstd"] }] }),
    ]);
    expect(counts).toEqual({ line: "1 passed, 2 failed, 2 pending", passed: 1, failed: 2, pending: 2 });
  });
});
