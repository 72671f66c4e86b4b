/** Reads what a running fleet shows, and turns it into plain data for `expect`. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Engine, EngineRecord } from "../engine/index.js";
import type { AccessLine, DecisionRecord } from "../fleet/access-log.js";
import { sumOf, type Sample, type Stats } from "../fleet/admin.js";
import type { Fleet, Pod } from "../fleet/fleet.js";
import { headerLines } from "../fleet/http.js";
import type { TappedRequest } from "../fleet/tap.js";
import { hostPortText } from "../fleet/address.js";
import type { Decision, HeaderLine, Leg } from "./seen.js";

/** The filter's counter of decisions, one per decision type. */
const DECISIONS = /(?:^|\.)crosspoint[._]decisions[._]/;
/** Envoy's own counters of what a wasm module did wrong and how often its VM was made anew. */
const TRAPS = /(?:^|\.)wasm\..*(?:fail|crash|trap|reload|restart)/;

export function decisionsOf(stats: Stats): number {
  // A counter that was never raised does not show: nothing was decided yet.
  return sumOf(stats, DECISIONS) ?? 0;
}

/** null: there are no such counters, so nothing can be said. */
export function trapsOf(stats: Stats): number | null {
  return sumOf(stats, TRAPS);
}

/** Envoy's word (`%RESPONSE_CODE_DETAILS%`) for a request that a failed VM ended. Its counters move only when the next request finds the VM gone. */
export function vmFailed(line: AccessLine | undefined): boolean {
  return line?.details.startsWith("wasm_fail") === true;
}

/** The sidecars' count of hand-offs that were not usable: a counter of that name, or the label of one. */
export function handoffInvalidOf(samples: readonly Sample[]): number | null {
  const named = samples.filter((sample) => /(?:^|_)handoff_invalid(?:_total)?$/.test(sample.name));
  const chosen = named.length > 0 ? named : samples.filter((sample) => Object.values(sample.labels).includes("handoff_invalid"));
  return chosen.length === 0 ? null : chosen.reduce((sum, sample) => sum + sample.value, 0);
}

export function decisionFrom(record: DecisionRecord): Decision {
  return {
    prefill: record.prefill,
    encode: record.encode,
    decode: record.decode,
    model: record.model,
    mmItems: record.mmItems,
    decisions: record.decisions,
  };
}

/** What the access line says about the decision: the record, null where Envoy answered by itself, "missing" where it should be there and is not. */
export function decisionOfLine(line: AccessLine | undefined): Decision | null | "missing" {
  if (line === undefined) return "missing";
  if (line.decision !== null) return decisionFrom(line.decision);
  return line.upstream === null ? null : "missing";
}

/** Requests of the fleet's own keeping: scrapes and health checks. */
function isHousekeeping(method: string, path: string): boolean {
  return (method === "GET" || method === "HEAD") && /^\/(?:metrics|health|healthz|ready|ping|version|v1\/models)(?:\?|$)/.test(path);
}

/** The request's head as the sidecar received it: by its id where that is known, else the first of that path. */
export function headFor(tapped: readonly TappedRequest[], requestId: string | null, method: string, path: string, taken: Set<TappedRequest>): HeaderLine[] | null {
  const free = tapped.filter((request) => !taken.has(request));
  const byId = requestId === null ? undefined : free.find((request) => headerLines(request.headers, "x-request-id").includes(requestId));
  const found = byId ?? free.find((request) => request.method === method && request.path === path);
  if (found === undefined) return null;
  taken.add(found);
  return found.headers.map(([name, value]): HeaderLine => [name.toLowerCase(), value]);
}

/** The script reset the connection after the request was read. */
function wasReset(record: EngineRecord): boolean {
  return record.scripted && record.status === 0 && !record.open && !record.aborted && record.firstByteAtMs === null && record.method !== "";
}

/** An engine's own note of a connection that its closed port refused. It goes by the machine's count; the sidecars' own count is used instead. */
function isRefusalNote(record: EngineRecord): boolean {
  return record.method === "" && record.path === "";
}

/**
 * A record as a leg.
 *
 * @param engine the engine's address in the topology
 */
function legOf(record: EngineRecord, pod: Pod<Engine>, engine: string): Leg {
  return {
    role: pod.role,
    engine,
    method: record.method,
    path: record.path,
    headers: record.rawHeaders,
    body: record.body,
    startedAtMs: record.startedAtMs,
    endedAtMs: record.open ? null : (record.endedAtMs ?? record.abortedAtMs ?? record.startedAtMs),
    status: record.status,
    abortedAtMs: record.aborted ? record.abortedAtMs : null,
    connectionFailure: wasReset(record) ? "reset" : null,
  };
}

/** A connection to an engine that was refused, as a leg that never was. */
function refusedLeg(atMs: number, pod: Pod<Engine>, engine: string): Leg {
  return { role: pod.role, engine, method: "", path: "", headers: [], body: Buffer.alloc(0), startedAtMs: atMs, endedAtMs: atMs, status: 0, abortedAtMs: null, connectionFailure: "refused" };
}

/** How far each engine's records, each tap and the access log were read. */
export interface Mark {
  records: Map<string, number>;
  /** Refused connections of each sidecar. */
  refused: Map<string, number>;
  taps: Map<string, number>;
  lines: number;
  unlisted: number;
}

export class Observer {
  private readonly fleet: Fleet<Engine>;
  private readonly addresses: Readonly<Record<string, string>>;
  private readonly unlistedListeners: readonly { host: string; port: number; connections: number }[];

  /**
   * @param addresses an engine's address in the topology, by pod name
   * @param unlisted the listeners of addresses that the topology does not have
   */
  constructor(fleet: Fleet<Engine>, addresses: Readonly<Record<string, string>>, unlisted: readonly { host: string; port: number; connections: number }[]) {
    this.fleet = fleet;
    this.addresses = addresses;
    this.unlistedListeners = unlisted;
  }

  mark(): Mark {
    return {
      records: new Map(this.fleet.pods.map((pod) => [pod.name, pod.engine.records().at(-1)?.seq ?? 0])),
      refused: new Map(this.fleet.pods.map((pod) => [pod.name, pod.sidecar?.refused.length ?? 0])),
      taps: new Map(this.fleet.pods.map((pod) => [pod.name, pod.tap?.requests().length ?? 0])),
      lines: this.fleet.running?.accessLog.lines().length ?? 0,
      unlisted: this.unlistedListeners.reduce((sum, listener) => sum + listener.connections, 0),
    };
  }

  private recordsSince(mark: Mark): { pod: Pod<Engine>; record: EngineRecord }[] {
    return this.fleet.pods
      .flatMap((pod) =>
        pod.engine
          .records()
          .filter((record) => record.seq > (mark.records.get(pod.name) ?? 0))
          .map((record) => ({ pod, record })),
      )
      .sort((a, b) => a.record.startedAtMs - b.record.startedAtMs);
  }

  /**
   * Legs since the mark: calls of models, connections that were refused, and whatever was sent to the path that the client asked for.
   *
   * @param path the client's path; a scrape or health check of the fleet's own is no leg, unless the client asked for just that
   */
  legsSince(mark: Mark, path: string): Leg[] {
    const legs = this.recordsSince(mark)
      .filter(({ record }) => !isRefusalNote(record) && (record.modelCall || record.path === path || !isHousekeeping(record.method, record.path)))
      .map(({ pod, record }) => legOf(record, pod, this.addresses[pod.name] ?? pod.name));
    const refused = this.fleet.of("decode").flatMap((pod) => pod.sidecar?.refused.slice(mark.refused.get(pod.name) ?? 0) ?? []);
    for (const { atMs, host, port } of refused) {
      const pod = this.fleet.pods.find(({ engine }) => engine.host === host && engine.port === port);
      if (pod !== undefined) legs.push(refusedLeg(atMs, pod, this.addresses[pod.name] ?? pod.name));
    }
    return legs.sort((a, b) => a.startedAtMs - b.startedAtMs);
  }

  tappedSince(mark: Mark): TappedRequest[] {
    return this.fleet.pods.flatMap((pod) => pod.tap?.requests().slice(mark.taps.get(pod.name) ?? 0) ?? []).sort((a, b) => a.atMs - b.atMs);
  }

  /** Waits for `count` access lines after the mark, up to `timeoutMs`; what is there then. */
  async linesSince(mark: Mark, count: number, timeoutMs: number): Promise<AccessLine[]> {
    const until = performance.now() + timeoutMs;
    for (;;) {
      const lines = this.fleet.running?.accessLog.lines().slice(mark.lines) ?? [];
      if (lines.length >= count || performance.now() > until) return lines;
      await sleep(5);
    }
  }

  async stats(): Promise<Stats | null> {
    return this.fleet.running === null ? null : this.fleet.running.envoy.admin.stats();
  }

  /** Connections to addresses that the topology does not have, and engines' attempts to reach a place that is none of the fleet's. */
  unlistedSince(mark: Mark): number {
    const listeners = this.unlistedListeners;
    const own = new Set(
      this.fleet.pods.flatMap(({ engine }) => [engine.port, engine.controlPort, engine.bootstrapPort].map((port) => hostPortText({ host: engine.host, port }))),
    );
    // Those that went to a listener are counted there.
    for (const listener of listeners) own.add(hostPortText(listener));
    const attempts = this.recordsSince(mark).flatMap(({ record }) => record.outbound).filter((place) => !own.has(place.replace(/^localhost:/, "127.0.0.1:")));
    return listeners.reduce((sum, listener) => sum + listener.connections, 0) - mark.unlisted + attempts.length;
  }

  heldTransfers(): number {
    return this.fleet.of("prefill").reduce((sum, pod) => sum + pod.engine.state().heldTransfers.length, 0);
  }

  /** The sum over all sidecars; null when one shows no such counter. */
  async handoffInvalid(): Promise<number | null> {
    let sum = 0;
    for (const pod of this.fleet.of("decode")) {
      const samples = (await pod.sidecar?.metrics()) ?? null;
      const value = samples === null ? null : handoffInvalidOf(samples);
      if (value === null) return null;
      sum += value;
    }
    return sum;
  }

  /**
   * Waits until no leg is open and none has begun for `quietMs`, at most `timeoutMs`. Counters are read after that.
   */
  async settled(mark: Mark, quietMs: number, timeoutMs: number): Promise<void> {
    const until = performance.now() + timeoutMs;
    let known = -1;
    let quietSince = performance.now();
    while (performance.now() < until) {
      const records = this.recordsSince(mark).filter(({ record }) => !isRefusalNote(record) && !isHousekeeping(record.method, record.path));
      const open = records.some(({ record }) => record.open);
      if (records.length !== known || open) {
        known = records.length;
        quietSince = performance.now();
      } else if (performance.now() - quietSince >= quietMs) {
        return;
      }
      await sleep(10);
    }
  }
}
