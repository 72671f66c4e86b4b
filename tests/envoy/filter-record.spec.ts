import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Bed, chat, type Decided } from "./filter-bed.js";
import { json } from "./gateway.js";
import { headerLines } from "../fleet/http.js";

// The record goes to the access log as words and to the client as JSON: two writers, one decision.
describe("the decision record", () => {
  let bed: Bed;
  beforeAll(async () => {
    bed = await Bed.start();
    await bed.settled();
  });
  afterAll(() => bed.stop());

  async function compare({ answer, decision }: Decided): Promise<void> {
    expect(answer.status).toBe(200);
    const echo = json(answer) as { rawHeaders: string[] };
    const pairs = echo.rawHeaders.flatMap((name, at) => (at % 2 === 0 ? [[name, echo.rawHeaders[at + 1] ?? ""] as [string, string]] : []));
    const [id = ""] = headerLines(pairs, "x-request-id");
    expect((await bed.gateway.logged(id)).decision).toEqual(decision);
  }

  it("says the same in the access log and in the header, whatever ran", async () => {
    const image = { type: "image_url", image_url: { url: "https://media.example.test/harbour.png" } };
    const split = await bed.post(chat(300, "record "));
    expect(split.decision).toMatchObject({ decision: "prefill-decode", model: "m", tokens: 300, cachedTokens: 0, decisions: 1 });
    await compare(split);
    const again = await bed.post(chat(300, "record "));
    expect(again.decision).toMatchObject({ decision: "decode-only", cachedTokens: 300 });
    await compare(again);
    await compare(await bed.post({ model: "m", messages: [{ role: "user", content: [{ type: "text", text: "look" }, image] }] }));
    await compare(await bed.post("{not json"));
    await compare(await bed.post("{}", "/v1/embeddings"));
    await compare(await bed.decide({ path: "/v1/models", method: "GET" }));
  });

  it.each([
    ["spaces, quotes and percent", 'a "model" = 100%41 @ x,y\\z'],
    ["not ASCII", "modèle-模型-😀"],
    ["control characters", "a\nb\tc\u007f"],
    ["none", ""],
    ["the longest that is shown", "m".repeat(128)],
  ])("names the model: %s", async (_what, model) => {
    const decided = await bed.post({ ...chat(20, "model "), model });
    expect(decided.decision.model).toBe(model);
    await compare(decided);
  });

  it("names the first 128 bytes of a longer model", async () => {
    const decided = await bed.post({ ...chat(20, "model "), model: "ä".repeat(500) });
    expect(decided.decision.model).toBe("ä".repeat(64));
    await compare(decided);
  });
});
