import { afterEach, describe, expect, it } from "vitest";
import { Engine } from "./engine.js";
import { Metrics } from "./metrics.js";
import { TestUpstream } from "./testkit/upstream.js";
import { Upstream } from "./upstream/pools.js";

describe("Engine", () => {
  const running: { close(): Promise<void> }[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((one) => one.close()));
  });

  function engineAt(authority: string): Engine {
    const upstream = new Upstream(authority, null, 10);
    running.push({ close: () => upstream.destroy() });
    return new Engine(0, upstream, new Metrics());
  }

  it("is asked only when it was away, and by all at once only once", async () => {
    const server = await TestUpstream.start((_, response) => void response.end());
    running.push(server);
    const engine = engineAt(server.authority);
    expect([await engine.mayServe(), server.received.length]).toEqual([true, 0]);
    engine.markAway();
    expect(await Promise.all([engine.mayServe(), engine.mayServe(), engine.ready()])).toEqual([true, true, true]);
    expect([server.received.length, server.received[0]?.target]).toEqual([1, "/health"]);
    expect([await engine.mayServe(), server.received.length]).toEqual([true, 1]);
  });

  it("stays away while it refuses or says that it is not healthy", async () => {
    const engine = engineAt(`127.0.0.1:${String(await TestUpstream.refusedPort())}`);
    expect(await engine.ready()).toBe(false);
    expect(await engine.mayServe()).toBe(false);
    const loading = await TestUpstream.start((_, response) => void response.writeHead(503).end());
    running.push(loading);
    const other = engineAt(loading.authority);
    other.markAway();
    expect([await other.mayServe(), await other.mayServe(), loading.received.length]).toEqual([false, false, 2]);
  });
});
