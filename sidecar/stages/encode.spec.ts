import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Sidecar } from "../server.js";
import { ask, errorOf, header, metric, open, startTestSidecar } from "../testkit/harness.js";
import { sendJson, TestUpstream, until } from "../testkit/upstream.js";

const PREFILL_ANSWER = '{"kv_transfer_params":{"remote_request_id":"r"}}';

function image(url: string, detail?: string): string {
  return `{"type":"image_url","image_url":{"url":"${url}"${detail === undefined ? "" : `,"detail":"${detail}"`}}}`;
}

function chat(...parts: string[]): string {
  return `{"model":"m","temperature":0.5,"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"t"},${parts.join(",")}]}],"max_tokens":32}`;
}

describe("encode stage", () => {
  let encoders: TestUpstream[] = [];
  let prefiller: TestUpstream;
  let decoder: TestUpstream;
  let sidecar: Sidecar | null = null;

  beforeEach(async () => {
    encoders = [await TestUpstream.start(), await TestUpstream.start()];
    for (const [index, encoder] of encoders.entries()) {
      encoder.handler = (_, response, call) => {
        sendJson(response, `{"choices":[],"ec_transfer_params":{ "h${String(index)}-${String(call)}" : {"peer_port":5500,"size":18446744073709551617} }}`);
      };
    }
    prefiller = await TestUpstream.start((_, response) => {
      sendJson(response, PREFILL_ANSWER);
    });
    decoder = await TestUpstream.start();
  });

  afterEach(async () => {
    await Promise.all([sidecar?.close(), prefiller.close(), decoder.close(), ...encoders.map((encoder) => encoder.close())]);
    sidecar = null;
  });

  async function start(...flags: string[]): Promise<Sidecar> {
    sidecar = await startTestSidecar(decoder, ["--ec-connector=ec-nixl", ...flags]);
    return sidecar;
  }

  function routed(...more: string[]): string[] {
    return ["x-encoder-hosts-ports", encoders.map(({ authority }) => authority).join(", "), ...more];
  }

  function calls(): number {
    return encoders.reduce((sum, { received }) => sum + received.length, 0);
  }

  it("C-EC-01: text alone calls no encoder and is served", async () => {
    const { url } = await start();
    const body = '{"messages":[{"role":"user","content":"image_url"}]}';
    expect((await ask(url, { headers: routed(), body })).status).toBe(200);
    expect([calls(), decoder.text()]).toEqual([0, body]);
  });

  it("C-EC-02: the four types, in order, and nothing else", async () => {
    const { url } = await start();
    const parts = [image("a"), '{"type":"audio_url","audio_url":{"url":"b"}}', '{"type":"video_url","video_url":{"url":"c"}}', '{"type":"input_audio","input_audio":{"data":"d","format":"wav"},"uuid":"clip-7"}'];
    await ask(url, { headers: ["x-encoder-hosts-ports", encoders[0]?.authority ?? ""], body: chat(...parts, '{"type":"image_embeds","image_embeds":"e"}', '{"type":"text","text":"image_url"}') });
    const seen = (encoders[0]?.received ?? []).map(({ body }) => body.toString()).sort();
    expect(seen).toEqual(parts.map((part) => `{"model":"m","messages":[{"role":"user","content":[${part}]}],"max_tokens":1,"stream":false}`).sort());
  });

  it("C-EC-03: equal parts are encoded once, inline audio each time, parts with another detail by themselves", async () => {
    const running = await start();
    const audio = '{"type":"input_audio","input_audio":{"data":"d"}}';
    await ask(running.url, { headers: routed(), body: chat(image("a", "low"), image("b"), image("a", "low"), image("b")) });
    expect([calls(), encoders[0]?.received.length]).toEqual([2, 1]);
    expect(await metric(running, "encode_items_total", { outcome: "merged" })).toBe(2);
    await ask(running.url, { headers: routed(), body: chat(image("a", "low"), image("a", "high"), audio, audio) });
    expect(calls()).toBe(6);
    expect(decoder.text(0)).toContain(chat(image("a", "low"), image("b"), image("a", "low"), image("b")).slice(0, -1));
  });

  it("C-EC-04: what encoding needs is carried as the client's bytes, and nothing else", async () => {
    const { url } = await start();
    const body = `{"cache_salt":"s\\u0061lt","mm_processor_kwargs":{"fps":1.0,"n":9007199254740993},"model":"x","model":"m","stream":true,"tools":[],"n":1,"max_completion_tokens":7,"messages":[{"role":"user","content":[${image("a")}]}]}`;
    await ask(url, { headers: routed(), body });
    expect(encoders[0]?.text()).toBe(
      `{"model":"m","mm_processor_kwargs":{"fps":1.0,"n":9007199254740993},"cache_salt":"s\\u0061lt","messages":[{"role":"user","content":[${image("a")}]}],"max_tokens":1,"max_completion_tokens":1,"stream":false}`,
    );
    expect(encoders[0]?.received[0]?.target).toBe("/v1/chat/completions");
  });

  it("a plan for encoders on a sidecar without connector is counted, and told once", async () => {
    const lines: string[] = [];
    sidecar = await startTestSidecar(decoder, [], {}, lines);
    for (let turn = 0; turn < 3; turn++) expect((await ask(sidecar.url, { headers: routed("x-kv-cache-source-host-port", "10.0.0.1:8000"), body: chat(image("a")) })).status).toBe(200);
    await ask(sidecar.url, { headers: ["x-encoder-hosts-ports", ""], body: chat(image("a")) });
    expect([calls(), await metric(sidecar, "plans_ignored_total", { stage: "encode" }), await metric(sidecar, "plans_ignored_total", { stage: "kv_source" })]).toEqual([0, 3, 3]);
    const told = lines.filter((line) => line.includes("a routing header is ignored"));
    expect([told.length, told.join("").includes("x-encoder-hosts-ports"), told.join("").includes("--ec-connector"), told.join("").includes("--enable-p2p-pull")]).toEqual([2, true, true, true]);
  });

  it("a body is not made into any number of calls: more media items than the limit are refused, none is dropped", async () => {
    const { url } = await start("--max-media-items=3");
    const images = ["a", "b", "c", "d"].map((name) => image(name));
    expect((await ask(url, { headers: routed(), body: chat(...images.slice(1)) })).status).toBe(200);
    const before = calls();
    const body = chat(...images);
    const answered = await ask(url, { headers: routed(), body });
    expect([answered.status, errorOf(answered)]).toEqual([
      400,
      { message: `the request has more than 3 media items: the one at byte ${String(body.indexOf(image("d")))} is above it`, type: "BadRequestError", param: "messages", code: 400 },
    ]);
    expect(calls()).toBe(before);
    // Without encoders nothing is multiplied: the engine has its own limit.
    expect((await ask(url, { body })).status).toBe(200);
    if (sidecar !== null) expect(await metric(sidecar, "bodies_refused_total", { reason: "media" })).toBe(1);
  });

  it("the default takes 256 items, and says so beyond what the scanner lists", async () => {
    const { url } = await start();
    const many = (count: number): string => chat(...Array.from({ length: count }, (_, index) => image(String(index))));
    for (const count of [257, 9000]) {
      const answered = await ask(url, { headers: routed(), body: many(count) });
      expect([answered.status, errorOf(answered).param]).toEqual([400, "messages"]);
    }
    expect(calls()).toBe(0);
    expect([(await ask(url, { headers: routed(), body: many(256) })).status, calls()]).toEqual([200, 256]);
  });

  it("what each leg carries beside its item is bounded by the body limit together", async () => {
    const { url } = await start("--body-limit=4000");
    const body = (bytes: number, ...images: string[]): string => `{"model":"m","mm_processor_kwargs":"${"x".repeat(bytes - 2)}",${chat(...images).slice(1)}`;
    const three = [image("a"), image("b"), image("c")];
    expect((await ask(url, { headers: routed(), body: body(1300, ...three, image("a")) })).status).toBe(200);
    expect(calls()).toBe(3);
    const answered = await ask(url, { headers: routed(), body: body(1400, ...three) });
    expect([answered.status, errorOf(answered).param, errorOf(answered).message, calls()]).toEqual([400, "mm_processor_kwargs", "1403 bytes would go to encoders with each of 3 media items: more than 4000 bytes together", 3]);
  });

  it("C-EC-05: item i goes to entry i mod N with its own id, the client's Authorization and the encoder's Host", async () => {
    const { url } = await start();
    await ask(url, { headers: routed("x-request-id", "R", "Authorization", "Bearer k", "cookie", "c", "traceparent", "00-t"), body: chat(image("a"), image("b"), image("c")) });
    const of = (index: number): [string, string][] =>
      (encoders[index]?.received ?? []).map(({ body, rawHeaders }): [string, string] => [/"url":"(.)"/.exec(body.toString())?.[1] ?? "", header({ rawHeaders }, "x-request-id").join()]).sort();
    expect(of(0)).toEqual([
      ["a", "R-enc-0"],
      ["c", "R-enc-2"],
    ]);
    expect(of(1)).toEqual([["b", "R-enc-1"]]);
    const rawHeaders = encoders[0]?.received[0]?.rawHeaders ?? [];
    expect([header({ rawHeaders }, "authorization"), header({ rawHeaders }, "host"), header({ rawHeaders }, "cookie"), header({ rawHeaders }, "traceparent"), header({ rawHeaders }, "x-forwarded-for")]).toEqual([
      ["Bearer k"],
      [encoders[0]?.authority],
      [],
      ["00-t"],
      [],
    ]);
  });

  it("C-EC-06 C-EC-11: the members of all answers, as their bytes, go to the engine directly", async () => {
    const { url } = await start();
    const body = chat(image("a"), image("b"));
    expect((await ask(url, { headers: routed(), body })).status).toBe(200);
    expect(decoder.text()).toBe(`${body.slice(0, -1)},"ec_transfer_params":{"h0-0" : {"peer_port":5500,"size":18446744073709551617},"h1-0" : {"peer_port":5500,"size":18446744073709551617}}}`);
  });

  it("C-EC-06: of equal names the later item's is taken", async () => {
    for (const [index, encoder] of encoders.entries()) {
      encoder.handler = (_, response) => {
        sendJson(response, `{"ec_transfer_params":{"h":${String(index)}}}`);
      };
    }
    const { url } = await start();
    await ask(url, { headers: routed(), body: chat(image("a"), image("b")) });
    expect(decoder.json()["ec_transfer_params"]).toEqual({ h: 1 });
  });

  it.each(["null", '"x"', "{}", "[1]", undefined])("C-EC-07: an answer with %s hands nothing over and is no failure", async (params) => {
    const first = encoders[0];
    if (first === undefined) throw new Error("no encoder");
    first.handler = (_, response) => {
      sendJson(response, params === undefined ? "{}" : `{"ec_transfer_params":${params}}`);
    };
    const { url } = await start();
    expect((await ask(url, { headers: routed(), body: chat(image("a")) })).status).toBe(200);
    expect(Object.keys(decoder.json())).not.toContain("ec_transfer_params");
    await ask(url, { headers: routed(), body: chat(image("a"), image("b")) });
    expect(Object.keys(decoder.json()["ec_transfer_params"] as object)).toEqual(["h1-0"]);
  });

  it("C-EC-08: the first failure is the answer, and ends the others", async () => {
    const [slow, bad] = encoders;
    if (slow === undefined || bad === undefined) throw new Error("no encoders");
    slow.handler = () => undefined;
    bad.handler = (_, response) => {
      response.writeHead(500, { "content-type": "text/plain" }).end("oom");
    };
    const { url } = await start();
    const startedAt = performance.now();
    const answered = await ask(url, { headers: routed("x-prefiller-host-port", prefiller.authority), body: chat(image("a"), image("b")) });
    expect([answered.status, errorOf(answered).type, header(answered, "content-type")]).toEqual([502, "BadGateway", ["application/json"]]);
    expect(answered.body).not.toContain("oom");
    expect(performance.now() - startedAt).toBeLessThan(1000);
    await until(() => slow.received[0]?.aborted === true, 1000);
    expect([prefiller.received.length, decoder.received.length]).toEqual([0, 0]);
  });

  it("local: the failed item alone is left out, and counted", async () => {
    const [slow, bad] = encoders;
    if (slow === undefined || bad === undefined) throw new Error("no encoders");
    slow.handler = async (_, response) => {
      await sleep(100);
      sendJson(response, '{"ec_transfer_params":{"h1":{"x":1}}}');
    };
    bad.handler = (_, response) => {
      response.writeHead(500).end("oom");
    };
    const running = await start("--on-stage-failure=local");
    const answered = await ask(running.url, { headers: routed(), body: chat(image("a"), image("b")) });
    expect([answered.status, decoder.json()["ec_transfer_params"], slow.received[0]?.aborted]).toEqual([200, { h1: { x: 1 } }, false]);
    expect(await metric(running, "stage_failures_total", { stage: "encode", reason: "status_500", policy: "local" })).toBe(1);
    expect(await metric(running, "encode_items_total", { outcome: "failed" })).toBe(1);
  });

  it.each(["fail", "local"])("an encoder's 4xx is the client's, whole, under %s", async (policy) => {
    const [slow, bad] = encoders;
    if (slow === undefined || bad === undefined) throw new Error("no encoders");
    slow.handler = () => undefined;
    bad.handler = (_, response) => {
      sendJson(response, { error: { message: "bad image" } }, 422, { "x-e": "1" });
    };
    const { url } = await start(`--on-stage-failure=${policy}`);
    const answered = await ask(url, { headers: routed(), body: chat(image("a"), image("b")) });
    expect([answered.status, answered.body, header(answered, "x-e"), decoder.received.length]).toEqual([422, '{"error":{"message":"bad image"}}', ["1"], 0]);
    await until(() => slow.received[0]?.aborted === true, 1000);
  });

  it("C-EC-09: a client that leaves ends all open calls", async () => {
    for (const encoder of encoders) encoder.handler = () => undefined;
    const running = await start();
    const { request } = open(running.url, { headers: routed(), body: chat(...Array.from({ length: 20 }, (_, index) => image(`u${String(index)}`))) });
    await until(() => calls() === 8);
    request.destroy();
    await until(() => encoders.every(({ received }) => received.every(({ aborted }) => aborted)), 1000);
    await sleep(30);
    expect([calls(), decoder.received.length, await metric(running, "in_flight_requests"), await metric(running, "in_flight_legs")]).toEqual([8, 0, 0, 0]);
  });

  it("C-EC-10: each failed item has a line of its own in the log, without body text", async () => {
    for (const encoder of encoders) {
      encoder.handler = (_, response) => {
        sendJson(response, { secret: "text of the answer" }, 500);
      };
    }
    const lines: string[] = [];
    sidecar = await startTestSidecar(decoder, ["--ec-connector=ec-nixl", "--on-stage-failure=local"], {}, lines);
    await ask(sidecar.url, { headers: routed(), body: chat(image("a"), image("b"), image("c")) });
    expect(lines.filter((line) => line.includes("encode failed")).map((line) => (JSON.parse(line) as { item: number }).item).sort()).toEqual([0, 1, 2]);
    expect(lines.join("")).not.toContain("text of the answer");
  });

  it("C-EC-12: encoders, prefill, decode: in this order, with the embeddings on both later legs", async () => {
    const { url } = await start();
    await ask(url, { headers: routed("x-prefiller-host-port", prefiller.authority), body: chat(image("a"), image("b")) });
    const times = [Math.max(...encoders.map(({ received }) => received[0]?.startedAt ?? 0)), prefiller.received[0]?.startedAt ?? 0, decoder.received[0]?.startedAt ?? 0];
    expect([...times].sort((a, b) => a - b)).toEqual(times);
    for (const upstream of [prefiller, decoder]) {
      expect(Object.keys(upstream.json()["ec_transfer_params"] as object)).toEqual(["h0-0", "h1-0"]);
      expect(upstream.json()).toHaveProperty("messages");
    }
    expect(decoder.json()["kv_transfer_params"]).toEqual({ remote_request_id: "r" });
    for (const upstream of [...encoders, prefiller, decoder]) {
      for (const name of ["x-encoder-hosts-ports", "x-prefiller-host-port"]) expect(header({ rawHeaders: upstream.received[0]?.rawHeaders ?? [] }, name)).toEqual([]);
    }
  });

  it("C-EC-14: without an EC connector the header is ignored", async () => {
    sidecar = await startTestSidecar(decoder);
    const body = chat(image("a"));
    await ask(sidecar.url, { headers: routed(), body });
    expect([calls(), decoder.text()]).toEqual([0, body]);
  });

  it.each(["ec-nixl", "ec-example"])("C-EC-15: an encoder that breaks its 200 off is a 502, and the process goes on (%s)", async (name) => {
    for (const encoder of encoders) {
      encoder.handler = (_, response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": "100" });
        response.write('{"ec_tr');
        setTimeout(() => response.destroy(), 20);
      };
    }
    sidecar = await startTestSidecar(decoder, [`--ec-connector=${name}`]);
    expect((await ask(sidecar.url, { headers: routed(), body: chat(image("a")) })).status).toBe(502);
    expect((await ask(sidecar.url, { body: "{}" })).status).toBe(200);
  });

  it("C-EC-17: an empty header is none, empty entries are skipped, repeats count", async () => {
    const { url } = await start();
    expect((await ask(url, { headers: ["x-encoder-hosts-ports", ""], body: chat(image("a")) })).status).toBe(200);
    expect(calls()).toBe(0);
    const [first, second] = encoders.map(({ authority }) => authority);
    await ask(url, { headers: ["x-encoder-hosts-ports", `,${first ?? ""},`, "X-Encoder-Hosts-Ports", `${first ?? ""}, ${second ?? ""}`], body: chat(image("a"), image("b"), image("c")) });
    expect(encoders.map(({ received }) => received.length)).toEqual([2, 1]);
  });

  it("an answer that cannot be read fails ec-nixl and not ec-example", async () => {
    for (const encoder of encoders) {
      encoder.handler = (_, response) => {
        sendJson(response, "<html>");
      };
    }
    const { url } = await start();
    expect((await ask(url, { headers: routed(), body: chat(image("a")) })).status).toBe(502);
    await sidecar?.close();
    sidecar = await startTestSidecar(decoder, ["--ec-connector=ec-example"]);
    expect((await ask(sidecar.url, { headers: routed(), body: chat(image("a")) })).status).toBe(200);
  });

  it("ec-example carries references where they are given", async () => {
    sidecar = await startTestSidecar(decoder, ["--ec-connector=ec-example"]);
    await ask(sidecar.url, { headers: routed(), body: chat(image("a")) });
    expect(Object.keys(decoder.json()["ec_transfer_params"] as object)).toEqual(["h0-0"]);
  });

  it("22 items are never more than 8 at a time and use both encoders", async () => {
    let most = 0;
    const openNow = new Set<number>();
    let id = 0;
    for (const encoder of encoders) {
      encoder.handler = async (_, response) => {
        const mine = id++;
        openNow.add(mine);
        most = Math.max(most, openNow.size);
        await sleep(5 + (mine % 3) * 5);
        openNow.delete(mine);
        sendJson(response, "{}");
      };
    }
    const { url } = await start();
    expect((await ask(url, { headers: routed(), body: chat(...Array.from({ length: 22 }, (_, index) => image(`u${String(index)}`))) })).status).toBe(200);
    expect([calls(), most, encoders.map(({ received }) => received.length)]).toEqual([22, 8, [11, 11]]);
  });

  it("--rotate-encoders begins each request's items at another entry, and keeps repeats of the header", async () => {
    const { url } = await start("--rotate-encoders");
    for (let turn = 0; turn < 4; turn++) await ask(url, { headers: routed(), body: chat(image(`one-${String(turn)}`)) });
    expect(encoders.map(({ received }) => received.length)).toEqual([2, 2]);
    await ask(url, { headers: routed(), body: chat(image("a"), image("b"), image("c")) });
    expect(encoders.map(({ received }) => received.length)).toEqual([4, 3]);
    const twice = [encoders[0]?.authority, encoders[0]?.authority, encoders[1]?.authority].join();
    for (let turn = 0; turn < 3; turn++) await ask(url, { headers: ["x-encoder-hosts-ports", twice], body: chat(image(`two-${String(turn)}`)) });
    expect(encoders.map(({ received }) => received.length)).toEqual([6, 4]);
  });

  it("without it the first item goes to the first entry, whatever went before", async () => {
    const { url } = await start();
    for (let turn = 0; turn < 3; turn++) await ask(url, { headers: routed(), body: chat(image(`one-${String(turn)}`)) });
    expect(encoders.map(({ received }) => received.length)).toEqual([3, 0]);
  });

  it("the encode deadline is a typed 504", async () => {
    for (const encoder of encoders) encoder.handler = () => undefined;
    const { url } = await start("--encode-timeout=50ms");
    const answered = await ask(url, { headers: routed(), body: chat(image("a")) });
    expect([answered.status, errorOf(answered).type]).toEqual([504, "GatewayTimeout"]);
  });

  it("an encoder that refuses connections or has no address is a typed 502", async () => {
    const { url } = await start();
    const port = await TestUpstream.refusedPort();
    for (const value of [`127.0.0.1:${String(port)}`, "https://e:1"]) {
      const answered = await ask(url, { headers: ["x-encoder-hosts-ports", value], body: chat(image("a")) });
      expect([answered.status, errorOf(answered).param]).toEqual([502, "x-encoder-hosts-ports"]);
      expect(answered.body).not.toMatch(/ECONN/);
    }
  });

  it("Responses keep their shape; the encoder gets a chat part", async () => {
    const { url } = await start();
    const body = '{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"t"},{"type":"input_image","image_url":"https:\\/\\/x/a.png","detail":"low"}]}],"max_output_tokens":64}';
    await ask(url, { target: "/v1/responses", headers: routed("x-prefiller-host-port", prefiller.authority), body });
    expect(encoders[0]?.text()).toBe('{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https:\\/\\/x/a.png","detail":"low"}}]}],"max_tokens":1,"stream":false}');
    expect([prefiller.received[0]?.target, prefiller.json()["max_output_tokens"], Object.keys(prefiller.json()).sort()]).toEqual([
      "/v1/responses",
      1,
      ["ec_transfer_params", "input", "kv_transfer_params", "max_output_tokens", "model", "store", "stream"],
    ]);
    expect(decoder.json()["input"]).toEqual((JSON.parse(body) as { input: unknown }).input);
  });

  it("a client's own embeddings references are replaced, trusted or not", async () => {
    for (const flags of [[], ["--trust-client-control-members"]]) {
      const running = await start(...flags);
      await ask(running.url, { headers: routed(), body: chat(image("a")).replace("{", '{"ec_transfer_params":{"evil":{"peer_host":"169.254.169.254"}},') });
      expect(decoder.text().match(/ec_transfer_params/g)?.length).toBe(1);
      expect(decoder.text()).not.toContain("evil");
      await running.close();
      sidecar = null;
    }
  });
});
