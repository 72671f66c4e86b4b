import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { inRoot } from "../fleet/root.js";
import { Bed, chat } from "./filter-bed.js";
import { testValidator, until } from "./gateway.js";

const FOLDER = inRoot("tests", "fixtures", "broken-configs");

interface Broken {
  expect?: { path: string; message: string };
  /** Accepted, with this warning: not of this test. */
  expectWarning?: unknown;
  picker?: unknown;
  options?: unknown;
  endpoints?: unknown;
  revision?: unknown;
  text?: string;
}

/** The plugin document of a file (tests/fixtures/README.md). */
function documentOf(broken: Broken): string {
  if (broken.text !== undefined) return broken.text;
  const endpoints = [{ name: "d0", address: "10.0.0.10", port: 8000 }];
  return JSON.stringify({ revision: 1, endpoints, ...broken, expect: undefined, expectWarning: undefined });
}

// One validator: what the renderer says of a broken configuration, the filter says of the same document when it is pushed past the renderer, and goes on with the old one.
describe("broken configurations", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ pods: { decode: 1, prefill: 1, encode: 0 } });
    await bed.settled();
  });
  afterAll(() => bed.stop());

  it("100 of them get the same answer from renderer and filter, with the field's path; the old configuration serves on", { timeout: 120_000 }, async () => {
    const files = readdirSync(FOLDER).filter((name) => name.endsWith(".yaml"));
    const broken = files.map((name) => ({ name, document: parse(readFileSync(join(FOLDER, name), "utf8")) as Broken })).filter(({ document }) => document.expect !== undefined);
    expect(broken.length).toBeGreaterThanOrEqual(100);
    const ecdsPath = join(bed.gateway.out, "ecds.json");
    const good = JSON.parse(readFileSync(ecdsPath, "utf8")) as Ecds;
    const validator = await testValidator();
    const rejected = (): Promise<number> => bed.gateway.stat("extension_config_discovery.http_filter.crosspoint.config_fail");
    const { revision } = await bed.state();

    for (const [at, { name, document }] of broken.entries()) {
      const text = documentOf(document);
      const { errors } = validator(text);
      expect(errors, name).toHaveLength(1);
      expect(errors[0]?.path, name).toBe(document.expect?.path);
      expect(errors[0]?.message, name).toContain(document.expect?.message ?? "");

      const before = await rejected();
      const bad = structuredClone(good);
      setPluginText(bad, text);
      bad.version_info = `broken-${at.toString()}`;
      writeFileSync(`${ecdsPath}.new`, JSON.stringify(bad));
      renameSync(`${ecdsPath}.new`, ecdsPath);
      await until(`${name} to be refused`, async () => (await rejected()) > before);
      const { path, message } = errors[0] ?? { path: "", message: "" };
      // The counter may be ahead of the log, which comes through a pipe.
      const line = `configuration refused: ${path === "" ? "" : `${path}: `}${message}`;
      await until(`${name}: "${line}" in the log`, () => Promise.resolve(bed.gateway.running.child.output.slice(-16_384).includes(line)));
    }
    // Refused a hundred times, and serving.
    const { answer, decision } = await bed.post(chat(100, "still here "));
    expect(answer.status).toBe(200);
    expect(decision.decision).toBe("prefill-decode");
    expect((await bed.state()).revision).toBe(revision);
  });
});

interface Ecds {
  version_info?: string;
  resources: { typed_config: { config: { configuration: { value: string } } } }[];
}

function setPluginText(ecds: Ecds, text: string): void {
  const [resource] = ecds.resources;
  if (resource === undefined) throw new Error("no resource");
  resource.typed_config.config.configuration.value = text;
}
