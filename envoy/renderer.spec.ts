import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, unlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { built } from "../tests/fleet/root.js";
import { renderOnce, type RenderResult } from "./renderer.js";
import { DEFAULT_SETTINGS } from "./settings.js";
import { loadValidator } from "./validate.js";
import { watchFiles } from "./watch.js";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "renderer-"));
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "filter.wasm"), "a module, as far as the renderer cares");
  picker("");
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

/** A picker document whose `file-discovery` has these parameters ("": none of that plugin). */
function picker(parameters: string): void {
  const discovery = parameters === "" ? "" : `  - {type: file-discovery, parameters: ${parameters}}\n`;
  writeFileSync(join(folder, "epp.yaml"), `apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n  - {type: queue-scorer}\n${discovery}`);
}

function endpoints(...entries: string[]): void {
  writeFileSync(join(folder, "endpoints.yaml"), `endpoints: [${entries.join(", ")}]\n`);
}

async function render(): Promise<RenderResult> {
  const job = {
    config: join(folder, "epp.yaml"),
    options: "",
    endpoints: join(folder, "endpoints.yaml"),
    wasm: join(folder, "filter.wasm"),
    out: join(folder, "out"),
    settings: DEFAULT_SETTINGS,
  };
  return renderOnce(job, await loadValidator(built("scanner.wasm")));
}

interface Entry {
  name: string;
  namespace: string;
  address: string;
}

function published(): Entry[] {
  return (JSON.parse(readFileSync(join(folder, "out", "plugin.json"), "utf8")) as { endpoints: Entry[] }).endpoints;
}

const D0 = "{name: d0, address: 10.0.0.10, port: 8000}";

describe("the endpoints file", () => {
  it("S-DS-01 missing or over 1 MiB: nothing is written; an entry with a bad address or port is left out, and IPv6 is good", async () => {
    const missing = await render();
    expect(missing.publication).toBeNull();
    expect(missing.problems.map(({ message }) => message).join()).toContain("cannot be read");

    endpoints(D0);
    const body = readFileSync(join(folder, "endpoints.yaml"), "utf8");
    writeFileSync(join(folder, "endpoints.yaml"), body + "#".repeat(1024 * 1024 - body.length));
    expect((await render()).publication).not.toBeNull();
    writeFileSync(join(folder, "endpoints.yaml"), body + "#".repeat(1024 * 1024 + 1 - body.length));
    const large = await render();
    expect(large.publication).toBeNull();
    expect(large.problems[0]).toMatchObject({ severity: "error", message: "has more than 1048576 bytes" });
    expect(large.problems[0]?.file).toContain("endpoints.yaml");

    // Nothing but bad entries is no fleet.
    for (const bad of ["{name: x, address: 10.0.0.256, port: 8000}", "{name: x, address: pod.example, port: 8000}", "{name: x, address: 10.0.0.1, port: 70000}", "{name: x, address: 10.0.0.1, port: 0}"]) {
      endpoints(bad);
      const alone = await render();
      expect(alone.publication, bad).toBeNull();
      endpoints(D0, bad);
      const result = await render();
      expect(result.publication, bad).not.toBeNull();
      expect(result.problems.some(({ path, severity }) => severity === "entry" && path.startsWith("endpoints[1]")), bad).toBe(true);
      expect(published().map(({ name }) => name)).toEqual(["d0"]);
    }
    endpoints(D0, '{name: d6, address: "fd00::10", port: 8000}');
    await render();
    expect(published().map(({ address }) => address)).toEqual(["10.0.0.10", "fd00::10"]);
  });

  it("S-DS-02 an entry without a namespace is in default", async () => {
    endpoints(D0, "{name: d1, namespace: other, address: 10.0.0.11, port: 8000}");
    await render();
    expect(published().map(({ namespace }) => namespace)).toEqual(["default", "other"]);
  });

  it("S-DS-03 an entry that is gone is gone, and a file that is watched and rewritten is rendered again", { timeout: 20_000 }, async () => {
    endpoints(D0, "{name: d1, address: 10.0.0.11, port: 8000}");
    await render();
    expect(published()).toHaveLength(2);
    const stop = watchFiles([join(folder, "endpoints.yaml")], async () => {
      await render();
    });
    try {
      const until = async (names: string[]): Promise<void> => {
        for (let i = 0; i < 150 && published().map(({ name }) => name).join() !== names.join(); i++) await new Promise((resolve) => setTimeout(resolve, 50));
        expect(published().map(({ name }) => name)).toEqual(names);
      };
      await new Promise((resolve) => setTimeout(resolve, 600));
      endpoints(D0);
      await until(["d0"]);
      // Replaced, the old one gone in between: the path stays watched.
      unlinkSync(join(folder, "endpoints.yaml"));
      writeFileSync(join(folder, "new.yaml"), "endpoints: [{name: d2, address: 10.0.0.12, port: 8000}, {name: d3, address: 10.0.0.13, port: 8000}]\n");
      renameSync(join(folder, "new.yaml"), join(folder, "endpoints.yaml"));
      await until(["d2", "d3"]);
    } finally {
      stop();
    }
  });

  it("S-DS-04 file-discovery without a path is refused", async () => {
    endpoints(D0);
    picker("{}");
    const { publication, problems } = await render();
    expect(publication).toBeNull();
    expect(problems.find(({ severity }) => severity === "error")).toMatchObject({ path: "plugins[1].parameters.path", message: "is required" });
    picker("{path: endpoints.yaml, watchFile: true}");
    expect((await render()).publication).not.toBeNull();
  });
});
