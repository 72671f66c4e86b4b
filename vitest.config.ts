import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["envoy/**/*.spec.ts", "sidecar/**/*.spec.ts", "tests/**/*.spec.ts"],
    // Those have a configuration of their own (./scripts/test --real-engine).
    exclude: ["node_modules/**", "tests/real-engine/**/*.real.spec.ts"],
    // Tests in a real Envoy start processes: two cores are all that a CI machine may have.
    fileParallelism: false,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    passWithNoTests: false,
  },
});
