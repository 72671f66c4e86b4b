/** What the renderer writes, as Envoy's own check has it. */
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { envoyBinary } from "../fleet/envoy.js";
import { pickerDocument } from "../fleet/picker.js";
import { Gateway, type GatewayOptions } from "./gateway.js";

const gateways: Gateway[] = [];
afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway.stop()));
});

/** Renders, and has Envoy check the result; gives back what Envoy says of it. */
async function check(options: GatewayOptions): Promise<{ gateway: Gateway; said: string }> {
  const gateway = await Gateway.render(options);
  gateways.push(gateway);
  try {
    const { stderr } = await promisify(execFile)(envoyBinary(), ["--mode", "validate", "-c", gateway.bootstrap, "--log-level", "warning"]);
    return { gateway, said: stderr };
  } catch (error) {
    throw new Error(`Envoy refuses the bootstrap: ${error instanceof Error && "stderr" in error ? String(error.stderr) : String(error)}`);
  }
}

const decode = { name: "d0", host: "10.0.0.10", port: 8000 };
const prefill = { name: "p0", host: "10.0.1.20", port: 8000, role: "prefill" };
const encode = { name: "e0", host: "10.0.2.30", port: 8000, role: "encode" };

describe("envoy --mode validate accepts", () => {
  it.each([
    ["decode only", { prefill: false, encode: false }, [decode]],
    ["P/D", { prefill: true, encode: false }, [decode, prefill]],
    ["E/PD", { prefill: false, encode: true }, [decode, encode]],
    ["E/P/D", { prefill: true, encode: true }, [decode, prefill, encode]],
  ] as const)("%s, without a warning", async (_name, stages, endpoints) => {
    const { said } = await check({ picker: pickerDocument(stages), endpoints });
    expect(said).toBe("");
  });

  it("IPv6, for pods and listeners", async () => {
    const { gateway, said } = await check({
      endpoints: [{ name: "d0", host: "FD00::0010", port: 8000 }, { name: "p0", host: "fd00:0:0:1::20", port: 8000, role: "prefill" }],
      settings: { listen: { host: "::", port: 18080 }, admin: { host: "::1", port: 18081 }, state: { host: "::1", port: 18082 } },
    });
    expect(said).toBe("");
    expect(readFileSync(join(gateway.out, "eds.json"), "utf8")).toContain('"address": "fd00::10"');
    expect(readFileSync(join(gateway.out, "plugin.json"), "utf8")).toContain('"address": "fd00:0:0:1::20"');
  });

  it("every option at once", async () => {
    const { said } = await check({
      endpoints: [decode, prefill, encode],
      options: { bodyLimitBytes: "1Gi", allowPaths: ["/a", "/b/*", "/c.d+(e)"], tls: { decode: true, scrape: true }, reasonHeader: true, onMissingStage: "fail" },
    });
    expect(said).toBe("");
  });

  it("a thousand pods", async () => {
    const { gateway } = await check({ endpoints: Array.from({ length: 1000 }, (_, i) => ({ name: `d${String(i)}`, host: `10.1.${String(i >> 8)}.${String(i & 255)}`, port: 8000 })) });
    expect(readFileSync(join(gateway.out, "eds.json"), "utf8").match(/port_value/g)).toHaveLength(1000);
  });
});

describe("the folder", () => {
  it("holds these files, and an operator can read them", async () => {
    const { gateway } = await check({ endpoints: [decode, prefill] });
    const names = readdirSync(gateway.out).sort();
    expect(names.map((name) => name.replace(/^filter-[0-9a-f]{16}/, "filter-*"))).toEqual(["bootstrap.yaml", "ecds-state.json", "ecds.json", "eds.json", "filter-*.wasm", "plugin.json"]);
    const bootstrap = readFileSync(gateway.bootstrap, "utf8");
    expect(bootstrap).toMatch(/^# /);
    expect((bootstrap.match(/^ *# /gm) ?? []).length).toBeGreaterThan(20);
    expect(JSON.parse(readFileSync(join(gateway.out, "eds.json"), "utf8"))).toMatchObject({
      resources: [{ cluster_name: "decode", endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: "10.0.0.10", port_value: 8000 } } } }] }] }],
    });
  });
});
