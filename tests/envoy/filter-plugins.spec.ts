/** Plugins that need the host: what they read from headers and from scrapes, and what they have the answer carry. */
import { afterEach, describe, expect, it } from "vitest";
import { headerLines, type HeaderLine } from "../fleet/http.js";
import { pickerDocument, type PickerDocument } from "../fleet/picker.js";
import { Bed, chat, promptText } from "./filter-bed.js";
import { json, until } from "./gateway.js";
import type { Echo } from "./pod.js";

const JSON_TYPE: HeaderLine = ["content-type", "application/json"];

function got(echo: Echo, name: string): string | undefined {
  const at = echo.rawHeaders.findIndex((each, i) => i % 2 === 0 && each.toLowerCase() === name);
  return at < 0 ? undefined : echo.rawHeaders[at + 1];
}

/** A decode-only configuration with one more scorer, whose weight is above all others. */
function scorer(type: string, parameters?: Record<string, unknown>): PickerDocument {
  const picker = pickerDocument({ prefill: false, encode: false });
  picker.plugins.push({ type, ...(parameters === undefined ? {} : { parameters }) });
  picker.schedulingProfiles = [{ name: "decode", plugins: [{ pluginRef: "decode-pods" }, { pluginRef: type }] }];
  return picker;
}

let bed: Bed;
afterEach(() => bed.stop());

let salt = 0;
const body = (tokens = 20): Record<string, unknown> => chat(tokens, `plugins ${String(++salt)} `);
const post = (...headers: HeaderLine[]) => bed.post(body(), "/v1/chat/completions", { headers: [JSON_TYPE, ...headers] });

describe("session affinity", () => {
  it("by a token: the answer carries it, the client brings it back, and it names the pod that answered", async () => {
    bed = await Bed.start({ picker: scorer("session-affinity-scorer"), options: { allowExperimentalPlugins: true }, pods: { decode: 3, prefill: 0, encode: 0 } });
    await bed.settled();
    const first = await post();
    const [token] = headerLines(first.answer.headers, "x-session-token");
    const name = bed.pods.find((pod) => pod.address === first.decision.decode.endpoint)?.name ?? "";
    expect(Buffer.from(token ?? "", "base64").toString()).toBe(`default/${name}`);
    for (let i = 0; i < 12; i++) expect((await post(["x-session-token", token ?? ""])).decision.decode.endpoint).toBe(first.decision.decode.endpoint);
    // A token that is none counts for nobody.
    const spread = new Set<string>();
    for (let i = 0; i < 30; i++) spread.add((await post(["x-session-token", "bm9ib2R5"])).decision.decode.endpoint);
    expect(spread.size).toBe(3);
    // The pod refuses: another answers, and the session is there from now on.
    await bed.pod(name).close();
    const moved = await post(["x-session-token", token ?? ""]);
    const answered = (json(moved.answer) as Echo).pod;
    expect(answered).not.toBe(name);
    const [next] = headerLines(moved.answer.headers, "x-session-token");
    expect(Buffer.from(next ?? "", "base64").toString()).toBe(`default/${answered}`);
  });

  it("by an id in a cookie: every worker finds the pod, and no answer carries a token", async () => {
    const picker = scorer("session-affinity-scorer", { strategy: "session_id", sources: [{ attribute: "SessionID/ids" }, { header: "x-session-id" }] });
    picker.plugins.push({ type: "session-id-producer", name: "ids", parameters: { cookieName: "sid" } });
    bed = await Bed.start({ picker, options: { allowExperimentalPlugins: true }, pods: { decode: 3, prefill: 0, encode: 0 }, concurrency: 2 });
    await bed.settled();
    const homes = new Map<string, string>();
    for (let round = 0; round < 5; round++) {
      for (const who of ["alice", "bob", "carol", "dave"]) {
        const { answer, decision } = await post(["cookie", `theme=dark; sid=${who}; x=1`]);
        expect(headerLines(answer.headers, "x-session-token")).toEqual([]);
        const home = homes.get(who) ?? decision.decode.endpoint;
        homes.set(who, home);
        expect(decision.decode.endpoint, who).toBe(home);
        // The same id by the other source is the same session.
        expect((await post(["X-Session-Id", who])).decision.decode.endpoint).toBe(home);
      }
    }
  });
});

describe("lora-affinity-scorer", () => {
  it("goes where the scrape says that the adapter is", async () => {
    bed = await Bed.start({ picker: scorer("lora-affinity-scorer"), pods: { decode: 3, prefill: 0, encode: 0 } });
    const adapters: Record<string, string> = { d0: "law", d1: "sql,law", d2: "" };
    for (const pod of bed.pods) pod.metrics = `vllm:num_requests_waiting 0\nvllm:lora_requests_info{max_lora="2",running_lora_adapters="${adapters[pod.name] ?? ""}",waiting_lora_adapters=""} 1\n`;
    await until("every load known", async () => (await bed.state().catch(() => null))?.endpoints.every((each) => each.load.waiting === 0) ?? false);
    const picked = async (model: string): Promise<string[]> => {
      const names = new Set<string>();
      for (let i = 0; i < 15; i++) names.add((json((await bed.post({ ...body(), model })).answer) as Echo).pod);
      return [...names].sort();
    };
    await until("the adapters", async () => (await picked("sql")).join() === "d1");
    expect(await picked("law")).toEqual(["d0", "d1"]);
    // Nobody has it: whoever has room for one more.
    expect(await picked("poetry")).toEqual(["d0", "d2"]);
  });
});

describe("encoders", () => {
  const image = (url: string) => ({ type: "image_url", image_url: { url } });
  const ask = async (...urls: string[]): Promise<string[]> => {
    const { answer, decision } = await bed.post({ model: "m", messages: [{ role: "user", content: [{ type: "text", text: promptText(10, String(++salt)) }, ...urls.map(image)] }] });
    const list = got(json(answer) as Echo, "x-encoder-hosts-ports")?.split(",") ?? [];
    expect(decision.encode.endpoints).toEqual(list);
    return list;
  };

  it("one entry per distinct item, in the order of their appearance; an item comes back to who has encoded it", async () => {
    bed = await Bed.start({ picker: pickerDocument({ prefill: false, encode: true, encoders: 4 }), pods: { decode: 1, prefill: 0, encode: 4 } });
    await bed.settled();
    const first = await ask("u:a", "u:b", "u:a", "u:c", "u:b");
    expect(first).toHaveLength(3);
    expect(new Set(first).size).toBe(3);
    for (let i = 0; i < 6; i++) {
      const again = await ask("u:c", `u:new-${String(i)}`, "u:a");
      expect([again[0], again[2]]).toEqual([first[2], first[0]]);
    }
    // A request without media names nobody.
    expect(await ask()).toEqual([]);
  });

  it("with the default picker one encoder takes all, and the same one when they come back", async () => {
    bed = await Bed.start({ picker: pickerDocument({ prefill: false, encode: true }), pods: { decode: 1, prefill: 0, encode: 3 } });
    await bed.settled();
    const first = await ask("u:1", "u:2");
    expect(first).toHaveLength(1);
    for (let i = 0; i < 6; i++) expect(await ask("u:2", "u:1")).toEqual(first);
    await until("nothing in flight", async () => (await bed.state()).endpoints.every((each) => each.inFlight.requests === 0));
  });
});
