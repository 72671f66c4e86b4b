/** A fleet of many endpoints in a process of its own (crowd-main.ts). */
import { send } from "../fleet/http.js";
import { Child } from "../fleet/processes.js";
import { built } from "../fleet/root.js";
import { json, type Target } from "./gateway.js";

export interface Counts {
  /** Scrapes of all endpoints that were open at once. */
  mostInFlight: number;
  /** Requests of clients. */
  requests: number;
  /** `/metrics` by address. */
  scrapes: Record<string, number>;
}

/** The `i`-th endpoint's loopback address. */
export function addressOf(i: number): string {
  return `127.0.${String(1 + Math.floor(i / 250))}.${String(1 + (i % 250))}`;
}

export class Crowd {
  private constructor(
    private readonly child: Child,
    readonly port: number,
  ) {}

  /** @param bytes of a metrics page */
  static async start(bytes: number, delayMs = 0): Promise<Crowd> {
    const child = new Child({ name: "crowd", command: process.execPath, args: [built("js", "tests", "envoy", "crowd-main.js"), "--bytes", String(bytes), "--delay-ms", String(delayMs)] });
    await child.until("a port", () => Promise.resolve(/^[0-9]+\n/.test(child.output)), 20_000);
    return new Crowd(child, Number(child.output.split("\n", 1)[0]));
  }

  targets(count: number, role = "decode"): Target[] {
    return Array.from({ length: count }, (_, i) => ({ name: `c${String(i)}`, host: addressOf(i), port: this.port, role }));
  }

  async counts(): Promise<Counts> {
    return json(await send({ host: "127.0.0.1", port: this.port, method: "GET", path: "/crowd" })) as Counts;
  }

  stop(): Promise<void> {
    return this.child.stop();
  }
}
