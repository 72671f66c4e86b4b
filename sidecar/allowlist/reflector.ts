import { setTimeout as sleep } from "node:timers/promises";

export interface WatchEnd {
  /** 200: it has ended in order; 410: where it was to go on is forgotten; 0: no answer. */
  readonly status: number;
  readonly message: string;
}

export interface RunningWatch {
  /** Never rejects. */
  readonly ended: Promise<WatchEnd>;
  close(): void;
}

/** One kind of object of the Kubernetes API: listed once, then followed. */
export interface ListWatch {
  /** @param resourceVersion `"0"`: what the API server has at hand; `""`: the latest */
  list(resourceVersion: string): Promise<{ readonly items: readonly unknown[]; readonly resourceVersion: string }>;
  /** From that version on; bookmarks are among the events. */
  watch(resourceVersion: string, onEvent: (type: string, object: unknown) => void): RunningWatch;
}

export interface ReflectorListener {
  /** All objects, in the place of those that were there. */
  replaced(objects: readonly unknown[]): void;
  changed(type: "ADDED" | "MODIFIED" | "DELETED", object: unknown): void;
  /** A list or watch failed; it is tried again. */
  failed(what: "list" | "watch", status: number, message: string): void;
}

export interface ReflectorTiming {
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
}

const TIMING: ReflectorTiming = { minBackoffMs: 500, maxBackoffMs: 30_000 };
const GONE = 410;

/**
 * Follows objects of the Kubernetes API: one list, then watches that go on where the last one ended, from the version of the last event or bookmark. It lists anew
 * only when the server has forgotten that version (410), not on a timer (D11). Failures are tried again, slower each time.
 */
export class Reflector {
  readonly #source: ListWatch;
  readonly #listener: ReflectorListener;
  readonly #timing: ReflectorTiming;
  readonly #closed = new AbortController();
  #running: RunningWatch | null = null;
  /** Where the next watch begins; null: a list is due. */
  #version: string | null = null;
  /** The first list may be what the server has at hand, since events follow; one that a 410 makes due must not be as old as what is forgotten. */
  #listFrom = "0";

  constructor(source: ListWatch, listener: ReflectorListener, timing: ReflectorTiming = TIMING) {
    this.#source = source;
    this.#listener = listener;
    this.#timing = timing;
  }

  start(): this {
    void this.#run();
    return this;
  }

  close(): void {
    this.#closed.abort();
    this.#running?.close();
  }

  get #over(): boolean {
    return this.#closed.signal.aborted;
  }

  async #run(): Promise<void> {
    const { minBackoffMs, maxBackoffMs } = this.#timing;
    let backoffMs = minBackoffMs;
    while (!this.#over) {
      const startedAt = performance.now();
      const version = this.#version;
      const fine = version === null ? await this.#list() : await this.#watch(version);
      if (this.#over) return;
      if (fine && version === null) continue;
      // A watch that ends as soon as it began is not to be repeated in a circle, however orderly its end was.
      if (fine && performance.now() - startedAt >= minBackoffMs) {
        backoffMs = minBackoffMs;
        continue;
      }
      await sleep(backoffMs * (0.5 + Math.random()), undefined, { signal: this.#closed.signal }).catch(() => undefined);
      backoffMs = Math.min(backoffMs * 2, maxBackoffMs);
    }
  }

  /** @returns whether it is there */
  async #list(): Promise<boolean> {
    try {
      const { items, resourceVersion } = await this.#source.list(this.#listFrom);
      if (this.#over) return false;
      this.#version = resourceVersion;
      this.#listener.replaced(items);
      return true;
    } catch (error) {
      if (!this.#over) this.#listener.failed("list", statusIn(error), error instanceof Error ? error.message : String(error));
      if (statusIn(error) === GONE) this.#listFrom = "";
      return false;
    }
  }

  /** @returns whether it ended in order */
  async #watch(version: string): Promise<boolean> {
    const seen: { problem: WatchEnd | null } = { problem: null };
    const running = this.#source.watch(version, (type, object) => {
      if (this.#over || seen.problem !== null) return;
      if (type === "ERROR") {
        seen.problem = { status: codeIn(object), message: messageIn(object) };
        this.#running?.close();
        return;
      }
      const at = versionIn(object);
      if (at !== "") this.#version = at;
      if (type === "ADDED" || type === "MODIFIED" || type === "DELETED") this.#listener.changed(type, object);
    });
    this.#running = running;
    const ended = await running.ended;
    this.#running = null;
    if (this.#over) return false;
    const { status, message } = seen.problem ?? ended;
    if (status === GONE) {
      this.#version = null;
      this.#listFrom = "";
      return false;
    }
    if (status === 200) return true;
    this.#listener.failed("watch", status, message);
    return false;
  }
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? (Reflect.get(value, name) as unknown) : undefined;
}

function statusIn(error: unknown): number {
  const status = field(error, "status");
  return typeof status === "number" ? status : 0;
}

function codeIn(object: unknown): number {
  const code = field(object, "code");
  return typeof code === "number" ? code : 0;
}

function messageIn(object: unknown): string {
  const message = field(object, "message");
  return typeof message === "string" ? message : "the API server ended the watch";
}

function versionIn(object: unknown): string {
  const version = field(field(object, "metadata"), "resourceVersion");
  return typeof version === "string" ? version : "";
}
