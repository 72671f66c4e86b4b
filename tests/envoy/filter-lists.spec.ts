/** Lists of endpoints in order: Envoy's retry goes down the decode list, the sidecar down the prefill list, and what is noted follows whoever did the work. */
import { afterEach, describe, expect, it } from "vitest";
import type { HeaderLine } from "../fleet/http.js";
import { pickerDocument, type PickerDocument } from "../fleet/picker.js";
import { Bed, chat } from "./filter-bed.js";
import { errorOf, json, until } from "./gateway.js";
import type { Echo } from "./pod.js";

/** Shortest queue first, three destinations and two prefillers in that order. */
function listPicker(): PickerDocument {
  const picker = pickerDocument({ prefill: true, encode: false });
  picker.plugins.push(
    { type: "queue-scorer" },
    { type: "max-score-picker", name: "three", parameters: { maxNumOfEndpoints: 3 } },
    { type: "max-score-picker", name: "two", parameters: { maxNumOfEndpoints: 2 } },
  );
  picker.schedulingProfiles = [
    { name: "prefill", plugins: [{ pluginRef: "prefill-pods" }, { pluginRef: "queue-scorer" }, { pluginRef: "two" }] },
    { name: "decode", plugins: [{ pluginRef: "decode-pods" }, { pluginRef: "queue-scorer" }, { pluginRef: "three" }] },
  ];
  return picker;
}

function got(echo: Echo, name: string): string | undefined {
  const at = echo.rawHeaders.findIndex((each, i) => i % 2 === 0 && each.toLowerCase() === name);
  return at < 0 ? undefined : echo.rawHeaders[at + 1];
}

describe("lists of endpoints", () => {
  let bed: Bed;
  afterEach(() => bed.stop());

  async function start(): Promise<void> {
    bed = await Bed.start({ picker: listPicker(), pods: { decode: 3, prefill: 2, encode: 0 } });
    // d0 before d1 before d2, and p1 before p0.
    for (const [name, waiting] of [["d0", 0], ["d1", 1], ["d2", 2], ["p0", 1], ["p1", 0]] as const) bed.pod(name).metrics = `vllm:num_requests_waiting ${String(waiting)}\n`;
    await until("every queue known", async () => (await bed.state().catch(() => null))?.endpoints.every((each) => each.load.waiting !== null) ?? false);
    await bed.settled();
  }
  const list = (...names: string[]): string => names.map((name) => bed.pod(name).address).join(",");
  const blocks = async (): Promise<Record<string, number>> => Object.fromEntries((await bed.state()).endpoints.map((each) => [each.name, each.prefixBlocks]));
  const idle = () => until("nothing in flight", async () => (await bed.state()).endpoints.every((each) => each.inFlight.requests === 0 && each.inFlight.tokens === 0));

  it("name every endpoint in the order of its score; the first decodes and prefills", async () => {
    await start();
    const { answer, decision } = await bed.post(chat(100, "order "));
    const echo = json(answer) as Echo;
    expect(echo.pod).toBe("d0");
    expect(got(echo, "x-gateway-destination-endpoint")).toBe(list("d0", "d1", "d2"));
    expect(got(echo, "x-prefiller-host-port")).toBe(list("p1", "p0"));
    expect(decision).toMatchObject({ decode: { endpoint: bed.pod("d0").address }, prefill: { endpoint: bed.pod("p1").address } });
    // Credit is for the first of each, not for what is only to be tried after it.
    expect(await blocks()).toEqual({ d0: 20, d1: 0, d2: 0, p0: 0, p1: 20 });
  });

  it("Envoy goes down the decode list: the second when the first refuses, the third when both do; load and credit go along", async () => {
    await start();
    await bed.pod("d0").close();
    const second = await bed.post(chat(100, "down to the second "));
    expect((json(second.answer) as Echo).pod).toBe("d1");
    expect(await blocks()).toMatchObject({ d0: 0, d1: 20, d2: 0 });
    await bed.pod("d1").close();
    const third = await bed.post(chat(100, "down to the third "));
    expect((json(third.answer) as Echo).pod).toBe("d2");
    expect(third.decision.decode.endpoint).not.toBe(bed.pod("d2").address);
    expect(await blocks()).toMatchObject({ d0: 0, d1: 20, d2: 20 });
    await idle();
    // What it found out counts for the requests that follow: nobody is sent to a pod that refuses.
    await until("d2 first", async () => (await bed.post(chat(100, `later ${String(performance.now())} `))).decision.decode.endpoint === bed.pod("d2").address);
  });

  it("an answer of the first is final, whatever it is: nothing runs twice", async () => {
    await start();
    for (const status of ["500", "503", "429"]) {
      const { answer } = await bed.post(chat(100, `final ${status} `), "/v1/chat/completions", { headers: [["content-type", "application/json"], ["x-pod-status", status]] });
      expect(answer.status).toBe(Number(status));
    }
    expect(bed.pod("d0").requests).toHaveLength(3);
    expect(bed.pod("d1").requests).toHaveLength(0);
  });

  it("the prefiller that the sidecar names has the credit, and nobody's load is left behind", async () => {
    await start();
    const post = (salt: string, by: string) => bed.post(chat(100, salt), "/v1/chat/completions", { headers: [["content-type", "application/json"], ["x-pod-set", `x-crosspoint-prefilled-by=${by}`]] });
    await post("by the second ", bed.pod("p0").address);
    expect(await blocks()).toMatchObject({ p0: 20, p1: 0 });
    await post("by the first ", bed.pod("p1").address);
    expect(await blocks()).toMatchObject({ p0: 20, p1: 20 });
    await post("by a stranger ", "10.9.9.9:80");
    expect(await blocks()).toMatchObject({ p0: 20, p1: 40 });
    await idle();
  });

  it("conditional decode: 412 while no decode pod holds anything of the prompt, served once one does", async () => {
    await start();
    const headers: HeaderLine[] = [["content-type", "application/json"], ["prefer", "if-available"]];
    const ask = () => bed.gateway.send({ method: "POST", path: "/v1/chat/completions", headers, body: Buffer.from(JSON.stringify(chat(100, "conditional "))) });
    const refused = await ask();
    expect(refused.status).toBe(412);
    expect(errorOf(refused)).toMatchObject({ type: "PreconditionFailed", code: 412 });
    // Nothing was sent, credited or left in flight.
    expect(bed.pods.flatMap((pod) => pod.requests)).toEqual([]);
    expect(await blocks()).toEqual({ d0: 0, d1: 0, d2: 0, p0: 0, p1: 0 });
    await bed.post(chat(100, "conditional "));
    expect((await ask()).status).toBe(200);
    await idle();
  });
});
