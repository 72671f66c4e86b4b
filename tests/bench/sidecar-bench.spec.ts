import { describe, expect, it } from "vitest";
import { sidecarRow } from "./sidecar-bench.js";

describe("sidecarRow", () => {
  const sample = (firstByteMs: number, totalMs: number, sidecarCpuMs: number, envoyCpuMs: number) => ({ firstByteMs, totalMs, sidecarCpuMs, envoyCpuMs, requests: 5, othersCpus: 0 });
  const engine = [sample(0.1, 0.2, 0, 0), sample(0.2, 0.3, 0, 0), sample(0.3, 0.4, 0, 0)];
  const ours = [sample(0.5, 0.7, 0.25, 0.1), sample(0.4, 0.9, 0.3, 0.2), sample(0.9, 1.6, 0.5, 0.3)];
  it("adds over the engine alone, of the medians and of the best rounds", () => {
    const row = sidecarRow("decode-only", "1k", "sidecar", engine, ours);
    expect(row).toMatchObject({ engineFirstByteMs: 0.2, firstByteMs: 0.5, addedFirstByteMs: 0.3, addedTotalMs: 0.6, sidecarCpuMs: 0.3, rounds: 3, requests: 15 });
    expect(row.best).toMatchObject({ addedFirstByteMs: 0.3, addedTotalMs: 0.5, sidecarCpuMs: 0.25 });
    expect(row.spread.totalMs).toEqual({ min: 0.7, max: 1.6 });
  });
  it("counts Envoy's time only where Envoy is in the path", () => {
    expect(sidecarRow("decode-only", "1k", "sidecar", engine, ours).envoyCpuMs).toBeNull();
    expect(sidecarRow("decode-only", "1k", "filter+sidecar", engine, ours).envoyCpuMs).toBe(0.2);
  });
});
