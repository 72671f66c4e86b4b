import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Sidecar } from "../server.js";
import { ask, errorOf, header, metric, open, startTestSidecar } from "../testkit/harness.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";

const HANDOFF = '{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[6,7]],"remote_engine_id":"e-1", "remote_request_id":"chatcmpl-x-1","remote_host":"10.0.0.7","remote_port":5600,"seed":18446744073709551617,"t":1.0}';
const PREFILL_ANSWER = `{"id":"p","choices":[],"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":7}},"kv_transfer_params":${HANDOFF}}`;

describe("nixlv2", () => {
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

  it("C-NX-01 C-NX-02 C-NX-04 C-NX-06: prefill, then decode, with the protocol's members and the hand-off verbatim", async () => {
    const { url } = await start();
    const answered = await ask(url, { headers: routed(), body: CHAT });
    expect([answered.status, prefiller.received.length, decoder.received.length]).toEqual([200, 1, 1]);
    expect(prefiller.received[0]?.startedAt).toBeLessThan(decoder.received[0]?.startedAt ?? 0);
    expect(prefiller.text()).toBe(
      '{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_tokens":1,"stream":false,"max_completion_tokens":1,"min_tokens":1,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}',
    );
    expect(decoder.text()).toBe(`${CHAT.slice(0, -1)},"kv_transfer_params":${HANDOFF}}`);
  });

  it("C-NX-03 C-NX-05: a streamed request is prefilled unstreamed and decoded as the client sent it, whatever its numbers and duplicates", async () => {
    const { url } = await start();
    const body = '{ "seed" : 9007199254740993, "top_p":1.0, "model":"a","x":1e400, "model":"b","stream":true, "stream_options":{"include_usage":true}}';
    await ask(url, { headers: routed(), body });
    expect(prefiller.text()).toMatch(/^\{ "seed" : 9007199254740993, "top_p":1\.0, "model":"a","x":1e400, "model":"b","stream":false,"max_tokens":1,"max_completion_tokens":1,"min_tokens":1,"kv_transfer_params":/);
    expect(decoder.text()).toBe(`${body.slice(0, -1)},"kv_transfer_params":${HANDOFF}}`);
  });

  it("C-NX-07: responses", async () => {
    const { url } = await start();
    await ask(url, { target: "/v1/responses?x=1", headers: routed(), body: '{"input":"hi","max_output_tokens":64,"stream":true}' });
    expect(prefiller.json()).toMatchObject({ max_output_tokens: 1, stream: false, store: false });
    expect(Object.keys(prefiller.json())).not.toContain("max_tokens");
    expect(decoder.text()).toBe(`{"input":"hi","max_output_tokens":64,"stream":true,"kv_transfer_params":${HANDOFF}}`);
    expect([prefiller.received[0]?.target, decoder.received[0]?.target]).toEqual(["/v1/responses?x=1", "/v1/responses?x=1"]);
  });

  it("C-NX-08: messages and completions", async () => {
    const { url } = await start();
    for (const target of ["/v1/messages", "/v1/completions"]) {
      await ask(url, { target, headers: routed(), body: '{"max_tokens":9}' });
      expect(prefiller.json()).toMatchObject({ max_tokens: 1, max_completion_tokens: 1, min_tokens: 1, stream: false });
      expect(decoder.text()).toBe(`{"max_tokens":9,"kv_transfer_params":${HANDOFF}}`);
    }
  });

  it("C-NX-09: generate, with and without sampling_params", async () => {
    const { url } = await start();
    for (const body of ['{"token_ids":[1,2],"sampling_params":{"max_tokens":32,"min_tokens":2}}', '{"token_ids":[1,2]}']) {
      await ask(url, { target: "/inference/v1/generate", headers: routed(), body });
      expect(prefiller.json()).toMatchObject({ sampling_params: { max_tokens: 1, min_tokens: 1 }, stream: false });
      expect(Object.keys(prefiller.json())).not.toContain("max_tokens");
      expect(decoder.text()).toBe(`${body.slice(0, -1)},"kv_transfer_params":${HANDOFF}}`);
    }
  });

  it("splices 8 MiB of media into both legs byte for byte", async () => {
    const { url } = await start();
    const head = '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,';
    const media = Buffer.alloc(8 * 1024 * 1024, "QUJD");
    const tail = '"}}]}],"max_tokens":5,"seed":9007199254740993}';
    const answered = await ask(url, { headers: routed(), body: Buffer.concat([Buffer.from(head), media, Buffer.from(tail)]) });
    expect(answered.status).toBe(200);
    for (const [upstream, end] of [
      [prefiller, `"}}]}],"max_tokens":1,"seed":9007199254740993,"max_completion_tokens":1`],
      [decoder, `${tail.slice(0, -1)},"kv_transfer_params":${HANDOFF}}`],
    ] as const) {
      const body = upstream.received[0]?.body ?? Buffer.alloc(0);
      expect(body.subarray(0, head.length).toString()).toBe(head);
      expect(body.subarray(head.length, head.length + media.length).equals(media)).toBe(true);
      expect(body.subarray(head.length + media.length).toString().startsWith(end)).toBe(true);
      expect(header({ rawHeaders: upstream.received[0]?.rawHeaders ?? [] }, "content-length")).toEqual([String(body.length)]);
    }
  });

  it.each([
    ["no JSON", "<html>", "unreadable"],
    ["a list", "[]", "unreadable"],
    ["no member", '{"id":1}', "missing"],
    ["null", '{"kv_transfer_params":null}', "missing"],
    ["a string", '{"kv_transfer_params":"x"}', "not_object"],
    ["an empty object", '{"kv_transfer_params":{}}', "empty"],
    ["a bad port", '{"kv_transfer_params":{"remote_port":"abc"}}', "remote_port"],
    ["nested ids without a request id", '{"kv_transfer_params":{"remote_block_ids":[[1]]}}', "remote_request_id"],
    ["a request id that is no text", '{"kv_transfer_params":{"remote_request_id":7}}', "remote_request_id"],
  ])("C-NX-16 C-NX-17: 200 with %s is a 502 under fail and decode alone under local, counted", async (_, body, reason) => {
    prefiller.handler = (__, response) => {
      sendJson(response, body);
    };
    for (const policy of ["fail", "local"]) {
      const running = await start(`--on-stage-failure=${policy}`);
      const answered = await ask(running.url, { headers: routed(), body: CHAT });
      expect(await metric(running, "handoff_invalid_total", { reason })).toBe(1);
      expect(await metric(running, "stage_failures_total", { stage: "prefill", reason: "handoff_invalid", policy })).toBe(1);
      if (policy === "fail") {
        expect([answered.status, errorOf(answered).type, decoder.received.length]).toEqual([502, "BadGateway", 0]);
        expect(errorOf(answered).message).toContain("handoff_invalid");
      } else {
        expect([answered.status, decoder.text()]).toEqual([200, CHAT]);
      }
      await running.close();
      sidecar = null;
    }
  });

  it("decision 9: a client that leaves after the hand-off leaves decode alone until the blocks are taken", async () => {
    let answerDecode: (() => void) | null = null;
    decoder.handler = (_, response) => {
      answerDecode = () => {
        sendJson(response, "{}");
      };
    };
    const running = await start();
    const { request } = open(running.url, { headers: routed(), body: CHAT });
    await until(() => decoder.received.length === 1);
    request.destroy();
    await sleep(150);
    expect(decoder.received[0]?.aborted).toBe(false);
    expect(await metric(running, "handoffs_released_total")).toBe(1);
    (answerDecode as (() => void) | null)?.();
    for (let tries = 0; tries < 100 && (await metric(running, "in_flight_requests")) > 0; tries++) await sleep(10);
    expect([await metric(running, "in_flight_requests"), await metric(running, "in_flight_legs")]).toEqual([0, 0]);
  });

  it("decision 9: a stream whose client leaves before its first content is ended after it", async () => {
    let write: ((text: string) => void) | null = null;
    decoder.handler = (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n');
      write = (text) => void response.write(text);
    };
    const { url } = await start();
    const { request, head } = open(url, { headers: routed(), body: CHAT.replace("false", "true") });
    (await head).resume();
    request.destroy();
    await sleep(150);
    expect(decoder.received[0]?.aborted).toBe(false);
    (write as ((text: string) => void) | null)?.('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    await until(() => decoder.received[0]?.aborted === true);
  });

  it("decision 9: a stream whose client leaves after content is ended at once", async () => {
    decoder.handler = (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write('data: {"choices":[{"delta":{"role":"assistant"}}]}\n\ndata: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    };
    const { url } = await start();
    const { request, head } = open(url, { headers: routed(), body: CHAT });
    const response = await head;
    await new Promise((resolve) => response.once("data", resolve));
    request.destroy();
    await until(() => decoder.received[0]?.aborted === true, 1000);
  });

  it("decision 9: a client that left when prefill had answered still has its blocks taken, by one token", async () => {
    // Opening this answer takes a while: the client leaves in the meantime.
    const packed = gzipSync(`{"pad":"${"x".repeat(40_000_000)}",${PREFILL_ANSWER.slice(1)}`, { level: 1 });
    let sent = false;
    prefiller.handler = (_, response) => {
      response.writeHead(200, { "content-encoding": "gzip" }).end(packed, () => (sent = true));
    };
    const running = await start();
    const { request } = open(running.url, { headers: routed(), body: CHAT.replace("false", "true") });
    await until(() => sent);
    request.destroy();
    await until(() => decoder.received.length === 1);
    expect(decoder.json()).toMatchObject({ max_tokens: 1, stream: false, kv_transfer_params: { remote_request_id: "chatcmpl-x-1" } });
    expect(await metric(running, "handoffs_released_total")).toBe(1);
    for (let tries = 0; tries < 100 && (await metric(running, "in_flight_requests")) > 0; tries++) await sleep(10);
    expect(await metric(running, "in_flight_requests")).toBe(0);
  });

  it("C-NX-19: the client sees prefill's cached tokens, however decode reports its own", async () => {
    const { url } = await start();
    for (const [usage, expected] of [
      ['{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":49}}', '{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":7}}'],
      ['{"prompt_tokens_details":{}}', '{"prompt_tokens_details":{"cached_tokens":7}}'],
      ['{"prompt_tokens":1}', '{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":7}}'],
    ] as const) {
      decoder.handler = (_, response) => {
        sendJson(response, `{"id":"d", "usage":${usage}}`);
      };
      const answered = await ask(url, { headers: routed(), body: CHAT });
      expect([answered.body, header(answered, "content-length")]).toEqual([`{"id":"d", "usage":${expected}}`, [String(`{"id":"d", "usage":${expected}}`.length)]]);
    }
  });

  it("C-NX-20: without cached tokens at prefill the client sees 0, streamed and not", async () => {
    prefiller.handler = (_, response) => {
      sendJson(response, `{"usage":{"prompt_tokens":5,"prompt_tokens_details":null},"kv_transfer_params":${HANDOFF}}`);
    };
    const { url } = await start();
    expect((await ask(url, { headers: routed(), body: CHAT })).body).toContain('"cached_tokens":0');
    decoder.handler = (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).end('data: {"usage":{"prompt_tokens_details":{"cached_tokens":120}}}\n\ndata: [DONE]\n\n');
    };
    expect((await ask(url, { headers: routed(), body: CHAT })).body).toBe('data: {"usage":{"prompt_tokens_details":{"cached_tokens":0}}}\n\ndata: [DONE]\n\n');
  });

  it("C-NX-21: a stream cut at awkward places arrives whole, rewritten once", async () => {
    decoder.handler = async (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
      const text = Buffer.from('data: {"choices":[{"delta":{"content":"tïde"}}]}\r\n\r\ndata: {"choices":[],"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":120}}}\n\ndata: [DONE]\n\n');
      for (let at = 0; at < text.length; at += 7) {
        response.write(text.subarray(at, at + 7));
        await sleep(1);
      }
      response.end();
    };
    const { url } = await start();
    const answered = await ask(url, { headers: routed(), body: CHAT });
    expect(answered.body).toBe('data: {"choices":[{"delta":{"content":"tïde"}}]}\r\n\r\ndata: {"choices":[],"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":7}}}\n\ndata: [DONE]\n\n');
  });

  it("C-NX-23: a 200 KB answer is rewritten too", async () => {
    const text = `{"choices":[{"message":{"content":"${"x".repeat(200_000)}"}}],"usage":{"prompt_tokens_details":{"cached_tokens":49}}}`;
    decoder.handler = (_, response) => {
      sendJson(response, text);
    };
    const { url } = await start();
    expect((await ask(url, { headers: routed(), body: CHAT })).body).toBe(text.replace("49", "7"));
  });

  it("C-NX-24: no transfer id, no remote sizes, no rank header", async () => {
    const { url } = await start();
    await ask(url, { headers: routed("x-data-parallel-rank", "3"), body: CHAT });
    for (const upstream of [prefiller, decoder]) {
      expect(upstream.text()).not.toMatch(/transfer_id|remote_dp_size/);
      expect(header({ rawHeaders: upstream.received[0]?.rawHeaders ?? [] }, "x-data-parallel-rank")).toEqual([]);
    }
  });

  it("asks for plain answers where it reads them, and reads them when they come compressed all the same", async () => {
    prefiller.handler = (_, response) => {
      response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(PREFILL_ANSWER));
    };
    const { url } = await start();
    const answered = await ask(url, { headers: routed("accept-encoding", "gzip"), body: CHAT });
    expect([answered.status, answered.body.includes('"cached_tokens":7')]).toEqual([200, true]);
    for (const upstream of [prefiller, decoder]) expect(header({ rawHeaders: upstream.received[0]?.rawHeaders ?? [] }, "accept-encoding")).toEqual([]);
    await ask(url, { headers: ["accept-encoding", "br"], body: CHAT });
    expect(header({ rawHeaders: decoder.received[1]?.rawHeaders ?? [] }, "accept-encoding")).toEqual(["br"]);
  });

  it.each([
    ["parallel_sampling", '{"n":3}', "/v1/chat/completions"],
    ["multiple_prompts", '{"prompt":["a","b"]}', "/v1/completions"],
    ["prompt_logprobs", '{"prompt_logprobs":1}', "/v1/chat/completions"],
    ["stateful_response", '{"previous_response_id":"r"}', "/v1/responses"],
  ])("never splits %s: the engine alone, counted", async (reason, body, target) => {
    const running = await start();
    const answered = await ask(running.url, { target, headers: routed(), body });
    expect([answered.status, prefiller.received.length, decoder.text()]).toEqual([200, 0, body]);
    expect(await metric(running, "never_split_total", { reason })).toBe(1);
  });

  it("sends no leg with a client's control members, under the hand-off's own", async () => {
    const running = await start();
    const body = '{"kv\\u005ftransfer_params":{"remote_host":"169.254.169.254"},"ec_transfer_params":{"a":1},"bootstrap_room":1,"vllm_xargs":{"kv_transfer_params":{},"tag":"t"},"max_tokens":2}';
    await ask(running.url, { headers: routed(), body });
    expect(Object.keys(prefiller.json()).sort()).toEqual(["kv_transfer_params", "max_completion_tokens", "max_tokens", "min_tokens", "stream", "vllm_xargs"]);
    expect(decoder.text()).toBe(`{"vllm_xargs":{"tag":"t"},"max_tokens":2,"kv_transfer_params":${HANDOFF}}`);
    expect(await metric(running, "control_members_removed_total")).toBe(4);
  });

  it("a trusted client's parameters give way to the hand-off", async () => {
    const { url } = await start("--trust-client-control-members");
    await ask(url, { headers: routed(), body: '{"kv_transfer_params":{"x":1},"max_tokens":2}' });
    expect(decoder.text()).toBe(`{"max_tokens":2,"kv_transfer_params":${HANDOFF}}`);
    await ask(url, { body: '{"kv_transfer_params":{"x":1},"max_tokens":2}' });
    expect(decoder.text()).toBe('{"kv_transfer_params":{"x":1},"max_tokens":2}');
  });

  it("a decode leg that fails is not sent again with the same hand-off", async () => {
    decoder.handler = (_, response) => {
      response.destroy();
    };
    const { url } = await start("--prefill-max-retries=3", "--prefill-retry-backoff=1ms");
    const answered = await ask(url, { headers: routed(), body: CHAT });
    expect([answered.status, decoder.received.length, prefiller.received.length]).toEqual([502, 1, 1]);
  });

  it("counts decodes that fail before their first content, by what was done about it", async () => {
    const stream = 'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\ndata: {"error":{"code":500}}\n\ndata: [DONE]\n\n';
    for (const policy of ["fail", "local"]) {
      const running = await start(`--on-stage-failure=${policy}`);
      for (const [reason, fail] of [
        ["error_event", (response: ServerResponse) => void response.writeHead(200, { "content-type": "text/event-stream" }).end(stream)],
        ["status_503", (response: ServerResponse) => void response.writeHead(503).end()],
        ["broken", (response: ServerResponse) => void response.destroy()],
      ] as const) {
        decoder.handler = (received, response) => {
          if (received.body.includes("kv_transfer_params")) fail(response);
          else sendJson(response, "{}");
        };
        const answered = await ask(running.url, { headers: routed(), body: CHAT });
        expect([policy, reason, await metric(running, "stage_failures_total", { stage: "decode", reason, policy })]).toEqual([policy, reason, 1]);
        expect(answered.status).toBe(policy === "local" || reason === "error_event" ? 200 : reason === "broken" ? 502 : 503);
      }
      await running.close();
      sidecar = null;
    }
    // Without a hand-off there is no stage to do without.
    const running = await start("--on-stage-failure=local");
    decoder.handler = (_, response) => void response.writeHead(503).end();
    expect([(await ask(running.url, { body: CHAT })).status, await metric(running, "stage_failures_total", { stage: "decode", policy: "fail" })]).toEqual([503, 1]);
  });

  it("a decode leg on a kept connection that the engine closed begins again from prefill, once", async () => {
    let calls = 0;
    prefiller.handler = (_, response) => {
      sendJson(response, PREFILL_ANSWER.replace("chatcmpl-x-1", `chatcmpl-x-${String(++calls)}`));
    };
    const running = await start();
    await ask(running.url, { headers: routed(), body: CHAT });
    const reused = decoder.received[0]?.connection;
    decoder.handler = (received, response) => {
      // As an engine does that gave the connection up in the moment in which it was used.
      if (received.connection === reused) response.destroy();
      else sendJson(response, "{}");
    };
    const answered = await ask(running.url, { headers: routed(), body: CHAT });
    expect(answered.status).toBe(200);
    expect(decoder.received.map(({ body }) => /chatcmpl-x-\d/.exec(body.toString())?.[0])).toEqual(["chatcmpl-x-1", "chatcmpl-x-2", "chatcmpl-x-3"]);
    expect(await metric(running, "retries_total", { stage: "decode", reason: "stale_connection" })).toBe(1);
  });

  it("keeps one x-request-id on both legs, generated where the client has none", async () => {
    const { url } = await start();
    const given = await ask(url, { headers: routed("x-request-id", "job-1"), body: CHAT });
    const made = await ask(url, { headers: routed(), body: CHAT });
    const ids = [...prefiller.received, ...decoder.received].map(({ rawHeaders }) => header({ rawHeaders }, "x-request-id"));
    expect(ids.map((list) => list.length)).toEqual([1, 1, 1, 1]);
    expect([ids[0], ids[2], ids[1]]).toEqual([["job-1"], ["job-1"], ids[3]]);
    expect([header(given, "x-request-id"), header(made, "x-request-id")]).toEqual([["job-1"], ids[1]]);
  });

});
