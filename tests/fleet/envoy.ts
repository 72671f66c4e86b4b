/** A real Envoy, started and stopped. */
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Admin } from "./admin.js";
import { Child } from "./processes.js";
import { inRoot } from "./root.js";

/** How often Envoy writes its access log out; its default of 10 s is too slow for a test that waits for a line. */
const LOG_FLUSH_MS = 10;
const START_TIMEOUT_MS = 30_000;

/** The binary: `ENVOY_BIN`, or the one that ./scripts/build installed. Throws an Error with the remedy when there is none. */
export function envoyBinary(): string {
  const named = process.env.ENVOY_BIN;
  if (named !== undefined && named !== "") {
    if (!existsSync(named)) throw new Error(`ENVOY_BIN names ${named}, which does not exist`);
    return named;
  }
  const installed = inRoot("build", "envoy");
  if (!existsSync(installed)) throw new Error("there is no Envoy: run ./scripts/build, or set ENVOY_BIN to an Envoy 1.40 binary");
  return installed;
}

export interface EnvoyOptions {
  /** The bootstrap document. */
  bootstrap: string;
  admin: { host: string; port: number };
  /** Worker threads, default 2. */
  concurrency?: number;
  /** Default `warning`. */
  logLevel?: string;
  name?: string;
}

export class Envoy {
  readonly admin: Admin;
  readonly child: Child;

  private constructor(child: Child, admin: Admin) {
    this.child = child;
    this.admin = admin;
  }

  /** Starts Envoy and waits until its listeners are up. Throws an Error that holds Envoy's last lines when it does not come up. */
  static async start(options: EnvoyOptions): Promise<Envoy> {
    const addressFile = join(mkdtempSync(join(tmpdir(), "envoy-")), "admin");
    const child = new Child({
      name: options.name ?? "envoy",
      command: envoyBinary(),
      args: [
        "--config-path",
        options.bootstrap,
        "--concurrency",
        (options.concurrency ?? 2).toString(),
        "--file-flush-interval-msec",
        LOG_FLUSH_MS.toString(),
        "--log-level",
        options.logLevel ?? "warning",
        // Several Envoys stand beside each other; none restarts another.
        "--disable-hot-restart",
        "--admin-address-path",
        addressFile,
      ],
    });
    const admin = new Admin(options.admin.host, options.admin.port);
    try {
      // Its own word first, see sidecar.ts.
      await child.until("an admin address", () => Promise.resolve(existsSync(addressFile)), START_TIMEOUT_MS);
      await child.until("ready", () => admin.ready(), START_TIMEOUT_MS);
    } catch (error) {
      await child.stop(0);
      throw error;
    } finally {
      rmSync(dirname(addressFile), { recursive: true, force: true });
    }
    return new Envoy(child, admin);
  }

  async stop(): Promise<void> {
    await this.child.stop();
  }
}

/** The message of a start that failed because a port was taken meanwhile. */
export function saysPortTaken(error: unknown): boolean {
  return error instanceof Error && /address already in use|EADDRINUSE/i.test(error.message);
}
