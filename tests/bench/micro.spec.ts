import { describe, expect, it } from "vitest";
import { ownTimes } from "./micro.js";

describe("ownTimes", () => {
  it("sums what WebAssembly functions took themselves, and nothing else", () => {
    const frame = (functionName: string, url: string): { functionName: string; url: string; scriptId: string; lineNumber: number; columnNumber: number } => ({ functionName, url, scriptId: "1", lineNumber: 0, columnNumber: 0 });
    const times = ownTimes(
      {
        nodes: [
          { id: 1, callFrame: frame("run", "file:///x.js") },
          { id: 2, callFrame: frame("scan", "wasm://wasm/1") },
          { id: 3, callFrame: frame("hash", "wasm://wasm/1") },
          { id: 4, callFrame: frame("scan", "wasm://wasm/1") },
        ],
        startTime: 0,
        endTime: 100,
        samples: [1, 2, 3, 4, 2],
        timeDeltas: [1000, 10, 100, 20, 10],
      },
      10,
    );
    expect(times).toEqual([
      { name: "hash", us: 10 },
      { name: "scan", us: 4 },
    ]);
  });
});
