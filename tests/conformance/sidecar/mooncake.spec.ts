import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { errorOf, header, open } from "../../../sidecar/testkit/harness.js";
import { TestUpstream, until } from "../../../sidecar/testkit/upstream.js";
import { freePort } from "../../fleet/ports.js";
import { callsOf, headerOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { at, CHAT, SHAPES } from "./bodies.js";

interface Params {
  readonly transfer_id: string;
  readonly remote_engine_id: string;
}

describe("mooncake", () => {
  let bed: SidecarBed;
  let ranked: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "mooncake", engine: { leaseMs: 3000 } });
    ranked = await SidecarBed.start({ connector: "mooncake", engine: { dataParallelSize: 2 } });
  });
  afterEach(async () => {
    await Promise.all([bed.clear(), ranked.clear()]);
  });
  afterAll(async () => {
    await Promise.all([bed.close(), ranked.close()]);
  });

  const params = (record: Parameters<typeof jsonOf>[0]): Params => jsonOf(record)["kv_transfer_params"] as Params;

  async function engineIds(of: SidecarBed): Promise<string[]> {
    const ranks = (await (await fetch(`http://127.0.0.1:${String(of.meetingPort)}/query`)).json()) as Record<string, { engine_id: string }>;
    return Object.values(ranks).map(({ engine_id }) => engine_id);
  }

  row("C-MC-01: one rank: both legs have one transfer id, prefill the rank, decode the engine and where it is asked for", async () => {
    const door = await bed.sidecar();
    const [engineId] = await engineIds(bed);
    expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(200);
    const [prefill, decode] = [await bed.calls(bed.prefiller), await bed.calls(bed.decoder)];
    const { transfer_id: id } = params(prefill[0]);
    expect(id).toMatch(/^xfer-[0-9a-f-]{36}$/);
    expect(params(prefill[0])).toEqual({ do_remote_prefill: false, do_remote_decode: true, transfer_id: id });
    expect(params(decode[0])).toEqual({
      do_remote_prefill: true,
      do_remote_decode: false,
      transfer_id: id,
      remote_bootstrap_addr: `http://127.0.0.1:${String(bed.meetingPort)}`,
      remote_engine_id: engineId,
    });
    expect([headerOf(prefill[0], "x-data-parallel-rank"), headerOf(decode[0], "x-data-parallel-rank")]).toEqual([["0"], []]);
    expect([prefill[0]?.error, decode[0]?.error]).toEqual([null, null]);
    expect([decode[0]?.handoff?.found, decode[0]?.handoff?.correct, bed.held()]).toEqual([true, true, 0]);
  });

  row("C-MC-02: two ranks: prefill's rank is that of the engine that decode is told of, and both are used", async () => {
    const door = await ranked.sidecar();
    const ids = await engineIds(ranked);
    expect(ids).toHaveLength(2);
    for (let turn = 0; turn < 60; turn++) await post(door, { headers: ranked.routed(), body: CHAT.body() });
    const [prefill, decode] = [await ranked.calls(ranked.prefiller), await ranked.calls(ranked.decoder)];
    const ranks = prefill.map((record) => Number(headerOf(record, "x-data-parallel-rank")[0]));
    const byId = new Map(decode.map((record) => [params(record).transfer_id, params(record).remote_engine_id]));
    expect(prefill.map((record) => byId.get(params(record).transfer_id))).toEqual(ranks.map((rank) => ids[rank]));
    // Uniform (D5): sixty draws lie this far off once in ten million times.
    expect(ranks.filter((rank) => rank === 0).length).toBeGreaterThan(10);
    expect(ranks.filter((rank) => rank === 1).length).toBeGreaterThan(10);
  });

  row("C-MC-03: prefill is limited to one token and not streamed; decode has the client's limits", async () => {
    const door = await bed.sidecar();
    await post(door, { headers: bed.routed(), body: CHAT.body({ max_completion_tokens: 6, stream: true, stream_options: { include_usage: true } }) });
    const [prefill, decode] = [jsonOf((await bed.calls(bed.prefiller))[0]), jsonOf((await bed.calls(bed.decoder))[0])];
    expect([prefill["max_tokens"], prefill["max_completion_tokens"], prefill["stream"], prefill["stream_options"]]).toEqual([1, 1, false, undefined]);
    expect([decode["max_tokens"], decode["max_completion_tokens"], decode["stream"], decode["stream_options"]]).toEqual([8, 6, true, { include_usage: true }]);
  });

  row("C-MC-04: a bootstrap server that is away, has no such path, or names no engine is a 502 without any leg", async () => {
    let answer = "";
    const server = await TestUpstream.start((_, response) => void response.writeHead(answer === "" ? 404 : 200, { "content-type": "application/json" }).end(answer));
    for (const [port, text] of [
      [await freePort(), ""],
      [server.port, ""],
      [server.port, "{}"],
      [server.port, '{"0":{"engine_id":7},"1":{"worker":"x"},"2":"e"}'],
      [server.port, "not JSON"],
    ] as const) {
      answer = text;
      const door = await bed.sidecar(`--mooncake-bootstrap-port=${String(port)}`);
      const answered = await post(door, { headers: bed.routed(), body: CHAT.body() });
      expect([text, answered.status, errorOf(answered).type]).toEqual([text, 502, "BadGateway"]);
    }
    expect([(await bed.calls(bed.prefiller)).length, (await bed.calls(bed.decoder)).length]).toEqual([0, 0]);
    await server.close();
  });

  row("C-MC-05: a second request to the same prefiller asks nothing again", async () => {
    const server = await TestUpstream.start((_, response) => void response.writeHead(200, { "content-type": "application/json" }).end('{"0":{"engine_id":"e"}}'));
    bed.prefiller.setScript({ json: {} });
    bed.decoder.setScript({ json: {} });
    const door = await bed.sidecar(`--mooncake-bootstrap-port=${String(server.port)}`);
    for (let turn = 0; turn < 3; turn++) await post(door, { headers: bed.routed(), body: CHAT.body() });
    expect([server.received.length, server.received[0]?.target, server.received[0]?.method]).toEqual([1, "/query", "GET"]);
    await server.close();
  });

  row("C-MC-06: where decode is fast and prefill slow, decode's answer is given, and prefill completes", async () => {
    bed.prefiller.setScript({ delay_ms: 700, json: {} });
    bed.decoder.setScript({ json: { choices: [{ message: { content: "fast" } }] } });
    const door = await bed.sidecar();
    expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(200);
    expect(callsOf(bed.prefiller)[0]?.open).toBe(true);
    const [prefill] = await bed.calls(bed.prefiller);
    expect([prefill?.status, prefill?.aborted]).toEqual([200, false]);
  });

  row(
    "every API, streamed or not: one token at prefill, the client's body at decode, and no hand-off is left",
    async () => {
      const door = await bed.sidecar();
      for (const shape of SHAPES) {
        for (const stream of [false, true]) {
          const body = shape.body({ stream });
          const answered = await post(door, { target: shape.target, headers: bed.routed(), body });
          expect([shape.name, stream, answered.status, answered.whole]).toEqual([shape.name, stream, 200, true]);
          const [prefill, decode] = [(await bed.calls(bed.prefiller)).at(-1), (await bed.calls(bed.decoder)).at(-1)];
          expect([prefill?.error, prefill?.completionTokens, at(prefill?.json, shape.limit)]).toEqual([null, 1, 1]);
          // Only what the client sent is capped beside the first limit.
          expect(jsonOf(prefill)["max_completion_tokens"]).toBeUndefined();
          expect(decode?.body.toString().startsWith(`${body.slice(0, -1)},"kv_transfer_params":`)).toBe(true);
          expect(decode?.handoff).toMatchObject({ found: true, correct: true });
          expect(header(answered, "x-crosspoint-prefilled-by")).toEqual([`127.0.0.1:${String(bed.prefiller.port)}`]);
        }
      }
      expect(bed.held()).toBe(0);
    },
    { ours: true },
  );

  row(
    "under local a bootstrap server that is away leaves the engine alone",
    async () => {
      const door = await bed.sidecar(`--mooncake-bootstrap-port=${String(await freePort())}`, "--on-stage-failure=local");
      const body = CHAT.body();
      const answered = await post(door, { headers: bed.routed(), body });
      expect([answered.status, header(answered, "x-crosspoint-prefilled-by"), callsOf(bed.decoder)[0]?.body.toString()]).toEqual([200, ["local"], body]);
    },
    { ours: true },
  );

  row(
    "a prefiller that was restarted is asked again after its failure",
    async () => {
      let asked = 0;
      const server = await TestUpstream.start((_, response) => void response.end(`{"0":{"engine_id":"e${String(++asked)}"}}`));
      bed.prefiller.setScript([{ status: 503, json: {} }, { json: {} }]);
      bed.decoder.setScript({ first_byte_delay_ms: 50, json: {} });
      const door = await bed.sidecar(`--mooncake-bootstrap-port=${String(server.port)}`, "--prefill-max-retries=1", "--prefill-retry-backoff=5ms");
      expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(200);
      const decodes = (await bed.calls(bed.decoder)).map(params);
      expect(decodes.map(({ remote_engine_id: id }) => id)).toEqual(["e1", "e2"]);
      expect(new Set(decodes.map(({ transfer_id: id }) => id)).size).toBe(2);
      await server.close();
    },
    { ours: true },
  );

  row(
    "blocks of an abandoned prefill: before its answer its call is closed; after it decode is let take them",
    async () => {
      const door = await bed.sidecar();
      bed.prefiller.setScript({ delay_ms: 3000 });
      const early = open(door.url, { headers: bed.routed(), body: CHAT.body() });
      await until(() => callsOf(bed.prefiller).length === 1 && callsOf(bed.decoder).length === 1);
      early.request.destroy();
      await until(() => callsOf(bed.prefiller)[0]?.aborted === true && callsOf(bed.decoder)[0]?.aborted === true, 1000);
      expect(bed.held()).toBe(0);

      bed.prefiller.setScript(null);
      bed.decoder.setScript({ first_byte_delay_ms: 300 });
      const late = open(door.url, { headers: bed.routed(), body: CHAT.body({ stream: true }) });
      await until(() => bed.held() === 1);
      late.request.destroy();
      await until(() => bed.held() === 0, 2500);
      expect(bed.prefiller.state().expiredTransfers).toBe(0);
    },
    { ours: true },
  );

  row(
    "blocks that decode cannot take any more go with the prefiller's lease, and not before",
    async () => {
      const door = await bed.sidecar();
      bed.decoder.setScript({ first_byte_delay_ms: 200, status: 500, json: {} });
      expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(500);
      expect(bed.held()).toBe(1);
      await until(() => bed.held() === 0, 6000);
      expect(bed.prefiller.state().expiredTransfers).toBe(1);
    },
    { ours: true },
  );
});
