/** A filter ahead of ours narrows the candidates (scheduler §6.1, 7; row RQ-09). Here it is Envoy's Lua filter, with the list in a header of the test. */
import { readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { parse, stringify } from "yaml";
import { headerLines } from "../fleet/http.js";
import { pickerDocument } from "../fleet/picker.js";
import { built } from "../fleet/root.js";
import { chat, decisionOf } from "./filter-bed.js";
import { errorOf, Gateway, until } from "./gateway.js";
import { Pod } from "./pod.js";

interface Manager {
  http_filters: { name: string; typed_config?: unknown }[];
}
interface Bootstrap {
  static_resources: { listeners: { name: string; filter_chains: { filters: { typed_config: Manager }[] }[] }[] };
}

const LUA = `
function envoy_on_request(handle)
  local text = handle:headers():get("x-test-subset")
  if text == nil then return end
  local list = {}
  for entry in string.gmatch(text, "[^,]+") do table.insert(list, entry) end
  if handle:headers():get("x-test-as-text") ~= nil then list = text end
  handle:streamInfo():dynamicMetadata():set("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", list)
end
`;

describe("a subset of the endpoints", () => {
  let gateway: Gateway;
  const pods: Pod[] = [];

  beforeAll(async () => {
    for (const [name, host] of [["d0", "127.0.0.1"], ["d1", "127.0.0.2"], ["d2", "127.0.0.3"]] as const) pods.push(await Pod.start({ name, host }));
    gateway = await Gateway.render({
      module: readFileSync(built("filter.wasm")),
      picker: pickerDocument({ prefill: false, encode: false }),
      options: { reasonHeader: true, subsetHint: true },
      endpoints: pods.map((pod) => ({ name: pod.name, host: pod.host, port: pod.port, role: "decode" })),
    });
    const bootstrap = parse(readFileSync(gateway.bootstrap, "utf8")) as Bootstrap;
    const filters = bootstrap.static_resources.listeners.find(({ name }) => name === "clients")?.filter_chains[0]?.filters[0]?.typed_config.http_filters;
    const at = filters?.findIndex(({ name }) => name === "crosspoint") ?? -1;
    expect(at).toBeGreaterThan(0);
    filters?.splice(at, 0, { name: "hint", typed_config: { "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", default_source_code: { inline_string: LUA } } });
    writeFileSync(gateway.bootstrap, stringify(bootstrap));
    await gateway.startEnvoy();
    await until("the filter", async () => (await gateway.send({ path: "/v1/models" })).status === 200);
  });
  afterAll(async () => {
    await gateway.stop();
    await Promise.all(pods.map((pod) => pod.close()));
  });

  let salt = 0;
  const send = (subset: string | null, asText = false) =>
    gateway.send({
      method: "POST",
      path: "/v1/chat/completions",
      headers: [["content-type", "application/json"], ...(subset === null ? [] : [["x-test-subset", subset] as [string, string]]), ...(asText ? [["x-test-as-text", "1"] as [string, string]] : [])],
      body: Buffer.from(JSON.stringify(chat(20, `subset ${String(++salt)} `))),
    });

  it.each([[false], [true]])("S-RQ-09 two of three addresses: only these (as a text: %s)", async (asText) => {
    const hosts = new Set<string>();
    for (let i = 0; i < 30; i++) {
      const answer = await send("127.0.0.1,127.0.0.3:1", asText);
      expect(answer.status).toBe(200);
      hosts.add(decisionOf(answer).decode.endpoint);
    }
    expect([...hosts].sort()).toEqual([pods[0]?.address, pods[2]?.address].sort());
  });

  it.each([["an unknown address", "10.9.9.9"], ["an empty list", " "]])("S-RQ-09 %s: 503", async (_what, subset) => {
    const answer = await send(subset === " " ? "," : subset);
    expect(answer.status).toBe(503);
    expect(errorOf(answer).type).toBe("ServiceUnavailable");
    expect(headerLines(answer.headers, "x-llm-d-request-dropped-reason")).toEqual(["rejected-no-endpoints"]);
  });

  it("without metadata, everybody; a client cannot set it by the header of its name", async () => {
    const hosts = new Set<string>();
    for (let i = 0; i < 60; i++) hosts.add(decisionOf(await send(null)).decode.endpoint);
    expect(hosts.size).toBe(3);
    const answer = await gateway.send({ path: "/v1/models", headers: [["x-gateway-destination-endpoint-subset", "10.9.9.9"]] });
    expect(answer.status).toBe(200);
  });
});
