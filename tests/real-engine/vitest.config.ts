import { defineConfig } from "vitest/config";
import { inRoot } from "../fleet/root.js";

// Only ./scripts/test --real-engine: these need the installed vLLM, and minutes.
export default defineConfig({
  test: {
    root: inRoot(),
    include: ["tests/real-engine/**/*.real.spec.ts"],
    // One pair of engines at a time: two cores, and six gigabytes of memory, are all that a machine may have.
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 960_000,
    passWithNoTests: false,
  },
});
