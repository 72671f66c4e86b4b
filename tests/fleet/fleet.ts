/**
 * A fleet on loopback: engines, a sidecar in front of each decode engine, and Envoy with the filter in front of all. Tests, the case runner and the demo
 * start theirs here.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { AccessLog } from "./access-log.js";
import { Envoy, saysPortTaken } from "./envoy.js";
import { endpointEntry, type EndpointEntry } from "./picker.js";
import { freePort } from "./ports.js";
import { render, type Address } from "./render.js";
import { inRoot } from "./root.js";
import { Sidecar } from "./sidecar.js";
import { Tap } from "./tap.js";

export type PodRole = "encode" | "prefill" | "decode";

/** What the fleet has to know of an engine, in this process or as one of its own. */
export interface FleetEngine {
  readonly host: string;
  readonly port: number;
  close(): Promise<void>;
}

export interface EngineSpec {
  /** d0, p1, e0 … */
  name: string;
  role: PodRole;
  host: string;
}

export interface EnvoyPlan {
  picker: unknown;
  /** FilterOptions without apiVersion and kind. */
  filterOptions?: Readonly<Record<string, unknown>> | null;
  listen?: Address;
  admin?: Address;
  state?: Address;
  concurrency?: number;
  logLevel?: string;
}

export interface FleetOptions<E extends FleetEngine> {
  pods: Readonly<Record<PodRole, number>>;
  startEngine: (spec: EngineSpec) => Promise<E>;
  /** null: no Envoy, the sidecars are all there is. */
  envoy: EnvoyPlan | null;
  /** Where everything listens: 127.0.0.1 (default) or ::1. Admin, state and metrics stay on 127.0.0.1. */
  host?: string;
  /** Where decode engines listen; default: as everything. */
  decodeEngineHost?: string;
  /** Flags of every sidecar; a function gets the pods once their addresses are known, and the fleet's folder. */
  sidecarFlags?: SidecarFlags | ((pods: readonly Pod<E>[], folder: string) => Promise<SidecarFlags>);
  /** A tap in front of each sidecar, default true. */
  taps?: boolean;
}

export type SidecarFlags = readonly (readonly [name: string, value: string])[];

export interface Pod<E extends FleetEngine> {
  name: string;
  role: PodRole;
  /** Where requests for the pod go: the tap or sidecar of a decode pod, the engine of the others. */
  address: Address;
  engine: E;
  sidecar: Sidecar | null;
  tap: Tap | null;
}

export interface RunningEnvoy {
  envoy: Envoy;
  listen: Address;
  admin: Address;
  state: Address;
  accessLog: AccessLog;
}

const ATTEMPTS = 3;
const LETTERS: Readonly<Record<PodRole, string>> = { decode: "d", prefill: "p", encode: "e" };

/** Folders of fleets that are not closed yet: they go when the process does, by whatever way. */
const folders = new Set<string>();
process.on("exit", () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** A folder of its own for the files of one fleet, below build/. */
function workFolder(): string {
  const parent = inRoot("build", "fleets");
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, `${process.pid.toString()}-`));
  folders.add(folder);
  return folder;
}

export class Fleet<E extends FleetEngine> {
  readonly pods: Pod<E>[] = [];
  running: RunningEnvoy | null = null;
  /** Files of the fleet; gone when it is closed. */
  readonly folder: string;
  private readonly closers: (() => Promise<void>)[] = [];

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Starts everything; what was started is ended again when a part does not come up. */
  static async start<E extends FleetEngine>(options: FleetOptions<E>): Promise<Fleet<E>> {
    const fleet = new Fleet<E>(workFolder());
    try {
      await fleet.bringUp(options);
      return fleet;
    } catch (error) {
      await fleet.close();
      throw error;
    }
  }

  private async bringUp(options: FleetOptions<E>): Promise<void> {
    const host = options.host ?? "127.0.0.1";
    const specs = (["decode", "prefill", "encode"] as const).flatMap((role) =>
      Array.from({ length: options.pods[role] }, (_none, at): EngineSpec => ({
        name: `${LETTERS[role]}${at.toString()}`,
        role,
        host: role === "decode" ? (options.decodeEngineHost ?? host) : host,
      })),
    );
    // allSettled: an engine that did come up beside one that did not has to be closed too.
    const engines = await Promise.allSettled(specs.map((spec) => options.startEngine(spec)));
    for (const engine of engines) if (engine.status === "fulfilled") this.closers.push(() => engine.value.close());
    const targets = new Map<string, Deferred<Address>>();
    for (const [at, spec] of specs.entries()) {
      const engine = engines[at];
      if (engine?.status !== "fulfilled") throw engine?.reason instanceof Error ? engine.reason : new Error(`${spec.name} did not start`);
      const pod: Pod<E> = { name: spec.name, role: spec.role, address: { host: engine.value.host, port: engine.value.port }, engine: engine.value, sidecar: null, tap: null };
      this.pods.push(pod);
      if (spec.role !== "decode" || options.taps === false) continue;
      const target = deferred<Address>();
      targets.set(pod.name, target);
      const tap = await Tap.start(target.promise, host);
      this.closers.push(() => tap.close());
      pod.tap = tap;
      pod.address = { host: tap.host, port: tap.port };
    }
    const flags = typeof options.sidecarFlags === "function" ? await options.sidecarFlags(this.pods, this.folder) : (options.sidecarFlags ?? []);
    const sidecars = this.of("decode").map(async (pod) => {
      try {
        const sidecar = await Sidecar.start({ name: `sidecar ${pod.name}`, host, engine: { host: pod.engine.host, port: pod.engine.port }, flags });
        this.closers.push(() => sidecar.stop());
        pod.sidecar = sidecar;
        if (pod.tap === null) pod.address = { host: sidecar.host, port: sidecar.port };
        targets.get(pod.name)?.resolve({ host: sidecar.host, port: sidecar.port });
      } catch (error) {
        targets.get(pod.name)?.reject(error);
        throw error;
      }
    });
    const { envoy } = options;
    if (envoy === null || options.taps === false) await settleAll(sidecars);
    if (envoy === null) return;
    // Behind taps the addresses are known, and Envoy starts beside the sidecars.
    await settleAll([...sidecars, this.startEnvoy(envoy)]);
  }

  /** The fleet's endpoints file. */
  endpoints(): EndpointEntry[] {
    return this.pods.map((pod) => endpointEntry(pod.name, pod.role, pod.address.host, pod.address.port));
  }

  private async startEnvoy(plan: EnvoyPlan): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const own = async (): Promise<Address> => ({ host: "127.0.0.1", port: await freePort() });
      const [listen, admin, state] = [plan.listen ?? (await own()), plan.admin ?? (await own()), plan.state ?? (await own())];
      const rendered = await render({
        picker: plan.picker,
        filterOptions: plan.filterOptions ?? null,
        endpoints: this.endpoints(),
        listen,
        admin,
        state,
        folder: join(this.folder, attempt.toString()),
      });
      try {
        const envoy = await Envoy.start({
          bootstrap: rendered.bootstrap,
          admin,
          ...(plan.concurrency === undefined ? {} : { concurrency: plan.concurrency }),
          ...(plan.logLevel === undefined ? {} : { logLevel: plan.logLevel }),
        });
        // First in, first out: Envoy ends before what it speaks to.
        this.closers.unshift(() => envoy.stop());
        this.running = { envoy, listen, admin, state, accessLog: new AccessLog(rendered.accessLog) };
        return;
      } catch (error) {
        if (attempt >= ATTEMPTS || plan.listen !== undefined || !saysPortTaken(error)) throw error;
      }
    }
  }

  /** The pod of that name. */
  pod(name: string): Pod<E> {
    const found = this.pods.find((pod) => pod.name === name);
    if (found === undefined) throw new Error(`the fleet has no ${name}`);
    return found;
  }

  of(role: PodRole): Pod<E>[] {
    return this.pods.filter((pod) => pod.role === role);
  }

  /** Programs that ended although nobody asked them to. */
  dead(): string[] {
    const children = [this.running?.envoy.child, ...this.pods.map((pod) => pod.sidecar?.child)];
    return children.filter((child) => child?.died === true).map((child) => child?.name ?? "");
  }

  /** Ends everything that was started, in order, and removes the files. */
  async close(): Promise<void> {
    const closers = this.closers.splice(0);
    const [first, ...rest] = closers;
    // Envoy (the first, where there is one) goes before the others, so that it does not log their going.
    await first?.();
    await Promise.allSettled(rest.map((close) => close()));
    rmSync(this.folder, { recursive: true, force: true });
    folders.delete(this.folder);
  }
}

interface Deferred<T> {
  promise: Promise<T>;
  resolve: (value: T) => void;
  reject: (reason: unknown) => void;
}

function deferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => undefined;
  let reject: (reason: unknown) => void = () => undefined;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  // Whoever waits for it sees the failure; nobody may be waiting.
  promise.catch(() => undefined);
  return { promise, resolve, reject };
}

/** Waits for all, then throws the first failure: nothing is left starting in the background. */
async function settleAll(parts: readonly Promise<unknown>[]): Promise<void> {
  const results = await Promise.allSettled(parts);
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) throw failed.reason instanceof Error ? failed.reason : new Error(String(failed.reason));
}
