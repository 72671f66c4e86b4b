import { gzipSync } from "node:zlib";
import { connect } from "node:http2";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { DecisionRecord } from "../fleet/access-log.js";
import { Bed, chat } from "./filter-bed.js";

// Every body ends in another callback: at the headers, in a body piece, in the trailers. Wherever it is, there is one decision, and it is the same.
describe("one decision, however the body comes", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start();
    await bed.settled();
  });
  afterAll(() => bed.stop());

  const cut = (body: Buffer, pieces: number): Buffer[] =>
    Array.from({ length: pieces }, (_none, i) => body.subarray(Math.floor((body.length * i) / pieces), Math.floor((body.length * (i + 1)) / pieces)));

  async function counted(send: () => Promise<DecisionRecord>): Promise<{ decision: DecisionRecord; decided: number }> {
    const before = (await bed.state()).requests;
    const decision = await send();
    return { decision, decided: (await bed.state()).requests - before };
  }

  function overHttp2(body: Buffer, trailers: boolean): Promise<DecisionRecord> {
    const { host, port } = bed.gateway.settings.listen;
    return new Promise((resolve, reject) => {
      const session = connect(`http://${host}:${port.toString()}`);
      session.on("error", reject);
      const stream = session.request({ ":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json" }, { endStream: false });
      stream.on("error", reject);
      stream.on("response", (headers) => {
        resolve(JSON.parse(String(headers["x-crosspoint-decision"])) as DecisionRecord);
        stream.resume();
        stream.on("end", () => {
          session.close();
        });
      });
      if (trailers) {
        stream.on("wantTrailers", () => {
          stream.sendTrailers({ "x-checksum": "1" });
        });
        stream.write(body);
        stream.end();
      } else stream.end(body);
    });
  }

  it("plain, gzip, chunked, chunked with trailers, over HTTP/2 with and without trailers: decided once each, to the same end", async () => {
    const body = Buffer.from(JSON.stringify(chat(300, "one decision ")));
    const json = ["content-type", "application/json"] as [string, string];
    const plain = await counted(async () => (await bed.decide({ path: "/v1/chat/completions", body, headers: [json] })).decision);
    expect(plain.decided).toBe(1);
    expect(plain.decision).toMatchObject({ decision: "prefill-decode", prefill: { reason: "run_uncached" }, tokens: 300, decisions: 1 });
    const others: Record<string, () => Promise<DecisionRecord>> = {
      gzip: async () => (await bed.decide({ path: "/v1/chat/completions", body: gzipSync(body), headers: [json, ["content-encoding", "gzip"]] })).decision,
      "gzip, chunked": async () => (await bed.decide({ path: "/v1/chat/completions", chunks: cut(gzipSync(body), 5), headers: [json, ["content-encoding", "gzip"]] })).decision,
      chunked: async () => (await bed.decide({ path: "/v1/chat/completions", chunks: cut(body, 3), headers: [json] })).decision,
      "chunked with trailers": async () =>
        (await bed.decide({ path: "/v1/chat/completions", chunks: cut(body, 3), headers: [json, ["trailer", "x-checksum"]], trailers: [["x-checksum", "1"]] })).decision,
      "HTTP/2": () => overHttp2(body, false),
      "HTTP/2 with trailers": () => overHttp2(body, true),
    };
    for (const [how, send] of Object.entries(others)) {
      const { decision, decided } = await counted(send);
      expect(decided, how).toBe(1);
      // The same keys: each is a full hit on what the first one left on its decode endpoint.
      expect(decision, how).toMatchObject({ decision: "decode-only", decode: { reason: "picked", endpoint: plain.decision.decode.endpoint }, prefill: { reason: "skip_cached" }, tokens: 300, cachedTokens: 300, decisions: 1 });
    }
  });

  it("cut at every byte of a small body: the same keys", async () => {
    const body = Buffer.from('{"model":"m","messages":[{"role":"user","content":"ein \\u00fcberaus \\ud83d\\ude00 \\"l\\u0061nger\\" Text, der auf mehrere Bl\u00f6cke kommt: ä ö ü 😀 und Schluss"}],"max_tokens":3}');
    const first = await bed.decide({ path: "/v1/chat/completions", body });
    expect(first.decision.tokens).toBeGreaterThan(20);
    for (let at = 1; at < body.length; at++) {
      const { decision } = await bed.decide({ path: "/v1/chat/completions", chunks: [body.subarray(0, at), body.subarray(at)] });
      expect(decision, `cut at ${at.toString()}`).toMatchObject({ cachedTokens: first.decision.tokens, decisions: 1 });
    }
    const every = await bed.decide({ path: "/v1/chat/completions", chunks: Array.from(body, (byte) => Buffer.from([byte])) });
    expect(every.decision).toMatchObject({ cachedTokens: first.decision.tokens, decisions: 1 });
  });

  it("the members of a body in all orders: the same keys", async () => {
    const members = Object.entries({ ...chat(120, "all orders "), tools: [{ type: "function", function: { name: "tide", parameters: { type: "object" } } }], cache_salt: "s" });
    const orders = permutations(members);
    expect(orders.length).toBe(120);
    const tokens = (await bed.post(Object.fromEntries(members))).decision.tokens;
    for (const order of orders) {
      const text = `{${order.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`).join(",")}}`;
      expect((await bed.post(text)).decision.cachedTokens, text.slice(0, 60)).toBe(tokens);
    }
  });
});

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length < 2) return [[...items]];
  return items.flatMap((item, at) => permutations([...items.slice(0, at), ...items.slice(at + 1)]).map((rest) => [item, ...rest]));
}
