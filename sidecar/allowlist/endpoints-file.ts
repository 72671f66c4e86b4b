import { readFileSync, statSync } from "node:fs";
import { isIP } from "node:net";
import { dirname } from "node:path";
import { parseDocument } from "yaml";
import { z } from "zod";
import { parseCandidate, unbracketed } from "../candidates.js";
import type { Logger } from "../log.js";
import type { Metrics } from "../metrics.js";
import { OptionsError } from "../options.js";
import { watchFolder } from "../watch-folder.js";
import { addHost, type AllowedHosts, type AllowedPorts, type AllowSource } from "./allowlist.js";

const FLAG = "--allow-endpoints";
/** A list of allowed endpoints, not a disk image. */
const MAX_FILE_BYTES = 16 * 1024 * 1024;

/** What the renderer's endpoints file holds, as far as it matters here. */
const ENDPOINTS = z.object({ endpoints: z.array(z.object({ name: z.string().optional(), address: z.string(), port: z.int().min(1).max(65_535) })) });

/**
 * Reads allowed endpoints: one `host:port` or `host` per line, `#` before a comment, IPv6 in brackets where a port follows; or the endpoints file that the renderer
 * takes, whose entries are allowed by address and by name. A host without a port is allowed with every port.
 *
 * @throws OptionsError with the line or the field
 */
export function readEndpoints(text: string): AllowedHosts {
  return /^\s*(?:\{|endpoints\s*:)/m.test(text) ? readDocument(text) : readLines(text);
}

function readDocument(text: string): AllowedHosts {
  const document = parseDocument(text, { uniqueKeys: true });
  const problem = document.errors[0];
  if (problem !== undefined) throw new OptionsError(`${FLAG}: ${problem.message.split("\n")[0] ?? ""}`);
  const parsed = ENDPOINTS.safeParse(document.toJS());
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const path = (issue?.path ?? []).map((step) => (typeof step === "number" ? `[${String(step)}]` : `.${String(step)}`)).join("");
    throw new OptionsError(`${FLAG}: ${path.replace(/^\./, "")}: ${issue?.message ?? "cannot be read"}`);
  }
  const hosts = new Map<string, AllowedPorts>();
  for (const { name, address, port } of parsed.data.endpoints) {
    const ports = new Set([port]);
    addHost(hosts, unbracketed(address), ports);
    if (name !== undefined && name !== "") addHost(hosts, name, ports);
  }
  return hosts;
}

function readLines(text: string): AllowedHosts {
  const hosts = new Map<string, AllowedPorts>();
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const entry = line.replace(/#.*/, "").trim();
    if (entry === "") continue;
    const candidate = parseCandidate(entry);
    const bare = unbracketed(entry);
    if (candidate !== null) addHost(hosts, candidate.host, new Set([candidate.port]));
    else if (isIP(bare) !== 0 || /^[A-Za-z0-9._-]+$/.test(entry)) addHost(hosts, bare, "any");
    else throw new OptionsError(`${FLAG}: line ${String(index + 1)}: "${entry}" is not host:port or host`);
  }
  return hosts;
}

/** The endpoints of a file, read anew when it changes; what cannot be read then is told, and the old list stays. */
export class EndpointsFile implements AllowSource {
  readonly ready = true;
  hosts: AllowedHosts;
  readonly #path: string;
  readonly #log: Logger;
  readonly #metrics: Metrics;
  readonly #watch: { close(): void };
  #text: string;

  /** @throws OptionsError when the file cannot be read now */
  constructor(path: string, { log, metrics, timing }: { readonly log: Logger; readonly metrics: Metrics; readonly timing?: Parameters<typeof watchFolder>[2] }) {
    this.#path = path;
    this.#log = log;
    this.#metrics = metrics;
    this.#text = this.#read();
    this.hosts = readEndpoints(this.#text);
    this.#watch = watchFolder(dirname(path), () => {
      this.#look();
    }, timing);
  }

  #read(): string {
    try {
      const { size } = statSync(this.#path);
      if (size > MAX_FILE_BYTES) throw new OptionsError(`${FLAG}: ${this.#path} is larger than ${String(MAX_FILE_BYTES)} bytes`);
      return readFileSync(this.#path, "utf8");
    } catch (error) {
      if (error instanceof OptionsError) throw error;
      const code = error instanceof Error && "code" in error ? String(error.code) : "unreadable";
      throw new OptionsError(`${FLAG}: cannot read ${this.#path} (${code})`);
    }
  }

  #look(): void {
    try {
      const text = this.#read();
      if (text === this.#text) return;
      this.#text = text;
      this.hosts = readEndpoints(text);
      this.#metrics.allowlistUpdates.inc({ source: "file", outcome: "taken" });
      this.#log.info({ hosts: this.hosts.size }, "allowed endpoints were read anew");
    } catch (error) {
      this.#metrics.allowlistUpdates.inc({ source: "file", outcome: "failed" });
      this.#log.error({ err: error }, "allowed endpoints cannot be read: the old ones stay");
    }
  }

  close(): void {
    this.#watch.close();
  }
}
