import type { Logger } from "../log.js";
import type { Metrics } from "../metrics.js";
import { addHost, type AllowedHosts, type AllowedPorts, type AllowSource } from "./allowlist.js";
import { podNames, type PodView, readPod } from "./pod-names.js";
import { labelSelector, PoolError, type PoolSpec, readPool } from "./pool.js";
import { type ListWatch, Reflector, type ReflectorTiming } from "./reflector.js";

const NOTHING: AllowedHosts = new Map();

export interface PoolSourceParts {
  readonly group: string;
  /** `namespace/name`, for the log. */
  readonly pool: string;
  readonly clusterDomain: string;
  readonly pools: ListWatch;
  /** @param selector as the API takes it */
  readonly pods: (selector: string) => ListWatch;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly timing?: ReflectorTiming;
}

/**
 * The endpoints of an InferencePool: its pods under all their names, on the pool's ports. One watch for all listeners of the process, kept up as long as it runs.
 * A pool that is deleted or cannot be understood has no pods (fail closed); while the API server is away what was known last holds.
 */
export class PoolSource implements AllowSource {
  readonly #parts: PoolSourceParts;
  readonly #poolWatch: Reflector;
  #podWatch: Reflector | null = null;
  #selector = "";
  #spec: PoolSpec | null = null;
  #pods = new Map<string, PodView>();
  #hosts: AllowedHosts = NOTHING;
  /** The pool's pods were listed once. */
  #ready = false;
  /** Those that are known belong to the selector that holds now. */
  #current = false;

  constructor(parts: PoolSourceParts) {
    this.#parts = parts;
    this.#poolWatch = new Reflector(
      parts.pools,
      {
        replaced: (objects) => {
          this.#usePool(objects[0] ?? null);
        },
        changed: (type, object) => {
          this.#usePool(type === "DELETED" ? null : object);
        },
        failed: (what, status, message) => {
          this.#note("pool", what, status, message);
        },
      },
      parts.timing,
    ).start();
  }

  get hosts(): AllowedHosts {
    return this.#hosts;
  }

  get ready(): boolean {
    return this.#ready;
  }

  close(): void {
    this.#poolWatch.close();
    this.#podWatch?.close();
  }

  #note(source: "pool" | "pods", what: string, status: number, message: string): void {
    const { metrics, log, pool } = this.#parts;
    metrics.allowlistUpdates.inc({ source, outcome: `${what}_failed` });
    log.error({ pool, status, detail: message }, source === "pool" ? "the inference pool cannot be read" : "the pool's pods cannot be read");
  }

  #usePool(object: unknown): void {
    const { group, log, pool, metrics } = this.#parts;
    let spec: PoolSpec | null = null;
    if (object === null) {
      log.warn({ pool }, "there is no such inference pool: no endpoint of it is allowed");
    } else {
      try {
        spec = readPool(object, group);
      } catch (error) {
        if (!(error instanceof PoolError)) throw error;
        metrics.allowlistUpdates.inc({ source: "pool", outcome: "invalid" });
        log.error({ pool, detail: error.message }, "the inference pool cannot be understood: no endpoint of it is allowed");
      }
    }
    this.#spec = spec;
    const selector = spec === null ? "" : labelSelector(spec);
    if (selector === this.#selector) {
      this.#rebuild();
      return;
    }
    this.#selector = selector;
    this.#podWatch?.close();
    this.#podWatch = null;
    this.#current = false;
    if (spec === null) {
      this.#pods.clear();
      this.#rebuild();
      return;
    }
    // Pods of the old selector stand until those of the new one are there: an edit of the pool is not to refuse what both have.
    this.#podWatch = new Reflector(
      this.#parts.pods(selector),
      {
        replaced: (objects) => {
          this.#pods = new Map(objects.map((pod) => readPod(pod)).map((pod) => [pod.name, pod]));
          this.#current = true;
          if (!this.#ready) log.info({ pool, pods: this.#pods.size }, "allowed endpoints are known");
          this.#ready = true;
          this.#rebuild();
        },
        changed: (type, object) => {
          const pod = readPod(object);
          // Most changes of a pod are none to us.
          if (type !== "DELETED" && JSON.stringify(this.#pods.get(pod.name)) === JSON.stringify(pod)) return;
          if (type === "DELETED") this.#pods.delete(pod.name);
          else this.#pods.set(pod.name, pod);
          this.#rebuild();
        },
        failed: (what, status, message) => {
          this.#note("pods", what, status, message);
          if (!this.#current) {
            this.#pods.clear();
            this.#rebuild();
          }
        },
      },
      this.#parts.timing,
    ).start();
  }

  #rebuild(): void {
    const hosts = new Map<string, AllowedPorts>();
    const spec = this.#spec;
    if (spec !== null) for (const pod of this.#pods.values()) for (const name of podNames(pod, this.#parts.clusterDomain)) addHost(hosts, name, spec.ports);
    this.#hosts = hosts;
    this.#parts.metrics.allowlistUpdates.inc({ source: "pods", outcome: "taken" });
    this.#parts.log.debug({ pool: this.#parts.pool, pods: this.#pods.size, hosts: hosts.size }, "allowed endpoints changed");
  }
}
