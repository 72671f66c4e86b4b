import { always, loadPicker, Machine, media, multimodal, mustLoad, problemsText, table, tokens } from "../../config/__tests__/support";
import { loadDocument } from "../../config/document";
import { joinHostPort } from "../../endpoints/address";
import { EndpointTable } from "../../endpoints/table";
import { Picks } from "../../scheduling/pass";
import { hostPortOf } from "../headers";
import { destinations, hostPorts } from "./support";

const THREE =
  '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"encode-filter"},{"type":"always-disagg-pd-decider"},{"type":"always-disagg-multimodal-decider"},' +
  '{"type":"max-score-picker"},{"type":"max-score-picker","name":"many","parameters":{"maxNumOfEndpoints":4}},' +
  '{"type":"disagg-profile-handler","parameters":{"profiles":{"decode":"D","prefill":"P","encode":"E"},"deciders":{"prefill":"always-disagg-pd-decider","encode":"always-disagg-multimodal-decider"}}}],' +
  '"schedulingProfiles":[{"name":"D","plugins":[{"pluginRef":"decode-filter"}]},{"name":"P","plugins":[{"pluginRef":"prefill-filter"}]},{"name":"E","plugins":[{"pluginRef":"encode-filter"},{"pluginRef":"many"}]}]}';

function picked(count: i32, first: i32, second: i32): Picks {
  const picks = new Picks(4);
  picks.list[0] = first;
  picks.list[1] = second;
  picks.count = count;
  return picks;
}

/** decode fd00::10, prefill fd00:0:0:1::20, encode fd00::30. */
function ipv6(): EndpointTable {
  const fleet = table("decode prefill encode");
  const hosts: StaticArray<string> = ["fd00::10", "fd00:0:0:1::20", "fd00::30"];
  for (let i = 0; i < 3; i++) {
    fleet.address[i] = hosts[i];
    fleet.hostPort[i] = joinHostPort(hosts[i], 8000);
  }
  return fleet;
}

describe("routing headers", () => {
  it("S-HD-01 prefill: host:port of the first endpoint", () => {
    const fleet = table("decode prefill");
    expect(hostPorts(fleet, new Machine(fleet, always(), null).decide(tokens(10)).prefill)).toBe("10.0.0.2:8000");
  });

  it("S-HD-02 no prefill: nothing, which means that the header is removed", () => {
    const fleet = table("decode prefill");
    expect(hostPorts(fleet, new Machine(fleet, null, null).decide(tokens(10)).prefill)).toBe("");
  });

  it("S-HD-04 an empty result: no header", () => {
    expect(hostPorts(table("decode"), picked(0, 0, 0))).toBe("");
  });

  it("S-HD-05 IPv6 prefill in brackets", () => {
    const fleet = ipv6();
    expect(hostPorts(fleet, picked(1, 1, 0))).toBe("[fd00:0:0:1::20]:8000");
    expect(destinations(fleet, picked(1, 0, 0), 9000)).toBe("[fd00::10]:9000");
  });

  it("S-HD-06 profiles of other names feed the headers", () => {
    const config = mustLoad(THREE, "decode prefill encode");
    const d = config.scheduler.decide(media(10, 1));
    expect(hostPorts(config.endpoints, d.prefill)).toBe("10.0.0.2:8000");
    expect(hostPorts(config.endpoints, d.encode)).toBe("10.0.0.3:8000");
  });

  it("S-HD-07 one encoder: one entry", () => {
    const config = mustLoad(THREE, "decode encode");
    expect(hostPorts(config.endpoints, config.scheduler.decide(media(10, 3)).encode)).toBe("10.0.0.2:8000");
  });

  it("S-HD-08 several encoders: joined by commas without spaces, in their order", () => {
    const config = mustLoad(THREE, "decode encode encode");
    const d = config.scheduler.decide(media(10, 3));
    expect(d.encode.count).toBe(3);
    const names = config.endpoints.hostPort;
    expect(hostPorts(config.endpoints, d.encode)).toBe(names[d.encode.list[0]] + "," + names[d.encode.list[1]] + "," + names[d.encode.list[2]]);
  });

  it("S-HD-09 IPv6 encoders in brackets", () => {
    expect(hostPorts(ipv6(), picked(2, 2, 0))).toBe("[fd00::30]:8000,[fd00::10]:8000");
  });

  it("S-HD-10 no encode stage: nothing, which means that the header is removed", () => {
    const fleet = table("decode encode");
    expect(hostPorts(fleet, new Machine(fleet, null, multimodal()).decide(tokens(10)).encode)).toBe("");
  });

  it("S-HD-12 a deprecated headers handler beside the profile handler changes nothing", () => {
    const both = THREE.replace('{"type":"max-score-picker"},', '{"type":"max-score-picker"},{"type":"disagg-headers-handler","parameters":{"prefillProfile":"P","encodeProfile":"E"}},');
    const result = loadPicker(both, "decode prefill encode");
    expect(problemsText(result.problems.errors)).toBe("");
    const config = result.config!;
    const d = config.scheduler.decide(media(10, 1));
    expect(hostPorts(config.endpoints, d.prefill)).toBe("10.0.0.2:8000");
    expect(hostPorts(config.endpoints, d.encode)).toBe("10.0.0.3:8000");
  });

  it("S-HD-13 prefill-header-handler is the same handler", () => {
    const picker =
      '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"prefix-based-pd-decider","parameters":{"nonCachedTokens":1}},{"type":"pd-profile-handler"},{"type":"prefill-header-handler"}],"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"}]}]}';
    const config = mustLoad(picker, "decode prefill");
    expect(hostPorts(config.endpoints, config.scheduler.decide(tokens(10)).prefill)).toBe("10.0.0.2:8000");
  });

  it("S-HD-14 an ordered primary list: ip:port,ip:port by score", () => {
    const config = mustLoad(
      '{"plugins":[{"type":"queue-scorer"},{"type":"max-score-picker","parameters":{"maxNumOfEndpoints":2}}],"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer"},{"pluginRef":"max-score-picker"}]}]}',
      "- - -",
    );
    for (let i = 0; i < 3; i++) config.endpoints.known[i] = 7;
    config.endpoints.waiting[0] = 5;
    config.endpoints.waiting[1] = 9;
    expect(destinations(config.endpoints, config.scheduler.decide(tokens(1)).decode, 0)).toBe("10.0.0.3:8000,10.0.0.1:8000");
  });

  it("one endpoint or none", () => {
    expect(hostPortOf(table("decode"), 0)).toBe("10.0.0.1:8000");
    expect(hostPortOf(table("decode"), -1)).toBe("");
  });

  it("are written from the configuration's own spelling of an address, canonical", () => {
    const result = loadDocument('{"revision":1,"endpoints":[{"name":"a","address":"FD00:0000::0010","port":"8000"}]}');
    expect(result.config!.endpoints.hostPort[0]).toBe("[fd00::10]:8000");
  });
});

