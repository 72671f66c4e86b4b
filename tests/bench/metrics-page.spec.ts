import { describe, expect, it } from "vitest";
import { readPrometheus } from "../fleet/admin.js";
import { metricsPage } from "./metrics-page.js";

describe("metricsPage", () => {
  it("is as long as asked for and holds what the filter reads", () => {
    const page = metricsPage(200 * 1024);
    expect(page.length).toBeGreaterThanOrEqual(200 * 1024);
    expect(page.length).toBeLessThan(201 * 1024);
    const names = new Set(readPrometheus(page).map(({ name }) => name));
    for (const name of ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info"]) expect(names).toContain(name);
  });
  it("is never too short for that", () => {
    expect(readPrometheus(metricsPage(1)).length).toBe(4);
  });
});
