/**
 * 200 open streams of 50 events a second for a minute, behind prefill and decode: every event arrives, in order, in bounded memory, and nothing is left afterwards. How late
 * events are is a figure of `./scripts/bench sidecar`: on a machine that does other things besides it says nothing.
 */
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { EngineAsk, EnginePorts } from "../bench/engine.js";
import type { Lateness } from "../bench/events.js";
import type { Helper as HelperClass } from "../bench/helper.js";
import { residentBytes } from "../bench/proc.js";
import type { StreamJob } from "../bench/stream-client.js";
import { send } from "../fleet/http.js";
import { freePort } from "../fleet/ports.js";
import { Child } from "../fleet/processes.js";
import { built } from "../fleet/root.js";
import { Inspector } from "./inspector.js";

const STREAMS = 200;
const PER_SECOND = 50;
const SECONDS = 60;
/** DESIGN, "Speed". */
const MOST_RESIDENT_BYTES = 120 * 1024 * 1024;
/** What a heap may have grown by over twelve thousand streams' worth of events, caches and code included. */
const HEAP_SLACK_BYTES = 3 * 1024 * 1024;
const LIMIT_MS = 240_000;

describe.skipIf(process.env["CROSSPOINT_FAST"] === "1")("load", () => {
  let engine: HelperClass<EngineAsk, EnginePorts>;
  let client: HelperClass<StreamJob, Lateness>;
  let ports: EnginePorts;
  let sidecar: Child;
  let inspector: Inspector;
  let port: number;

  beforeAll(async () => {
    const { Helper } = (await import(pathToFileURL(built("js", "tests", "bench", "helper.js")).href)) as { Helper: typeof HelperClass };
    engine = new Helper("engine");
    client = new Helper("stream-client");
    ports = await engine.ask("listen");
    port = await freePort();
    sidecar = new Child({
      name: "sidecar",
      command: process.execPath,
      // Its garbage is collected when the heap is measured, and not before that is asked for.
      args: ["--inspect=127.0.0.1:0", built("js", "sidecar", "main.js"), `--port=${String(port)}`, "--listen-address=127.0.0.1", "--decoder-host=127.0.0.1", `--model-server-port=${String(ports.decode)}`, "--secure-proxy=false"],
    });
    await sidecar.until("health", async () => (await send({ host: "127.0.0.1", port, method: "GET", path: "/health", timeoutMs: 1000 })).status === 200, 30_000);
    inspector = await Inspector.connect(sidecar.output);
  }, 60_000);

  afterAll(async () => {
    inspector.close();
    await Promise.all([sidecar.stop(), engine.stop(), client.stop()]);
  });

  /** By state: connections of clients that are not closed, whichever side has begun with that; and those to engines, in use or kept for the next request. */
  function connections(): { clients: number; engines: number } {
    const engines = [ports.decode, ports.prefill];
    const found = { clients: 0, engines: 0 };
    for (const line of readFileSync("/proc/net/tcp", "utf8").split("\n").slice(1)) {
      const [, local = "", remote = "", state = ""] = line.trim().split(/\s+/);
      const portIn = (address: string): number => Number.parseInt(address.split(":")[1] ?? "", 16);
      // Established, or closed by the other side and not yet by us.
      if (state !== "01" && state !== "08") continue;
      if (portIn(local) === port) found.clients += 1;
      if (engines.includes(portIn(remote))) found.engines += 1;
    }
    return found;
  }

  async function streams(count: number, seconds: number): Promise<Lateness> {
    const events = PER_SECOND * seconds;
    await engine.ask({ pace: { perSecond: PER_SECOND, events } });
    return client.ask({ host: "127.0.0.1", port, streams: count, events, headers: [`x-prefiller-host-port: 127.0.0.1:${String(ports.prefill)}`], timeoutMs: LIMIT_MS - 20_000 });
  }

  it(
    `${String(STREAMS)} streams of ${String(PER_SECOND)} events a second for ${String(SECONDS)} s`,
    async () => {
      await streams(STREAMS, 1);
      const heapBefore = await inspector.heapBytes();
      let most = 0;
      const watch = setInterval(() => {
        most = Math.max(most, residentBytes(sidecar.pid) ?? 0);
      }, 250);
      const result = await streams(STREAMS, SECONDS);
      clearInterval(watch);
      expect([result.events, result.lost, result.outOfOrder]).toEqual([STREAMS * PER_SECOND * SECONDS, 0, 0]);
      expect(most).toBeGreaterThan(0);
      expect(most).toBeLessThanOrEqual(MOST_RESIDENT_BYTES);
      await sleep(1000);
      const [heapAfter, left] = [await inspector.heapBytes(), connections()];
      // To each engine as many are kept as were in use at once.
      expect([left.clients, left.engines <= 2 * STREAMS]).toEqual([0, true]);
      expect(heapAfter - heapBefore).toBeLessThan(HEAP_SLACK_BYTES);
      process.stdout.write(`load: ${String(Math.round(most / 1048576))} MiB resident, heap ${String(Math.round(heapBefore / 1024))} -> ${String(Math.round(heapAfter / 1024))} KiB, ${String(left.engines)} kept connections, p50 ${String(result.late.p50)} ms, p99 ${String(result.late.p99)} ms late\n`);
    },
    LIMIT_MS,
  );
});
