import { readdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { inRoot } from "../fleet/root.js";
import { Bed, chat } from "./filter-bed.js";
import { testValidator, until } from "./gateway.js";

const FOLDER = inRoot("tests", "fixtures", "broken-configs");

// One validator: what the renderer says of a broken configuration, the filter says of the same document when it is pushed past the renderer, and goes on with the old one.
describe("broken configurations", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ pods: { decode: 1, prefill: 1, encode: 0 } });
    await bed.settled();
  });
  afterAll(() => bed.stop());

  it("100 of them get the same answer from renderer and filter, with the field's path; the old configuration serves on", { timeout: 120_000 }, async () => {
    const files = readdirSync(FOLDER).filter((name) => /\.(ya?ml|json)$/.test(name));
    expect(files.length).toBeGreaterThanOrEqual(100);
    const ecdsPath = join(bed.gateway.out, "ecds.json");
    const good = JSON.parse(readFileSync(ecdsPath, "utf8")) as { version_info?: string; resources: { typed_config: { config: { configuration: { value: string } } } }[] };
    const validator = await testValidator();
    const rejected = (): Promise<number> => bed.gateway.stat("extension_config_discovery.http_filter.crosspoint.config_fail");
    const said = (): string => bed.gateway.running.child.output;
    const revision = (JSON.parse(pluginText(good)) as { revision: number }).revision;
    const endpoints = (JSON.parse(pluginText(good)) as { endpoints: unknown }).endpoints;

    for (const [at, name] of files.entries()) {
      const document = parse(readFileSync(join(FOLDER, name), "utf8")) as { options?: unknown; endpoints?: unknown; picker?: unknown };
      const picker = document.picker ?? document;
      const text = JSON.stringify({ revision: revision + 1 + at, picker, ...(document.options === undefined ? {} : { options: document.options }), endpoints: document.endpoints ?? endpoints });
      const { errors } = validator(text);
      expect(errors.length, name).toBeGreaterThan(0);

      const before = await rejected();
      const bad = structuredClone(good);
      setPluginText(bad, text);
      bad.version_info = `broken-${at.toString()}`;
      writeFileSync(`${ecdsPath}.new`, JSON.stringify(bad));
      renameSync(`${ecdsPath}.new`, ecdsPath);
      await until(`${name} to be refused`, async () => (await rejected()) > before);
      // The last lines: Envoy's own word on the push comes after the filter's.
      const told = said().slice(-16_384);
      for (const { path, message } of errors) expect(told, name).toContain(`configuration refused: ${path === "" ? "" : `${path}: `}${message}`);
    }
    // Refused a hundred times, and serving.
    const { answer, decision } = await bed.post(chat(100, "still here "));
    expect(answer.status).toBe(200);
    expect(decision.decision).toBe("prefill-decode");
    expect((await bed.state()).revision).toBe(revision);
  });
});

interface Ecds {
  resources: { typed_config: { config: { configuration: { value: string } } } }[];
}

function pluginText(ecds: Ecds): string {
  const [resource] = ecds.resources;
  if (resource === undefined) throw new Error("no resource");
  return resource.typed_config.config.configuration.value;
}

function setPluginText(ecds: Ecds, text: string): void {
  const [resource] = ecds.resources;
  if (resource === undefined) throw new Error("no resource");
  resource.typed_config.config.configuration.value = text;
}
