import { describe, expect, it } from "vitest";
import { compose, documentText } from "./compose.js";
import { canonicalAddress } from "./address.js";
import type { Inputs } from "./inputs.js";
import type { Json } from "./json.js";
import type { ValidationReport, Validator } from "./validate.js";

function source(file: string, value: Json): Inputs["picker"] {
  return { file, value, lineOf: (path) => path.length };
}

function inputs(endpoints: Json, options: Json | null = null): Inputs {
  return { picker: source("epp.yaml", { kind: "EndpointPickerConfig" }), options: options === null ? null : source("options.yaml", options), endpoints: source("endpoints.yaml", { endpoints }) };
}

interface Entry {
  name?: string;
  address?: string;
  port?: number | string;
  labels?: { role?: string };
}

/** A validator of the tests' own: entries need an address and a port, later namesakes win, pods of role decode may decode. */
function validator(extra: Partial<ValidationReport> = {}): Validator & { seen: string[] } {
  const seen: string[] = [];
  const validate = (text: string): ValidationReport => {
    seen.push(text);
    const entries = (JSON.parse(text) as { endpoints: Entry[] }).endpoints;
    const warnings: { path: string; message: string }[] = [];
    const places = new Map<string, number>();
    for (const [i, entry] of entries.entries()) {
      const bad = canonicalAddress(entry.address ?? "") === null ? "address" : !(Number(entry.port) > 0 && Number(entry.port) < 65_536) ? "port" : null;
      if (bad === null) places.set(entry.name ?? String(i), i);
      else warnings.push({ path: `endpoints[${String(i)}].${bad}`, message: `wrong ${bad} (the entry is left out)` });
    }
    const endpoints = [...places.values()];
    return { errors: [], warnings, endpoints, decodeEndpoints: endpoints.filter((i) => entries[i]?.labels?.role === "decode"), primaryPort: 0, ...extra };
  };
  return Object.assign(validate, { seen });
}

const d0 = { name: "d0", address: "10.0.0.10", port: "8000", labels: { role: "decode" } };
const p0 = { name: "p0", address: "10.0.1.20", port: 8000, labels: { role: "prefill" } };

describe("compose", () => {
  it("makes the document and the decode cluster", () => {
    const { composition, problems } = compose(inputs([d0, p0], { kind: "FilterOptions" }), validator());
    expect(problems).toEqual([]);
    expect(composition?.decode).toEqual([{ host: "10.0.0.10", port: 8000 }]);
    expect(composition?.document).toEqual({
      picker: { kind: "EndpointPickerConfig" },
      options: { kind: "FilterOptions" },
      endpoints: [{ ...d0, namespace: "default", port: 8000 }, { ...p0, namespace: "default" }],
    });
  });

  it("hands the filter what the validator has accepted, word for word", () => {
    const judge = validator();
    const { composition } = compose(inputs([d0, p0]), judge);
    if (composition === null) throw new Error("not composed");
    const text = documentText({ revision: 1, ...composition.document });
    expect(judge.seen.at(-1)).toBe(text);
    expect(text).not.toContain("options");
  });

  it("uses the primary port where there is one, and names a host once", () => {
    const rank1 = { ...d0, name: "d0-rank-1", port: 8001 };
    const { composition } = compose(inputs([d0, rank1]), validator({ primaryPort: 9000 }));
    expect(composition?.decode).toEqual([{ host: "10.0.0.10", port: 9000 }]);
  });

  it("with an error there is nothing, and each problem points into its file", () => {
    const errors = [
      { path: "plugins[2].type", message: "a" },
      { path: "options.scrape.intervalMs", message: "b" },
      { path: "endpoints", message: "c" },
    ];
    const { composition, problems } = compose(inputs([d0], {}), validator({ errors, endpoints: [], decodeEndpoints: [] }));
    expect(composition).toBeNull();
    expect(problems.map(({ severity, file, path, line }) => [severity, file, path, line])).toEqual([
      ["error", "epp.yaml", "plugins[2].type", 15],
      ["error", "options.yaml", "options.scrape.intervalMs", "scrape.intervalMs".length],
      ["error", "endpoints.yaml", "endpoints", 9],
    ]);
  });

  it("a bad entry is left out, and takes nobody with it", () => {
    const { composition, problems } = compose(inputs([d0, { name: "bad", address: "nowhere", port: 1 }, p0]), validator());
    expect(composition?.document.endpoints.map(({ name }) => name)).toEqual(["d0", "p0"]);
    expect(problems.map(({ severity, path, message }) => [severity, path, message])).toEqual([
      ["entry", "endpoints[1].address", "wrong address"],
      ["entry", "endpoints[1]", "default/bad is left out"],
    ]);
  });

  it("a bad entry that was good keeps its last good form, in its place", () => {
    const before = { name: "d1", namespace: "default", address: "10.0.0.11", port: 8000, labels: { role: "decode" } };
    const { composition, problems } = compose(inputs([{ ...d0, name: "d1", port: "x" }, d0]), validator(), [before]);
    expect(composition?.document.endpoints).toEqual([before, { ...d0, namespace: "default", port: 8000 }]);
    expect(composition?.decode).toEqual([{ host: "10.0.0.11", port: 8000 }, { host: "10.0.0.10", port: 8000 }]);
    expect(problems.at(-1)).toMatchObject({ severity: "entry", message: "default/d1 keeps its last good form" });
  });

  it("a good namesake further down counts before a last good form, and two bad ones become one", () => {
    const before = { name: "d0", namespace: "default", address: "10.9.9.9", port: 8000, labels: {} };
    expect(compose(inputs([{ ...d0, port: 0 }, d0]), validator(), [before]).composition?.document.endpoints).toMatchObject([{ address: "10.0.0.10" }]);
    expect(compose(inputs([{ ...d0, port: 0 }, { ...d0, port: -1 }, p0]), validator(), [before]).composition?.document.endpoints.map(({ name }) => name)).toEqual(["d0", "p0"]);
  });

  it("an endpoint that is gone from the file is gone", () => {
    const before = { name: "d9", namespace: "default", address: "10.0.0.19", port: 8000, labels: {} };
    expect(compose(inputs([d0]), validator(), [before]).composition?.document.endpoints).toHaveLength(1);
  });

  it("a file in which nothing is usable is an error, an empty one is not", () => {
    expect(compose(inputs([{ name: "bad" }]), validator()).composition).toBeNull();
    const { composition, problems } = compose(inputs([]), validator());
    expect(composition?.decode).toEqual([]);
    expect(problems).toMatchObject([{ severity: "warning", path: "endpoints" }]);
  });

  it("tells the labels when none of the endpoints may decode", () => {
    const { problems } = compose(inputs([{ ...p0, labels: { "llm-d.ai/role": "prefill", zone: "a" } }]), validator());
    expect(problems.at(-1)?.message).toMatch(/none passes .* 503 \(the endpoints' labels: llm-d\.ai\/role=prefill, zone=a\)/);
  });

  it("warns of what may not be meant", () => {
    const options = { allowPaths: ["/ok", "/sleep", "/*", "/v1/load_lora_adapter", "/a//b", "/a%41"], bodyLimitBytes: 2048 };
    const { problems } = compose(inputs([d0], options), validator());
    expect(problems.every(({ severity }) => severity === "warning")).toBe(true);
    expect(problems.map(({ path }) => path)).toEqual([1, 2, 3, 4, 5].map((i) => `options.allowPaths[${String(i)}]`).concat("options.bodyLimitBytes"));
    expect(problems[0]?.message).toContain("/sleep");
    expect(problems[1]?.message).toContain("/metrics");
  });
});
