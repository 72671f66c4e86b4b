/** The command line, as it is built. */
import { execFile, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { stringify } from "yaml";
import { pickerDocument } from "../fleet/picker.js";
import { built, inRoot } from "../fleet/root.js";
import { until } from "./gateway.js";

let folder: string;
beforeEach(() => {
  mkdirSync(inRoot("build", "gateways"), { recursive: true });
  folder = mkdtempSync(join(inRoot("build", "gateways"), "cli-"));
  writeFileSync(join(folder, "filter.wasm"), "a module, as far as the renderer cares");
  writeFileSync(join(folder, "epp.yaml"), stringify(pickerDocument({ prefill: true, encode: false })));
  writeFileSync(join(folder, "endpoints.yaml"), ENDPOINTS);
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const ENDPOINTS = `endpoints:
  - {name: d0, address: 10.0.0.10, port: "8000", labels: {role: decode}}
  - {name: d1, address: 10.0.0.11, port: 8000, labels: {role: decode}}
  - {name: p0, address: 10.0.1.20, port: 8000, labels: {role: prefill}}
`;

interface Outcome {
  code: number;
  stdout: string;
  stderr: string;
}

const RENDER = built("js", "envoy", "render.js");

function args(...more: string[]): string[] {
  return [RENDER, "--config", join(folder, "epp.yaml"), "--endpoints", join(folder, "endpoints.yaml"), "--out", join(folder, "out"), "--wasm", join(folder, "filter.wasm"), ...more];
}

async function render(...more: string[]): Promise<Outcome> {
  try {
    const { stdout, stderr } = await promisify(execFile)(process.execPath, args(...more));
    return { code: 0, stdout, stderr };
  } catch (error) {
    const { code, stdout, stderr } = error as Outcome;
    return { code, stdout, stderr };
  }
}

function out(name: string): string {
  return readFileSync(join(folder, "out", name), "utf8");
}

function endpointsOf(): { name: string; address: string; port: number }[] {
  return (JSON.parse(out("plugin.json")) as { endpoints: { name: string; address: string; port: number }[] }).endpoints;
}

describe("render", () => {
  it("writes the folder and says so", async () => {
    const first = await render();
    expect(first.code).toBe(0);
    expect(first.stdout).toMatch(/out: revision \d+, wrote filter-[0-9a-f]{16}\.wasm, bootstrap\.yaml, eds\.json, plugin\.json, ecds-state\.json, ecds\.json\n$/);
    const second = await render();
    expect(second.stdout).toMatch(/nothing changed/);
    const third = await render("--listen", "127.0.0.1:8081");
    expect(third.stdout).toMatch(/wrote bootstrap\.yaml\n$/);
    expect(third.stderr).toMatch(/restart Envoy/);
  });

  it("takes FilterOptions from the same file", async () => {
    writeFileSync(join(folder, "epp.yaml"), `${stringify(pickerDocument({ prefill: true, encode: false }))}---\n${stringify({ apiVersion: "crosspoint/v1", kind: "FilterOptions", bodyLimitBytes: "8Mi" })}`);
    expect((await render()).code).toBe(0);
    expect(out("bootstrap.yaml")).toContain("request_body_buffer_limit: 8388608");
    expect(JSON.parse(out("plugin.json"))).toMatchObject({ options: { bodyLimitBytes: "8Mi" } });
  });

  it("prints every error with file, line, field and reason, and writes nothing", async () => {
    await render();
    const before = readdirSync(join(folder, "out")).map((name) => [name, out(name)]);
    writeFileSync(
      join(folder, "epp.yaml"),
      stringify(pickerDocument({ prefill: true, encode: false }))
        .replace("nonCachedTokens: 8", "nonCachedTokens: many")
        .replace("- type: max-score-picker", "- type: best-picker"),
    );
    writeFileSync(join(folder, "options.yaml"), stringify({ apiVersion: "crosspoint/v1", kind: "FilterOptions", scrape: { intervalMs: -1 }, allowPaths: ["no-slash"] }));
    const { code, stderr, stdout } = await render("--options", join(folder, "options.yaml"));
    expect(code).toBe(1);
    expect(stdout).toBe("");
    const lines = stderr.trim().split("\n");
    const config = readFileSync(join(folder, "epp.yaml"), "utf8").split("\n");
    const place = (word: string): string => `epp.yaml:${String(config.findIndex((line) => line.includes(word)) + 1)}: error: `;
    expect(lines.find((line) => line.includes(`${place("nonCachedTokens")}plugins[`) && line.includes("].parameters.nonCachedTokens: "))).toBeDefined();
    expect(lines.find((line) => line.includes(`${place("best-picker")}plugins[`) && line.includes("'best-picker'"))).toBeDefined();
    expect(lines.find((line) => /options\.yaml:\d+: error: options\.scrape\.intervalMs: /.test(line))).toBeDefined();
    expect(lines.find((line) => /options\.yaml:\d+: error: options\.allowPaths\[0\]: /.test(line))).toBeDefined();
    expect(lines.at(-1)).toMatch(/^nothing written: \d+ errors$/);
    expect(readdirSync(join(folder, "out")).map((name) => [name, out(name)])).toEqual(before);
  });

  it.each([
    ["a missing file", () => { unlinkSync(join(folder, "endpoints.yaml")); }, /endpoints\.yaml: error: cannot be read/],
    ["broken YAML", () => { writeFileSync(join(folder, "epp.yaml"), "plugins: [\n"); }, /epp\.yaml:\d+: error: /],
    ["a missing module", () => { unlinkSync(join(folder, "filter.wasm")); }, /filter\.wasm: error: /],
  ])("refuses %s in one line", async (_what, breakIt, said) => {
    breakIt();
    const { code, stderr } = await render();
    expect(code).toBe(1);
    expect(stderr).toMatch(said);
    expect(stderr.split("\n").filter((line) => / error: |^nothing written: 1 error$/.test(line))).toHaveLength(2);
    expect(existsSync(join(folder, "out", "ecds.json"))).toBe(false);
  });

  it.each([
    [["--admin", "0.0.0.0:9901"], /admin: 0\.0\.0\.0:9901 is not a loopback address/],
    [["--state", "10.0.0.1:9902"], /state: 10\.0\.0\.1:9902 is not a loopback address/],
    [["--listen", "127.0.0.1:9901"], /must have different ports/],
    [["--listen", "localhost:8080"], /localhost:8080/],
    [["--stream-idle-timeout", "soon"], /'soon' is not a duration/],
    [["--max-connections", "0"], /'0' is not a whole number above 0/],
    [["--colour"], /unknown option/],
  ])("refuses %j", async (more, said) => {
    const { code, stderr } = await render(...more);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(said);
    expect(existsSync(join(folder, "out"))).toBe(false);
  });

  it("reports a bad endpoint and keeps the others; one that was good before keeps its last good form", async () => {
    await render();
    const bad = ENDPOINTS.replace("address: 10.0.0.11", "address: nowhere.example.test") + "  - {name: d2, address: 10.0.0.12, port: 99999}\n  - {name: d3, address: 10.0.0.13, port: 8000, labels: {role: decode}}\n";
    writeFileSync(join(folder, "endpoints.yaml"), bad);
    const { code, stderr } = await render();
    expect(code).toBe(0);
    expect(stderr).toMatch(/endpoints\.yaml:3: error: endpoints\[1\]\.address: /);
    expect(stderr).toMatch(/endpoints\.yaml:3: error: endpoints\[1\]: default\/d1 keeps its last good form/);
    expect(stderr).toMatch(/endpoints\.yaml:5: error: endpoints\[3\]\.port: /);
    expect(stderr).toMatch(/endpoints\.yaml:5: error: endpoints\[3\]: default\/d2 is left out/);
    expect(endpointsOf().map(({ name, address }) => `${name} ${address}`)).toEqual(["d0 10.0.0.10", "d1 10.0.0.11", "p0 10.0.1.20", "d3 10.0.0.13"]);
    expect(out("eds.json")).toContain("10.0.0.11");
    // It is the last good form, not the first.
    writeFileSync(join(folder, "endpoints.yaml"), ENDPOINTS.replace("10.0.0.11", "10.0.0.21"));
    await render();
    writeFileSync(join(folder, "endpoints.yaml"), bad);
    await render();
    expect(endpointsOf().find(({ name }) => name === "d1")?.address).toBe("10.0.0.21");
    // And one that is gone from the file is gone.
    writeFileSync(join(folder, "endpoints.yaml"), ENDPOINTS.replace(/.*d1.*\n/, ""));
    await render();
    expect(endpointsOf().map(({ name }) => name)).toEqual(["d0", "p0"]);
  });
});

describe("render --watch", () => {
  async function watching(use: (said: () => string) => Promise<void>, more: string[] = []): Promise<void> {
    const child = spawn(process.execPath, args("--watch", ...more), { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    child.stdout.on("data", (data: Buffer) => (said += data.toString()));
    child.stderr.on("data", (data: Buffer) => (said += data.toString()));
    const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
    try {
      await until("the first rendering", () => said.includes("wrote"));
      await use(() => said);
    } finally {
      child.kill("SIGTERM");
    }
    expect(await ended).toBe(0);
  }
  const addressOf = (name: string): string | undefined => endpointsOf().find((endpoint) => endpoint.name === name)?.address;

  it("renders again when a file is written, replaced, or gone for a while, and goes on after a bad one", { timeout: 40_000 }, async () => {
    await watching(async (said) => {
      const path = join(folder, "endpoints.yaml");
      writeFileSync(path, ENDPOINTS.replace("10.0.0.10", "10.0.0.30"));
      await until("the written file", () => addressOf("d0") === "10.0.0.30");
      writeFileSync(`${path}.new`, ENDPOINTS.replace("10.0.0.10", "10.0.0.31"));
      renameSync(`${path}.new`, path);
      await until("the replaced file", () => addressOf("d0") === "10.0.0.31");
      unlinkSync(path);
      await until("a word about it", () => said().includes(`${path}: not there`));
      writeFileSync(path, ENDPOINTS.replace("10.0.0.10", "10.0.0.32"));
      await until("the file's return", () => addressOf("d0") === "10.0.0.32");
      writeFileSync(path, "endpoints: [");
      await until("a complaint", () => said().includes("nothing written"));
      expect(addressOf("d0")).toBe("10.0.0.32");
      writeFileSync(path, ENDPOINTS.replace("10.0.0.10", "10.0.0.33"));
      await until("the good file", () => addressOf("d0") === "10.0.0.33");
    });
  });

  it("follows the `..data` link of a ConfigMap", { timeout: 40_000 }, async () => {
    const mount = join(folder, "map");
    const version = (n: number, address: string): void => {
      mkdirSync(join(mount, `..${String(n)}`), { recursive: true });
      cpSync(join(folder, "epp.yaml"), join(mount, `..${String(n)}`, "epp.yaml"));
      writeFileSync(join(mount, `..${String(n)}`, "endpoints.yaml"), ENDPOINTS.replace("10.0.0.10", address));
      symlinkSync(`..${String(n)}`, join(mount, "..tmp"));
      renameSync(join(mount, "..tmp"), join(mount, "..data"));
    };
    version(1, "10.0.0.40");
    for (const name of ["epp.yaml", "endpoints.yaml"]) symlinkSync(join("..data", name), join(mount, name));
    await watching(
      async () => {
        expect(addressOf("d0")).toBe("10.0.0.40");
        version(2, "10.0.0.41");
        await until("the second version", () => addressOf("d0") === "10.0.0.41");
        version(3, "10.0.0.42");
        await until("the third version", () => addressOf("d0") === "10.0.0.42");
      },
      ["--endpoints", join(mount, "endpoints.yaml"), "--config", join(mount, "epp.yaml")],
    );
  });
});
