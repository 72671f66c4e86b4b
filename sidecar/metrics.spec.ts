import { describe, expect, it } from "vitest";
import { Metrics } from "./metrics.js";

describe("Metrics", () => {
  it("counts on a registry of its own", async () => {
    const [one, other] = [new Metrics(), new Metrics()];
    one.handoffInvalid.inc({ reason: "missing" });
    expect(await one.registry.metrics()).toContain('crosspoint_sidecar_handoff_invalid_total{reason="missing"} 1');
    expect(await other.registry.metrics()).toContain('crosspoint_sidecar_handoff_invalid_total{reason="missing"} 0');
  });

  it("names everything alike, and Node's own only when told to", async () => {
    const metrics = new Metrics();
    const names = metrics.registry.getMetricsAsArray().map(({ name }) => name);
    expect(names.every((name) => name.startsWith("crosspoint_sidecar_"))).toBe(true);
    metrics.collectProcess();
    expect(await metrics.registry.metrics()).toContain("nodejs_eventloop_lag_seconds");
  });
});
