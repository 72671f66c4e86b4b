/** A sidecar as a program of its own. */
import { pathToFileURL } from "node:url";
import { readPrometheus, type Sample } from "./admin.js";
import { send } from "./http.js";
import { freePort } from "./ports.js";
import { Child } from "./processes.js";
import { built } from "./root.js";
import { saysPortTaken } from "./envoy.js";

const START_TIMEOUT_MS = 20_000;
const ATTEMPTS = 3;

export interface SidecarOptions {
  /** In messages. */
  name: string;
  /** The address to listen on. */
  host: string;
  engine: { host: string; port: number };
  /** Further flags: `--name=value`, without the dashes in front. */
  flags?: readonly (readonly [name: string, value: string])[];
}

export interface RefusedConnection {
  atMs: number;
  host: string;
  port: number;
}

export class Sidecar {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly metricsPort: number;
  /** It speaks TLS on its own port (`--secure-proxy`), with a certificate of its own making. */
  readonly tls: boolean;
  readonly child: Child;
  /** Connections of this sidecar that were refused, in order. */
  readonly refused: readonly RefusedConnection[];

  private constructor(name: string, host: string, port: number, metricsPort: number, tls: boolean, child: Child, refused: readonly RefusedConnection[]) {
    this.refused = refused;
    this.name = name;
    this.tls = tls;
    this.host = host;
    this.port = port;
    this.metricsPort = metricsPort;
    this.child = child;
  }

  /** Starts a sidecar, without TLS unless a flag says otherwise, and waits until it answers /health. Throws an Error with its last lines when it does not. */
  static async start(options: SidecarOptions): Promise<Sidecar> {
    const tls = (options.flags ?? []).some(([name, value]) => name === "secure-proxy" && value === "true");
    for (let attempt = 1; ; attempt++) {
      const [port, metricsPort] = [await freePort(options.host), await freePort()];
      const flags: (readonly [string, string])[] = [
        ["port", port.toString()],
        ["model-server-port", options.engine.port.toString()],
        ["listen-address", options.host],
        ["decoder-host", options.engine.host],
        ["metrics-port", metricsPort.toString()],
        ["secure-proxy", "false"],
        ...(options.flags ?? []),
      ];
      const refused: RefusedConnection[] = [];
      const child = new Child({
        name: options.name,
        command: process.execPath,
        args: ["--import", pathToFileURL(built("js", "tests", "fleet", "connect-watch.js")).href, built("js", "sidecar", "main.js"), ...flags.map(([name, value]) => `--${name}=${value}`)],
        onNote: (line) => {
          const [atMs = "", host = "", refusedPort = ""] = line.split(" ");
          refused.push({ atMs: Number(atMs), host, port: Number(refusedPort) });
        },
      });
      const sidecar = new Sidecar(options.name, options.host, port, metricsPort, tls, child, refused);
      try {
        // Its own word first: a port that is not open yet would refuse, and scripted engines look at the machine's count of refused connections.
        await child.until("listening", () => Promise.resolve(child.output.includes('"listening"')), START_TIMEOUT_MS);
        await child.until("health", async () => (await sidecar.get("/health")) === 200, START_TIMEOUT_MS);
        return sidecar;
      } catch (error) {
        await child.stop(0);
        if (attempt >= ATTEMPTS || !saysPortTaken(error)) throw error;
      }
    }
  }

  /** The status of a GET; null when there was no answer. */
  async get(path: string): Promise<number | null> {
    return (await send({ host: this.host, port: this.port, method: "GET", path, timeoutMs: 5_000, tls: this.tls })).status;
  }

  /** The sidecar's own counters; null when they could not be read. */
  async metrics(): Promise<Sample[] | null> {
    for (const host of new Set([this.host, "127.0.0.1"])) {
      const answer = await send({ host, port: this.metricsPort, method: "GET", path: "/metrics", timeoutMs: 5_000 });
      if (answer.status === 200 && answer.end === "clean") return readPrometheus(answer.body.toString("utf8"));
    }
    return null;
  }

  async stop(): Promise<void> {
    await this.child.stop(500);
  }
}
