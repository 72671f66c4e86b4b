import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { ask, errorOf, header } from "../../../sidecar/testkit/harness.js";
import { callsOf, type Door, headerOf, post, row, SidecarBed } from "./bed.js";
import { CHAT, SHAPES } from "./bodies.js";

const HEADER = "x-data-parallel-host-port";

describe("data parallel", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "nixlv2", decoders: 2, encoders: 1 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  /** Calls by rank since the last look. */
  async function ranks(): Promise<number[]> {
    await bed.settled();
    const counts = bed.decoders.map((engine) => callsOf(engine).length);
    for (const engine of bed.decoders) engine.clearRecords();
    return counts;
  }

  const rank = (door: Door, index: number): string[] => [HEADER, `127.0.0.1:${String(door.port + index)}`];

  row("C-DP-01: each rank has a listener, which is bound to its own engine", async () => {
    const door = await bed.sidecar();
    expect(door.urls).toEqual([0, 1].map((index) => `http://127.0.0.1:${String(door.port + index)}`));
    for (const [index, url] of door.urls.entries()) {
      for (const shape of SHAPES) {
        expect((await ask(url, { target: shape.target, body: shape.body() })).status).toBe(200);
        expect(await ranks()).toEqual([index === 0 ? 1 : 0, index]);
        expect((await ask(url, { target: shape.target, headers: bed.routed(), body: shape.body() })).status).toBe(200);
        expect(await ranks()).toEqual([index === 0 ? 1 : 0, index]);
      }
      expect((await ask(url, { method: "GET", target: "/v1/models" })).status).toBe(200);
      expect((await ask(url, { method: "GET", target: "/health" })).status).toBe(200);
    }
    expect(bed.held()).toBe(0);
  });

  row("C-DP-02: the base listener's deprecated header names the rank that decodes, alone and behind a prefiller", async () => {
    const door = await bed.sidecar();
    for (const index of [0, 1]) {
      expect((await post(door, { headers: rank(door, index), body: CHAT.body() })).status).toBe(200);
      expect(await ranks()).toEqual([index === 0 ? 1 : 0, index]);
      expect((await post(door, { headers: [...rank(door, index), ...bed.routed()], body: CHAT.body() })).status).toBe(200);
      expect(await ranks()).toEqual([index === 0 ? 1 : 0, index]);
    }
  });

  row(
    "C-DP-03: a header that names no rank is a 400 before anything is spent",
    async () => {
      const door = await bed.sidecar();
      for (const value of ["10.9.9.9:80", `127.0.0.1:${String(door.port + 2)}`, `127.0.0.2:${String(door.port)}`, "nowhere", `localhost:${String(door.port)}`]) {
        const answered = await post(door, { headers: [HEADER, value, ...bed.routed(), ...bed.encoderHeader()], body: CHAT.body() });
        expect([value, answered.status]).toEqual([value, 400]);
        if (process.env["SIDECAR_CMD"] === undefined) expect([errorOf(answered).type, errorOf(answered).param]).toEqual(["BadRequestError", HEADER]);
      }
      expect([(await ranks()).join(), callsOf(bed.prefiller).length]).toEqual(["0,0", 0]);
    },
    { fix: true },
  );

  row(
    "C-DP-04: a rank keeps its engine after encoders, by its port and by the header",
    async () => {
      const door = await bed.sidecar();
      const image = { type: "image_url", image_url: { url: "https://media.example.test/pier.png" } };
      const body = (): string => CHAT.body({ messages: [{ role: "user", content: [{ type: "text", text: "What is this?" }, image] }] });
      for (const headers of [bed.encoderHeader(), [...bed.encoderHeader(), ...bed.routed()]]) {
        expect((await ask(door.urls[1] ?? "", { headers, body: body() })).status).toBe(200);
        expect(await ranks()).toEqual([0, 1]);
        expect((await post(door, { headers: [...headers, ...rank(door, 1)], body: body() })).status).toBe(200);
        expect(await ranks()).toEqual([0, 1]);
      }
    },
    { fix: true },
  );

  row(
    "a rank's own listener does not look at the header, and no leg has it",
    async () => {
      const door = await bed.sidecar();
      expect((await ask(door.urls[1] ?? "", { headers: [HEADER, "10.9.9.9:80", ...bed.routed()], body: CHAT.body() })).status).toBe(200);
      await post(door, { headers: [...rank(door, 1), ...bed.routed()], body: CHAT.body() });
      for (const record of [...(await bed.calls(bed.prefiller)), ...bed.decoders.flatMap(callsOf)]) expect(headerOf(record, HEADER)).toEqual([]);
      expect(await ranks()).toEqual([0, 2]);
    },
    { ours: true },
  );

  row(
    "an engine that is away is its own rank's affair",
    async () => {
      const door = await bed.sidecar();
      const [, second] = bed.decoders;
      second?.setScript({ tcp: "refused" });
      expect((await ask(door.urls[1] ?? "", { body: CHAT.body() })).status).toBe(503);
      const ready = await Promise.all(door.urls.map(async (url) => (await ask(url, { method: "GET", target: "/ready" })).status));
      expect(ready).toEqual([200, 503]);
      const answered = await post(door, { headers: bed.routed(), body: CHAT.body() });
      expect([answered.status, header(answered, "retry-after")]).toEqual([200, []]);
      expect((await ask(door.urls[1] ?? "", { headers: bed.routed(), body: CHAT.body() })).status).toBe(503);
      expect(callsOf(bed.prefiller).length).toBe(1);
    },
    { ours: true },
  );
});

describe.each(["shared-storage", "sglang", "mooncake"] as const)("data parallel with %s", (connector) => {
  let bed: SidecarBed;
  beforeAll(async () => {
    bed = await SidecarBed.start({ connector, decoders: 2 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  row("the header's rank decodes", async () => {
    const door = await bed.sidecar();
    expect((await post(door, { headers: [HEADER, `127.0.0.1:${String(door.port + 1)}`, ...bed.routed()], body: CHAT.body() })).status).toBe(200);
    await bed.settled();
    expect(bed.decoders.map((engine) => callsOf(engine).length)).toEqual([0, 1]);
  }, { ours: true });
});

describe("data parallel with offloading", () => {
  let bed: SidecarBed;
  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "offloading", decoders: 2 });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  row(
    "in the newer dialect ranks are served, each endpoint of the pod by its own p2p port, and one's own is no source",
    async () => {
      const door = await bed.sidecar("--kv-params-dialect=v2");
      const source = (index: number): string[] => ["x-kv-cache-source-host-port", `127.0.0.1:${String(door.port + index)}`];
      const body = CHAT.body();
      for (const [at, from] of [
        [0, 1],
        [1, 1],
        [1, 0],
      ] as const) {
        expect((await ask(door.urls[at] ?? "", { headers: source(from), body })).status).toBe(200);
        await bed.settled();
        const sent = callsOf(bed.decoders[at] ?? bed.decoder).at(-1);
        if (at === from) expect(sent?.body.toString()).toBe(body);
        else expect(sent?.json).toMatchObject({ kv_transfer_params: { remote_kv_source: { remote_host: "127.0.0.1", remote_port: bed.meetingPort + from } } });
      }
    },
    { ours: true },
  );
});
