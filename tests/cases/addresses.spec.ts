import { describe, expect, it } from "vitest";
import { hostPortText } from "../fleet/address.js";
import { AddressMap, readHostPort } from "./addresses.js";
import { keyText, readIpv4, readIpv6, writeIpv6 } from "./hosts.js";

const loopback4 = [127, 0, 0, 1];
const loopback6 = [...new Array<number>(15).fill(0), 1];

describe("spellings of a host", () => {
  it.each([
    ["10.0.1.20", "127.0.0.1"],
    ["10.0.1.20.", "127.0.0.1."],
    ["012.0.1.024", "0177.0.0.001"],
    ["0xa.0.1.0x14", "0x7f.0.0.0x01"],
    ["10.0.276", "127.0.1"],
    ["10.276", "127.1"],
    ["167772436", "2130706433"],
    ["0x0A000114", "0x7F000001"],
    ["0x0a000114", "0x7f000001"],
  ])("%s is 10.0.1.20, and 127.0.0.1 in that spelling is %s", (text, mapped) => {
    const host = readIpv4(text);
    expect(host?.key).toBe("4:0a000114");
    expect(host?.respell(loopback4)).toBe(mapped);
  });

  it.each(["", "1.2.3.4.5", "256.1.1.1", "1.2.3.256", "08.1.1.1", "a.b.c.d", "4294967296", "1..2"])("%j is no IPv4 host", (text) => {
    expect(readIpv4(text)).toBeNull();
  });

  it.each([
    ["fd00:0:0:1::20", "::1"],
    ["FD00:0:0:1::20", "::1"],
    ["fd00:0:0:1:0:0:0:20", "0:0:0:0:0:0:0:1"],
    ["fd00:0000:0000:0001:0000:0000:0000:0020", "0000:0000:0000:0000:0000:0000:0000:0001"],
    ["fd00:0:0:1::20%lo", "::1%lo"],
    ["fd00::1:0:0:0:20", "::1"],
  ])("%s is fd00:0:0:1::20, and ::1 in that spelling is %s", (text, mapped) => {
    const host = readIpv6(text);
    expect(host?.key).toBe("6:fd000000000000010000000000000020");
    expect(host?.respell(loopback6)).toBe(mapped);
  });

  it.each([
    ["::ffff:10.0.1.20", "::ffff:127.0.0.1"],
    ["::ffff:a00:114", "::ffff:7f00:1"],
    ["0:0:0:0:0:ffff:10.0.1.20", "0:0:0:0:0:ffff:127.0.0.1"],
    ["::FFFF:A00:114", "::FFFF:7F00:1"],
  ])("%s is an IPv4 host inside IPv6, and 127.0.0.1 in that spelling is %s", (text, mapped) => {
    const host = readIpv6(text);
    expect(host?.key).toBe("4:0a000114");
    expect(host?.respell(loopback4)).toBe(mapped);
  });

  it.each(["::1::2", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "12345::", "g::1", "10.0.0.1", "::1.2.3", "1.2.3.4::"])("%j is no IPv6 host", (text) => {
    expect(readIpv6(text)).toBeNull();
  });

  it("writes the usual text of a key", () => {
    expect(keyText("4:0a000114")).toBe("10.0.1.20");
    expect(keyText("6:fd000000000000010000000000000020")).toBe("fd00:0:0:1::20");
    expect(writeIpv6(new Array<number>(16).fill(0))).toBe("::");
    expect(writeIpv6([0x20, 1, ...new Array<number>(13).fill(0), 1])).toBe("2001::1");
  });
});

describe("address mapping", () => {
  function made(): AddressMap {
    return new AddressMap([
      { address: { host: "10.0.0.10", port: 8000 }, loopback: { host: "127.0.0.1", port: 40001 } },
      { address: { host: "10.0.1.20", port: 8000 }, loopback: { host: "127.0.0.1", port: 40002 } },
      { address: { host: "10.0.2.30", port: 8000 }, loopback: { host: "127.0.0.1", port: 40003 } },
      { address: { host: "10.0.2.31", port: 8000 }, loopback: { host: "127.0.0.1", port: 40004 } },
    ]);
  }

  /** Gives every missing address of the text a port from 50000 on. */
  function mapped(text: string, map = made()): string {
    let port = 50000;
    for (const key of map.missing(text)) map.add(key, { host: "127.0.0.1", port: port++ });
    return map.toLoopback(text);
  }

  it.each([
    ["10.0.1.20:8000", "127.0.0.1:40002"],
    ["10.0.2.30:8000,10.0.2.31:8000", "127.0.0.1:40003,127.0.0.1:40004"],
    [" 10.0.2.30:8000 , http://10.0.2.31:8000/x", " 127.0.0.1:40003 , http://127.0.0.1:40004/x"],
    // a host alone
    ["10.0.1.20", "127.0.0.1"],
    ["tcp from 10.0.1.20 to 10.0.0.10.", "tcp from 127.0.0.1 to 127.0.0.1."],
    // other spellings
    ["0x0a000114:8000", "0x7f000001:40002"],
    ["167772436:8000", "2130706433:40002"],
    ["012.0.1.024:8000", "0177.0.0.001:40002"],
    ["[::ffff:10.0.1.20]:8000", "[::ffff:127.0.0.1]:40002"],
    ["[::ffff:a00:114]:8000", "[::ffff:7f00:1]:40002"],
    ["10.0.1.20.:8000", "127.0.0.1.:40002"],
    // not of the topology: a port of its own
    ["10.9.9.9:80", "127.0.0.1:50000"],
    ["10.9.9.9:80,10.9.9.8:80,10.9.9.9:80", "127.0.0.1:50000,127.0.0.1:50001,127.0.0.1:50000"],
    ["10.0.1.20:9999", "127.0.0.1:50000"],
    ["http://10.9.9.9/", "http://127.0.0.1:50000/"],
    ["https://10.9.9.9", "https://127.0.0.1:50000"],
    ["http://10.9.9.9:80/ 10.9.9.9:80", "http://127.0.0.1:50000/ 127.0.0.1:50000"],
    ["engine.example.test:80", "localhost:50000"],
    ["[fd00::99]:80", "[::ffff:7f00:1]:50000"],
    // not of the topology and without a port: a loopback host of its own, never an engine's
    ["10.9.9.9", "127.9.9.9"],
    ["169.254.169.254", "127.254.169.254"],
    ["127.0.0.1", "127.254.0.1"],
  ])("%s becomes %s", (text, expected) => {
    expect(mapped(text)).toBe(expected);
  });

  it.each(["1.5", "12:30", "8000", "v1.2.3", "vllm 0.32.0", "gateway.example.test", "a:1", "std::vector", "x-10.0.1.20", "10.0.1.200.1.1", "text 5:3 and 1.2.3", "", "http://media.example.test/a.png"])("%j holds no address", (text) => {
    const map = made();
    expect(map.missing(text)).toEqual([]);
    expect(map.toLoopback(text)).toBe(text);
  });

  it("maps IPv6 topologies to ::1, hosts alone without brackets", () => {
    const map = new AddressMap([{ address: { host: "fd00:0:0:1::20", port: 8000 }, loopback: { host: "::1", port: 41000 } }]);
    expect(map.toLoopback("[fd00:0:0:1::20]:8000")).toBe("[::1]:41000");
    expect(map.toLoopback("[FD00:0:0:1:0:0:0:20]:8000")).toBe("[0:0:0:0:0:0:0:1]:41000");
    expect(map.toLoopback("fd00:0:0:1::20")).toBe("::1");
    expect(map.toTopology("[::1]:41000 failed")).toBe("[fd00:0:0:1::20]:8000 failed");
  });

  it("goes back for messages", () => {
    const map = made();
    mapped("10.9.9.9:80", map);
    expect(map.toTopology("decode 127.0.0.1:40001, prefill 127.0.0.1:40002, then 127.0.0.1:50000, 127.0.0.1:1 and 127.0.0.1")).toBe(
      "decode 10.0.0.10:8000, prefill 10.0.1.20:8000, then 10.9.9.9:80, 127.0.0.1:1 and 127.0.0.1",
    );
  });

  it("throws for an address that nobody listens for", () => {
    expect(() => made().toLoopback("10.9.9.9:80")).toThrow("no loopback address");
  });

  it("reads and writes host:port", () => {
    expect(readHostPort("[fd00::10]:8000")).toEqual({ host: "fd00::10", port: 8000 });
    expect(hostPortText({ host: "fd00::10", port: 8000 })).toBe("[fd00::10]:8000");
    expect(() => readHostPort("10.0.0.1")).toThrow("is not host:port");
    expect(() => readHostPort("10.0.0.1:70000")).toThrow("is not host:port");
  });
});
