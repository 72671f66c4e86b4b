import { createHash } from "node:crypto";
import { mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { formatHostPort, type HostPort } from "./address.js";
import { bootstrapText } from "./bootstrap/index.js";
import type { Composition } from "./compose.js";
import { documentText } from "./compose.js";
import type { PluginDocument } from "./document.js";
import type { JsonObject } from "./json.js";
import type { Settings } from "./settings.js";
import { ecdsFile, edsFile } from "./xds.js";

/** What a folder holds that was rendered before. */
export interface Published {
  readonly document: PluginDocument;
  readonly decode: readonly HostPort[];
}

export interface Publication {
  readonly revision: number;
  /** Names of the files that were written, in that order; empty when nothing changed. */
  readonly written: readonly string[];
  /** The bootstrap is another one than before: a running Envoy has to be restarted for it. */
  readonly restartNeeded: boolean;
}

/**
 * Between two files that belong together. Envoy looks at each when it is told of its rename, in no order that it promises; this is time enough to have looked at the first.
 */
const SETTLE_MS = 250;

const MODULE = /^filter-[0-9a-f]{16}\.wasm$/;

interface PublishedEcds {
  resources: { typed_config: { config: { configuration: { value: string } } } }[];
}
interface PublishedEds {
  resources: { endpoints: { lb_endpoints: { endpoint: { address: { socket_address: { address: string; port_value: number } } } }[] }[] }[];
}

/** @returns what was rendered into the folder before, or null when it holds nothing that can be read */
export async function readPublished(folder: string): Promise<Published | null> {
  try {
    const ecds = JSON.parse(await readFile(join(folder, "ecds.json"), "utf8")) as PublishedEcds;
    const text = ecds.resources[0]?.typed_config.config.configuration.value;
    if (text === undefined) return null;
    const document = JSON.parse(text) as PluginDocument;
    if (!Number.isSafeInteger(document.revision) || !Array.isArray(document.endpoints)) return null;
    const eds = JSON.parse(await readFile(join(folder, "eds.json"), "utf8")) as PublishedEds;
    const hosts = eds.resources[0]?.endpoints[0]?.lb_endpoints ?? [];
    return { document, decode: hosts.map(({ endpoint: { address } }) => ({ host: address.socket_address.address, port: address.socket_address.port_value })) };
  } catch {
    return null;
  }
}

/** A reader sees the old file or the new one, whole. */
async function replaceFile(folder: string, name: string, content: string | Uint8Array): Promise<void> {
  const temporary = join(folder, `.${name}.${String(process.pid)}.tmp`);
  const file = await open(temporary, "w", 0o644);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(temporary, join(folder, name));
}

async function current(folder: string, name: string): Promise<string | null> {
  try {
    return await readFile(join(folder, name), "utf8");
  } catch {
    return null;
  }
}

function pretty(value: JsonObject): string {
  return `${JSON.stringify(value, null, 2)}\n`;
}

function without(hosts: readonly HostPort[], others: readonly HostPort[]): HostPort[] {
  const known = new Set(others.map(formatHostPort));
  return hosts.filter((host) => !known.has(formatHostPort(host)));
}

/** A folder with the path under which Envoy sees it. */
export function mounted(settings: Settings, folder: string): Settings {
  return { ...settings, mount: settings.mount === "" ? resolve(folder) : settings.mount.replace(/\/+$/, "") };
}

/**
 * Writes a composition into a folder: new, or as an update that a running Envoy takes. Each file is replaced whole; a pod that comes is in the cluster before the filter
 * knows it, and one that goes stays in the cluster until the filter has forgotten it. Nothing is written when nothing changed.
 *
 * @param module the filter's bytes
 * @param nowMs the clock, ms since 1970: revisions follow it, so that they grow also when a folder is rendered anew beside a running Envoy
 * @throws what the file system throws
 */
export async function publish(composition: Composition, module: Uint8Array, settings: Settings, folder: string, nowMs: number = Date.now()): Promise<Publication> {
  await mkdir(folder, { recursive: true });
  const seen = mounted(settings, folder);
  const before = await readPublished(folder);
  const moduleName = `filter-${createHash("sha256").update(module).digest("hex").slice(0, 16)}.wasm`;
  const filesAt = (revision: number): Record<"ecds.json" | "ecds-state.json" | "plugin.json", string> => {
    const document: PluginDocument = { revision, ...composition.document };
    const path = `${seen.mount}/${moduleName}`;
    return {
      "ecds-state.json": pretty(ecdsFile("crosspoint_state", revision, path, documentText(document))),
      "ecds.json": pretty(ecdsFile("crosspoint", revision, path, documentText(document))),
      "plugin.json": pretty(JSON.parse(documentText(document)) as JsonObject),
    };
  };
  const last = before?.document.revision ?? 0;
  const text = bootstrapText(seen, composition.gateway);
  const oldText = await current(folder, "bootstrap.yaml");
  const added = without(composition.decode, before?.decode ?? []);
  const removed = without(before?.decode ?? [], composition.decode);
  const same = filesAt(last);
  const documentChanged = before === null || (await current(folder, "ecds.json")) !== same["ecds.json"] || (await current(folder, "ecds-state.json")) !== same["ecds-state.json"];
  const clusterChanged = before === null || added.length > 0 || removed.length > 0;
  const revision = documentChanged || clusterChanged ? Math.max(last + 1, Math.floor(nowMs)) : last;

  const written: string[] = [];
  const write = async (name: string, content: string | Uint8Array): Promise<void> => {
    await replaceFile(folder, name, content);
    written.push(name);
  };
  if (!(await readdir(folder)).includes(moduleName)) await write(moduleName, module);
  if (oldText !== text) await write("bootstrap.yaml", text);
  if (documentChanged || clusterChanged) {
    const settle = (): Promise<void> => (before === null ? Promise.resolve() : sleep(SETTLE_MS));
    const files = filesAt(revision);
    if (before === null || added.length > 0) {
      await write("eds.json", pretty(edsFile(revision, [...composition.decode, ...removed])));
      await settle();
    }
    for (const name of ["plugin.json", "ecds-state.json", "ecds.json"] as const) await write(name, files[name]);
    if (removed.length > 0) {
      await settle();
      await write("eds.json", pretty(edsFile(revision, composition.decode)));
    }
  }
  await removeOldModules(folder, moduleName);
  return { revision, written, restartNeeded: oldText !== null && oldText !== text };
}

/** Keeps the module of now and the two before it: a worker whose VM traps while it still runs the old configuration has its code in memory, an operator may want to go back. */
async function removeOldModules(folder: string, keep: string): Promise<void> {
  const others = (await readdir(folder)).filter((name) => MODULE.test(name) && name !== keep);
  if (others.length <= 2) return;
  const aged = await Promise.all(
    others.map(async (name) => {
      const file = await open(join(folder, name));
      try {
        return { name, at: (await file.stat()).mtimeMs };
      } finally {
        await file.close();
      }
    }),
  );
  aged.sort((a, b) => b.at - a.at);
  for (const { name } of aged.slice(2)) await rm(join(folder, name), { force: true });
}
