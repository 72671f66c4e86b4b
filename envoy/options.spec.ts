import { describe, expect, it } from "vitest";
import { readGatewayOptions } from "./options.js";

describe("readGatewayOptions", () => {
  it("has defaults", () => {
    expect(readGatewayOptions(null)).toEqual({ bodyLimitBytes: 67_108_864, allowPaths: [], tlsDecode: false, tlsVerify: false });
    expect(readGatewayOptions({})).toEqual(readGatewayOptions(null));
  });

  it.each([
    [1_048_576, 1_048_576],
    ["8Mi", 8 * 1024 * 1024],
    ["64k", 64_000],
    ["1.5Ki", 1_536],
    ["0.0001M", 100],
    ["1e6", 1_000_000],
    ["1Gi", 1024 ** 3],
    ["70000", 70_000],
  ])("takes %j as %i bytes", (value, bytes) => {
    expect(readGatewayOptions({ bodyLimitBytes: value }).bodyLimitBytes).toBe(bytes);
  });

  it("takes the part of the file that is Envoy's", () => {
    const file = { apiVersion: "crosspoint/v1", kind: "FilterOptions", allowPaths: ["/a", "/b/*"], tls: { decode: true, scrape: true, verify: true }, strict: true };
    expect(readGatewayOptions(file)).toEqual({ bodyLimitBytes: 67_108_864, allowPaths: ["/a", "/b/*"], tlsDecode: true, tlsVerify: true });
  });
});
