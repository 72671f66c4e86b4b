// What a filter ahead allows, in the forms that the host hands it over in.
import { mustLoad, table, tokens } from "../../config/__tests__/support";
import { LoadedConfig } from "../../config/document";
import { Outcome } from "../../disagg/decision";
import { EndpointTable } from "../../endpoints/table";
import { RequestFacts } from "../../scheduling/request";
import { markSubset } from "../subset";

function fleet(): EndpointTable {
  const out = table("decode decode decode");
  out.address[2] = "fd00::10";
  return out;
}

function marks(bytes: ArrayBuffer, size: i32 = -1): string {
  const endpoints = fleet();
  const out = new StaticArray<u8>(3);
  markSubset(endpoints, changetype<usize>(bytes), size < 0 ? bytes.byteLength : size, out);
  return out[0].toString() + out[1].toString() + out[2].toString();
}

function text(value: string): string {
  return marks(String.UTF8.encode(value));
}

/** A list as the host marshals one. */
function listOf(entries: string[]): ArrayBuffer {
  let size = 4;
  for (let i = 0; i < entries.length; i++) size += 8 + String.UTF8.byteLength(entries[i]) + 2;
  const out = new ArrayBuffer(size);
  const at = changetype<usize>(out);
  store<u32>(at, entries.length);
  let p = at + 4 + (<usize>entries.length << 3);
  for (let i = 0; i < entries.length; i++) {
    const bytes = String.UTF8.encode(entries[i]);
    store<u32>(at + 4 + (<usize>i << 3), bytes.byteLength);
    memory.copy(p, changetype<usize>(bytes), bytes.byteLength);
    p += bytes.byteLength + 2;
  }
  return out;
}

function facts(subset: StaticArray<u8>): RequestFacts {
  const out = tokens(100);
  out.subset = subset;
  return out;
}

describe("a subset hint", () => {
  it("names addresses, with or without a port, divided by commas or as a list", () => {
    expect(text("10.0.0.1")).toBe("100");
    expect(text("10.0.0.1:9999")).toBe("100");
    expect(text(" 10.0.0.2 , 10.0.0.1:8000,")).toBe("110");
    expect(text("fd00::10")).toBe("001");
    expect(text("[fd00::10]:8000,10.0.0.2")).toBe("011");
    expect(marks(listOf(["10.0.0.2:8000", "fd00::10"]))).toBe("011");
    expect(marks(listOf(["10.0.0.1", "10.0.0.1"]))).toBe("100");
  });

  it("that is empty, or names nobody whom we know, allows nobody", () => {
    expect(text("")).toBe("000");
    expect(text(",,")).toBe("000");
    expect(text("10.0.0.9")).toBe("000");
    expect(text("10.0.0.10")).toBe("000");
    expect(text("[")).toBe("000");
    expect(marks(listOf([]))).toBe("000");
    expect(marks(listOf(["10.0.0.9", ""]))).toBe("000");
  });

  it("that is broken reads nothing beyond its end", () => {
    const whole = listOf(["10.0.0.1", "10.0.0.2"]);
    for (let size = 0; size < whole.byteLength - 12; size++) expect(marks(whole, size).endsWith("0")).toBe(true);
    const lying = listOf(["10.0.0.1"]);
    store<u32>(changetype<usize>(lying) + 4, 0xfffffff0);
    expect(marks(lying)).toBe("000");
  });
});

function twoAndTwo(): LoadedConfig {
  return mustLoad(
    '{"plugins":[{"type":"decode-filter"},{"type":"prefill-filter"},{"type":"always-disagg-pd-decider"},{"type":"disagg-profile-handler","parameters":{"deciders":{"prefill":"always-disagg-pd-decider"}}}],"schedulingProfiles":[{"name":"decode","plugins":[{"pluginRef":"decode-filter"}]},{"name":"prefill","plugins":[{"pluginRef":"prefill-filter"}]}]}',
    "decode decode prefill prefill",
  );
}

describe("a request with a subset", () => {
  it("is served by these only, in every stage, the ones out of service included", () => {
    const config = twoAndTwo();
    const only = facts([0, 1, 0, 1]);
    for (let i = 0; i < 20; i++) {
      const d = config.scheduler.decide(only);
      expect(d.decode.first).toBe(1);
      expect(d.prefill.first).toBe(3);
    }
    config.endpoints.usable[1] = 0;
    expect(config.scheduler.decide(only).decode.first).toBe(1);
    config.endpoints.usable[1] = 1;
    only.pinned = 0;
    expect(config.scheduler.decide(only).decode.first).toBe(1);
  });

  it("of nobody is a request without candidates; of nobody who decodes, one without a decode endpoint", () => {
    const config = twoAndTwo();
    expect(config.scheduler.decide(facts([0, 0, 0, 0])).outcome).toBe(Outcome.NoCandidates);
    expect(config.scheduler.decide(facts([0, 0, 1, 1])).outcome).toBe(Outcome.NoDecodeEndpoint);
    expect(config.scheduler.decide(facts([1, 0, 0, 0])).outcome).toBe(Outcome.Ok);
  });
});
