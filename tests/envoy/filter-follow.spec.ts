import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { headerLines, type HeaderLine } from "../fleet/http.js";
import { Bed, chat } from "./filter-bed.js";
import { until } from "./gateway.js";

// Credit and load follow who did the work, and whether it was done.
describe("after the answer", () => {
  let bed: Bed;
  beforeEach(async () => {
    bed = await Bed.start({ pods: { decode: 2, prefill: 2, encode: 0 } });
    await bed.settled();
  });
  afterEach(() => bed.stop());

  const json: HeaderLine = ["content-type", "application/json"];
  const post = (body: unknown, ...headers: HeaderLine[]) => bed.post(body, "/v1/chat/completions", { headers: [json, ...headers] });
  const blocks = async (): Promise<Record<string, number>> => Object.fromEntries((await bed.state()).endpoints.map((each) => [each.name, each.prefixBlocks]));
  const nameOf = (address: string): string => bed.pods.find((pod) => pod.address === address)?.name ?? "";

  it("credit is confirmed by a 2xx and taken back by anything else", async () => {
    const good = await post(chat(100, "good "));
    expect(good.decision.prefill.reason).toBe("run_uncached");
    expect((await post(chat(100, "good "))).decision).toMatchObject({ cachedTokens: 100 });
    for (const status of ["500", "503", "400", "429"]) {
      const bad = await post(chat(100, `status ${status} `), ["x-pod-status", status]);
      expect(bad.answer.status).toBe(Number(status));
      expect((await post(chat(100, `status ${status} `))).decision, status).toMatchObject({ cachedTokens: 0, prefill: { reason: "run_uncached" } });
    }
    // What was known before a failure stays known.
    await post(chat(100, "good "), ["x-pod-status", "500"]);
    expect((await post(chat(100, "good "))).decision.cachedTokens).toBe(100);
  });

  it("credit is taken back when no answer came at all", async () => {
    const reset = await bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [json, ["x-pod-reset", "1"]], body: Buffer.from(JSON.stringify(chat(100, "reset "))) });
    expect(reset.status).toBe(503);
    expect((await post(chat(100, "reset "))).decision.cachedTokens).toBe(0);
    await bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [json, ["x-pod-silent", "1"]], body: Buffer.from(JSON.stringify(chat(100, "left "))), leaveAfterMs: 100 });
    await until("nothing in flight", async () => (await bed.state()).endpoints.every((each) => each.inFlight.requests === 0));
    expect((await post(chat(100, "left "))).decision.cachedTokens).toBe(0);
  });

  it("credit of the prefill goes to the pod that the sidecar names, which the client does not see", async () => {
    const before = await blocks();
    const asked = await post(chat(100, "failover "), ["x-pod-set", `x-crosspoint-prefilled-by=${bed.pod("p0").address}`]);
    expect(headerLines(asked.answer.headers, "x-crosspoint-prefilled-by")).toEqual([]);
    const other = await post(chat(100, "failover, other "), ["x-pod-set", `x-crosspoint-prefilled-by=${bed.pod("p1").address}`]);
    expect(asked.decision.decision).toBe("prefill-decode");
    expect(other.decision.decision).toBe("prefill-decode");
    const after = await blocks();
    // 20 blocks of 5 tokens each: whoever was picked, they stand where the sidecar said.
    expect((after["p0"] ?? 0) - (before["p0"] ?? 0)).toBe(20);
    expect((after["p1"] ?? 0) - (before["p1"] ?? 0)).toBe(20);
  });

  it("a prefill that the engine did itself credits no prefiller", async () => {
    await post(chat(100, "alone "), ["x-pod-set", "x-crosspoint-prefilled-by=local"]);
    const after = await blocks();
    expect((after["p0"] ?? 0) + (after["p1"] ?? 0)).toBe(0);
    expect((after["d0"] ?? 0) + (after["d1"] ?? 0)).toBe(20);
  });

  it("when the picked pod refuses, the request, its load and its credit go to the pod that answers", async () => {
    const first = await post(chat(100, "moves "));
    const picked = nameOf(first.decision.decode.endpoint);
    const otherName = picked === "d0" ? "d1" : "d0";
    await bed.pod(picked).close();
    const slow = post(chat(100, "moves "), ["x-pod-delay-ms", "700"]);
    // In flight follows at the answer's head at the latest.
    const second = await slow;
    expect(second.answer.status).toBe(200);
    expect(second.decision.decode.endpoint).toBe(first.decision.decode.endpoint);
    expect(await bed.endpoint(otherName)).toMatchObject({ prefixBlocks: 20 });
    await until("nothing in flight", async () => (await bed.state()).endpoints.every((each) => each.inFlight.requests === 0));
  });

  it("what other pods hold of a prompt stays known when credit of it moves", async () => {
    // A run of 64 blocks and one of what is left: the first is nothing new when the longer prompt comes.
    const first = await post(chat(400, "stays "));
    const other = bed.pods.find(({ name, address }) => name.startsWith("p") && address !== first.decision.prefill.endpoint);
    const longer = await post(chat(700, "stays "), ["x-pod-set", `x-crosspoint-prefilled-by=${other?.address ?? ""}`]);
    // Its beginning was known, but for the last block, which ends elsewhere now.
    expect(longer.decision).toMatchObject({ decision: "prefill-decode", cachedTokens: 395, prefill: first.decision.prefill });
    expect((await post(chat(700, "stays "))).decision).toMatchObject({ decision: "decode-only", cachedTokens: 700, decode: longer.decision.decode });
  });

  it("what goes on with a kept response comes back to the pod that answered", async () => {
    for (const id of ["resp_one", "resp_two", "resp_three", "resp_four"]) {
      const made = await bed.post({ model: "m", input: "Remember this." }, "/v1/responses", { headers: [json, ["x-pod-set", `x-crosspoint-response-id=${id}`]] });
      expect(headerLines(made.answer.headers, "x-crosspoint-response-id")).toEqual([]);
      const home = made.decision.decode.endpoint;
      for (let i = 0; i < 4; i++) {
        const next = await bed.post({ model: "m", input: `And ${i.toString()}?`, previous_response_id: id }, "/v1/responses");
        expect(next.decision).toMatchObject({ decode: { reason: "picked", endpoint: home }, prefill: { reason: "stateful_response" } });
        for (const path of [`/v1/responses/${id}`, `/v1/responses/${id}/input_items?limit=3`]) {
          expect((await bed.decide({ method: "GET", path })).decision.decode, path).toEqual({ reason: "no_body", endpoint: home });
        }
        expect((await bed.decide({ method: "POST", path: `/v1/responses/${id}/cancel` })).decision.decode.endpoint).toBe(home);
      }
    }
    // A response that nobody knows goes anywhere, and is the engine's to refuse.
    expect((await bed.post({ model: "m", input: "?", previous_response_id: "resp_unknown" }, "/v1/responses")).answer.status).toBe(200);
  });
});
