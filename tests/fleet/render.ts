/** The Envoy configuration of a fleet, made by the product's own renderer. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { stringify } from "yaml";
import { DEFAULT_SETTINGS, formatProblem, loadValidator, renderOnce, type Validator } from "../../envoy/index.js";
import type { EndpointEntry } from "./picker.js";
import { built } from "./root.js";

export interface Address {
  host: string;
  port: number;
}

export interface RenderOptions {
  /** EndpointPickerConfig. */
  picker: unknown;
  /** FilterOptions without apiVersion and kind; null: no such document. */
  filterOptions: Readonly<Record<string, unknown>> | null;
  endpoints: readonly EndpointEntry[];
  listen: Address;
  admin: Address;
  state: Address;
  /** An existing or new folder: the inputs, the access log and, below `envoy`, what Envoy loads. */
  folder: string;
}

export interface Rendered {
  bootstrap: string;
  accessLog: string;
  /** The folder that Envoy watches. */
  out: string;
}

let validator: Promise<Validator> | null = null;

/** Writes the input documents into the folder and renders them beside. Throws an Error that holds the renderer's messages when it refuses them. */
export async function render(options: RenderOptions): Promise<Rendered> {
  mkdirSync(options.folder, { recursive: true });
  const write = (name: string, document: unknown): string => {
    const path = join(options.folder, name);
    writeFileSync(path, stringify(document));
    return path;
  };
  const out = join(options.folder, "envoy");
  const accessLog = join(options.folder, "access.log");
  validator ??= loadValidator(built("scanner.wasm"));
  const { publication, problems } = await renderOnce(
    {
      config: write("epp.yaml", options.picker),
      options: options.filterOptions === null ? "" : write("options.yaml", { apiVersion: "crosspoint/v1", kind: "FilterOptions", ...options.filterOptions }),
      endpoints: write("endpoints.yaml", { endpoints: options.endpoints }),
      wasm: built("filter.wasm"),
      out,
      settings: { ...DEFAULT_SETTINGS, listen: options.listen, admin: options.admin, state: options.state, accessLog },
    },
    await validator,
  );
  if (publication === null) throw new Error(`the renderer refused the configuration: ${problems.map(formatProblem).join("; ")}`);
  return { bootstrap: join(out, "bootstrap.yaml"), accessLog, out };
}
