import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Sidecar } from "../server.js";
import { ask, errorOf, header, metric, open, startTestSidecar } from "../testkit/harness.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";

const HANDOFF = '{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[6,7]],"remote_engine_id":"e-1", "remote_request_id":"chatcmpl-x-1","remote_host":"10.0.0.7","remote_port":5600,"seed":18446744073709551617,"t":1.0}';
const PREFILL_ANSWER = `{"id":"p","choices":[],"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":7}},"kv_transfer_params":${HANDOFF}}`;

describe("prefill", () => {
  let prefiller: TestUpstream;
  let decoder: TestUpstream;
  let sidecar: Sidecar | null = null;

  beforeEach(async () => {
    prefiller = await TestUpstream.start((_, response) => {
      sendJson(response, PREFILL_ANSWER);
    });
    decoder = await TestUpstream.start((_, response) => {
      sendJson(response, '{"id":"d","usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":49}}}');
    });
  });

  afterEach(async () => {
    await Promise.all([sidecar?.close(), prefiller.close(), decoder.close()]);
    sidecar = null;
  });

  async function start(...flags: string[]): Promise<Sidecar> {
    sidecar = await startTestSidecar(decoder, flags);
    return sidecar;
  }

  function routed(...more: string[]): string[] {
    return ["x-prefiller-host-port", prefiller.authority, ...more];
  }

  const CHAT = '{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":50,"stream":false}';

  it.each([502, 503, 504])("C-NX-10: a prefill that answers %i once is tried again", async (status) => {
    prefiller.handler = (_, response, call) => {
      if (call === 0) sendJson(response, {}, status);
      else sendJson(response, PREFILL_ANSWER);
    };
    const { url } = await start("--prefill-max-retries=2", "--prefill-retry-backoff=5ms");
    const answered = await ask(url, { headers: routed(), body: CHAT });
    expect([answered.status, prefiller.received.length, decoder.received.length]).toEqual([200, 2, 1]);
    expect(decoder.json()["kv_transfer_params"]).toMatchObject({ remote_request_id: "chatcmpl-x-1" });
    if (sidecar !== null) expect(await metric(sidecar, "retries_total", { stage: "prefill", reason: `status_${String(status)}` })).toBe(1);
  });

  it("C-NX-10: a prefill connection that breaks once is tried again", async () => {
    prefiller.handler = (_, response, call) => {
      if (call === 0) response.destroy();
      else sendJson(response, PREFILL_ANSWER);
    };
    const { url } = await start("--prefill-max-retries=1", "--prefill-retry-backoff=5ms");
    expect((await ask(url, { headers: routed(), body: CHAT })).status).toBe(200);
    expect(prefiller.received.length).toBe(2);
  });

  it("C-NX-11 C-NX-12: without retries once, with two three times, and never decode", async () => {
    prefiller.handler = (_, response) => {
      sendJson(response, { error: "busy" }, 502);
    };
    const { url } = await start();
    expect((await ask(url, { headers: routed(), body: CHAT })).status).toBe(502);
    expect(prefiller.received.length).toBe(1);
    await sidecar?.close();
    const again = await start("--prefill-max-retries=2", "--prefill-retry-backoff=5ms");
    expect((await ask(again.url, { headers: routed(), body: CHAT })).status).toBe(502);
    expect([prefiller.received.length, decoder.received.length]).toEqual([4, 0]);
  });

  it.each([500, 501, 429, 404, 301])("C-NX-13: %i is final", async (status) => {
    prefiller.handler = (_, response) => {
      sendJson(response, { a: 1 }, status, { location: "/elsewhere" });
    };
    const { url } = await start("--prefill-max-retries=2", "--prefill-retry-backoff=5ms");
    expect((await ask(url, { headers: routed(), body: CHAT })).status).toBe(status);
    expect([prefiller.received.length, decoder.received.length]).toEqual([1, 0]);
  });

  it("C-NX-14: a final failure is relayed with its headers and body, repeats kept", async () => {
    prefiller.handler = (_, response) => {
      response.writeHead(500, { "content-type": "text/plain", "x-why": ["a", "b"], connection: "close, x-hop", "x-hop": "1" }).end("out of memory");
    };
    const { url } = await start();
    const answered = await ask(url, { headers: routed(), body: CHAT });
    expect([answered.status, answered.body, header(answered, "x-why"), header(answered, "content-length"), header(answered, "x-hop")]).toEqual([500, "out of memory", ["a", "b"], ["13"], []]);
  });

  it.each(["fail", "local"])("a 4xx is the client's own, whole, under %s", async (policy) => {
    prefiller.handler = (_, response) => {
      sendJson(response, { object: "error", message: "max_tokens is too large", type: "BadRequestError", code: 400 }, 400, { "x-p": "1" });
    };
    const { url } = await start(`--on-stage-failure=${policy}`);
    const answered = await ask(url, { headers: routed(), body: CHAT });
    expect([answered.status, JSON.parse(answered.body), header(answered, "x-p"), decoder.received.length]).toEqual([400, { object: "error", message: "max_tokens is too large", type: "BadRequestError", code: 400 }, ["1"], 0]);
  });

  it("C-NX-15: an unreachable prefiller is a typed 502 that tells nothing of the transport", async () => {
    const { url } = await start();
    const port = await TestUpstream.refusedPort();
    const answered = await ask(url, { headers: ["x-prefiller-host-port", `127.0.0.1:${String(port)}`], body: CHAT });
    expect([answered.status, header(answered, "content-type"), errorOf(answered).type, errorOf(answered).code]).toEqual([502, ["application/json"], "BadGateway", 502]);
    expect(answered.body).not.toMatch(/ECONN|127\.0\.0\.1/);
    expect(decoder.received.length).toBe(0);
  });

  it("an unreadable prefiller address is a typed 502, or local", async () => {
    const { url } = await start();
    expect((await ask(url, { headers: ["x-prefiller-host-port", "https://h:1"], body: CHAT })).status).toBe(502);
    await sidecar?.close();
    const local = await start("--on-stage-failure=local");
    expect((await ask(local.url, { headers: ["x-prefiller-host-port", "nowhere"], body: CHAT })).status).toBe(200);
    expect(decoder.text()).toBe(CHAT);
  });

  it("local: a prefill that fails is run by the engine alone, with the client's own body, its own usage", async () => {
    prefiller.handler = (_, response) => {
      sendJson(response, {}, 500);
    };
    const running = await start("--on-stage-failure=local");
    const answered = await ask(running.url, { headers: routed(), body: CHAT });
    expect([answered.status, decoder.text()]).toEqual([200, CHAT]);
    expect(answered.body).toContain('"cached_tokens":49');
    expect(await metric(running, "stage_failures_total", { stage: "prefill", reason: "status_500", policy: "local" })).toBe(1);
  });

  it("the prefill deadline is a typed 504, or local; it holds over all attempts", async () => {
    prefiller.handler = () => undefined;
    const { url } = await start("--prefill-timeout=100ms", "--prefill-max-retries=5");
    const startedAt = performance.now();
    const answered = await ask(url, { headers: routed(), body: CHAT });
    expect([answered.status, errorOf(answered).type, prefiller.received.length, decoder.received.length]).toEqual([504, "GatewayTimeout", 1, 0]);
    expect(performance.now() - startedAt).toBeLessThan(2000);
    await until(() => prefiller.received[0]?.aborted === true);
    await sidecar?.close();
    const local = await start("--prefill-timeout=100ms", "--on-stage-failure=local");
    expect((await ask(local.url, { headers: routed(), body: CHAT })).status).toBe(200);
    expect(decoder.text()).toBe(CHAT);
  });

  it("C-NX-18: a client that leaves during prefill ends it within a second, and decode is not called", async () => {
    prefiller.handler = () => undefined;
    const { url } = await start("--prefill-max-retries=3", "--prefill-retry-backoff=1ms");
    const { request } = open(url, { headers: routed(), body: CHAT });
    await until(() => prefiller.received.length === 1);
    const leftAt = performance.now();
    request.destroy();
    await until(() => prefiller.received[0]?.aborted === true);
    expect(performance.now() - leftAt).toBeLessThan(1000);
    await sleep(50);
    expect([prefiller.received.length, decoder.received.length]).toEqual([1, 0]);
    if (sidecar !== null) expect([await metric(sidecar, "in_flight_requests"), await metric(sidecar, "in_flight_legs")]).toEqual([0, 0]);
  });

  it("a client that leaves while a retry is waited for ends the request", async () => {
    prefiller.handler = (_, response) => {
      sendJson(response, {}, 503);
    };
    const running = await start("--prefill-max-retries=3", "--prefill-retry-backoff=10s");
    const { request } = open(running.url, { headers: routed(), body: CHAT });
    await until(() => prefiller.received.length === 1);
    await sleep(30);
    request.destroy();
    let inFlight = 1;
    for (let tries = 0; tries < 100 && inFlight > 0; tries++) {
      await sleep(10);
      inFlight = await metric(running, "in_flight_requests");
    }
    expect([inFlight, prefiller.received.length, decoder.received.length]).toEqual([0, 1, 0]);
  });

  it("takes IPv6 prefillers", async () => {
    const v6 = await TestUpstream.start((_, response) => {
      sendJson(response, PREFILL_ANSWER);
    }, null, "::1").catch(() => null);
    if (v6 === null) return;
    const { url } = await start();
    expect((await ask(url, { headers: ["x-prefiller-host-port", v6.authority], body: CHAT })).status).toBe(200);
    expect(v6.received.length).toBe(1);
    await v6.close();
  });
});
