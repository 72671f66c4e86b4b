/**
 * What the rows of the sidecar contract run on: simulated engines, and a sidecar in front of one of them. By default that is ours, in this process. `SIDECAR_CMD`
 * names another implementation's program instead (`SIDECAR_CMD=/app/pd-sidecar`): it gets the flags that both know, rows that say where ours does better (FIX) are
 * then expected to fail, and what only ours has is left out.
 */
import { it } from "vitest";
import { parseOptions } from "../../../sidecar/options.js";
import { startSidecar } from "../../../sidecar/server.js";
import { ask, type Answered, type Ask } from "../../../sidecar/testkit/harness.js";
import { type Engine, EngineDirectory, type EngineOptions, type EngineRecord, type KvConnectorName, startEngine } from "../../engine/index.js";
import { send } from "../../fleet/http.js";
import { freePort, portTaken } from "../../fleet/ports.js";
import { Child } from "../../fleet/processes.js";

const COMMAND = process.env["SIDECAR_CMD"] ?? "";
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
  if (COMMAND === "") it(name, check);
  else if (ours) it.skip(name, check);
  else if (fix) it.fails(name, check);
  else it(name, check);
}

export interface BedOptions {
  readonly connector: keyof typeof ENGINE_CONNECTORS & string;
  readonly prefillers?: number;
  /** Ranks. */
  readonly decoders?: number;
  readonly encoders?: number;
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

  static async start({ connector, prefillers = 1, decoders = 1, encoders = 0, engine = {} }: BedOptions): Promise<SidecarBed> {
    const common = { peers: new EngineDirectory(), bootstrapPort: await freePort(), kvConnector: ENGINE_CONNECTORS[connector] ?? "none", ...engine };
    const first = decoders === 1 ? 0 : await freePorts(decoders);
    const many = (role: "prefill" | "decode" | "encode", letter: string, count: number, port: (index: number) => number): Promise<Engine[]> =>
      Promise.all(Array.from({ length: count }, (_, index) => startEngine({ ...common, role, name: `${letter}${String(index)}`, port: port(index), ...(role === "encode" ? { ecConnector: "ec-nixl" as const } : {}) })));
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

  get #engines(): readonly Engine[] {
    return [...this.prefillers, ...this.decoders, ...this.encoders];
  }

  /** A sidecar in front of the decode engines. */
  async sidecar(...flags: string[]): Promise<Door> {
    const ranks = this.decoders.length;
    const port = await freePorts(ranks);
    const argv = [
      `--port=${String(port)}`,
      `--model-server-port=${String(this.decoder.port)}`,
      "--secure-proxy=false",
      `--kv-connector=${this.#connector}`,
      `--mooncake-bootstrap-port=${String(this.meetingPort)}`,
      `--p2p-connector-port=${String(this.meetingPort)}`,
      ...(ranks > 1 ? [`--data-parallel-size=${String(ranks)}`] : []),
      ...(this.encoders.length > 0 ? ["--ec-connector=ec-nixl"] : []),
      ...flags,
    ];
    const env = { SGLANG_BOOTSTRAP_PORT: String(this.meetingPort), POD_IP: "127.0.0.1" };
    const door = COMMAND === "" ? await ownSidecar(argv, env) : await foreignSidecar(port, ranks, argv, env);
    this.#doors.push(door);
    return door;
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
  return `${host.includes(":") ? `[${host}]` : host}:${String(port)}`;
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

async function ownSidecar(argv: readonly string[], env: Record<string, string>): Promise<Door> {
  const { options } = parseOptions([...argv, "--listen-address=127.0.0.1", "--decoder-host=127.0.0.1", "--log-level=silent"], env);
  return startSidecar(options);
}

async function foreignSidecar(port: number, ranks: number, argv: readonly string[], env: Record<string, string>): Promise<Door> {
  const [command = "", ...own] = COMMAND.split(" ").filter((part) => part !== "");
  const child = new Child({ name: "SIDECAR_CMD", command, args: [...own, ...argv], env: { ...process.env, ...env } });
  const answers = async (): Promise<boolean> => (await send({ host: "127.0.0.1", port, method: "GET", path: "/health", timeoutMs: 1000 })).status === 200;
  await child.until("health", answers, START_TIMEOUT_MS);
  const urls = Array.from({ length: ranks }, (_, rank) => `http://127.0.0.1:${String(port + rank)}`);
  return { url: urls[0] ?? "", urls, port, close: () => child.stop(500) };
}
