import { canonicalAddress } from "../address";
import { isLabelKey, isLabelValue, Role, rolesOf } from "../labels";

function roles(value: string): u32 {
  const labels = new Map<string, string>();
  labels.set("llm-d.ai/role", value);
  return rolesOf(labels);
}

describe("roles", () => {
  it("follow the matrix of scheduler §7.3, with the seed's encode-decode", () => {
    expect(rolesOf(new Map<string, string>())).toBe(Role.Decode, "no label");
    expect(roles("encode")).toBe(Role.Encode);
    expect(roles("prefill")).toBe(Role.Prefill);
    expect(roles("decode")).toBe(Role.Decode);
    expect(roles("encode-prefill")).toBe(Role.Encode | Role.Prefill);
    expect(roles("encode-decode")).toBe(Role.Encode | Role.Decode);
    expect(roles("prefill-decode")).toBe(Role.Prefill | Role.Decode);
    expect(roles("both")).toBe(Role.Prefill | Role.Decode);
    expect(roles("encode-prefill-decode")).toBe(Role.Encode | Role.Prefill | Role.Decode);
  });

  it("an empty, an unknown and a differently spelt value are none", () => {
    expect(roles("")).toBe(0);
    expect(roles("Decode")).toBe(0);
    expect(roles("decode ")).toBe(0);
    expect(roles("worker")).toBe(0);
  });
});

describe("label syntax", () => {
  it("keys", () => {
    const good: StaticArray<string> = ["role", "a", "A1", "a-b_c.d", "llm-d.ai/role", "a.b-c.d/X", "x".repeat(63), "a".repeat(253) + "/b"];
    for (let i = 0; i < good.length; i++) expect(isLabelKey(good[i])).toBe(true, good[i]);
    const bad: StaticArray<string> = ["", "-a", "a-", "a b", "a/", "/a", "A.b/c", "a..b/c", "a-/c", "-a/c", "a/b/c", "x".repeat(64), "a".repeat(254) + "/b", "ä"];
    for (let i = 0; i < bad.length; i++) expect(isLabelKey(bad[i])).toBe(false, bad[i]);
  });

  it("values", () => {
    expect(isLabelValue("")).toBe(true);
    expect(isLabelValue("0-2048")).toBe(true);
    expect(isLabelValue("a b")).toBe(false);
    expect(isLabelValue("-")).toBe(false);
    expect(isLabelValue("x".repeat(64))).toBe(false);
  });
});

describe("addresses", () => {
  it("IPv4 stays as it is", () => {
    const good: StaticArray<string> = ["10.0.0.1", "0.0.0.0", "255.255.255.255", "127.0.0.1"];
    for (let i = 0; i < good.length; i++) expect(canonicalAddress(good[i])).toBe(good[i]);
  });

  it("IPv6 is written as Envoy writes it", () => {
    expect(canonicalAddress("::")).toBe("::");
    expect(canonicalAddress("::1")).toBe("::1");
    expect(canonicalAddress("1::")).toBe("1::");
    expect(canonicalAddress("FD00:0:0:1::20")).toBe("fd00:0:0:1::20");
    expect(canonicalAddress("fd00:0000:0000:0000:0000:0000:0000:0010")).toBe("fd00::10");
    expect(canonicalAddress("2001:db8:0:0:1:0:0:1")).toBe("2001:db8::1:0:0:1");
    expect(canonicalAddress("2001:db8:0:1:1:1:1:1")).toBe("2001:db8:0:1:1:1:1:1");
    expect(canonicalAddress("1:2:3:4:5:6:7::")).toBe("1:2:3:4:5:6:7:0");
    expect(canonicalAddress("::2:3:4:5:6:7:8")).toBe("0:2:3:4:5:6:7:8");
    expect(canonicalAddress("::ffff:1.2.3.4")).toBe("::ffff:1.2.3.4");
    expect(canonicalAddress("::ffff:102:304")).toBe("::ffff:1.2.3.4");
    expect(canonicalAddress("64:ff9b::1.2.3.4")).toBe("64:ff9b::102:304");
    expect(canonicalAddress("1:0:0:4:0:0:0:8")).toBe("1:0:0:4::8");
  });

  it("everything else is no address", () => {
    const bad: StaticArray<string> = [
      "", "localhost", "10.0.0", "10.0.0.0.1", "10.0.0.256", "10.0.0.01", "10.0.0.-1", "10.0.0.1 ", " 10.0.0.1", "10..0.1", "1.2.3.4:80",
      ":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "g::", "::1%eth0", "[::1]", "1:2:3:4:5:6:7:8::", ":1:2:3:4:5:6:7", "1:2:3:4:5:6:7:",
      "::1.2.3", "::1.2.3.4.5", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.4:5", "::256.1.1.1",
    ];
    for (let i = 0; i < bad.length; i++) expect(canonicalAddress(bad[i])).toBe("", bad[i]);
  });
});
