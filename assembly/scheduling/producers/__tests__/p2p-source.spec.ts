// Who may be a KV source, beyond producers.spec: addresses and tiers (scheduler §3.9).
import { holds, mustLoad, table, tokens } from "../../../config/__tests__/support";
import { loadDocument } from "../../../config/document";
import { hostPortOf } from "../../../disagg/headers";
import { EndpointTable } from "../../../endpoints/table";
import { P2pSourceProducer } from "../p2p-source";

function source(fleet: EndpointTable, computing: i32, delta: i32 = 1, hash: u32 = 0): i32 {
  return new P2pSourceProducer(delta, "prefill").source(fleet, new StaticArray<u8>(fleet.count).fill(1), new StaticArray<u8>(fleet.count), 16, hash, computing);
}

describe("a KV source", () => {
  it("S-P2-04 the pod that holds most has no address: it is left out, the others still count", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 64);
    holds(fleet, 1, 48);
    fleet.hostPort[0] = "";
    for (let i = 0; i < 10; i++) expect(source(fleet, 2, 1, <u32>i * 400000000)).toBe(1);
  });

  it("S-P2-11 IPv6 is written in brackets", () => {
    const config = loadDocument(
      '{"revision":1,"options":{"allowExperimentalPlugins":true},"picker":{"plugins":[{"type":"p2p-source-producer"}]},"endpoints":[{"name":"a","address":"10.0.0.1","port":8000},{"name":"b","address":"fd00::0:10","port":8000}]}',
    ).config!;
    holds(config.endpoints, 1, 64);
    let found = 0;
    for (let i = 0; i < 100 && !found; i++) {
      const d = config.scheduler.decide(tokens(100));
      if (d.decode.first != 0) continue;
      found++;
      expect(hostPortOf(config.endpoints, d.kvSource)).toBe("[fd00::10]:8000");
    }
    expect(found).toBe(1);
  });

  it("S-P2-19 without data of tiers the plain count of blocks is what a pod can serve", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 80);
    holds(fleet, 1, 32);
    expect(source(fleet, 2, 80)).toBe(0);
    expect(source(fleet, 2, 81)).toBe(-1);
  });

  it("is no pod that is out of service", () => {
    const fleet = table("- - -");
    holds(fleet, 0, 64);
    holds(fleet, 1, 48);
    fleet.usable[0] = 0;
    expect(source(fleet, 2)).toBe(1);
  });

  it("is made for the pod that computes, decode where there is no prefill", () => {
    const config = mustLoad('{"plugins":[{"type":"decode-filter"},{"type":"p2p-source-producer"}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"decode-filter"}]}]}', "decode prefill", '{"allowExperimentalPlugins":true}');
    holds(config.endpoints, 1, 32);
    expect(config.scheduler.decide(tokens(100)).kvSource).toBe(1);
    holds(config.endpoints, 0, 32);
    expect(config.scheduler.decide(tokens(100)).kvSource).toBe(-1);
  });
});
