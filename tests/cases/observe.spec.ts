import { describe, expect, it } from "vitest";
import { readAccessLine } from "../fleet/access-log.js";
import { readPrometheus, readStats } from "../fleet/admin.js";
import type { TappedRequest } from "../fleet/tap.js";
import { decisionOfLine, decisionsOf, handoffInvalidOf, headFor, trapsOf, vmFailed } from "./observe.js";
import { filterOptions } from "./run.js";
import { JsonNumber } from "./json.js";

const RECORD = "decision=prefill-decode decode=picked@127.0.0.1:1 prefill=run_uncached@127.0.0.1:2 encode=skip_text_only model=a%20m tokens=12 cachedTokens=0 mmItems=0 decisions=1";
const line = (over: Record<string, unknown>): string => JSON.stringify({ time: "t", request_id: "r", method: "POST", path: "/x", status: 200, flags: "-", details: "via_upstream", upstream: "127.0.0.1:1", decision: RECORD, duration_ms: 3, ...over });

describe("what Envoy tells", () => {
  it("the decision record of a request", () => {
    expect(decisionOfLine(readAccessLine(line({})))).toMatchObject({ prefill: { reason: "run_uncached", endpoint: "127.0.0.1:2" }, mmItems: 0, model: "a m", decisions: 1 });
    const encoded = RECORD.replace("encode=skip_text_only", "encode=run_multimodal@[::1]:1,10.0.0.1:2");
    expect(decisionOfLine(readAccessLine(line({ decision: encoded })))).toMatchObject({ encode: { reason: "run_multimodal", endpoints: ["[::1]:1", "10.0.0.1:2"] } });
    expect(() => readAccessLine(line({ decision: RECORD.replace(" tokens=12", "") }))).toThrow("no decision record");
  });

  it("no decision where Envoy answered by itself; a missing one where the request went upstream", () => {
    expect(decisionOfLine(readAccessLine(line({ decision: null, upstream: null, status: 413 })))).toBeNull();
    expect(decisionOfLine(readAccessLine(line({ decision: "-", upstream: "-" })))).toBeNull();
    expect(decisionOfLine(readAccessLine(line({ decision: null })))).toBe("missing");
    expect(decisionOfLine(undefined)).toBe("missing");
  });

  it("a request that a failed VM ended", () => {
    expect(vmFailed(readAccessLine(line({ details: "wasm_fail_stream", status: 503 })))).toBe(true);
    expect(vmFailed(readAccessLine(line({})))).toBe(false);
    expect(vmFailed(undefined)).toBe(false);
  });

  it("the counters of decisions and of traps", () => {
    const stats = readStats("wasmcustom.crosspoint.decisions.decision_type.decode-only: 2\nwasmcustom.crosspoint.decisions.decision_type.prefill-decode: 3\nwasmcustom.crosspoint.reasons.stage.decode: 9\nwasm.crosspoint.vm_reload_success: 1\nwasm.envoy.wasm.runtime.v8.active: 7\nhistogram: P0(1,1)\n");
    expect(decisionsOf(stats)).toBe(5);
    expect(trapsOf(stats)).toBe(1);
    expect(trapsOf(readStats("server.live: 1"))).toBeNull();
    expect(decisionsOf(readStats(""))).toBe(0);
  });

  it("a request's head at the sidecar by its id, else by its path, each once", () => {
    const tapped: TappedRequest[] = [
      { connection: 1, atMs: 1, method: "GET", path: "/metrics", headers: [] },
      { connection: 2, atMs: 2, method: "POST", path: "/x", headers: [["X-Request-Id", "a"], ["X-A", "1"]] },
      { connection: 2, atMs: 3, method: "POST", path: "/x", headers: [["X-Request-Id", "b"]] },
    ];
    const taken = new Set<TappedRequest>();
    expect(headFor(tapped, "b", "POST", "/x", taken)).toEqual([["x-request-id", "b"]]);
    expect(headFor(tapped, "b", "POST", "/x", taken)).toEqual([
      ["x-request-id", "a"],
      ["x-a", "1"],
    ]);
    expect(headFor(tapped, "b", "POST", "/x", taken)).toBeNull();
    expect(headFor(tapped, null, "GET", "/v1/models", taken)).toBeNull();
  });
});

describe("the sidecar's count of unusable hand-offs", () => {
  it("is the counter of that name, else the label of one; nothing where there is neither", () => {
    expect(handoffInvalidOf(readPrometheus('# TYPE x counter\nsidecar_handoff_invalid_total{connector="nixlv2"} 2\nsidecar_handoff_invalid_total{connector="other"} 1\nfailures_total{reason="handoff_invalid"} 3\n'))).toBe(3);
    expect(handoffInvalidOf(readPrometheus('failures_total{stage="prefill",reason="handoff_invalid"} 4\nfailures_total{stage="prefill",reason="refused"} 9\n'))).toBe(4);
    expect(handoffInvalidOf(readPrometheus("up 1\n"))).toBeNull();
  });
});

describe("settings of the filter among a case's flags", () => {
  it("become FilterOptions, dots lead into objects", () => {
    expect(
      filterOptions([
        ["filter.strict", true],
        ["filter.scrape.intervalMs", new JsonNumber("100")],
        ["prefill-max-retries", new JsonNumber("2")],
      ]),
    ).toEqual({ strict: true, scrape: { intervalMs: 100 } });
    expect(filterOptions([])).toBeNull();
  });
});
