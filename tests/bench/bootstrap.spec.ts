import { describe, expect, it } from "vitest";
import { bootstrapText, DEFAULT_SETTINGS } from "../../envoy/index.js";
import { benchBootstrap } from "./bootstrap.js";

const text = bootstrapText({ ...DEFAULT_SETTINGS, mount: "/tmp/out" }, { bodyLimitBytes: 1 << 20, allowPaths: [], tlsDecode: false, tlsVerify: false });

describe("benchBootstrap", () => {
  it("takes nothing away but the health checks", () => {
    const changed = benchBootstrap(text, true);
    expect(text).toContain("health_checks:");
    expect(changed).not.toContain("health_checks");
    for (const kept of ["ecds.json", "ecds-state.json", "override_host", "outlier_detection", "access_log", "x-prefiller-host-port"]) expect(changed).toContain(kept);
  });
  it("takes the filter out and leaves the rest of the chain as it is", () => {
    const changed = benchBootstrap(text, false);
    expect(changed).not.toContain("ecds");
    for (const kept of ["override_host", "outlier_detection", "access_log", "x-prefiller-host-port", "decompressor", "retry_policy"]) expect(changed).toContain(kept);
  });
});
