/** The hand-off of nixlv2 (decision 8), who prefills when one does not, and what the answer's head tells of it. */
import { afterAll, afterEach, beforeAll, describe, expect } from "vitest";
import { errorOf, header, open } from "../../../sidecar/testkit/harness.js";
import { TestUpstream, until } from "../../../sidecar/testkit/upstream.js";
import { addressOf, callsOf, jsonOf, post, row, SidecarBed } from "./bed.js";
import { CHAT, chatText, eventsOf, SHAPES } from "./bodies.js";

const STREAM = { "content-type": "text/event-stream" };
const ROLE = 'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n';
const ERROR = 'data: {"error":{"message":"Internal server error","type":"InternalServerError","code":500}}\n\n';
const PREFILLED_BY = "x-crosspoint-prefilled-by";
const RESPONSE_ID = "x-crosspoint-response-id";

describe("nixlv2", () => {
  let bed: SidecarBed;

  beforeAll(async () => {
    bed = await SidecarBed.start({ connector: "nixlv2", prefillers: 3, engine: { leaseMs: 2000, handshakeTimeoutMs: 200 } });
  });
  afterEach(async () => {
    await bed.clear();
  });
  afterAll(async () => {
    await bed.close();
  });

  const second = (): (typeof bed.prefillers)[number] => bed.prefillers[1] ?? bed.prefiller;
  const third = (): (typeof bed.prefillers)[number] => bed.prefillers[2] ?? bed.prefiller;
  const calls = async (): Promise<number[]> => Promise.all(bed.prefillers.map(async (engine) => (await bed.calls(engine)).length));

  describe("who prefills", () => {
    row(
      "with retries on, the candidates of the header are asked one after the other, the first again only after a wait",
      async () => {
        const door = await bed.sidecar("--prefill-max-retries=3", "--prefill-retry-backoff=1s");
        bed.prefiller.setScript({ status: 503, json: {} });
        second().setScript({ tcp: "reset" });
        third().setScript({ status: 502, json: {} });
        const answered = await post(door, { headers: bed.routed(bed.prefiller, second(), third()), body: CHAT.body() });
        expect([answered.status, header(answered, PREFILLED_BY)]).toEqual([503, []]);
        const at = [callsOf(bed.prefiller)[0], callsOf(second())[0], callsOf(third())[0], callsOf(bed.prefiller)[1]].map((record) => record?.startedAtMs ?? 0);
        const waits = at.slice(1).map((startedAtMs, index) => startedAtMs - (at[index] ?? 0));
        // Half to one and a half of the backoff, before who was asked already.
        expect(waits.map((wait) => wait > 490)).toEqual([false, false, true]);
        expect(bed.prefillers.map((engine) => callsOf(engine).length)).toEqual([2, 1, 1]);
        expect((await bed.calls(bed.decoder)).length).toBe(0);
      },
      { ours: true },
    );

    row(
      "the one that prefilled is named, and its hand-off used",
      async () => {
        const door = await bed.sidecar("--prefill-max-retries=1");
        bed.prefiller.setScript({ status: 504, json: {} });
        for (const shape of SHAPES) {
          const answered = await post(door, { target: shape.target, headers: bed.routed(bed.prefiller, second()), body: shape.body() });
          expect([shape.name, answered.status, header(answered, PREFILLED_BY)]).toEqual([shape.name, 200, [addressOf(second())]]);
        }
        expect((await bed.calls(bed.decoder)).map(({ handoff }) => handoff?.correct)).toEqual([true, true, true, true, true]);
        expect(bed.held()).toBe(0);
      },
      { ours: true },
    );

    row(
      "without retries only the first is asked; a last word is not asked for again elsewhere",
      async () => {
        const door = await bed.sidecar();
        bed.prefiller.setScript({ status: 503, json: {} });
        expect((await post(door, { headers: bed.routed(bed.prefiller, second()), body: CHAT.body() })).status).toBe(503);
        const retrying = await bed.sidecar("--prefill-max-retries=2");
        for (const entry of [{ status: 500, json: {} }, { status: 400, json: {} }, { headers: { "content-type": "application/json" }, chunks: ['{"a":'], then: "reset" as const }]) {
          bed.prefiller.setScript(entry);
          const answered = await post(retrying, { headers: bed.routed(bed.prefiller, second()), body: CHAT.body() });
          expect(answered.status).toBe(entry.status ?? 502);
        }
        expect(await calls()).toEqual([4, 0, 0]);
      },
      { ours: true },
    );

    row(
      "a candidate that is none is passed over where there are further attempts, and one address is one candidate",
      async () => {
        const door = await bed.sidecar("--prefill-max-retries=1", "--prefill-retry-backoff=5ms");
        const list = `nowhere, http://${addressOf(bed.prefiller)},${addressOf(bed.prefiller)},${addressOf(second())}`;
        expect((await post(door, { headers: ["x-prefiller-host-port", list], body: CHAT.body() })).status).toBe(200);
        expect(await calls()).toEqual([1, 0, 0]);
        bed.prefiller.setScript({ status: 503, json: {} });
        expect((await post(door, { headers: ["x-prefiller-host-port", list], body: CHAT.body() })).status).toBe(200);
        expect(await calls()).toEqual([2, 1, 0]);
      },
      { ours: true },
    );

    row(
      "candidates that nobody answers for are tried within one deadline",
      async () => {
        const door = await bed.sidecar("--prefill-max-retries=5", "--prefill-timeout=300ms", "--on-stage-failure=local");
        bed.prefiller.setScript({ status: 503, delay_ms: 150, json: {} });
        second().setScript({ delay_ms: 5000 });
        const startedAt = performance.now();
        const answered = await post(door, { headers: bed.routed(bed.prefiller, second(), third()), body: CHAT.body() });
        expect([answered.status, header(answered, PREFILLED_BY), performance.now() - startedAt < 4000]).toEqual([200, ["local"], true]);
        expect(await calls()).toEqual([1, 1, 0]);
      },
      { ours: true },
    );
  });

  describe("what the answer's head tells", () => {
    row(
      "who prefilled: the prefiller, the engine where it did so after all, nothing where nobody was asked",
      async () => {
        const door = await bed.sidecar("--on-stage-failure=local");
        const [body, streamed] = [CHAT.body(), CHAT.body({ stream: true })];
        for (const text of [body, streamed]) {
          expect(header(await post(door, { headers: bed.routed(), body: text }), PREFILLED_BY)).toEqual([addressOf(bed.prefiller)]);
          expect(header(await post(door, { body: text }), PREFILLED_BY)).toEqual([]);
          expect(header(await post(door, { headers: ["x-prefiller-host-port", ""], body: text }), PREFILLED_BY)).toEqual([]);
          expect(header(await post(door, { headers: bed.routed(), body: text.replace('"max_tokens":8', '"max_tokens":8,"n":2') }), PREFILLED_BY)).toEqual(["local"]);
        }
        bed.prefiller.setScript({ status: 500, json: {} });
        expect(header(await post(door, { headers: bed.routed(), body }), PREFILLED_BY)).toEqual(["local"]);
        bed.decoder.setScript({ status: 404, json: {}, headers: { [PREFILLED_BY]: "10.9.9.9:80" } });
        expect(header(await post(door, { headers: bed.routed(), body }), PREFILLED_BY)).toEqual([]);
        bed.decoder.setScript({ json: {}, headers: { [PREFILLED_BY]: "10.9.9.9:80", [RESPONSE_ID]: "x" } });
        const forged = await post(door, { body });
        expect([header(forged, PREFILLED_BY), header(forged, RESPONSE_ID)]).toEqual([[], []]);
      },
      { ours: true },
    );

    row(
      "a response's id, whole or streamed, split or not, and no other API's",
      async () => {
        const door = await bed.sidecar();
        for (const shape of SHAPES) {
          for (const headers of [[], bed.routed()]) {
            for (const stream of [false, true]) {
              const answered = await post(door, { target: shape.target, headers, body: shape.body({ stream }) });
              const id = stream ? (eventsOf(answered.body)[0]?.["response"] as { id: string } | undefined)?.id : (JSON.parse(answered.body) as { id: string }).id;
              expect([shape.name, answered.whole, header(answered, RESPONSE_ID)]).toEqual([shape.name, true, shape.name === "responses" ? [id] : []]);
            }
          }
        }
      },
      { ours: true },
    );

    row(
      "a response's stream is held back for its first event and no more, at any cut",
      async () => {
        const created = 'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_1","output":[]}}\n\n';
        const door = await bed.sidecar();
        for (const cut of [1, 30, created.length - 2]) {
          bed.decoder.setScript({ headers: STREAM, chunks: [created.slice(0, cut), created.slice(cut), "event: response.in_progress\n", 'data: {"type":"response.in_progress"}\n\n'], gap_ms: 300 });
          const response = await open(door.url, { target: "/v1/responses", body: '{"input":"x","stream":true}' }).head;
          expect(response.headers[RESPONSE_ID]).toBe("resp_1");
          const chunks: string[] = [];
          for await (const chunk of response) chunks.push(String(chunk));
          expect([chunks[0], chunks.join("").length > created.length]).toEqual([created, true]);
        }
        bed.decoder.setScript({ headers: STREAM, chunks: ['data: {"type":"response.created"}\n\n', "data: x\n\n"] });
        const none = await post(door, { target: "/v1/responses", body: '{"input":"x","stream":true}' });
        expect([none.status, header(none, RESPONSE_ID), none.body]).toEqual([200, [], 'data: {"type":"response.created"}\n\ndata: x\n\n']);
      },
      { ours: true },
    );
  });

  describe("a decode stream that opens with 200 and then tells of an error", () => {
    row(
      "under local nothing of it is seen: the engine answers without the hand-off, which is not used again",
      async () => {
        const door = await bed.sidecar("--on-stage-failure=local");
        for (const shape of SHAPES) {
          const opening = shape.name === "messages" ? 'event: message_start\ndata: {"type":"message_start","message":{}}\n\n' : shape.name === "responses" ? 'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_lost"}}\n\n' : shape.name === "chat" ? ROLE : "";
          const failure = shape.name === "messages" ? 'event: error\ndata: {"type":"error","error":{"message":"m"}}\n\n' : ERROR;
          bed.decoder.setScript([{ headers: STREAM, chunks: [opening + failure, "data: [DONE]\n\n"], gap_ms: 20 }, {}]);
          const body = shape.body({ stream: true });
          const answered = await post(door, { target: shape.target, headers: bed.routed(), body });
          expect([shape.name, answered.status, answered.whole, header(answered, PREFILLED_BY)]).toEqual([shape.name, 200, true, ["local"]]);
          expect(answered.body).not.toMatch(/Internal server error|resp_lost|"type":"error"/);
          const [, again] = (await bed.calls(bed.decoder)).slice(-2);
          expect([again?.body.toString(), again?.error]).toEqual([body, null]);
        }
      },
      { ours: true },
    );

    row(
      "a real one: the prefiller's side channel is away",
      async () => {
        const door = await bed.sidecar("--on-stage-failure=local");
        const gone = await TestUpstream.refusedPort();
        bed.prefiller.setScript({ json: { kv_transfer_params: { do_remote_prefill: true, do_remote_decode: false, remote_block_ids: [[1, 2]], remote_engine_id: "e", remote_request_id: "r", remote_host: "127.0.0.1", remote_port: gone } } });
        for (const stream of [true, false]) {
          const body = CHAT.body({ stream });
          const answered = await post(door, { headers: bed.routed(), body });
          expect([answered.status, answered.whole, header(answered, PREFILLED_BY)]).toEqual([200, true, ["local"]]);
          expect(chatText(answered.body)).toBe(chatText((await post(door, { body })).body));
          expect(answered.body.match(/"role":"assistant"/g)).toHaveLength(1);
        }
        const decodes = await bed.calls(bed.decoder);
        expect(decodes.map(({ json }) => "kv_transfer_params" in (json as object))).toEqual([true, false, false, true, false, false]);
      },
      { ours: true },
    );

    row(
      "under fail the role is not held back, and the error reaches the client as it came",
      async () => {
        bed.decoder.setScript({ headers: STREAM, chunks: [ROLE, ERROR, "data: [DONE]\n\n"], gap_ms: 400 });
        const door = await bed.sidecar();
        const response = await open(door.url, { headers: bed.routed(), body: CHAT.body({ stream: true }) }).head;
        const chunks: string[] = [];
        for await (const chunk of response) chunks.push(String(chunk));
        expect(chunks).toEqual([ROLE, ERROR, "data: [DONE]\n\n"]);
      },
      { ours: true },
    );

    row(
      "under local the role is held back until the first content, and then all is as the engine sent it",
      async () => {
        const content = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n';
        bed.decoder.setScript({ headers: STREAM, chunks: [ROLE, content, "data: [DONE]\n\n"], gap_ms: 400 });
        const door = await bed.sidecar("--on-stage-failure=local");
        const chunksOf = async (headers: string[]): Promise<string[]> => {
          const chunks: string[] = [];
          for await (const chunk of await open(door.url, { headers, body: CHAT.body({ stream: true }) }).head) chunks.push(String(chunk));
          return chunks;
        };
        expect(await chunksOf(bed.routed())).toEqual([ROLE + content, "data: [DONE]\n\n"]);
        // A request without hand-off has nothing to fall back to: its role goes out at once.
        expect((await chunksOf([]))[0]).toBe(ROLE);
      },
      { ours: true },
    );

    row(
      "an error behind content is the client's, under local too: nothing can be taken back",
      async () => {
        const content = 'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n';
        bed.decoder.setScript({ headers: STREAM, chunks: [ROLE, content, ERROR, "data: [DONE]\n\n"] });
        const door = await bed.sidecar("--on-stage-failure=local");
        const answered = await post(door, { headers: bed.routed(), body: CHAT.body({ stream: true }) });
        expect([answered.body, (await bed.calls(bed.decoder)).length]).toEqual([`${ROLE}${content}${ERROR}data: [DONE]\n\n`, 1]);
      },
      { ours: true },
    );

    row(
      "a stream that opens and then waits for blocks for ever ends at decode's deadline: told, or done without",
      async () => {
        bed.decoder.setScript([{ headers: STREAM, chunks: [ROLE, "data: never\n\n"], gap_ms: 10_000 }, {}]);
        const door = await bed.sidecar("--decode-first-byte-timeout=250ms", "--on-stage-failure=local");
        const answered = await post(door, { headers: bed.routed(), body: CHAT.body({ stream: true }) });
        expect([answered.status, answered.whole, header(answered, PREFILLED_BY)]).toEqual([200, true, ["local"]]);
        bed.decoder.setScript({ headers: STREAM, chunks: [ROLE, "data: never\n\n"], gap_ms: 10_000 });
        const strict = await bed.sidecar("--decode-first-byte-timeout=250ms");
        const cut = await post(strict, { headers: bed.routed(), body: CHAT.body({ stream: true }) });
        expect([cut.status, cut.body, cut.whole]).toEqual([200, ROLE, false]);
      },
      { ours: true },
    );
  });

  describe("a decode leg that fails", () => {
    row(
      "with a status is run without the hand-off under local, and is the client's answer under fail; never sent again with it",
      async () => {
        for (const entry of [{ status: 500, json: { error: { message: "load" } } }, { tcp: "reset" as const }]) {
          bed.decoder.setScript([entry, {}]);
          const local = await bed.sidecar("--on-stage-failure=local");
          const body = CHAT.body();
          const answered = await post(local, { headers: bed.routed(), body });
          expect([answered.status, header(answered, PREFILLED_BY), callsOf(bed.decoder).at(-1)?.body.toString()]).toEqual([200, ["local"], body]);
          bed.decoder.setScript([entry, {}]);
          const fail = await bed.sidecar();
          const failed = await post(fail, { headers: bed.routed(), body });
          expect([failed.status, header(failed, PREFILLED_BY)]).toEqual([entry.status ?? 502, []]);
          await bed.clear();
        }
      },
      { ours: true },
    );

    row(
      "with 4xx is the client's own error under either policy",
      async () => {
        bed.decoder.setScript({ status: 422, json: { error: { message: "no" } } });
        const door = await bed.sidecar("--on-stage-failure=local");
        expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(422);
        expect((await bed.calls(bed.decoder)).length).toBe(1);
      },
      { ours: true },
    );

    row(
      "because nothing listens is a 503 under either policy: it can do nothing alone",
      async () => {
        const door = await bed.sidecar("--on-stage-failure=local", `--model-server-port=${String(await TestUpstream.refusedPort())}`);
        const answered = await post(door, { headers: bed.routed(), body: CHAT.body() });
        expect([answered.status, errorOf(answered).type]).toEqual([503, "ServiceUnavailable"]);
      },
      { ours: true },
    );
  });

  describe("blocks of an abandoned prefill", () => {
    row(
      "before its answer: its call is closed, and nothing is held",
      async () => {
        bed.prefiller.setScript({ delay_ms: 3000 });
        const door = await bed.sidecar();
        const { request } = open(door.url, { headers: bed.routed(), body: CHAT.body() });
        await until(() => callsOf(bed.prefiller).length === 1);
        request.destroy();
        await until(() => callsOf(bed.prefiller)[0]?.aborted === true, 1000);
        expect([bed.held(), (await bed.calls(bed.decoder)).length]).toEqual([0, 0]);
      },
      { ours: true },
    );

    row(
      "after it: decode takes them although the client has left, long before the lease is over",
      async () => {
        bed.decoder.setScript({ first_byte_delay_ms: 200 });
        const door = await bed.sidecar();
        const { request } = open(door.url, { headers: bed.routed(), body: CHAT.body({ stream: true }) });
        await until(() => bed.held() === 1);
        await until(() => callsOf(bed.decoder).length === 1);
        request.destroy();
        await until(() => bed.held() === 0, 1700);
        expect(bed.prefiller.state().expiredTransfers).toBe(0);
        await until(() => bed.decoder.state().running === 0, 1000);
      },
      { ours: true },
    );

    row(
      "where decode failed: the lease, and nothing else, frees them",
      async () => {
        bed.decoder.setScript([{ status: 500, json: {} }, {}]);
        const door = await bed.sidecar("--on-stage-failure=local");
        expect((await post(door, { headers: bed.routed(), body: CHAT.body() })).status).toBe(200);
        expect(bed.held()).toBe(1);
        await until(() => bed.held() === 0, 6000);
        expect(bed.prefiller.state().expiredTransfers).toBe(1);
      },
      { ours: true },
    );
  });

  row("C-OF-10: with --enable-p2p-pull prefill has the pull key beside the protocol's, without it only those", async () => {
    const keys = ["do_remote_decode", "do_remote_prefill", "remote_engine_id", "remote_block_ids", "remote_host", "remote_port"];
    const source = process.env["SIDECAR_CMD"] === undefined ? "p2p" : "remote_kv_source";
    for (const flags of [["--enable-p2p-pull"], []]) {
      const door = await bed.sidecar(...flags);
      const headers = [...bed.routed(), "x-kv-cache-source-host-port", addressOf(second())];
      expect((await post(door, { headers, body: CHAT.body() })).status).toBe(200);
      const params = jsonOf((await bed.calls(bed.prefiller)).at(-1))["kv_transfer_params"] as Record<string, unknown>;
      expect(Object.keys(params).sort()).toEqual([...keys, ...(flags.length > 0 ? [source] : [])].sort());
      if (flags.length > 0) expect(params[source]).toMatchObject({ remote_host: "127.0.0.1", remote_port: bed.meetingPort });
      expect((await bed.calls(bed.decoder)).at(-1)?.handoff).toMatchObject({ found: true, verbatim: true });
      // Without a prefiller the engine beside us pulls, where it can.
      const body = CHAT.body();
      await post(door, { headers: ["x-kv-cache-source-host-port", addressOf(second())], body });
      const sent = (await bed.calls(bed.decoder)).at(-1);
      expect(flags.length > 0 ? Object.keys(jsonOf(sent)["kv_transfer_params"] as object) : sent?.body.toString()).toEqual(flags.length > 0 ? [source] : body);
    }
  });
});
