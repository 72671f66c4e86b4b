/**
 * The demo behind ./scripts/run: a fleet of engines, simulated or real, a sidecar before each decode engine, Envoy with the filter in front, and a handful of
 * requests. Then it stays up until Ctrl-C.
 */
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Command, InvalidArgumentError, Option } from "commander";
import type { AccessLine } from "./access-log.js";
import { hostPortText } from "./address.js";
import { demoTable, type DemoResult } from "./demo-report.js";
import type { DemoFleet } from "./demo-fleet.js";
import type { DemoRequest } from "./demo-requests.js";
import { SIMULATED_PODS, startSimulatedDemo } from "./demo-simulated.js";
import type { RunningEnvoy } from "./fleet.js";
import { send } from "./http.js";
import { portTaken } from "./ports.js";
import { REAL_PODS, startRealDemo } from "../real-engine/demo.js";
import { endOnSignals } from "./processes.js";

const DEFAULT_PORT = 18080;
const HOST = "127.0.0.1";
const RECORD_TIMEOUT_MS = 5_000;

interface Flags {
  once?: boolean;
  json?: string;
  port: number;
  engine: "sim" | "vllm";
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

async function lineAfter(envoy: RunningEnvoy, known: number): Promise<AccessLine> {
  const until = performance.now() + RECORD_TIMEOUT_MS;
  for (;;) {
    const line = envoy.accessLog.lines()[known];
    if (line !== undefined) return line;
    if (performance.now() > until) throw new DemoError("Envoy wrote no access log line for a request");
    await sleep(10);
  }
}

async function ask({ model, legs }: DemoFleet, envoy: RunningEnvoy, request: DemoRequest): Promise<DemoResult> {
  const known = envoy.accessLog.lines().length;
  const answer = await send({
    ...envoy.listen,
    method: "POST",
    path: request.path,
    headers: [["content-type", "application/json"]],
    body: Buffer.from(JSON.stringify({ ...request.body, model })),
  });
  const { decision } = await lineAfter(envoy, known);
  if (decision === null) throw new DemoError(`"${request.name}" was answered with ${String(answer.status)} and was not decided: ${answer.body.toString("utf8", 0, 300)}`);
  return {
    name: request.name,
    decision: decision.decision,
    reasons: { decode: decision.decode.reason, prefill: decision.prefill.reason, encode: decision.encode.reason },
    endpoints: { decode: decision.decode.endpoint, prefill: decision.prefill.endpoint, encode: decision.encode.endpoints },
    legs: await legs(),
    status: answer.end === "clean" ? (answer.status ?? 0) : 0,
    ms: Math.round(answer.endedAtMs - answer.startedAtMs),
  };
}

function sayWhere({ fleet, model }: DemoFleet, envoy: RunningEnvoy): void {
  const body = JSON.stringify({ model, messages: [{ role: "user", content: "Which pier?" }], max_tokens: 16 });
  say();
  say("The fleet stays up. Ask it something:");
  say(`  curl http://${hostPortText(envoy.listen)}/v1/chat/completions -H 'content-type: application/json' -d '${body}'`);
  say(`Envoy's admin address: http://${hostPortText(envoy.admin)}/   the filter's state: http://${hostPortText(envoy.state)}/`);
  say(`Pods: ${fleet.pods.map((pod) => `${pod.name} ${hostPortText(pod.address)}`).join(", ")}`);
  say("Ctrl-C ends everything.");
}

/** Resolves when one of the fleet's programs has ended by itself, with its name and last word. */
async function firstDeath({ fleet }: DemoFleet, envoy: RunningEnvoy): Promise<string> {
  const children = [envoy.envoy.child, ...fleet.pods.flatMap((pod) => [pod.engine.child, ...(pod.sidecar === null ? [] : [pod.sidecar.child])])];
  return Promise.race(children.map(async (child) => `${child.name} ended (${await child.ended})${child.lastLines(1) === "" ? "" : `, its last word: ${child.lastLines(1)}`}`));
}

let demo: DemoFleet | null = null;
const signals = endOnSignals(async () => {
  await demo?.fleet.close();
});

async function main(): Promise<number> {
  const flags = new Command("run")
    .description("starts a demo fleet on loopback, sends a handful of requests through it and shows what was decided")
    .option("--once", "end after the table")
    .option("--json <file>", "write the table there as JSON too")
    .option("--port <port>", "where Envoy listens", port, DEFAULT_PORT)
    .addOption(new Option("--engine <kind>", "simulated engines, or a real vLLM on this machine's CPU").choices(["sim", "vllm"]).default("sim"))
    .parse()
    .opts<Flags>();
  try {
    if (await portTaken(HOST, flags.port)) throw new DemoError(`port ${flags.port.toString()} is taken: end what listens there, or choose another one with --port`);
    const listen = { host: HOST, port: flags.port };
    if (flags.engine === "vllm") {
      say(`starting the fleet: ${REAL_PODS} ... (a minute or two)`);
      demo = await startRealDemo(listen);
    } else {
      say(`starting the fleet: ${SIMULATED_PODS} ...`);
      demo = await startSimulatedDemo(listen);
    }
    const { fleet } = demo;
    const envoy = fleet.running;
    if (envoy === null) throw new DemoError("Envoy did not start");
    const results: DemoResult[] = [];
    for (const request of demo.requests) results.push(await ask(demo, envoy, request));
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
    sayWhere(demo, envoy);
    throw new DemoError(await firstDeath(demo, envoy));
  } finally {
    await demo?.fleet.close();
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
