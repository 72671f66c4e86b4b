import { afterEach, describe, expect, it } from "vitest";
import { keyPair } from "../certificate.js";
import type { Sidecar } from "../server.js";
import { ask, errorOf, startTestSidecar } from "../testkit/harness.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";
import { parseOptions } from "../options.js";
import { Upstreams } from "./pools.js";

describe("upstream TLS", () => {
  const running: { close(): Promise<void> }[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((one) => one.close()));
  });

  async function tlsUpstream(body: string): Promise<TestUpstream> {
    const upstream = await TestUpstream.start((_, response) => {
      sendJson(response, body);
    }, await keyPair(""));
    running.push(upstream);
    return upstream;
  }

  async function sidecar(engine: TestUpstream, ...flags: string[]): Promise<Sidecar> {
    const made = await startTestSidecar(engine, flags);
    running.push(made);
    return made;
  }

  it("reaches each stage as its flag says, whatever the client's Host", async () => {
    const engine = await tlsUpstream("{}");
    const prefiller = await tlsUpstream('{"kv_transfer_params":{"a":1}}');
    const encoder = await tlsUpstream("{}");
    const { url } = await sidecar(engine, "--enable-tls=prefiller,decoder,encoder", "--tls-insecure-skip-verify=prefiller,decoder,encoder", "--ec-connector=ec-nixl");
    for (const host of ["one.test", "two.test", "127.0.0.1"]) {
      const answered = await ask(url, {
        headers: ["host", host, "x-prefiller-host-port", prefiller.authority, "x-encoder-hosts-ports", encoder.authority],
        body: '{"messages":[{"content":[{"type":"image_url","image_url":{"url":"u"}}]}]}',
      });
      expect(answered.status).toBe(200);
    }
    // The server name is the upstream's own: another Host costs no new connection (D18).
    expect([engine.connections, prefiller.connections, encoder.connections]).toEqual([1, 1, 1]);
  });

  it("does not take a certificate that nobody vouches for, and says nothing of it to the client", async () => {
    const engine = await tlsUpstream("{}");
    const { url } = await sidecar(engine, "--enable-tls=decoder");
    const answered = await ask(url, { body: "{}" });
    expect([answered.status, errorOf(answered).type, engine.received.length]).toEqual([502, "BadGateway", 0]);
    expect(answered.body).not.toMatch(/certificate|SELF_SIGNED/i);
  });
});

describe("Upstreams", () => {
  const options = parseOptions([], {}).options;
  const candidate = (port: number): { authority: string; host: string; port: number } => ({ authority: `127.0.0.1:${String(port)}`, host: "127.0.0.1", port });

  it("keeps one pool per host and stage", async () => {
    const upstreams = new Upstreams(options);
    expect(upstreams.prefiller(candidate(1))).toBe(upstreams.prefiller(candidate(1)));
    expect(upstreams.prefiller(candidate(1))).not.toBe(upstreams.encoder(candidate(1)));
    expect(upstreams.decoders[0]?.authority).toBe("localhost:8200");
    await upstreams.destroy();
  });

  it("drops the least recently used of more than 1024, and closes it", async () => {
    const server = await TestUpstream.start();
    const upstreams = new Upstreams(options);
    const first = upstreams.prefiller(candidate(server.port));
    await new Promise<void>((resolve) => {
      first.dispatch({ method: "GET", path: "/", servername: "x" } as Parameters<typeof first.dispatch>[0], { onRequestStart: () => undefined, onResponseEnd: () => { resolve(); }, onResponseError: () => { resolve(); } });
    });
    expect(server.openSockets).toBe(1);
    for (let port = 20_000; port < 20_000 + 1024; port++) upstreams.prefiller(candidate(port));
    expect(upstreams.prefiller(candidate(server.port))).not.toBe(first);
    await until(() => server.openSockets === 0);
    await Promise.all([upstreams.destroy(), server.close()]);
  });

  it("writes IPv6 engines in brackets", async () => {
    const upstreams = new Upstreams(parseOptions(["--decoder-host=::1", "--model-server-port=9"], {}).options);
    expect(upstreams.decoders[0]?.authority).toBe("[::1]:9");
    await upstreams.destroy();
  });
});
