import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["envoy/**/*.spec.ts", "sidecar/**/*.spec.ts", "tests/**/*.spec.ts"],
    // Tests in a real Envoy start processes: two cores are all that a CI machine may have.
    fileParallelism: false,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    passWithNoTests: false,
  },
});
