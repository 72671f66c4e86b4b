import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { header } from "../../../sidecar/testkit/harness.js";
import { until } from "../../../sidecar/testkit/upstream.js";
import { callsOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { CHAT, chatText, SHAPES } from "./bodies.js";

describe("sglang", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "sglang" });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  /** A room as it stands in a body: a double cannot hold it. */
  const roomIn = (body: Buffer | undefined): string => /"bootstrap_room":(\d+)[,}]/.exec(body?.toString() ?? "")?.[1] ?? "";

  row("C-SG-01: both legs have the prefiller's host, the port of the environment and one room, and are otherwise the client's body", async () => {
    const door = await bed.sidecar();
    for (const stream of [false, true]) {
      const body = CHAT.body({ stream });
      const answered = await post(door, { headers: bed.routed(), body });
      expect([answered.status, answered.whole, chatText(answered.body) !== ""]).toEqual([200, true, true]);
      const [prefill, decode] = [(await bed.calls(bed.prefiller)).at(-1), (await bed.calls(bed.decoder)).at(-1)];
      for (const leg of [prefill, decode]) {
        const { bootstrap_host, bootstrap_port, bootstrap_room, ...rest } = jsonOf(leg);
        expect([bootstrap_host, bootstrap_port, rest]).toEqual(["127.0.0.1", bed.meetingPort, JSON.parse(body)]);
        expect(bootstrap_room).not.toBeUndefined();
        expect(leg?.error).toBeNull();
      }
      expect(roomIn(prefill?.body)).toBe(roomIn(decode?.body));
      expect(decode?.handoff).toMatchObject({ found: true, correct: true });
    }
  });

  row("C-SG-02: where decode is fast and prefill slow, decode's answer is given, and prefill completes", async () => {
    bed.prefiller.setScript({ delay_ms: 700, json: {} });
    bed.decoder.setScript({ json: { choices: [{ message: { content: "fast" } }] } });
    const door = await bed.sidecar();
    const answered = await post(door, { headers: bed.routed(), body: CHAT.body() });
    expect([answered.status, answered.body.includes("fast"), callsOf(bed.prefiller)[0]?.open]).toEqual([200, true, true]);
    const [prefill] = await bed.calls(bed.prefiller);
    expect([prefill?.status, prefill?.aborted]).toEqual([200, false]);
  });

  row("C-SG-03: rooms are integers of their own, up to 2^63-1", async () => {
    const door = await bed.sidecar();
    await Promise.all(Array.from({ length: 40 }, () => post(door, { headers: bed.routed(), body: CHAT.body() })));
    const rooms = (await bed.calls(bed.decoder)).map(({ body }) => roomIn(body));
    expect([new Set(rooms).size, rooms.every((room) => BigInt(room) > 0n && BigInt(room) <= 0x7fff_ffff_ffff_ffffn)]).toEqual([40, true]);
  });

  row(
    "every API, streamed or not: both legs meet, no limit is changed, and nothing stays held",
    async () => {
      const door = await bed.sidecar();
      for (const shape of SHAPES) {
        for (const stream of [false, true]) {
          const body = shape.body({ stream });
          const answered = await post(door, { target: `${shape.target}?beta=true`, headers: bed.routed(), body });
          expect([shape.name, stream, answered.status, answered.whole]).toEqual([shape.name, stream, 200, true]);
          const legs = [(await bed.calls(bed.prefiller)).at(-1), (await bed.calls(bed.decoder)).at(-1)];
          for (const leg of legs) {
            expect([leg?.error, leg?.path]).toEqual([null, `${shape.target}?beta=true`]);
            expect(leg?.body.toString().startsWith(body.slice(0, -1))).toBe(true);
          }
          expect(legs[1]?.handoff).toMatchObject({ found: true, correct: true });
          expect(header(answered, "x-crosspoint-prefilled-by")).toEqual([`127.0.0.1:${String(bed.prefiller.port)}`]);
        }
      }
      expect(bed.prefiller.state().running).toBe(0);
    },
    { ours: true },
  );

  row(
    "a failed prefill is the client's answer under local too: a decode engine does nothing without a room",
    async () => {
      bed.prefiller.setScript({ status: 500, text: "out of memory" });
      const door = await bed.sidecar("--on-stage-failure=local");
      for (const stream of [false, true]) {
        const answered = await post(door, { headers: bed.routed(), body: CHAT.body({ stream }) });
        expect([answered.status, answered.body]).toEqual([500, "out of memory"]);
      }
      const decodes = await bed.calls(bed.decoder);
      expect([decodes.length, decodes.every(({ aborted }) => aborted)]).toEqual([2, true]);
    },
    { ours: true },
  );

  row(
    "a streamed prefill that tells of its failure in an event is a failure",
    async () => {
      bed.prefiller.setScript({ headers: { "content-type": "text/event-stream" }, chunks: ['data: {"error":{"message":"KV transfer failed","code":500}}\n\n'] });
      const door = await bed.sidecar();
      const answered = await post(door, { headers: bed.routed(), body: CHAT.body({ stream: true }) });
      expect([answered.status, answered.body.includes("told of an error")]).toEqual([502, true]);
      expect((await bed.calls(bed.decoder))[0]?.aborted).toBe(true);
    },
    { ours: true },
  );

  row(
    "blocks of an abandoned prefill are freed at once: its call is closed when the client leaves, and when decode fails",
    async () => {
      const door = await bed.sidecar();
      bed.decoder.setScript({ status: 400, json: { error: { message: "no such sampling" } } });
      expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(400);
      await until(() => callsOf(bed.prefiller).every(({ open }) => !open) && bed.prefiller.state().running === 0, 1000);
      const [cached] = [bed.prefiller.state().blocks];
      expect([bed.held(), cached.pinned]).toEqual([0, 0]);
    },
    { ours: true },
  );
});
