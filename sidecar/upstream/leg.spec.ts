import type { ServerResponse } from "node:http";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { FlatHeaders } from "../headers.js";
import { valuesOf } from "../headers.js";
import { Metrics } from "../metrics.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";
import { Leg, type LegRequest } from "./leg.js";
import { LegError } from "./leg-error.js";
import { Upstream } from "./pools.js";

interface Seen {
  status: number;
  headers: FlatHeaders;
  text: string;
  ended: boolean;
  error: LegError | null;
}

describe("Leg", () => {
  let server: TestUpstream;
  let upstream: Upstream;
  let metrics: Metrics;

  beforeEach(async () => {
    server = await TestUpstream.start((_, response) => {
      sendJson(response, "{}");
    });
    upstream = new Upstream(server.authority, null, 100);
    metrics = new Metrics();
  });

  afterEach(async () => {
    await Promise.all([upstream.destroy(), server.close()]);
  });

  function start(change: Partial<LegRequest> = {}): { readonly leg: Leg; readonly seen: Seen; readonly over: Promise<Seen> } {
    const seen: Seen = { status: 0, headers: [], text: "", ended: false, error: null };
    let leg: Leg | null = null;
    const over = new Promise<Seen>((resolve) => {
      leg = new Leg(
        { stage: "decode", upstream, method: "POST", target: "/x", headers: ["a", "1"], body: [Buffer.from("{}")], timeoutMs: 0, timeoutUntil: "end", resendIfStale: true, ...change },
        {
          onHead: (status, headers) => {
            seen.status = status;
            seen.headers = headers;
          },
          onData: (chunk) => {
            seen.text += chunk.toString();
          },
          onEnd: () => {
            seen.ended = true;
            resolve(seen);
          },
          onError: (error) => {
            seen.error = error;
            resolve(seen);
          },
        },
        metrics,
      );
    });
    if (leg === null) throw new Error("no leg");
    const made: Leg = leg;
    made.start();
    return { leg: made, seen, over };
  }

  /** A call whose connection is kept and free again when this resolves. */
  async function firstCall(): Promise<void> {
    await start().over;
    await sleep(5);
  }

  async function value(name: string, labels: Record<string, string>): Promise<number> {
    const values = (await metrics.registry.getSingleMetric(name)?.get())?.values ?? [];
    return values.find((one) => Object.entries(labels).every(([label, text]) => Reflect.get(one.labels, label) === text))?.value ?? 0;
  }

  it("gives head, data and end, and keeps repeated headers as lines", async () => {
    server.handler = (_, response) => {
      response.writeHead(201, ["set-cookie", "a", "Set-Cookie", "b", "x-l", "\u00fc"]).end("hello");
    };
    const seen = await start().over;
    expect([seen.status, seen.text, seen.ended, valuesOf(seen.headers, "set-cookie"), valuesOf(seen.headers, "x-l")]).toEqual([201, "hello", true, ["a", "b"], ["\u00fc"]]);
    expect([await value("crosspoint_sidecar_legs_total", { stage: "decode", outcome: "2xx" }), await value("crosspoint_sidecar_in_flight_legs", { stage: "decode" })]).toEqual([1, 0]);
  });

  it.each([0, 5, 100_000, 5_000_000])("sends bodies of pieces of %i bytes whole, with their length", async (size) => {
    const pieces = [Buffer.alloc(size, "a"), Buffer.alloc(size, "b"), Buffer.from("c")];
    await start({ body: pieces }).over;
    expect(server.received[0]?.body.equals(Buffer.concat(pieces))).toBe(true);
    expect(valuesOf(server.received[0]?.rawHeaders ?? [], "content-length")).toEqual([String(2 * size + 1)]);
  });

  it("sends no body and no length with null", async () => {
    await start({ method: "GET", body: null }).over;
    expect(valuesOf(server.received[0]?.rawHeaders ?? [], "content-length")).toEqual([]);
  });

  it("uses a connection again, and makes a second for a second call at the same time", async () => {
    await start().over;
    await sleep(5);
    await start().over;
    expect(server.received.map(({ connection }) => connection)).toEqual([0, 0]);
    await sleep(5);
    await Promise.all([start().over, start().over]);
    expect(server.connections).toBe(2);
  });

  it("keeps no more idle connections than it may", async () => {
    const small = new Upstream(server.authority, null, 2);
    const releases: ServerResponse[] = [];
    server.handler = (_, response) => void releases.push(response);
    const legs = Array.from({ length: 5 }, () => start({ upstream: small }));
    await until(() => releases.length === 5);
    for (const response of releases) sendJson(response, "{}");
    await Promise.all(legs.map(({ over }) => over));
    await until(() => server.openSockets <= 2);
    expect(small.running).toBe(0);
    await small.destroy();
  });

  it("resends once on a fresh connection when a kept one gives no byte of an answer", async () => {
    await firstCall();
    const kept = server.received[0]?.connection;
    server.handler = (received, response) => {
      if (received.connection === kept) response.destroy();
      else sendJson(response, '{"fresh":true}');
    };
    const seen = await start().over;
    expect([seen.text, server.received.length, seen.error]).toEqual(['{"fresh":true}', 3, null]);
    expect(await value("crosspoint_sidecar_retries_total", { stage: "decode", reason: "stale_connection" })).toBe(1);
  });

  it("resends only once, only when told to, and never from a fresh connection or after a byte", async () => {
    server.handler = (_, response) => {
      response.destroy();
    };
    expect((await start().over).error?.failure).toBe("broken");
    expect(server.received.length).toBe(1);

    server.handler = (_, response) => {
      sendJson(response, "{}");
    };
    await firstCall();
    server.handler = (_, response) => {
      response.destroy();
    };
    expect((await start().over).error?.failure).toBe("broken");
    expect(server.received.length).toBe(4);

    server.handler = (_, response) => {
      sendJson(response, "{}");
    };
    await firstCall();
    server.handler = (_, response) => {
      response.destroy();
    };
    const { leg, over } = start({ resendIfStale: false });
    expect((await over).error?.failure).toBe("broken");
    expect([server.received.length, leg.brokeOnStaleConnection]).toEqual([6, true]);
  });

  it("resends on a kept connection that never carried a request: what an abort leaves behind", async () => {
    server.handler = () => undefined;
    const left = start();
    await until(() => server.received.length === 1);
    left.leg.abort("test");
    expect((await left.over).error?.failure).toBe("aborted");
    // The client has connected anew, with nothing to send.
    await until(() => upstream.connections === 1);
    server.handler = (_, response, call) => {
      if (call === 1) response.destroy();
      else sendJson(response, "{}");
    };
    expect(await start().over).toMatchObject({ ended: true, status: 200 });
    expect([server.received.length, server.received[1]?.connection]).toEqual([3, 1]);
  });

  it("does not resend once any byte of an answer came", async () => {
    let calls = 0;
    const raw = createServer((socket: Socket) => {
      socket.on("error", () => undefined);
      socket.on("data", () => {
        calls += 1;
        if (calls === 1) socket.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        else socket.end("HTTP/1.1 200 O");
      });
    });
    await new Promise<void>((resolve) => raw.listen(0, "127.0.0.1", resolve));
    const odd = new Upstream(`127.0.0.1:${String((raw.address() as AddressInfo).port)}`, null, 10);
    expect((await start({ upstream: odd }).over).ended).toBe(true);
    await sleep(5);
    const second = start({ upstream: odd });
    expect([(await second.over).error?.failure, second.leg.brokeOnStaleConnection, calls]).toEqual(["broken", false, 2]);
    await odd.destroy();
    await new Promise((resolve) => raw.close(resolve));
  });

  it("ends at its deadline, for the head or for the whole answer", async () => {
    server.handler = () => undefined;
    expect((await start({ timeoutMs: 40, timeoutUntil: "head" }).over).error?.failure).toBe("timeout");
    await until(() => server.received[0]?.aborted === true);
    server.handler = async (_, response) => {
      response.writeHead(200);
      response.write("a");
      await sleep(120);
      response.end("b");
    };
    expect(await start({ timeoutMs: 60, timeoutUntil: "head" }).over).toMatchObject({ text: "ab", ended: true });
    expect(await start({ timeoutMs: 60, timeoutUntil: "end" }).over).toMatchObject({ text: "a", ended: false, error: { failure: "timeout" } });
  });

  it("aborts before its connection is there, while it waits, and in the middle of an answer", async () => {
    const early = start();
    early.leg.abort("test");
    expect((await early.over).error?.failure).toBe("aborted");

    server.handler = (_, response) => {
      response.writeHead(200);
      response.write("a");
    };
    const late = start();
    await until(() => late.seen.text === "a");
    late.leg.abort("test");
    late.leg.abort("again");
    expect((await late.over).error?.failure).toBe("aborted");
    await until(() => server.received.every(({ aborted }) => aborted));
    expect(await value("crosspoint_sidecar_in_flight_legs", { stage: "decode" })).toBe(0);
    expect(upstream.running).toBe(0);
  });

  it("holds data back while paused", async () => {
    let written = 0;
    server.handler = (_, response) => {
      response.writeHead(200);
      const more = (): void => {
        while (!response.destroyed && written < 60_000_000) {
          written += 65_536;
          if (!response.write(Buffer.alloc(65_536))) {
            response.once("drain", more);
            return;
          }
        }
        response.end();
      };
      more();
    };
    const { leg, over, seen } = start();
    await until(() => seen.text.length > 0);
    leg.pause();
    await sleep(100);
    const [got, sent] = [seen.text.length, written];
    await sleep(100);
    expect([seen.text.length - got, written - sent]).toEqual([0, 0]);
    leg.resume();
    expect((await over).ended).toBe(true);
  });

  it("names what went wrong", async () => {
    const refused = new Upstream(`127.0.0.1:${String(await TestUpstream.refusedPort())}`, null, 1);
    expect((await start({ upstream: refused }).over).error?.failure).toBe("refused");
    const unknown = new Upstream("no-such-host.invalid:80", null, 1);
    expect((await start({ upstream: unknown }).over).error?.failure).toBe("unreachable");
    const tls = new Upstream(server.authority, { verify: true }, 1);
    expect(["tls", "broken"]).toContain((await start({ upstream: tls }).over).error?.failure);
    await Promise.all([refused.destroy(), unknown.destroy(), tls.destroy()]);
  });

  it("reports a request that cannot be sent as a failure, not as an exception", async () => {
    const { error } = await start({ headers: ["bad name", "x"] }).over;
    expect(error).toBeInstanceOf(LegError);
  });
});
