import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Bed, chat } from "./filter-bed.js";
import { errorOf } from "./gateway.js";

describe("strict mode", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start({ options: { strict: true }, pods: { decode: 1, prefill: 1, encode: 0 } });
    await bed.settled();
  });
  afterAll(() => bed.stop());

  const post = async (body: string | Buffer) => {
    const answer = await bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers: [["content-type", "application/json"]], body: Buffer.from(body) });
    const scrapes = (pod: { requests: readonly { url: string }[] }): number => pod.requests.filter(({ url }) => url !== "/metrics" && url !== "/health").length;
    return { answer, called: bed.pods.reduce((sum, pod) => sum + scrapes(pod), 0) };
  };

  it.each([
    ["a name twice at the top", '{"model":"a","messages":[],"model":"b"}', "stands twice"],
    ["a name twice deep inside", '{"model":"a","messages":[{"role":"user","content":"x","role":"system"}]}', "stands twice"],
    ["a name twice, once escaped", '{"model":"a","mod\\u0065l":"b"}', "stands twice"],
    ["a name twice where nothing is read", '{"model":"a","metadata":{"x":{"y":1,"y":2}}}', "stands twice"],
    ["2,000 nested arrays", `{"model":"a","metadata":{"x":${"[".repeat(2000)}${"]".repeat(2000)}}}`, "nested too deeply"],
    ["broken JSON", '{"model":"a","messages":[', "not JSON in UTF-8"],
    ["UTF-16", Buffer.from('{"model":"a"}', "utf16le"), "not JSON in UTF-8"],
  ])("refuses %s with 400 before any leg is called", async (_what, body, why) => {
    const { answer, called } = await post(body);
    expect(answer.status).toBe(400);
    expect(errorOf(answer).message).toContain(why);
    expect(called).toBe(0);
  });

  it("serves an ordinary body, equal names in different objects included", async () => {
    const { answer } = await bed.post({ ...chat(20), tools: [{ type: "function", function: { name: "a", parameters: { type: "object" } } }, { type: "function", function: { name: "b" } }] });
    expect(answer.status).toBe(200);
  });
});
