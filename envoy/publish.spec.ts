import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Composition } from "./compose.js";
import { publish, readPublished } from "./publish.js";
import { DEFAULT_SETTINGS, type Settings } from "./settings.js";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "publish-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const MODULE = Buffer.from("module 1");

function composition(hosts: number[], picker = "p"): Composition {
  return {
    document: { picker, endpoints: hosts.map((n) => ({ name: `d${String(n)}`, namespace: "default", address: `10.0.0.${String(n)}`, port: 8000, labels: {} })) },
    decode: hosts.map((n) => ({ host: `10.0.0.${String(n)}`, port: 8000 })),
    gateway: { bodyLimitBytes: 1 << 26, allowPaths: [], tlsDecode: false, tlsVerify: false },
  };
}

function at(what: Composition, nowMs: number, module: Uint8Array = MODULE, settings: Settings = DEFAULT_SETTINGS): ReturnType<typeof publish> {
  return publish(what, module, settings, folder, nowMs);
}

describe("revisions", () => {
  it("follow the clock, and grow when it goes back", async () => {
    expect((await at(composition([1]), 1_000)).revision).toBe(1_000);
    expect((await at(composition([1, 2]), 2_000)).revision).toBe(2_000);
    expect((await at(composition([1]), 500)).revision).toBe(2_001);
    expect((await readPublished(folder))?.document.revision).toBe(2_001);
  });

  it("stay when nothing changes, and nothing is written", async () => {
    await at(composition([1]), 1_000);
    const again = await at(composition([1]), 2_000);
    expect(again).toEqual({ revision: 1_000, written: [], restartNeeded: false });
  });

  it("grow with a change of the picker or the module alone", async () => {
    await at(composition([1]), 1_000);
    const picker = await at(composition([1], "q"), 2_000);
    expect(picker).toMatchObject({ revision: 2_000, written: ["plugin.json", "ecds-state.json", "ecds.json"] });
    const module = await at(composition([1], "q"), 3_000, Buffer.from("module 2"));
    expect(module.revision).toBe(3_000);
    expect(module.written).toHaveLength(4);
  });

  it("begin anew beside a folder that cannot be read, above what it may have held", async () => {
    await at(composition([1]), 1_000);
    writeFileSync(join(folder, "ecds.json"), "{");
    expect((await at(composition([1]), 5_000)).revision).toBe(5_000);
  });
});

describe("the files", () => {
  const read = (name: string): unknown => JSON.parse(readFileSync(join(folder, name), "utf8"));

  it("name one filter each, with one vm_id, one document and one module", async () => {
    await at(composition([1]), 1_000);
    const [filter, state] = ["ecds.json", "ecds-state.json"].map((name) => {
      const file = read(name) as { version_info: string; resources: { name: string; typed_config: { config: Record<string, unknown> & { vm_config: { vm_id: string; code: { local: { filename: string } } } } } }[] };
      expect(file.resources).toHaveLength(1);
      return { version: file.version_info, name: file.resources[0]?.name, config: file.resources[0]?.typed_config.config };
    });
    expect(filter?.name).toBe("crosspoint");
    expect(state?.name).toBe("crosspoint_state");
    expect(filter?.config).toMatchObject({ root_id: "crosspoint", failure_policy: "FAIL_RELOAD", allow_on_headers_stop_iteration: true, reload_config: { backoff: { base_interval: "0.2s" } } });
    expect(state?.config).toMatchObject({ root_id: "crosspoint_state" });
    expect(state?.config?.vm_config).toEqual(filter?.config?.vm_config);
    expect(filter?.config?.vm_config.vm_id).toBe("crosspoint");
    expect(filter?.config?.vm_config.code.local.filename).toMatch(new RegExp(`^${folder}/filter-[0-9a-f]{16}\\.wasm$`));
    const value = (config: unknown): unknown => (config as { configuration: { value: string } }).configuration.value;
    expect(JSON.parse(String(value(filter?.config)))).toEqual(read("plugin.json"));
    expect(value(state?.config)).toBe(value(filter?.config));
  });

  it("name the folder as Envoy sees it", async () => {
    await at(composition([1]), 1_000, MODULE, { ...DEFAULT_SETTINGS, mount: "/etc/crosspoint/" });
    for (const name of ["bootstrap.yaml", "ecds.json", "ecds-state.json"]) {
      const text = readFileSync(join(folder, name), "utf8");
      expect(text).toContain("/etc/crosspoint/");
      expect(text).not.toContain("/etc/crosspoint//");
      expect(text).not.toContain(folder);
    }
  });

  it("keep a module under its content's name, and only the last few", async () => {
    const names = new Set<string>();
    for (let i = 0; i < 5; i++) {
      const { written } = await at(composition([1]), 1_000 + i, Buffer.from(`module ${String(i)}`));
      names.add(written[0] ?? "");
      await new Promise((resolve) => setTimeout(resolve, 15));
    }
    expect(names.size).toBe(5);
    const kept = readdirSync(folder).filter((name) => name.endsWith(".wasm"));
    expect(kept).toHaveLength(3);
    expect([...names].slice(2).sort()).toEqual(kept.sort());
    expect(readFileSync(join(folder, [...names].at(-1) ?? ""), "utf8")).toBe("module 4");
  });

  it("say when Envoy has to be restarted", async () => {
    expect((await at(composition([1]), 1_000)).restartNeeded).toBe(false);
    const other = await at(composition([1]), 2_000, MODULE, { ...DEFAULT_SETTINGS, listen: { host: "127.0.0.1", port: 9_000 } });
    expect(other).toEqual({ revision: 1_000, written: ["bootstrap.yaml"], restartNeeded: true });
  });
});

describe("the order", () => {
  it.each([
    { what: "a pod that comes", from: [1], to: [1, 2], order: ["eds.json", "plugin.json", "ecds-state.json", "ecds.json"] },
    { what: "a pod that goes", from: [1, 2], to: [1], order: ["plugin.json", "ecds-state.json", "ecds.json", "eds.json"] },
    { what: "one that comes for one that goes", from: [1], to: [2], order: ["eds.json", "plugin.json", "ecds-state.json", "ecds.json", "eds.json"] },
  ])("of $what", async ({ from, to, order }) => {
    await at(composition(from), 1_000);
    expect((await at(composition(to), 2_000)).written).toEqual(order);
    expect((await readPublished(folder))?.decode.map(({ host }) => host)).toEqual(to.map((n) => `10.0.0.${String(n)}`));
  });

  it("keeps a pod that goes in the cluster until the filter has forgotten it", async () => {
    await at(composition([1]), 1_000);
    const update = at(composition([2]), 2_000);
    // Between the first cluster and the last there is the filter.
    for (;;) {
      const now = await readPublished(folder);
      if (now !== null && now.decode.length === 2) break;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    expect((await readPublished(folder))?.document.revision).toBe(1_000);
    await update;
    expect((await readPublished(folder))?.decode).toEqual([{ host: "10.0.0.2", port: 8000 }]);
  });
});

describe("readPublished", () => {
  it("is null for a folder that was never rendered", async () => {
    expect(await readPublished(folder)).toBeNull();
    expect(await readPublished(join(folder, "missing"))).toBeNull();
  });
});
