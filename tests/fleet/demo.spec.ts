import { describe, expect, it } from "vitest";
import { demoTable, table, type DemoResult } from "./demo-report.js";
import { DEMO_REQUESTS } from "./demo-requests.js";

const RESULT: DemoResult = {
  name: "long cold text",
  decision: "prefill-decode",
  reasons: { decode: "picked", prefill: "run_uncached", encode: "skip_text_only" },
  endpoints: { decode: "127.0.0.1:1", prefill: "127.0.0.1:2", encode: [] },
  legs: [
    { stage: "prefill", endpoint: "127.0.0.1:2", status: 200, ms: 120 },
    { stage: "decode", endpoint: "127.0.0.1:1", status: 503, ms: 70 },
  ],
  status: 200,
  ms: 201,
};

describe("the demo", () => {
  it("prints what was decided and why, by the pods' names", () => {
    const lines = demoTable([RESULT, { ...RESULT, name: "x", endpoints: { ...RESULT.endpoints, prefill: "" }, reasons: { ...RESULT.reasons, prefill: "skip_short_prompt" }, legs: [] }], new Map([["127.0.0.1:1", "d0"], ["127.0.0.1:2", "p1"]]));
    expect(lines[2]).toContain("long cold text  prefill-decode  picked d0  run_uncached p1");
    expect(lines[2]).toContain("prefill p1 120 ms, decode d0 503 70 ms");
    expect(lines[2]).toMatch(/200 {5}201 ms$/);
    expect(lines[3]).toContain("skip_short_prompt");
  });

  it("pads columns to their widest cell", () => {
    expect(table(["a", "bb"], [["xxx", "y"], ["z"]])).toEqual(["a    bb", "---  --", "xxx  y", "z"]);
  });

  it("sends one request of each kind", () => {
    expect(DEMO_REQUESTS.map((request) => request.name)).toEqual(["short text", "long cold text", "the same long text again", "an image", "long text, image and audio", "streamed"]);
    const [, cold, again] = DEMO_REQUESTS;
    expect(again?.body).toEqual(cold?.body);
    const text = JSON.stringify(cold?.body);
    // Four characters a token: above every threshold, below the 1,280 tokens that the picker looks at.
    expect(text.length / 4).toBeGreaterThan(300);
    expect(text.length / 4).toBeLessThan(1200);
    expect(DEMO_REQUESTS.at(-1)?.body).toMatchObject({ stream: true });
  });
});
