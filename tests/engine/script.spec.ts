import { describe, expect, it } from "vitest";

import { parseScript, parseStageScripts, replacesAnswer, ScriptError, ScriptQueue } from "./script.js";

describe("parseScript", () => {
  it("takes an entry or a list of them", () => {
    expect(parseScript({ status: 503, text: "busy" })).toEqual({ status: 503, text: "busy" });
    expect(parseScript([{ tcp: "reset" }, { delay_ms: 5, then: "reset", sse: ["a"] }])).toEqual([{ tcp: "reset" }, { delay_ms: 5, then: "reset", sse: ["a"] }]);
    expect(parseScript({ json: null })).toEqual({ json: null });
  });

  it("takes bytes as chunks, over HTTP as base64", () => {
    expect(parseScript({ chunks: ["a", { base64: "w68=" }, new Uint8Array([1])] })).toEqual({ chunks: ["a", Buffer.from([0xc3, 0xaf]), new Uint8Array([1])] });
  });

  it.each<[unknown, string]>([
    [{ statuss: 200 }, "script.statuss"],
    [[{ status: 200 }, { status: "200" }], "script[1].status"],
    [{ status: 99 }, "script.status"],
    [{ headers: { a: 1 } }, "script.headers.a"],
    [{ sse: "x" }, "script.sse"],
    [{ chunks: [1] }, "script.chunks[0]"],
    [{ delay_ms: -1 }, "script.delay_ms"],
    [{ tcp: "closed" }, "script.tcp"],
    [{ then: "close" }, "script.then"],
    [{ json: {}, text: "x" }, "script"],
    [[], "script"],
    ["x", "script"],
  ])("refuses %j and names the member", (script, path) => {
    expect(() => parseScript(script)).toThrow(ScriptError);
    expect(() => parseScript(script)).toThrow(new RegExp(`^${path.replace(/[[\]]/g, "\\$&")}:`));
  });

  it("takes a script per stage", () => {
    expect(parseStageScripts({ prefill: { status: 500 }, decode: [{ delay_ms: 1 }] })).toEqual({ prefill: { status: 500 }, decode: [{ delay_ms: 1 }] });
    expect(() => parseStageScripts({ prefill: {}, other: {} })).toThrow(/script\.other/);
  });
});

describe("replacesAnswer", () => {
  it("is for entries that say what the answer is", () => {
    expect(replacesAnswer({ delay_ms: 5, first_byte_delay_ms: 1, close_idle_after_ms: 3 })).toBe(false);
    for (const entry of [{ status: 200 }, { json: null }, { text: "" }, { sse: [] }, { chunks: [] }, { tcp: "reset" as const }]) expect(replacesAnswer(entry)).toBe(true);
  });
});

describe("ScriptQueue", () => {
  it("hands its entries out in order and repeats the last", () => {
    const queue = new ScriptQueue([{ status: 503 }, { status: 200 }]);
    expect([queue.take(), queue.take(), queue.take()].map(({ entry, call }) => [entry.status, call])).toEqual([
      [503, 1],
      [200, 2],
      [200, 3],
    ]);
  });

  it("tells who listens", () => {
    const queue = new ScriptQueue({ status: 200 });
    let changes = 0;
    const off = queue.onChange(() => {
      changes += 1;
    });
    queue.take();
    off();
    queue.take();
    expect([changes, queue.calls]).toEqual([1, 2]);
  });
});
