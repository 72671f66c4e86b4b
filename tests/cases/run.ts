/** One run of a case: a cold fleet, its requests, and what was seen. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { EngineDirectory, ScriptQueue, startEngine, type Engine, type KvConnectorName } from "../engine/index.js";
import { hostPortText } from "../fleet/address.js";
import { CountingListener } from "../fleet/counter.js";
import { Fleet, type Pod, type SidecarFlags } from "../fleet/fleet.js";
import { send, type Answer } from "../fleet/http.js";
import { pickerDocument, type PickerDocument } from "../fleet/picker.js";
import { freePort, hasIpv6 } from "../fleet/ports.js";
import { AddressMap } from "./addresses.js";
import { demandsOn, judge } from "./expect.js";
import { bodyOfCase, type Case, type Given, type RequestPlan, type Stages } from "./format.js";
import type { Connector } from "./features.js";
import { JsonNumber, mapStrings, toPlain, type Json } from "./json.js";
import { decisionOfLine, decisionsOf, headFor, Observer, trapsOf, vmFailed, type Mark } from "./observe.js";
import type { RunPlan } from "./plan.js";
import { buildRequest, type BuiltRequest } from "./requests.js";
import { forEngine } from "./scripts.js";
import type { AliveSeen, RunSeen, SendSeen, StepSeen } from "./seen.js";
import { TOPOLOGIES } from "./topology.js";

/** Counters are read at most so long after the last answer (README of the cases). */
const SETTLE_MS = 10_000;
/** No new leg for so long: it is over. Longer after a client that left: what it caused comes late. */
const QUIET_MS = 60;
const QUIET_AFTER_LEAVING_MS = 400;
/** No deadline of the product is tested by waiting for this one. */
const ANSWER_TIMEOUT_MS = 120_000;
const LINE_TIMEOUT_MS = 5_000;
/** Connections to two workers: after so many each of them has very likely had one. */
const TRAP_PROBES = 8;
/** The case whose body tells whether a sidecar lives. */
const ALIVE_CASE = 1;

const DECIDERS: Readonly<Record<Stages, { prefill: boolean; encode: boolean }>> = {
  d: { prefill: false, encode: false },
  pd: { prefill: true, encode: false },
  epd: { prefill: false, encode: true },
  "e-p-d": { prefill: true, encode: true },
};

const ENGINE_CONNECTORS: Readonly<Record<Connector, KvConnectorName>> = {
  nixlv2: "nixl",
  "shared-storage": "shared-storage",
  sglang: "sglang",
  mooncake: "mooncake",
  offloading: "offloading",
};

function picker(given: Given): PickerDocument {
  return pickerDocument({ ...DECIDERS[given.stages], encoders: given.encoders });
}

/** `filter.` flags as FilterOptions: dots lead into objects. */
export function filterOptions(flags: Given["flags"]): Record<string, unknown> | null {
  const options: Record<string, unknown> = {};
  for (const [name, value] of flags) {
    if (!name.startsWith("filter.")) continue;
    const steps = name.split(".").slice(1);
    const last = steps.pop() ?? "";
    let at = options;
    for (const step of steps) {
      const inner = (at[step] ??= {}) as Record<string, unknown>;
      at = inner;
    }
    at[last] = toPlain(value);
  }
  return Object.keys(options).length === 0 ? null : options;
}

function flagText(value: Json): string {
  return value instanceof JsonNumber ? value.text : String(value);
}

/** The flags that say where the connectors' own servers are: sidecars know one port for all prefillers. */
const MEETING_FLAGS = ["sglang-bootstrap-port", "mooncake-bootstrap-port", "p2p-connector-port"];

/** Flags of the sidecars, addresses mapped; `allow-endpoints` becomes a file with an address a line. */
function sidecarFlags(plan: RunPlan, meetingPort: number, map: (text: string) => string, folder: string): SidecarFlags {
  const flags: [string, string][] = [
    ["kv-connector", plan.connector],
    ["ec-connector", plan.ecConnector],
    ["on-stage-failure", plan.policy],
    ...MEETING_FLAGS.map((name): [string, string] => [name, meetingPort.toString()]),
  ];
  for (const [name, value] of plan.case.given.flags) {
    if (name.startsWith("filter.")) continue;
    const mapped = mapStrings(value, map);
    if (name === "allow-endpoints" && Array.isArray(mapped)) {
      const path = join(folder, "allow-endpoints.txt");
      writeFileSync(path, mapped.map((entry) => `${flagText(entry)}\n`).join(""));
      flags.push([name, path]);
    } else {
      for (const one of Array.isArray(mapped) ? mapped : [mapped]) flags.push([name, flagText(one)]);
    }
  }
  return flags;
}

/** Every text of a value, names of members too. */
function* textsOf(value: Json): Generator<string> {
  if (typeof value === "string") yield value;
  else if (Array.isArray(value)) for (const item of value) yield* textsOf(item);
  else if (value instanceof Map) {
    for (const [name, member] of value) {
      yield name;
      yield* textsOf(member);
    }
  }
}

/** The texts in which a case names addresses. */
function* addressTexts(subject: Case): Generator<string> {
  yield* textsOf(subject.texts.given);
  yield* textsOf(subject.texts.expect);
  for (const entries of Object.values(subject.scripts)) for (const entry of entries) yield* textsOf(entry);
}

/** Adds a listener for every address of the case that the topology does not have. */
async function listenForUnlisted(subject: Case, map: AddressMap, listeners: CountingListener[]): Promise<void> {
  const six = await hasIpv6();
  for (const text of addressTexts(subject)) {
    for (const key of map.missing(text)) {
      const listener = await CountingListener.start(key.startsWith("6:") && six ? "::1" : "127.0.0.1");
      listeners.push(listener);
      map.add(key, { host: listener.host, port: listener.port });
    }
  }
}

function needsEnvoy(given: Given): boolean {
  return [given.request, ...given.steps].some((request) => request.via === "envoy");
}

class CaseRun {
  private readonly plan: RunPlan;
  private readonly shared: string;
  private readonly fleet: Fleet<Engine>;
  private readonly map: AddressMap;
  private readonly observer: Observer;

  constructor(plan: RunPlan, shared: string, fleet: Fleet<Engine>, map: AddressMap, listeners: readonly CountingListener[]) {
    this.plan = plan;
    this.shared = shared;
    this.fleet = fleet;
    this.map = map;
    const addresses = Object.entries(TOPOLOGIES[plan.case.given.topology].addresses).map(([name, address]) => [name, hostPortText(address)] as const);
    this.observer = new Observer(fleet, Object.fromEntries(addresses), listeners);
  }

  private target(via: RequestPlan["via"]): { host: string; port: number; tls: boolean } {
    if (via === "envoy") {
      if (this.fleet.running === null) throw new Error("the fleet has no Envoy");
      return { ...this.fleet.running.listen, tls: false };
    }
    const sidecar = this.fleet.pod("d0").sidecar;
    if (sidecar === null) throw new Error("d0 has no sidecar");
    return { host: sidecar.host, port: sidecar.port, tls: sidecar.tls };
  }

  private sendOnce(plan: RequestPlan, request: BuiltRequest): Promise<Answer> {
    return send({
      ...this.target(plan.via),
      method: plan.method,
      path: plan.path,
      headers: request.headers,
      body: request.encoded?.bytes ?? null,
      chunks: request.encoded?.chunks ?? null,
      trailers: request.encoded?.trailers ?? [],
      leaveAfterMs: this.plan.case.given.abortAfterMs,
      timeoutMs: ANSWER_TIMEOUT_MS,
    });
  }

  private seenOf(plan: RequestPlan, answer: Answer): SendSeen {
    return {
      via: plan.via,
      method: plan.method,
      path: plan.path,
      status: answer.status,
      headers: answer.headers,
      body: answer.body,
      end: answer.end === "clean" || answer.end === "left" ? answer.end : "broken",
      endedAtMs: answer.endedAtMs,
      leftAtMs: answer.leftAtMs,
      decision: "missing",
      sidecarHead: null,
      decisions: null,
      vmFailed: false,
    };
  }

  /** Adds what Envoy and the taps tell about sends that ran between `mark` and now. */
  private async witness(sends: SendSeen[], mark: Mark): Promise<void> {
    const lines = await this.observer.linesSince(mark, sends.length, LINE_TIMEOUT_MS);
    const tapped = this.observer.tappedSince(mark);
    const taken = new Set<(typeof tapped)[number]>();
    for (const [at, one] of sends.entries()) {
      // Several at once: by the id that the client was told, where there is one; ids that clients chose themselves may be equal.
      const told = one.headers.find(([name]) => name.toLowerCase() === "x-request-id")?.[1];
      const found = lines.findIndex((line) => told !== undefined && line.requestId === told);
      const line = sends.length === 1 ? lines[0] : (lines.splice(found >= 0 ? found : 0, 1)[0] ?? lines[at]);
      one.decision = decisionOfLine(line);
      one.vmFailed = vmFailed(line);
      one.sidecarHead = headFor(tapped, line?.requestId ?? null, one.method, one.path, taken);
    }
  }

  private async step(plan: RequestPlan, size: number, at: number): Promise<StepSeen> {
    const map = (text: string): string => this.map.toLoopback(text);
    const request = await buildRequest(this.plan.case, plan, size, this.shared, map);
    const viaEnvoy = plan.via === "envoy";
    const asks = demandsOn(this.plan.case.expect, at).asks;
    const start = this.observer.mark();
    const statsBefore = await this.observer.stats();
    const invalidBefore = asks.handoffInvalid ? await this.observer.handoffInvalid() : null;
    const sends: SendSeen[] = [];

    if (plan.send.atOnce) {
      const answers = await Promise.all(Array.from({ length: plan.send.times }, () => this.sendOnce(plan, request)));
      sends.push(...answers.map((answer) => this.seenOf(plan, answer)));
      if (viaEnvoy) await this.witness(sends, start);
    } else {
      let decided = statsBefore === null ? 0 : decisionsOf(statsBefore);
      for (let time = 0; time < plan.send.times; time++) {
        if (time > 0 && plan.send.gapMs > 0) await sleep(plan.send.gapMs);
        const mark = this.observer.mark();
        const seen = this.seenOf(plan, await this.sendOnce(plan, request));
        sends.push(seen);
        if (!viaEnvoy) continue;
        await this.witness([seen], mark);
        const stats = await this.observer.stats();
        if (stats === null) continue;
        seen.decisions = decisionsOf(stats) - decided;
        decided = decisionsOf(stats);
      }
    }

    const left = sends.some((one) => one.leftAtMs !== null);
    await this.observer.settled(start, left ? QUIET_AFTER_LEAVING_MS : QUIET_MS, SETTLE_MS);
    const statsAfter = await this.observer.stats();
    const invalidAfter = asks.handoffInvalid ? await this.observer.handoffInvalid() : null;
    const trapsBefore = statsBefore === null ? null : trapsOf(statsBefore);
    const trapsAfter = statsAfter === null ? null : trapsOf(statsAfter);
    return {
      sends,
      atOnce: plan.send.atOnce,
      clientBody: request.body,
      legs: this.observer.legsSince(start, plan.path),
      decisions: statsBefore === null || statsAfter === null ? null : decisionsOf(statsAfter) - decisionsOf(statsBefore),
      traps: trapsAfter === null ? null : trapsAfter - (trapsBefore ?? 0) + sends.filter((one) => one.vmFailed).length,
      heldTransfers: this.observer.heldTransfers(),
      unlistedConnections: this.observer.unlistedSince(start),
      handoffInvalid: invalidAfter === null ? null : invalidAfter - (invalidBefore ?? 0),
      readyStatus: asks.ready ? ((await this.fleet.pod("d0").sidecar?.get("/ready")) ?? null) : null,
    };
  }

  /** Asks for the list of models over fresh connections, so that every worker has a request, and looks whether one found its VM gone. */
  private async lateTraps(): Promise<number | null> {
    const before = await this.observer.stats();
    for (let time = 0; time < TRAP_PROBES; time++) await send({ ...this.target("envoy"), method: "GET", path: "/v1/models", timeoutMs: SETTLE_MS });
    const after = await this.observer.stats();
    const traps = after === null ? null : trapsOf(after);
    return traps === null || before === null ? null : traps - (trapsOf(before) ?? 0);
  }

  /** Each sidecar with case 01's body, after the scripts were taken away: they would answer for ever. */
  private async alive(): Promise<AliveSeen[]> {
    const body = bodyOfCase(ALIVE_CASE, this.plan.case.folder, this.shared);
    for (const pod of this.fleet.pods) pod.engine.setScript(null);
    const asked = this.fleet.of("decode").map(async (pod: Pod<Engine>): Promise<AliveSeen> => {
      const { sidecar } = pod;
      if (sidecar === null) return { sidecar: pod.name, sameProcess: false, status: null };
      const answer = await send({
        host: sidecar.host,
        port: sidecar.port,
        tls: sidecar.tls,
        method: "POST",
        path: "/v1/chat/completions",
        headers: [["content-type", "application/json"]],
        body,
        timeoutMs: SETTLE_MS,
      });
      return { sidecar: sidecar.name, sameProcess: sidecar.child.alive, status: answer.end === "clean" ? answer.status : null };
    });
    return Promise.all(asked);
  }

  async seen(): Promise<RunSeen> {
    const { given, expect } = this.plan.case;
    const steps: StepSeen[] = [await this.step(given.request, this.plan.padTo, 0)];
    for (const [at, step] of given.steps.entries()) steps.push(await this.step(step, step.padTo ?? this.plan.padTo, at + 1));
    const asks = (what: "alive" | "trap"): boolean => steps.some((_step, at) => demandsOn(expect, at).asks[what]);
    const lateTraps = asks("trap") && this.fleet.running !== null ? await this.lateTraps() : null;
    const alive = asks("alive") ? await this.alive() : [];
    const engines = this.fleet.pods.map((pod) => ({ name: pod.name, dead: pod.engine.state().dead })).filter(({ dead }) => dead !== null);
    return {
      policy: this.plan.policy,
      steps,
      alive,
      lateTraps,
      dead: [...this.fleet.dead(), ...engines.map(({ name, dead }) => `engine ${name} (${dead ?? ""})`)],
      map: (text) => this.map.toLoopback(text),
    };
  }
}

/**
 * Runs the plan on a fleet of its own and returns what is wrong, addresses as the case names them; empty when all is as expected.
 *
 * @param shared the folder where bodies of other cases are looked up when the case's own has none
 */
export async function run(plan: RunPlan, shared: string): Promise<string[]> {
  const { given, scripts } = plan.case;
  const topology = TOPOLOGIES[given.topology];
  const peers = new EngineDirectory();
  const listeners: CountingListener[] = [];
  const mapped: { map: AddressMap | null } = { map: null };
  let fleet: Fleet<Engine> | null = null;
  const meetingPort = await freePort(topology.host);
  try {
    fleet = await Fleet.start<Engine>({
      pods: topology.pods,
      host: topology.host,
      decodeEngineHost: "127.0.0.1",
      startEngine: ({ name, role, host }) => startEngine({ name, role, host, peers, kvConnector: ENGINE_CONNECTORS[plan.connector], ecConnector: plan.ecConnector, bootstrapPort: meetingPort }),
      envoy: needsEnvoy(given) ? { picker: picker(given), filterOptions: filterOptions(given.flags) } : null,
      sidecarFlags: async (pods, folder) => {
        const made = new AddressMap(pods.map((pod) => ({ address: topology.addresses[pod.name] ?? pod.address, loopback: pod.address })));
        mapped.map = made;
        await listenForUnlisted(plan.case, made, listeners);
        return sidecarFlags(plan, meetingPort, (text) => made.toLoopback(text), folder);
      },
    });
    const { map } = mapped;
    if (map === null) throw new Error("the fleet has no addresses");
    for (const stage of ["encode", "prefill", "decode"] as const) {
      const entries = scripts[stage];
      if (entries === undefined) continue;
      const queue = new ScriptQueue(entries.map((entry) => forEngine(entry, (text) => map.toLoopback(text), plan.everyByte)));
      for (const pod of fleet.of(stage)) pod.engine.setScript(queue, stage);
    }
    const seen = await new CaseRun(plan, shared, fleet, map, listeners).seen();
    return judge(plan.case.expect, seen).map((text) => map.toTopology(text));
  } finally {
    await fleet?.close();
    await Promise.all(listeners.map((listener) => listener.close()));
  }
}
