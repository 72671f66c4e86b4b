import { afterEach, describe, expect, it } from "vitest";
import { until } from "../testkit/upstream.js";
import { type ListWatch, Reflector, type WatchEnd } from "./reflector.js";

/** A server whose every list and watch is told by hand. */
class Server implements ListWatch {
  readonly lists: string[] = [];
  readonly watches: string[] = [];
  version = 1;
  failing: Error | null = null;
  #emit: (type: string, object: unknown) => void = () => undefined;
  #end: (end: WatchEnd) => void = () => undefined;

  list(resourceVersion: string): Promise<{ items: readonly unknown[]; resourceVersion: string }> {
    this.lists.push(resourceVersion);
    return this.failing === null ? Promise.resolve({ items: [`v${String(this.version)}`], resourceVersion: String(this.version) }) : Promise.reject(this.failing);
  }

  watch(resourceVersion: string, onEvent: (type: string, object: unknown) => void): { ended: Promise<WatchEnd>; close(): void } {
    this.watches.push(resourceVersion);
    this.#emit = onEvent;
    const ended = new Promise<WatchEnd>((resolve) => (this.#end = resolve));
    return {
      ended,
      close: () => {
        this.#end({ status: 200, message: "closed" });
      },
    };
  }

  emit(type: string, object: unknown): void {
    this.#emit(type, object);
  }

  end(status: number, message = ""): void {
    this.#end({ status, message });
  }
}

const at = (resourceVersion: string, more: object = {}): object => ({ metadata: { resourceVersion }, ...more });

describe("Reflector", () => {
  const server = { now: new Server() };
  const seen: string[] = [];
  let reflector: Reflector | null = null;
  afterEach(() => {
    reflector?.close();
  });

  function start(): Server {
    server.now = new Server();
    seen.splice(0);
    reflector = new Reflector(
      server.now,
      {
        replaced: (objects) => void seen.push(`replaced ${objects.join()}`),
        changed: (type, object) => void seen.push(`${type} ${JSON.stringify(object)}`),
        failed: (what, status, message) => void seen.push(`failed ${what} ${String(status)} ${message}`),
      },
      { minBackoffMs: 5, maxBackoffMs: 20 },
    );
    reflector.start();
    return server.now;
  }

  it("lists once, then goes on from the last event or bookmark", async () => {
    const api = start();
    await until(() => api.watches.length === 1);
    api.emit("ADDED", at("5"));
    api.emit("BOOKMARK", at("9"));
    api.end(200);
    await until(() => api.watches.length === 2);
    expect([api.lists, api.watches, seen]).toEqual([["0"], ["1", "9"], ["replaced v1", 'ADDED {"metadata":{"resourceVersion":"5"}}']]);
  });

  for (const [how, forget] of [
    ["an event", (api: Server) => { api.emit("ERROR", { code: 410, message: "too old" }); }],
    ["the answer", (api: Server) => { api.end(410, "Gone"); }],
  ] as const) {
    it(`lists anew, and the latest, when its version is forgotten: told by ${how}`, async () => {
      const api = start();
      await until(() => api.watches.length === 1);
      api.version = 7;
      forget(api);
      await until(() => api.watches.length === 2);
      expect([api.lists, api.watches, seen]).toEqual([["0", ""], ["1", "7"], ["replaced v1", "replaced v7"]]);
    });
  }

  it("a broken watch is told and begun again where it was", async () => {
    const api = start();
    await until(() => api.watches.length === 1);
    api.emit("MODIFIED", at("3"));
    api.end(0, "reset");
    await until(() => api.watches.length === 2);
    expect([api.lists, api.watches, seen.at(-1)]).toEqual([["0"], ["1", "3"], "failed watch 0 reset"]);
  });

  it("a list that fails is told and tried again", async () => {
    const api = new Server();
    api.failing = Object.assign(new Error("forbidden"), { status: 403 });
    server.now = api;
    seen.splice(0);
    reflector = new Reflector(api, { replaced: () => void seen.push("replaced"), changed: () => undefined, failed: (what, status, message) => void seen.push(`${what} ${String(status)} ${message}`) }, { minBackoffMs: 5, maxBackoffMs: 20 });
    reflector.start();
    await until(() => seen.length === 3);
    api.failing = null;
    await until(() => seen.includes("replaced"));
    expect(seen[0]).toBe("list 403 forbidden");
  });

  it("says nothing more once it is closed", async () => {
    const api = start();
    await until(() => api.watches.length === 1);
    reflector?.close();
    api.emit("ADDED", at("2"));
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect([api.watches.length, seen]).toEqual([1, ["replaced v1"]]);
  });
});
