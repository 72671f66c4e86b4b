/**
 * The demo behind ./scripts/run: two decode pods (sidecar and simulated engine), two prefill and two encode engines, Envoy with the filter in front, and a
 * handful of requests. Then it stays up until Ctrl-C.
 */
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Command, InvalidArgumentError } from "commander";
import type { AccessLine } from "./access-log.js";
import { hostPortText } from "./address.js";
import { demoTable, type DemoLeg, type DemoResult } from "./demo-report.js";
import { DEMO_REQUESTS, type DemoRequest } from "./demo-requests.js";
import { EngineProcess } from "./engine-process.js";
import { Fleet, type RunningEnvoy } from "./fleet.js";
import { send } from "./http.js";
import { pickerDocument } from "./picker.js";
import { freePort, portTaken } from "./ports.js";
import { endOnSignals } from "./processes.js";

const DEFAULT_PORT = 18080;
const HOST = "127.0.0.1";
/** So that what disaggregation and prefix hits save can be seen in the times. */
const ENGINE_TIMES: readonly (readonly [string, string])[] = [
  ["ms-per-prefill-token", "0.2"],
  ["ms-per-decode-token", "4"],
  ["ms-per-media-item", "40"],
  ["model", "demo"],
];
const RECORD_TIMEOUT_MS = 5_000;

interface Flags {
  once?: boolean;
  json?: string;
  port: number;
}

/** A problem that the user can mend: one line, no stack. */
class DemoError extends Error {}

function say(text = ""): void {
  process.stdout.write(`${text}\n`);
}

function port(text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1 || number > 65535) throw new InvalidArgumentError("has to be a port, 1 to 65535");
  return number;
}

async function startFleet(listenPort: number): Promise<Fleet<EngineProcess>> {
  if (await portTaken(HOST, listenPort)) throw new DemoError(`port ${listenPort.toString()} is taken: end what listens there, or choose another one with --port`);
  // Prefill and decode engines read embeddings from the encoders, so these start first.
  const encoders: EngineProcess[] = [];
  let encodersUp: () => void = () => undefined;
  const up = new Promise<void>((resolve) => (encodersUp = resolve));
  const pods = { decode: 2, prefill: 2, encode: 2 };
  return Fleet.start<EngineProcess>({
    pods,
    startEngine: async ({ name, role }) => {
      if (role === "encode") {
        try {
          const engine = await EngineProcess.start(name, role, ENGINE_TIMES);
          encoders.push(engine);
          return engine;
        } finally {
          if (encoders.length === pods.encode) encodersUp();
        }
      }
      await Promise.race([up, sleep(RECORD_TIMEOUT_MS)]);
      return EngineProcess.start(name, role, [...ENGINE_TIMES, ...encoders.map((encoder) => ["encoders", encoder.controlAddress] as const)]);
    },
    envoy: {
      picker: pickerDocument({ prefill: true, encode: true }),
      listen: { host: HOST, port: listenPort },
      admin: { host: HOST, port: await freePort() },
      state: { host: HOST, port: await freePort() },
    },
    sidecarFlags: [["ec-connector", "ec-example"]],
    taps: false,
  });
}

async function legsOf(fleet: Fleet<EngineProcess>, seen: Map<string, number>): Promise<DemoLeg[]> {
  const until = performance.now() + RECORD_TIMEOUT_MS;
  for (;;) {
    const all = await Promise.all(fleet.pods.map(async (pod) => ({ pod, records: await pod.engine.records() })));
    const fresh = all.flatMap(({ pod, records }) => records.filter((record) => record.modelCall && record.seq > (seen.get(pod.name) ?? 0)).map((record) => ({ pod, record })));
    if (fresh.length > 0 && fresh.every(({ record }) => !record.open)) {
      for (const { pod, record } of fresh) seen.set(pod.name, Math.max(seen.get(pod.name) ?? 0, record.seq));
      return fresh
        .sort((a, b) => a.record.startedAtMs - b.record.startedAtMs)
        .map(({ pod, record }) => ({
          stage: record.stage,
          endpoint: hostPortText(pod.address),
          status: record.status,
          ms: Math.round((record.endedAtMs ?? record.startedAtMs) - record.startedAtMs),
        }));
    }
    if (performance.now() > until) return [];
    await sleep(10);
  }
}

async function lineAfter(envoy: RunningEnvoy, known: number): Promise<AccessLine> {
  const until = performance.now() + RECORD_TIMEOUT_MS;
  for (;;) {
    const line = envoy.accessLog.lines()[known];
    if (line !== undefined) return line;
    if (performance.now() > until) throw new DemoError("Envoy wrote no access log line for a request");
    await sleep(10);
  }
}

async function ask(fleet: Fleet<EngineProcess>, envoy: RunningEnvoy, request: DemoRequest, seen: Map<string, number>): Promise<DemoResult> {
  const known = envoy.accessLog.lines().length;
  const answer = await send({
    ...envoy.listen,
    method: "POST",
    path: request.path,
    headers: [["content-type", "application/json"]],
    body: Buffer.from(JSON.stringify(request.body)),
  });
  const { decision } = await lineAfter(envoy, known);
  if (decision === null) throw new DemoError(`"${request.name}" was answered with ${String(answer.status)} and was not decided: ${answer.body.toString("utf8", 0, 300)}`);
  return {
    name: request.name,
    decision: decision.decision,
    reasons: { decode: decision.decode.reason, prefill: decision.prefill.reason, encode: decision.encode.reason },
    endpoints: { decode: decision.decode.endpoint, prefill: decision.prefill.endpoint, encode: decision.encode.endpoints },
    legs: await legsOf(fleet, seen),
    status: answer.end === "clean" ? (answer.status ?? 0) : 0,
    ms: Math.round(answer.endedAtMs - answer.startedAtMs),
  };
}

function sayWhere(fleet: Fleet<EngineProcess>, envoy: RunningEnvoy): void {
  const body = JSON.stringify({ model: "demo", messages: [{ role: "user", content: "Which pier?" }], max_tokens: 16 });
  say();
  say("The fleet stays up. Ask it something:");
  say(`  curl http://${hostPortText(envoy.listen)}/v1/chat/completions -H 'content-type: application/json' -d '${body}'`);
  say(`Envoy's admin address: http://${hostPortText(envoy.admin)}/   the filter's state: http://${hostPortText(envoy.state)}/`);
  say(`Pods: ${fleet.pods.map((pod) => `${pod.name} ${hostPortText(pod.address)}`).join(", ")}`);
  say("Ctrl-C ends everything.");
}

/** Resolves when one of the fleet's programs has ended by itself, with its name and last word. */
async function firstDeath(fleet: Fleet<EngineProcess>, envoy: RunningEnvoy): Promise<string> {
  const children = [envoy.envoy.child, ...fleet.pods.flatMap((pod) => [pod.engine.child, ...(pod.sidecar === null ? [] : [pod.sidecar.child])])];
  return Promise.race(children.map(async (child) => `${child.name} ended (${await child.ended})${child.lastLines(1) === "" ? "" : `, its last word: ${child.lastLines(1)}`}`));
}

let fleet: Fleet<EngineProcess> | null = null;
const signals = endOnSignals(async () => {
  await fleet?.close();
});

async function main(): Promise<number> {
  const flags = new Command("run")
    .description("starts a demo fleet on loopback, sends a handful of requests through it and shows what was decided")
    .option("--once", "end after the table")
    .option("--json <file>", "write the table there as JSON too")
    .option("--port <port>", "where Envoy listens", port, DEFAULT_PORT)
    .parse()
    .opts<Flags>();
  try {
    say("starting the fleet: 2 decode pods, 2 prefill and 2 encode engines, Envoy ...");
    fleet = await startFleet(flags.port);
    const envoy = fleet.running;
    if (envoy === null) throw new DemoError("Envoy did not start");
    const seen = new Map<string, number>();
    const results: DemoResult[] = [];
    for (const request of DEMO_REQUESTS) results.push(await ask(fleet, envoy, request, seen));
    const names = new Map(fleet.pods.map((pod) => [hostPortText(pod.address), pod.name]));
    say();
    for (const line of demoTable(results, names)) say(line);
    if (flags.json !== undefined) writeFileSync(flags.json, `${JSON.stringify(results, null, 2)}\n`);
    const bad = results.filter((result) => result.status !== 200);
    if (bad.length > 0) {
      process.stderr.write(`run: ${bad.map((result) => `"${result.name}" was answered with ${result.status.toString()}`).join(", ")}\n`);
      if (flags.once === true) return 1;
    }
    if (flags.once === true) return 0;
    sayWhere(fleet, envoy);
    throw new DemoError(await firstDeath(fleet, envoy));
  } finally {
    await fleet?.close();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  // A signal ends the process by itself, and what broke meanwhile broke because of it.
  if (signals.ending) await new Promise(() => undefined);
  // One clear line; what a program said last may have several.
  const text = error instanceof Error ? error.message : String(error);
  process.stderr.write(`run: ${text.replace(/\s*\n\s*/g, " | ")}\n`);
  process.exitCode = 1;
}
