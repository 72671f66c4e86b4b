import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Metrics } from "../metrics.js";
import { until } from "../testkit/upstream.js";
import { EndpointsFile, readEndpoints } from "./endpoints-file.js";

describe("readEndpoints", () => {
  it("reads lines: host:port, hosts alone, IPv6, comments", () => {
    const read = readEndpoints("# prefill\n10.0.0.1:8000\r\n10.0.0.1:8001 # second rank\n\n pod-1 \n[fd00::1]:8000\nfd00::2\n[fd00::3]\n");
    expect(Object.fromEntries(read)).toEqual({ "10.0.0.1": new Set([8000, 8001]), "pod-1": "any", "[fd00::1]": new Set([8000]), "[fd00::2]": "any", "[fd00::3]": "any" });
  });

  it("reads the endpoints file of the renderer, as YAML or JSON, by address and by name", () => {
    const expected = { "10.0.0.1": new Set([8000]), "p-0": new Set([8000]), "[fd00::1]": new Set([9000]) };
    expect(Object.fromEntries(readEndpoints("endpoints:\n  - {name: p-0, address: 10.0.0.1, port: 8000, labels: {a: b}}\n  - {address: '[fd00::1]', port: 9000}\n"))).toEqual(expected);
    expect(Object.fromEntries(readEndpoints('{"endpoints":[{"name":"p-0","address":"10.0.0.1","port":8000},{"address":"fd00::1","port":9000}]}'))).toEqual(expected);
    expect(readEndpoints("endpoints: []\n").size).toBe(0);
    expect(readEndpoints("").size).toBe(0);
  });

  it("names the line or the field that it cannot take", () => {
    expect(() => readEndpoints("10.0.0.1:8000\n10.0.0.1:99999\n")).toThrow('--allow-endpoints: line 2: "10.0.0.1:99999" is not host:port or host');
    for (const line of ["https://h:1", "h:1/path", "a b", "*"]) expect(() => readEndpoints(line)).toThrow("line 1");
    expect(() => readEndpoints("endpoints:\n  - {address: 10.0.0.1}\n")).toThrow(/^--allow-endpoints: endpoints\[0\]\.port: /);
    expect(() => readEndpoints("endpoints: 3\n")).toThrow(/^--allow-endpoints: endpoints: /);
    expect(() => readEndpoints("endpoints: [\n")).toThrow(/^--allow-endpoints: /);
  });
});

describe("EndpointsFile", () => {
  let folder: string;
  let path: string;
  const parts = { log: pino({ level: "silent" }), metrics: new Metrics(), timing: { debounceMs: 20, pollMs: 100 } };

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "sidecar-allow-"));
    path = join(folder, "endpoints");
  });
  afterEach(() => {
    rmSync(folder, { recursive: true, force: true });
  });

  it("follows the file, and keeps the old list when it cannot be read", async () => {
    writeFileSync(path, "10.0.0.1:8000\n");
    const file = new EndpointsFile(path, parts);
    expect([file.ready, [...file.hosts.keys()]]).toEqual([true, ["10.0.0.1"]]);
    writeFileSync(path, "10.0.0.2:8000\n");
    await until(() => file.hosts.has("10.0.0.2"));
    expect(file.hosts.has("10.0.0.1")).toBe(false);
    writeFileSync(path, "10.0.0.3:8000\nnot an address\n");
    await until(() => file.hosts.has("10.0.0.2"));
    rmSync(path);
    await new Promise((resolve) => setTimeout(resolve, 250));
    expect([...file.hosts.keys()]).toEqual(["10.0.0.2"]);
    writeFileSync(path, "10.0.0.4:8000\n");
    await until(() => file.hosts.has("10.0.0.4"));
    expect(await parts.metrics.registry.metrics()).toMatch(/allowlist_updates_total\{source="file",outcome="failed"\} [1-9]/);
    file.close();
  });

  it("is not begun without the file", () => {
    expect(() => new EndpointsFile(path, parts)).toThrow(`--allow-endpoints: cannot read ${path} (ENOENT)`);
    writeFileSync(path, "a b\n");
    expect(() => new EndpointsFile(path, parts)).toThrow("line 1");
  });
});
