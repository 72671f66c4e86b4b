import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { inRoot } from "../fleet/root.js";
import { chatBody, nonce } from "./bodies.js";
import { EmulatedHost, type Phases, sumCalls } from "./host.js";
import { pluginDocument } from "./micro.js";

describe("sumCalls", () => {
  it("tells reads, misses and writes apart", () => {
    const sums = sumCalls({
      "get_shared_data prefix slot": { calls: 2, bytes: 2048 },
      "get_shared_data miss": { calls: 3, bytes: 0 },
      "set_shared_data prefix slot": { calls: 4, bytes: 100 },
      "get_header_map_value miss": { calls: 1, bytes: 0 },
      get_buffer_bytes: { calls: 1, bytes: 1 << 20 },
      increment_metric: { calls: 7, bytes: 56 },
    });
    expect(sums).toMatchObject({ calls: 18, giving: 3, reads: 2, readBytes: 2048, misses: 3, writes: 4, writtenBytes: 100 });
    // A mebibyte of body is not counted as a cost of the call.
    expect(sums.hostUs).toBeLessThan(10);
  });
});

const FILTER = inRoot("build", "filter.wasm");

describe.runIf(existsSync(FILTER))("the filter on the emulated host", () => {
  const run = (host: EmulatedHost, number: number): void => {
    const { body, nonceAt } = chatBody({ kind: "text", bytes: 4096, stream: false, headers: [] });
    body.write(nonce(1, number), nonceAt, "latin1");
    const phases: Phases = { headers: 0, body: 0, last: 0, response: 0, log: 0 };
    host.run({ headers: new Map([[":path", "/v1/chat/completions"]]), body, pieceBytes: 1000 }, phases);
    expect(phases.body).toBeGreaterThan(0);
  };

  it("decides as in Envoy: a new prompt is prefilled elsewhere, one that came before is not", () => {
    const host = new EmulatedHost(readFileSync(FILTER), pluginDocument({ blockTokens: 64, maxBlocks: 256 }, 8));
    run(host, 1);
    expect(host.set.get("x-gateway-destination-endpoint")).toMatch(/^127\.0\.0\.1:2000[0-3]$/);
    expect(host.set.get("x-prefiller-host-port")).toMatch(/^127\.77\.0\.[0-3]:8000$/);
    const where = host.set.get("x-gateway-destination-endpoint");
    run(host, 1);
    expect(host.set.get("x-gateway-destination-endpoint")).toBe(where);
    expect(host.set.has("x-prefiller-host-port")).toBe(false);
    run(host, 2);
    expect(host.set.has("x-prefiller-host-port")).toBe(true);
  });

  it("is counted", () => {
    const host = new EmulatedHost(readFileSync(FILTER), pluginDocument({ blockTokens: 64, maxBlocks: 256 }, 8));
    run(host, 1);
    host.startCounting();
    run(host, 2);
    const calls = host.stopCounting();
    expect(calls.get_buffer_bytes?.bytes).toBe(4096);
    expect(sumCalls(calls).writes).toBeGreaterThan(0);
    run(host, 3);
    expect(host.stopCounting()).toEqual(calls);
  });

  it("says why a configuration is refused", () => {
    expect(() => new EmulatedHost(readFileSync(FILTER), Buffer.from('{"revision":1,"picker":{},"endpoints":7}'))).toThrow("endpoints");
  });
});
