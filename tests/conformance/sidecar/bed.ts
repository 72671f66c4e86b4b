/**
 * What the rows of the sidecar contract run on: simulated engines, and a sidecar in front of one of them. By default that is ours, in this process. Another
 * implementation takes its place, and rows that say where ours does better (FIX) are then expected to fail, what only ours has is left out:
 *
 * - `SIDECAR_CMD` names its program (`SIDECAR_CMD=/app/pd-sidecar`), which is started for each row with the flags that both know;
 * - `SIDECAR_URL` names one that runs already (`http://127.0.0.1:8000`), in front of an engine that is started on `SIDECAR_ENGINE_PORT` (8200), with the flags in
 *   `SIDECAR_FLAGS` (`--kv-connector=nixlv2 --ec-connector=ec-nixl`); rows that need others are skipped and say so. Prefillers' own servers are on `SIDECAR_MEETING_PORT`
 *   (8998, with offloading 7777).
 */
import { it } from "vitest";
import { pino } from "pino";
import { OptionsError, parseOptions } from "../../../sidecar/options.js";
import { readYaml } from "../../../sidecar/options-yaml.js";
import { startSidecar } from "../../../sidecar/server.js";
import { ask, type Answered, type Ask } from "../../../sidecar/testkit/harness.js";
import { type Engine, EngineDirectory, type EngineOptions, type EngineRecord, type KvConnectorName, startEngine } from "../../engine/index.js";
import { hostPortText } from "../../fleet/address.js";
import { send } from "../../fleet/http.js";
import { freePort, portTaken } from "../../fleet/ports.js";
import { Child } from "../../fleet/processes.js";

const COMMAND = process.env["SIDECAR_CMD"] ?? "";
const RUNNING = process.env["SIDECAR_URL"] ?? "";
/** The sidecar is not ours. */
export const FOREIGN = COMMAND !== "" || RUNNING !== "";
const START_TIMEOUT_MS = 20_000;
/** What may take this long is lost. */
const SETTLE_MS = 3000;

const ENGINE_CONNECTORS: Readonly<Record<string, KvConnectorName>> = { nixlv2: "nixl", "shared-storage": "shared-storage", sglang: "sglang", mooncake: "mooncake", offloading: "offloading" };

interface Kind {
  /** The row is a FIX: another implementation is expected to differ. */
  readonly fix?: boolean;
  /** It needs a flag or a header that only ours has. */
  readonly ours?: boolean;
}

/** A row of the contract as a test. */
export function row(name: string, check: () => Promise<void>, { fix = false, ours = false }: Kind = {}): void {
  const guarded = async ({ skip }: { skip: (note?: string) => never }): Promise<void> => {
    try {
      await check();
    } catch (error) {
      if (error instanceof NotThisSidecar) skip(error.message);
      throw error;
    }
  };
  if (!FOREIGN) it(name, guarded);
  else if (ours) it.skip(name, guarded);
  else if (fix) it.fails(name, guarded);
  else it(name, guarded);
}

/** The row needs a sidecar that runs otherwise than the one at `SIDECAR_URL`. */
class NotThisSidecar extends Error {}

/** How a program ended that did not start to serve. */
export interface Refused {
  readonly code: number | null;
  /** What it wrote. */
  readonly text: string;
}

export interface BedOptions {
  readonly connector: keyof typeof ENGINE_CONNECTORS & string;
  readonly prefillers?: number;
  /** Ranks. */
  readonly decoders?: number;
  readonly encoders?: number;
  /** Of every encoder. */
  readonly ecConnector?: "ec-nixl" | "ec-example";
  /** Of every engine. */
  readonly engine?: Partial<EngineOptions>;
}

/** A running sidecar. */
export interface Door {
  readonly url: string;
  /** By rank. */
  readonly urls: readonly string[];
  readonly port: number;
  close(): Promise<void>;
  /** SIGTERM; resolves with the exit code. */
  terminate(): Promise<number>;
  /** Lines of its log so far. */
  log(): string;
}

export class SidecarBed {
  readonly prefillers: readonly Engine[];
  readonly decoders: readonly Engine[];
  readonly encoders: readonly Engine[];
  /** Where the connector's own server listens: the flags of all connectors name it. */
  readonly meetingPort: number;
  readonly #connector: string;
  readonly #doors: Door[] = [];

  private constructor(connector: string, meetingPort: number, engines: { readonly prefillers: readonly Engine[]; readonly decoders: readonly Engine[]; readonly encoders: readonly Engine[] }) {
    this.#connector = connector;
    this.meetingPort = meetingPort;
    this.prefillers = engines.prefillers;
    this.decoders = engines.decoders;
    this.encoders = engines.encoders;
  }

  static async start({ connector, prefillers = 1, decoders = 1, encoders = 0, ecConnector = "ec-nixl", engine = {} }: BedOptions): Promise<SidecarBed> {
    const meeting = RUNNING === "" ? await freePort() : Number(process.env["SIDECAR_MEETING_PORT"] ?? (connector === "offloading" ? 7777 : 8998));
    const common = { peers: new EngineDirectory(), bootstrapPort: meeting, kvConnector: ENGINE_CONNECTORS[connector] ?? "none", ...engine };
    const first = RUNNING !== "" ? Number(process.env["SIDECAR_ENGINE_PORT"] ?? 8200) : decoders === 1 ? 0 : await freePorts(decoders);
    const many = (role: "prefill" | "decode" | "encode", letter: string, count: number, port: (index: number) => number): Promise<Engine[]> =>
      Promise.all(Array.from({ length: count }, (_, index) => startEngine({ ...common, role, name: `${letter}${String(index)}`, port: port(index), ...(role === "encode" ? { ecConnector } : {}) })));
    return new SidecarBed(connector, common.bootstrapPort, {
      prefillers: await many("prefill", "p", prefillers, () => 0),
      decoders: await many("decode", "d", decoders, (index) => (first === 0 ? 0 : first + index)),
      encoders: await many("encode", "e", encoders, () => 0),
    });
  }

  get prefiller(): Engine {
    return only(this.prefillers);
  }

  get decoder(): Engine {
    return only(this.decoders);
  }

  get encoder(): Engine {
    return only(this.encoders);
  }

  get #engines(): readonly Engine[] {
    return [...this.prefillers, ...this.decoders, ...this.encoders];
  }

  /** A sidecar in front of the decode engines. */
  async sidecar(...flags: string[]): Promise<Door> {
    const launched = await this.launch(flags);
    if ("code" in launched) throw new Error(`the sidecar did not start (${String(launched.code)}): ${launched.text}`);
    return launched;
  }

  /** The same for flags that may be refused, and with an environment. */
  async launch(flags: readonly string[], more: Readonly<Record<string, string>> = {}): Promise<Door | Refused> {
    const ranks = this.decoders.length;
    const needed = [...(this.#connector === "nixlv2" ? [] : [`--kv-connector=${this.#connector}`]), ...(ranks > 1 ? [`--data-parallel-size=${String(ranks)}`] : []), ...(this.encoders.length > 0 ? ["--ec-connector=ec-nixl"] : [])];
    if (RUNNING !== "") return runningSidecar([...needed, ...flags]);
    const size = Number(flags.map((flag) => /^--data-parallel-size=(\d+)$/.exec(flag)?.[1]).find((text) => text !== undefined) ?? ranks);
    const port = await freePorts(Math.min(Math.max(size, 1), 16));
    const given = (name: string): boolean => flags.some((flag) => flag.startsWith(`--${name}=`) || flag === `--${name}`);
    const base: Readonly<Record<string, string>> = {
      port: String(port),
      ...(given("vllm-port") || given("configuration") ? {} : { "model-server-port": String(this.decoder.port) }),
      "secure-proxy": "false",
      "mooncake-bootstrap-port": String(this.meetingPort),
      ...(more["P2P_CONNECTOR_PORT"] === undefined ? { "p2p-connector-port": String(this.meetingPort) } : {}),
    };
    const argv = [...Object.entries(base).flatMap(([name, value]) => (given(name) ? [] : [`--${name}=${value}`])), ...needed.filter((flag) => !given(flag.slice(2).split("=")[0] ?? "")), ...flags];
    const env = { SGLANG_BOOTSTRAP_PORT: String(this.meetingPort), POD_IP: "127.0.0.1", ...more };
    const secure = flags.some((flag) => flag === "--secure-proxy" || flag === "--secure-proxy=true");
    const launched = COMMAND === "" ? await ownSidecar(argv, env) : await foreignSidecar(port, ranks, secure, argv, env);
    if (!("code" in launched)) this.#doors.push(launched);
    return launched;
  }

  /** The prefill header for these prefillers, as names and values in turn. */
  routed(...prefillers: Engine[]): string[] {
    return ["x-prefiller-host-port", (prefillers.length > 0 ? prefillers : [this.prefiller]).map(addressOf).join(",")];
  }

  encoderHeader(): string[] {
    return ["x-encoder-hosts-ports", this.encoders.map(addressOf).join(",")];
  }

  /** Waits until no engine has a request open, then gives an engine's model calls. */
  async calls(engine: Engine): Promise<EngineRecord[]> {
    await this.settled();
    return callsOf(engine);
  }

  async settled(): Promise<void> {
    await Promise.all(this.#engines.map((engine) => engine.idle(SETTLE_MS)));
  }

  /** Hand-offs that prefillers keep blocks for. */
  held(): number {
    return this.prefillers.reduce((sum, engine) => sum + engine.state().heldTransfers.length, 0);
  }

  /** Blocks that prefillers keep for hand-offs or requests. */
  usedBlocks(): number {
    return this.prefillers.reduce((sum, engine) => sum + engine.state().blocks.used, 0);
  }

  /** Ends the sidecars, and has the engines forget. */
  async clear(): Promise<void> {
    await Promise.all(this.#doors.splice(0).map((door) => door.close()));
    for (const engine of this.#engines) engine.setScript(null);
    await Promise.all(this.#engines.map((engine) => engine.reset()));
  }

  async close(): Promise<void> {
    await Promise.all(this.#doors.splice(0).map((door) => door.close()));
    await Promise.all(this.#engines.map((engine) => engine.close()));
  }
}

/** Model calls that have reached an engine so far. */
export function callsOf(engine: Engine): EngineRecord[] {
  return engine.records().filter(({ modelCall, method }) => modelCall && method !== "");
}

export function addressOf({ host, port }: Pick<Engine, "host" | "port">): string {
  return hostPortText({ host, port });
}

export function jsonOf(record: EngineRecord | undefined): Record<string, unknown> {
  return (record?.json ?? {}) as Record<string, unknown>;
}

export function headerOf(record: EngineRecord | undefined, name: string): string[] {
  return (record?.rawHeaders ?? []).filter(([own]) => own.toLowerCase() === name).map(([, value]) => value);
}

export function post(door: Door, what: Ask): Promise<Answered> {
  return ask(door.url, what);
}

function only(engines: readonly Engine[]): Engine {
  const [engine] = engines;
  if (engine === undefined) throw new Error("the bed has no such engine");
  return engine;
}

/** The first of so many free ports in a row. */
async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = await freePort();
    const taken = await Promise.all(Array.from({ length: count - 1 }, (_, index) => portTaken("127.0.0.1", first + 1 + index)));
    if (first + count < 65_536 && !taken.includes(true)) return first;
  }
}

async function ownSidecar(argv: readonly string[], env: Record<string, string>): Promise<Door | Refused> {
  const lines: string[] = [];
  try {
    const { options, warnings } = parseOptions([...argv, "--listen-address=127.0.0.1", "--decoder-host=127.0.0.1"], env, readYaml);
    lines.push(...warnings);
    const log = pino({ level: "info" }, { write: (line: string) => void lines.push(line) });
    const sidecar = await startSidecar(options, { log });
    return {
      ...sidecar,
      close: () => sidecar.close(),
      terminate: async () => {
        await sidecar.drain();
        return 0;
      },
      log: () => lines.join("\n"),
    };
  } catch (error) {
    // As main.ts ends (main.spec.ts runs it as a process).
    if (error instanceof OptionsError) return { code: 2, text: error.message };
    throw error;
  }
}

async function foreignSidecar(port: number, ranks: number, secure: boolean, argv: readonly string[], env: Record<string, string>): Promise<Door | Refused> {
  const [command = "", ...own] = COMMAND.split(" ").filter((part) => part !== "");
  const child = new Child({ name: "SIDECAR_CMD", command, args: [...own, ...argv], env: { ...process.env, ...env } });
  const answers = async (): Promise<boolean> => !child.alive || (await send({ host: "127.0.0.1", port, method: "GET", path: "/health", timeoutMs: 1000, tls: secure })).status === 200;
  await child.until("health", answers, START_TIMEOUT_MS).catch(() => undefined);
  if (!child.alive) return { code: exitCodeIn(await child.ended), text: child.output };
  const urls = Array.from({ length: ranks }, (_, rank) => `http${secure ? "s" : ""}://127.0.0.1:${String(port + rank)}`);
  return {
    url: urls[0] ?? "",
    urls,
    port,
    close: () => child.stop(500),
    terminate: async () => {
      child.signal("SIGTERM");
      return exitCodeIn(await child.ended) ?? -1;
    },
    log: () => child.output,
  };
}

function exitCodeIn(how: string): number | null {
  const found = /^exit code (\d+)$/.exec(how);
  return found === null ? null : Number(found[1]);
}

function runningSidecar(needed: readonly string[]): Door {
  const flags = (list: readonly string[]): string => [...new Set(list)].filter((flag) => flag !== "" && flag !== "--kv-connector=nixlv2" && flag !== "--secure-proxy=false").sort().join(" ");
  const [wanted, has] = [flags(needed), flags((process.env["SIDECAR_FLAGS"] ?? "").split(" "))];
  if (wanted !== has) throw new NotThisSidecar(`needs a sidecar with the flags "${wanted}", SIDECAR_URL has "${has}"`);
  const url = new URL(RUNNING);
  const stays = (): Promise<never> => Promise.reject(new NotThisSidecar("SIDECAR_URL is not ours to end"));
  return { url: url.origin, urls: [url.origin], port: Number(url.port), close: () => Promise.resolve(), terminate: stays, log: () => "" };
}
