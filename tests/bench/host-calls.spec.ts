import { describe, expect, it } from "vitest";
import { bestOf, readHostCalls } from "./host-calls.js";

const LOG = `[critical] wasm log: host calls, ns: {"clock":50.5,"get 16":900}
[warning] something else
[critical] wasm log: host calls, ns: {"clock":20,"get 16":700}
[critical] wasm log: host calls, ns: {"clock":30,"get 16":600}
`;

describe("host calls", () => {
  it("are read from Envoy's log", () => {
    expect(readHostCalls(LOG)).toHaveLength(3);
    expect(readHostCalls("nothing")).toEqual([]);
  });
  it("are told by the best measurement, the first left out", () => {
    expect(bestOf(readHostCalls(LOG))).toEqual({ clock: 20, "get 16": 600 });
    expect(bestOf(readHostCalls(LOG.replace("50.5", "1")))).toEqual({ clock: 20, "get 16": 600 });
  });
});
