import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { header, open } from "../../../sidecar/testkit/harness.js";
import { until } from "../../../sidecar/testkit/upstream.js";
import { addressOf, callsOf, type Door, jsonOf, post, row, SidecarBed } from "./bed.js";
import { at, CHAT, SHAPES } from "./bodies.js";

type Params = Readonly<Record<string, Readonly<Record<string, unknown>>>>;

const KEYS = {
  seed: { decoder: "decode", prefiller: "prefill", source: "p2p" },
  v2: { decoder: "remote_decoder", prefiller: "remote_prefiller", source: "remote_kv_source" },
} as const;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;

describe("offloading", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "offloading", prefillers: 2, engine: { leaseMs: 3000 } });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  const params = (record: Parameters<typeof jsonOf>[0]): Params => jsonOf(record)["kv_transfer_params"] as Params;
  /** A dialect that a program speaks whose flags we do not know is the newer one. */
  const dialect = process.env["SIDECAR_CMD"] === undefined ? "seed" : "v2";
  const keys = KEYS[dialect];
  const peer = (id: unknown): Record<string, unknown> => ({ kv_request_id: id, remote_host: "127.0.0.1", remote_port: bed.meetingPort });
  const routed = (source?: string): string[] => [...bed.routed(bed.prefiller), ...(source === undefined ? [] : ["x-kv-cache-source-host-port", source])];
  const other = (): string => addressOf(bed.prefillers[1] ?? bed.prefiller);

  async function legs(): Promise<{ prefill: Params; decode: Params }> {
    return { prefill: params((await bed.calls(bed.prefiller)).at(-1)), decode: params((await bed.calls(bed.decoder)).at(-1)) };
  }

  row("C-OF-01: parameters are keyed by role and joined by one id; decode is told where, prefill is not", async () => {
    const door = await bed.sidecar();
    expect((await post(door, { headers: routed(), body: CHAT.body() })).status).toBe(200);
    const { prefill, decode } = await legs();
    const id = prefill[keys.decoder]?.["kv_request_id"];
    expect(id).toMatch(UUID);
    expect([prefill, decode]).toEqual([{ [keys.decoder]: { kv_request_id: id } }, { [keys.prefiller]: peer(id) }]);
    const [record] = await bed.calls(bed.decoder);
    expect([record?.error, record?.handoff?.found, record?.handoff?.correct, bed.held()]).toEqual([null, true, true, 0]);
  });

  row(
    "C-OF-01: the newer dialect has its own names, and no leg has both",
    async () => {
      const door = await bed.sidecar("--kv-params-dialect=v2");
      expect((await post(door, { headers: routed(other()), body: CHAT.body() })).status).toBe(200);
      const { prefill, decode } = await legs();
      expect([Object.keys(prefill), Object.keys(decode)]).toEqual([["remote_decoder", "remote_kv_source"], ["remote_prefiller"]]);
    },
    { ours: true },
  );

  row("C-OF-02: prefill is capped, the completion limit only where the client has one; decode has the client's", async () => {
    const door = await bed.sidecar();
    for (const [sent, capped] of [
      [{}, undefined],
      [{ max_completion_tokens: 6 }, 1],
    ] as const) {
      await post(door, { headers: routed(), body: CHAT.body({ ...sent, stream: true }) });
      const [prefill, decode] = [jsonOf((await bed.calls(bed.prefiller)).at(-1)), jsonOf((await bed.calls(bed.decoder)).at(-1))];
      expect([prefill["max_tokens"], prefill["max_completion_tokens"], prefill["stream"]]).toEqual([1, capped, false]);
      expect([decode["max_tokens"], decode["max_completion_tokens"], decode["stream"]]).toEqual([8, capped === undefined ? undefined : 6, true]);
    }
  });

  row("C-OF-03: a KV source gives prefill one key more, with an id of its own; decode none", async () => {
    const door = await bed.sidecar();
    expect((await post(door, { headers: routed(other()), body: CHAT.body() })).status).toBe(200);
    const { prefill, decode } = await legs();
    const [id, pull] = [prefill[keys.decoder]?.["kv_request_id"], prefill[keys.source]?.["kv_request_id"]];
    expect(prefill).toEqual({ [keys.decoder]: { kv_request_id: id }, [keys.source]: peer(pull) });
    expect(pull).toMatch(UUID);
    expect(pull).not.toBe(id);
    expect(Object.keys(decode)).toEqual([keys.prefiller]);
  });

  row("C-OF-04: a KV source alone: only the pull key, no key of the client's, its limits kept", async () => {
    const door = await bed.sidecar();
    const body = CHAT.body({ stream: true, kv_transfer_params: { remote_prefiller: { remote_host: "10.9.9.9" }, mine: 1 } });
    expect((await post(door, { headers: ["x-kv-cache-source-host-port", other()], body })).status).toBe(200);
    const [record] = await bed.calls(bed.decoder);
    const pull = params(record)[keys.source]?.["kv_request_id"];
    expect(params(record)).toEqual({ [keys.source]: peer(pull) });
    expect(pull).toMatch(UUID);
    expect([jsonOf(record)["max_tokens"], jsonOf(record)["stream"], record?.error, record?.outbound]).toEqual([8, true, null, [`127.0.0.1:${String(bed.meetingPort)}`]]);
  });

  row("C-OF-05: a source that is the prefiller itself, with a scheme or not, is no source", async () => {
    const door = await bed.sidecar();
    for (const [prefiller, source] of [
      [addressOf(bed.prefiller), addressOf(bed.prefiller)],
      [`http://${addressOf(bed.prefiller)}`, addressOf(bed.prefiller)],
      [addressOf(bed.prefiller), `http://${addressOf(bed.prefiller)}`],
    ] as const) {
      expect((await post(door, { headers: ["x-prefiller-host-port", prefiller, "x-kv-cache-source-host-port", source], body: CHAT.body() })).status).toBe(200);
      expect(Object.keys((await legs()).prefill)).toEqual([keys.decoder]);
    }
  });

  row("C-OF-06: a source that is this endpoint changes nothing, another port of the pod is a source", async () => {
    const door: Door = await bed.sidecar();
    const body = CHAT.body();
    await post(door, { headers: ["x-kv-cache-source-host-port", `127.0.0.1:${String(door.port)}`], body });
    await post(door, { headers: ["x-kv-cache-source-host-port", `127.0.0.1:${String(door.port + 1)}`], body });
    const [own, rank] = await bed.calls(bed.decoder);
    expect(own?.body.toString()).toBe(body);
    expect(Object.keys(params(rank))).toEqual([keys.source]);
  });

  row("C-OF-07: a source that is none is ignored, and the request served", async () => {
    const door = await bed.sidecar();
    for (const source of ["x", ":8000", "", "http://h:1"]) {
      const body = CHAT.body();
      expect((await post(door, { headers: ["x-kv-cache-source-host-port", source], body })).status).toBe(200);
      expect((await bed.calls(bed.decoder)).at(-1)?.body.toString()).toBe(body);
      expect((await post(door, { headers: routed(source), body: CHAT.body() })).status).toBe(200);
      expect(Object.keys((await legs()).prefill)).toEqual([keys.decoder]);
    }
  });

  row("C-OF-08: two requests have two ids", async () => {
    const door = await bed.sidecar();
    await Promise.all([1, 2, 3].map(() => post(door, { headers: routed(other()), body: CHAT.body() })));
    const ids = (await bed.calls(bed.prefiller)).map(params).flatMap((one) => [one[keys.decoder]?.["kv_request_id"], one[keys.source]?.["kv_request_id"]]);
    expect([ids.length, new Set(ids).size]).toEqual([6, 6]);
  });

  row(
    "every API, streamed or not: one token at prefill, the client's body at decode, and no hand-off is left",
    async () => {
      const door = await bed.sidecar();
      for (const shape of SHAPES) {
        for (const stream of [false, true]) {
          const body = shape.body({ stream });
          const answered = await post(door, { target: shape.target, headers: routed(), body });
          expect([shape.name, stream, answered.status, answered.whole]).toEqual([shape.name, stream, 200, true]);
          const [prefill, decode] = [(await bed.calls(bed.prefiller)).at(-1), (await bed.calls(bed.decoder)).at(-1)];
          expect([prefill?.error, prefill?.completionTokens, at(prefill?.json, shape.limit)]).toEqual([null, 1, 1]);
          expect(decode?.body.toString().startsWith(`${body.slice(0, -1)},"kv_transfer_params":`)).toBe(true);
          expect(decode?.handoff).toMatchObject({ found: true, correct: true, recomputed: false });
          expect(header(answered, "x-crosspoint-prefilled-by")).toEqual([addressOf(bed.prefiller)]);
        }
      }
      expect(bed.held()).toBe(0);
    },
    { ours: true },
  );

  row(
    "a prefix that another pod holds is really pulled",
    async () => {
      const door = await bed.sidecar();
      const [first, second] = [bed.prefiller, bed.prefillers[1] ?? bed.prefiller];
      const body = CHAT.body();
      await post(door, { headers: bed.routed(second), body });
      await post(door, { headers: routed(other()), body });
      const record = (await bed.calls(first)).at(-1);
      expect([record?.handoff?.found, (record?.handoff?.tokens ?? 0) > 0]).toEqual([true, true]);
    },
    { ours: true },
  );

  row(
    "blocks of an abandoned prefill: before its answer its call is closed; after it decode is let pull them",
    async () => {
      const door = await bed.sidecar();
      bed.prefiller.setScript({ delay_ms: 3000 });
      const early = open(door.url, { headers: routed(), body: CHAT.body() });
      await until(() => callsOf(bed.prefiller).length === 1 && callsOf(bed.decoder).length === 1);
      early.request.destroy();
      await until(() => callsOf(bed.prefiller)[0]?.aborted === true && callsOf(bed.decoder)[0]?.aborted === true, 1000);
      expect(bed.held()).toBe(0);

      bed.prefiller.setScript(null);
      bed.decoder.setScript({ first_byte_delay_ms: 300 });
      const late = open(door.url, { headers: routed(), body: CHAT.body() });
      await until(() => bed.held() === 1);
      late.request.destroy();
      await until(() => bed.held() === 0, 2500);
      expect(bed.prefiller.state().expiredTransfers).toBe(0);
    },
    { ours: true },
  );
});
