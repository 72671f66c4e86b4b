import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { builtFile } from "./built.js";
import { loadValidator } from "./validate.js";

/** The smallest module there is, and the same with nothing that a validator needs. */
const EMPTY_MODULE = Buffer.from([0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00]);

describe("loadValidator", () => {
  it("refuses what holds no validator", async () => {
    const folder = mkdtempSync(join(tmpdir(), "validate-"));
    writeFileSync(join(folder, "empty.wasm"), EMPTY_MODULE);
    writeFileSync(join(folder, "text.wasm"), "text");
    await expect(loadValidator(join(folder, "empty.wasm"))).rejects.toThrow("is not a module that holds the validator");
    await expect(loadValidator(join(folder, "text.wasm"))).rejects.toThrow();
    await expect(loadValidator(join(folder, "missing.wasm"))).rejects.toThrow("ENOENT");
    rmSync(folder, { recursive: true });
  });

  it("gives the filter's own answers", async () => {
    const file = builtFile("scanner.wasm");
    expect(existsSync(file), "run ./scripts/build first").toBe(true);
    const validate = await loadValidator(file);
    const picker = { apiVersion: "llm-d.ai/v1alpha1", kind: "EndpointPickerConfig", plugins: [{ type: "decode-filter" }, { type: "max-score-picker" }], schedulingProfiles: [{ name: "default", plugins: [{ pluginRef: "decode-filter" }] }] };
    const endpoints = [
      { name: "d0", address: "10.0.0.1", port: 8000 },
      { name: "bad", address: "10.0.0.2", port: 0 },
      { name: "p0", address: "10.0.0.3", port: 8000, labels: { "llm-d.ai/role": "prefill" } },
      { name: "é\u{1F600}", address: "fd00::1", port: "8000", labels: { "llm-d.ai/role": "decode" } },
    ];
    const report = validate(JSON.stringify({ revision: 1, picker, endpoints }));
    expect(report.errors).toEqual([]);
    expect(report.endpoints).toEqual([0, 2, 3]);
    expect(report.decodeEndpoints).toEqual([0, 3]);
    expect(report.warnings.map(({ path }) => path)).toContain("endpoints[1].port");
    const broken = validate(JSON.stringify({ revision: 1, picker: { ...picker, plugins: [{ type: "no-such-plugin" }] }, endpoints }));
    expect(broken.errors[0]?.path).toBe("plugins[0].type");
    expect(broken.endpoints).toEqual([]);
    // Large documents and many calls: memory grows under the views.
    const many = Array.from({ length: 5_000 }, (_, i) => ({ name: `d${String(i)}`, address: `10.1.${String(i >> 8)}.${String(i & 255)}`, port: 8000 }));
    for (let i = 0; i < 5; i++) expect(validate(JSON.stringify({ revision: 1, picker, endpoints: many })).decodeEndpoints).toHaveLength(5_000);
    expect(validate("not JSON").errors).toHaveLength(1);
  });
});
