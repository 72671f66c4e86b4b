/** Envoys to be measured: one bootstrap, rendered by the product's own renderer, with one filter or another, or none. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { DEFAULT_SETTINGS, formatProblem, loadValidator, renderOnce, type Settings, type Validator } from "../../envoy/index.js";
import { Envoy, saysPortTaken } from "../fleet/envoy.js";
import type { EndpointEntry } from "../fleet/picker.js";
import { freePort } from "../fleet/ports.js";
import { built } from "../fleet/root.js";
import type { Address } from "../fleet/render.js";
import { benchBootstrap } from "./bootstrap.js";

export interface BedOptions {
  /** In messages, and the name of its folder. */
  name: string;
  /** A folder of the run. */
  folder: string;
  /** The filter's module; null: no filter. */
  module: string | null;
  picker: unknown;
  endpoints: readonly EndpointEntry[];
  /** FilterOptions without apiVersion and kind. */
  filterOptions?: Readonly<Record<string, unknown>>;
  concurrency: number;
}

export interface Bed {
  name: string;
  envoy: Envoy;
  listen: Address;
  stop(): Promise<void>;
}

const ATTEMPTS = 3;
let validator: Promise<Validator> | null = null;

/** Throws an Error with the renderer's or Envoy's own words. */
export async function startBed(options: BedOptions): Promise<Bed> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await tryBed(options);
    } catch (error) {
      if (attempt === ATTEMPTS || !saysPortTaken(error)) throw error;
    }
  }
}

async function tryBed(options: BedOptions): Promise<Bed> {
  const folder = join(options.folder, options.name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const write = (name: string, document: unknown): string => {
    const path = join(folder, name);
    writeFileSync(path, stringify(document));
    return path;
  };
  const own = async (): Promise<Address> => ({ host: "127.0.0.1", port: await freePort() });
  // The access log is written and goes nowhere: its making is a part of every request, a disk is not.
  const settings: Settings = { ...DEFAULT_SETTINGS, listen: await own(), admin: await own(), state: await own(), accessLog: "/dev/null" };
  const out = join(folder, "envoy");
  validator ??= loadValidator(built("scanner.wasm"));
  const { publication, problems } = await renderOnce(
    {
      config: write("epp.yaml", options.picker),
      options: write("options.yaml", { apiVersion: "crosspoint/v1", kind: "FilterOptions", ...options.filterOptions }),
      endpoints: write("endpoints.yaml", { endpoints: options.endpoints }),
      wasm: options.module ?? built("filter.wasm"),
      out,
      settings,
    },
    await validator,
  );
  if (publication === null) throw new Error(`${options.name}: the renderer refused the configuration: ${problems.map(formatProblem).join("; ")}`);
  const bootstrap = join(folder, "bench.json");
  writeFileSync(bootstrap, benchBootstrap(readFileSync(join(out, "bootstrap.yaml"), "utf8"), options.module !== null));
  const envoy = await Envoy.start({ name: `envoy (${options.name})`, bootstrap, admin: settings.admin, concurrency: options.concurrency, logLevel: "error" });
  return { name: options.name, envoy, listen: settings.listen, stop: () => envoy.stop() };
}
