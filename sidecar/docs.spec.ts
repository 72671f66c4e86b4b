import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Metrics } from "./metrics.js";
import { DEFINITIONS } from "./options.js";

const text = readFileSync(join(import.meta.dirname, "..", "docs", "sidecar.md"), "utf8");
/** First and second column of the tables' rows. */
const rows = new Map([...text.matchAll(/^\| (`--[a-z0-9-]+`) \| ([^|]*) \|/gm)].map(([, flag = "", value = ""]) => [flag.replaceAll("`", ""), value.trim()]));

describe("docs/sidecar.md", () => {
  it("has every flag, and none that there is not", () => {
    // The old name of --model-server-port stands in that one's row.
    const names = DEFINITIONS.map(({ name }) => `--${name}`).filter((name) => name !== "--vllm-port");
    const listed = [...rows.keys()].filter((name) => name !== "--kv-connector");
    expect(names.filter((name) => !rows.has(name))).toEqual([]);
    expect(listed.filter((name) => !names.includes(name))).toEqual([]);
  });

  it("has the defaults of numbers, switches and durations", () => {
    const seconds = (written: string): number => [...written.matchAll(/(\d+)(ms|s|m|h)/g)].reduce((sum, [, count = "0", unit = "s"]) => sum + Number(count) * ({ ms: 1, s: 1000, m: 60_000, h: 3_600_000 }[unit] ?? 0), 0);
    for (const { name, kind, default: fallback } of DEFINITIONS) {
      const written = rows.get(`--${name}`);
      if (written === undefined || written.includes("`") || name === "model-server-port" || name === "kv-connector") continue;
      if (kind === "int" || kind === "bool" || kind === "portText") expect([name, written]).toEqual([name, String(fallback)]);
      if (kind === "duration") expect([name, seconds(written)]).toEqual([name, fallback]);
    }
  });

  it("has every counter", async () => {
    const metrics = new Metrics();
    metrics.observeUpstreams(() => ({}));
    metrics.observeAllowlist({ size: 0, ready: true });
    const names = (await metrics.registry.getMetricsAsJSON()).map(({ name }) => name.replace("crosspoint_sidecar_", ""));
    expect(names.length).toBeGreaterThan(20);
    expect(names.filter((name) => !text.includes(`\`${name}`))).toEqual([]);
  });
});
