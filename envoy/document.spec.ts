import { describe, expect, it } from "vitest";
import { idOfEntry, toEndpoint } from "./document.js";

describe("toEndpoint", () => {
  it("takes the port as text or number, and gives a namespace, labels and the address's one spelling", () => {
    const expected = { name: "d0", namespace: "default", address: "fd00::10", port: 8000, labels: {} };
    expect(toEndpoint({ name: "d0", address: "FD00::0010", port: "8000" })).toEqual(expected);
    expect(toEndpoint({ name: "d0", address: "fd00::10", port: 8000, labels: {}, note: "unknown members are tolerated" })).toEqual(expected);
  });

  it("calls a nameless one by its address, as the filter does", () => {
    expect(toEndpoint({ address: "fd00::10", port: 8000 }).name).toBe("[fd00::10]:8000");
  });

  it("keeps labels and namespace", () => {
    expect(toEndpoint({ name: "a", namespace: "ns", address: "10.0.0.1", port: 1, labels: { "llm-d.ai/role": "decode" } })).toMatchObject({ namespace: "ns", labels: { "llm-d.ai/role": "decode" } });
  });

  it.each([null, 1, {}, { address: "10.0.0.1" }, { address: "x", port: 1 }])("throws for %j, which no validator accepts", (entry) => {
    expect(() => toEndpoint(entry)).toThrow("not an endpoint");
  });
});

describe("idOfEntry", () => {
  it("needs a name and nothing else", () => {
    expect(idOfEntry({ name: "d0", port: "broken" })).toBe("default/d0");
    expect(idOfEntry({ name: "d0", namespace: "a" })).toBe("a/d0");
    expect([{}, { name: "" }, { name: 1 }, null, []].map(idOfEntry)).toEqual([null, null, null, null, null]);
  });
});
