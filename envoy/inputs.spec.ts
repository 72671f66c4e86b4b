import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readInputs } from "./inputs.js";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "inputs-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const PICKER = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: []\n";
const OPTIONS = "apiVersion: crosspoint/v1\nkind: FilterOptions\nstrict: true\n";
const ENDPOINTS = "endpoints: []\n";

function read(config: string, endpoints = ENDPOINTS, options: string | null = null): ReturnType<typeof readInputs> {
  const write = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  return readInputs({ config: write("epp.yaml", config), endpoints: write("endpoints.yaml", endpoints), options: options === null ? "" : write("options.yaml", options) });
}

describe("readInputs", () => {
  it("takes the picker alone", async () => {
    const { inputs, problems } = await read(PICKER);
    expect(problems).toEqual([]);
    expect(inputs?.options).toBeNull();
    expect(inputs?.picker.value).toMatchObject({ kind: "EndpointPickerConfig" });
  });

  it("takes FilterOptions from beside the picker or from a file of their own", async () => {
    for (const result of [await read(`${PICKER}---\n${OPTIONS}`), await read(`${OPTIONS}---\n${PICKER}`), await read(PICKER, ENDPOINTS, OPTIONS)]) {
      expect(result.problems).toEqual([]);
      expect(result.inputs?.options?.value).toMatchObject({ strict: true });
      expect(result.inputs?.picker.value).toMatchObject({ kind: "EndpointPickerConfig" });
    }
  });

  it("takes JSON as it takes YAML", async () => {
    const { inputs } = await read(JSON.stringify({ kind: "EndpointPickerConfig", plugins: [{ type: "x" }] }), JSON.stringify({ endpoints: [{ name: "d0" }] }));
    expect(inputs?.endpoints.value).toEqual({ endpoints: [{ name: "d0" }] });
  });

  it.each([
    ["two pickers", `${PICKER}---\n${PICKER}`, ENDPOINTS, null, /epp\.yaml.*more than one EndpointPickerConfig/],
    ["no picker", OPTIONS, ENDPOINTS, null, /epp\.yaml.*holds no EndpointPickerConfig/],
    ["an empty file", "", ENDPOINTS, null, /epp\.yaml.*holds no EndpointPickerConfig/],
    ["options twice", `${PICKER}---\n${OPTIONS}`, ENDPOINTS, OPTIONS, /options\.yaml.*a second FilterOptions/],
    ["an options file without options", PICKER, ENDPOINTS, "# none\n", /options\.yaml.*holds no FilterOptions/],
    ["endpoints that are no list", PICKER, "endpoints: {a: b}\n", null, /endpoints\.yaml.*endpoints: must be a list/],
    ["a list without its name", PICKER, "- name: d0\n", null, /endpoints\.yaml.*endpoints: must be a list/],
    ["an empty endpoints file", PICKER, "", null, /endpoints\.yaml.*must be a list/],
    ["two endpoints documents", PICKER, `${ENDPOINTS}---\n${ENDPOINTS}`, null, /endpoints\.yaml.*more than one document/],
  ])("refuses %s", async (_what, config, endpoints, options, said) => {
    const { inputs, problems } = await read(config, endpoints, options);
    expect(inputs).toBeNull();
    expect(problems.map(({ file, path, message }) => `${file}: ${path}: ${message}`).join("\n")).toMatch(said);
  });

  it("names every file that cannot be read", async () => {
    const { inputs, problems } = await readInputs({ config: join(folder, "a"), options: join(folder, "b"), endpoints: join(folder, "c") });
    expect(inputs).toBeNull();
    expect(problems.map(({ file }) => file)).toEqual(["a", "b", "c"].map((name) => join(folder, name)));
    expect(problems.every(({ message }) => message.startsWith("cannot be read: "))).toBe(true);
  });
});
