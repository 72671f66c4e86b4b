/** The bytes that sglang, mooncake and offloading write; what becomes of their legs is in tests/conformance/sidecar/. */
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Sidecar } from "../server.js";
import { ask, header, metric, open, startTestSidecar } from "../testkit/harness.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";
import { newRoom } from "./sglang.js";

const BODY = '{ "seed" : 9007199254740993, "top_p":1.0, "model":"a", "model":"b","x":1e400, "max_tokens":5,"stream":true}';

const hasIpv6 = await new Promise<boolean>((resolve) => {
  const server = createServer();
  server.once("error", () => { resolve(false); });
  server.listen({ host: "::1", port: 0 }, () => server.close(() => { resolve(true); }));
});

describe.each(["127.0.0.1", ...(hasIpv6 ? ["::1"] : [])])("connectors that run both legs at once, prefiller at %s", (host) => {
  let prefiller: TestUpstream;
  let bootstrap: TestUpstream;
  let decoder: TestUpstream;
  let sidecar: Sidecar | null = null;
  const bracketed = host.includes(":") ? `[${host}]` : host;

  beforeEach(async () => {
    prefiller = await TestUpstream.start(undefined, null, host);
    bootstrap = await TestUpstream.start((_, response) => { sendJson(response, '{"3":{"engine_id":"e-\\u00e9"}}'); }, null, host);
    decoder = await TestUpstream.start();
  });
  afterEach(async () => {
    await Promise.all([sidecar?.close(), prefiller.close(), bootstrap.close(), decoder.close()]);
    sidecar = null;
  });

  async function send(flags: readonly string[], body = BODY): Promise<void> {
    sidecar = await startTestSidecar(decoder, [...flags, `--sglang-bootstrap-port=${String(bootstrap.port)}`, `--mooncake-bootstrap-port=${String(bootstrap.port)}`, `--p2p-connector-port=${String(bootstrap.port)}`]);
    const answered = await ask(sidecar.url, { target: "/v1/chat/completions?x=1", headers: ["x-prefiller-host-port", prefiller.authority], body });
    expect(answered.status).toBe(200);
    await until(() => prefiller.received.length === 1);
    expect([prefiller.received[0]?.target, decoder.received[0]?.target]).toEqual(["/v1/chat/completions?x=1", "/v1/chat/completions?x=1"]);
  }

  const CAPPED = '{ "seed" : 9007199254740993, "top_p":1.0, "model":"a", "model":"b","x":1e400, "max_tokens":1,"stream":false';

  it("sglang: the client's bytes and where to meet, the host without brackets", async () => {
    await send(["--kv-connector=sglang"]);
    const room = /"bootstrap_room":(\d+)/.exec(prefiller.text())?.[1] ?? "";
    const expected = `${BODY.slice(0, -1)},"bootstrap_host":"${host}","bootstrap_port":${String(bootstrap.port)},"bootstrap_room":${room}}`;
    expect([prefiller.text(), decoder.text()]).toEqual([expected, expected]);
  });

  it("sglang: a trusted client's own members give way", async () => {
    await send(["--kv-connector=sglang", "--trust-client-control-members"], '{"bootstrap_host":"x","bootstrap_room":7,"max_tokens":2,"bootstrap_pair_key":1}');
    expect(decoder.text()).toMatch(/^\{"max_tokens":2,"bootstrap_host":"[^"]+","bootstrap_port":\d+,"bootstrap_room":\d{3,19}\}$/);
  });

  it("mooncake: the transfer on both legs, the bootstrap server's address with brackets, the engine as it was told", async () => {
    await send(["--kv-connector=mooncake"]);
    const id = /"transfer_id":"([^"]+)"/.exec(prefiller.text())?.[1] ?? "";
    expect(prefiller.text()).toBe(`${CAPPED},"kv_transfer_params":{"do_remote_prefill":false,"do_remote_decode":true,"transfer_id":"${id}"}}`);
    expect(decoder.text()).toBe(
      `${BODY.slice(0, -1)},"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"transfer_id":"${id}","remote_bootstrap_addr":"http://${bracketed}:${String(bootstrap.port)}","remote_engine_id":"e-\\u00e9"}}`,
    );
    expect(header({ rawHeaders: prefiller.received[0]?.rawHeaders ?? [] }, "x-data-parallel-rank")).toEqual(["3"]);
  });

  it("offloading: one id on both legs, the host without brackets", async () => {
    await send(["--kv-connector=offloading"]);
    const id = /"kv_request_id":"([^"]+)"/.exec(prefiller.text())?.[1] ?? "";
    expect(prefiller.text()).toBe(`${CAPPED},"kv_transfer_params":{"decode":{"kv_request_id":"${id}"}}}`);
    expect(decoder.text()).toBe(`${BODY.slice(0, -1)},"kv_transfer_params":{"prefill":{"kv_request_id":"${id}","remote_host":"${host}","remote_port":${String(bootstrap.port)}}}}`);
  });

  it("a stream that comes compressed although nobody asked for that is given as it comes, and has no deadline for its content", async () => {
    const packed = gzipSync('data: {"choices":[{"delta":{"content":"x"}}]}\n\n');
    let finish: (() => void) | null = null;
    prefiller.handler = (_, response) => { sendJson(response, "{}"); };
    decoder.handler = (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream", "content-encoding": "gzip" });
      response.write(packed.subarray(0, 20));
      finish = () => void response.end(packed.subarray(20));
    };
    sidecar = await startTestSidecar(decoder, ["--kv-connector=offloading", "--on-stage-failure=local", "--decode-first-byte-timeout=150ms"]);
    const response = await open(sidecar.url, { headers: ["x-prefiller-host-port", prefiller.authority, "accept-encoding", "gzip"], body: BODY }).head;
    const chunks: Buffer[] = [];
    response.on("data", (chunk: Buffer) => chunks.push(chunk));
    await until(() => chunks.length === 1);
    await sleep(250);
    (finish as (() => void) | null)?.();
    await until(() => response.complete);
    expect([Buffer.concat(chunks).equals(packed), response.headers["content-encoding"]]).toEqual([true, "gzip"]);
    for (const upstream of [prefiller, decoder]) expect(header({ rawHeaders: upstream.received[0]?.rawHeaders ?? [] }, "accept-encoding")).toEqual([]);
  });

  it.each(["sglang", "mooncake", "offloading"])("%s: legs, failures and retries are counted, and nothing stays open", async (connector) => {
    prefiller.handler = (_, response, call) => {
      if (call === 0) response.writeHead(503).end();
      else if (call === 1) sendJson(response, "{}", 500);
      else sendJson(response, "{}");
    };
    decoder.handler = async (_, response) => {
      await until(() => response.destroyed || prefiller.received.length > 2);
      sendJson(response, "{}");
    };
    const running = await startTestSidecar(decoder, [`--kv-connector=${connector}`, "--prefill-max-retries=1", "--prefill-retry-backoff=5ms", `--mooncake-bootstrap-port=${String(bootstrap.port)}`]);
    sidecar = running;
    const answered = await ask(running.url, { headers: ["x-prefiller-host-port", prefiller.authority], body: BODY });
    expect([answered.status, await metric(running, "retries_total", { stage: "prefill", reason: "status_503" })]).toEqual([500, 1]);
    expect(await metric(running, "stage_failures_total", { stage: "prefill", reason: "status_500", policy: "fail" })).toBe(1);
    expect([await metric(running, "legs_total", { stage: "decode", outcome: "aborted" }), await metric(running, "legs_total", { stage: "prefill", outcome: "5xx" })]).toEqual([2, 2]);
    expect([await metric(running, "in_flight_legs"), await metric(running, "in_flight_requests")]).toEqual([0, 0]);
  });
});

describe("newRoom", () => {
  it("C-SG-03: is a number's text from 1 to 2^63-1, each its own", () => {
    const rooms = Array.from({ length: 2000 }, newRoom);
    expect(new Set(rooms).size).toBe(2000);
    for (const room of rooms) expect([/^[1-9]\d*$/.test(room), BigInt(room) < 2n ** 63n]).toEqual([true, true]);
    // The upper half is used too: a generator that lost bits would not.
    expect(rooms.some((room) => BigInt(room) > 2n ** 62n)).toBe(true);
  });
});
