/** A simulated engine as a program of its own, driven over its control port. */
import type { EngineRecord, Role } from "../engine/index.js";
import { send } from "./http.js";
import { Child } from "./processes.js";
import { built } from "./root.js";

const START_TIMEOUT_MS = 20_000;

/** What the program says when it listens. */
interface Announcement {
  host: string;
  port: number;
  controlPort: number;
}

/** A record as it comes over HTTP, without the body. */
export type RemoteRecord = Pick<EngineRecord, "seq" | "stage" | "modelCall" | "method" | "path" | "startedAtMs" | "firstByteAtMs" | "endedAtMs" | "status" | "aborted" | "open" | "error" | "promptTokens" | "cachedTokens">;

export class EngineProcess {
  readonly host: string;
  readonly port: number;
  readonly controlPort: number;
  readonly child: Child;

  private constructor(child: Child, said: Announcement) {
    this.child = child;
    this.host = said.host;
    this.port = said.port;
    this.controlPort = said.controlPort;
  }

  /**
   * Starts an engine and waits until it listens.
   *
   * @param flags further flags: `--name value`, without the dashes in front
   */
  static async start(name: string, role: Role, flags: readonly (readonly [name: string, value: string])[] = []): Promise<EngineProcess> {
    const child = new Child({
      name: `engine ${name}`,
      command: process.execPath,
      args: [built("js", "tests", "engine", "main.js"), "--role", role, "--name", name, ...flags.flatMap(([flag, value]) => [`--${flag}`, value])],
    });
    try {
      await child.until("its address", () => Promise.resolve(/^\{.*\}$/m.test(child.output)), START_TIMEOUT_MS);
    } catch (error) {
      await child.stop(0);
      throw error;
    }
    const line = /^\{.*\}$/m.exec(child.output)?.[0] ?? "{}";
    return new EngineProcess(child, JSON.parse(line) as Announcement);
  }

  /** `host:port` of the control port, which is also the engine's side channel. */
  get controlAddress(): string {
    return `${this.host}:${this.controlPort.toString()}`;
  }

  /** Everything that reached it, in order of start. */
  async records(): Promise<RemoteRecord[]> {
    const answer = await send({ host: this.host, port: this.controlPort, method: "GET", path: "/_sim/requests", timeoutMs: 10_000 });
    if (answer.status !== 200) throw new Error(`${this.child.name} did not tell its records (${answer.error ?? String(answer.status)})`);
    return JSON.parse(answer.body.toString("utf8")) as RemoteRecord[];
  }

  async close(): Promise<void> {
    await this.child.stop(500);
  }
}
