import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { encode, ENCODINGS, thirds, zstdRaw } from "./encodings.js";
import { padTo } from "./pad.js";

const body = Buffer.from('{"text":"aé😀"}');

/** Reads the frames that zstdRaw writes, by RFC 8878 and not by its code. */
function readZstd(frame: Buffer): Buffer {
  expect(frame.readUInt32LE(0)).toBe(0xfd2fb528);
  const descriptor = frame.readUInt8(4);
  const sizeFlag = descriptor >> 6;
  const singleSegment = (descriptor >> 5) & 1;
  expect(descriptor & 0b1111).toBe(0);
  expect([sizeFlag, singleSegment]).toEqual([2, 0]);
  const window = frame.readUInt8(5);
  const windowBytes = 2 ** (10 + (window >> 3)) + (2 ** (10 + (window >> 3)) / 8) * (window & 7);
  const size = frame.readUInt32LE(6);
  const blocks: Buffer[] = [];
  for (let at = 10; ;) {
    const header = frame.readUIntLE(at, 3);
    expect((header >> 1) & 3).toBe(0);
    const length = header >> 3;
    expect(length).toBeLessThanOrEqual(Math.min(windowBytes, 128 * 1024));
    blocks.push(frame.subarray(at + 3, at + 3 + length));
    at += 3 + length;
    if ((header & 1) === 1) {
      expect(at).toBe(frame.length);
      break;
    }
  }
  const content = Buffer.concat(blocks);
  expect(content).toHaveLength(size);
  return content;
}

describe("encodings", () => {
  it("compresses with gzip and says so", async () => {
    const encoded = await encode(body, "gzip");
    expect(gunzipSync(encoded.bytes)).toEqual(body);
    expect(encoded.contentEncoding).toBe("gzip");
    expect(encoded.chunks).toBeNull();
  });

  it.each([0, 1, 100, 128 * 1024, 128 * 1024 + 1, 300_000])("writes %i bytes as a zstd frame of raw blocks", (length) => {
    const content = Buffer.alloc(length, "abc");
    expect(readZstd(zstdRaw(content)).equals(content)).toBe(true);
  });

  it("names zstd", async () => {
    expect((await encode(body, "zstd")).contentEncoding).toBe("zstd");
  });

  it("makes bytes unreadable, and undoes itself", async () => {
    const encoded = await encode(body, "opaque");
    expect(encoded.contentEncoding).toBe("x-opaque");
    expect(Buffer.from(encoded.bytes.map((byte) => byte ^ 0x5a))).toEqual(body);
  });

  it.each([
    ["utf-16le", "7b00"],
    ["utf-16be", "007b"],
    ["utf-32le", "7b000000"],
    ["utf-32be", "0000007b"],
    ["utf-16le-bom", "fffe7b00"],
    ["utf-16be-bom", "feff007b"],
    ["utf-32le-bom", "fffe00007b000000"],
    ["utf-32be-bom", "0000feff0000007b"],
    ["utf-8-bom", "efbbbf7b"],
  ] as const)("%s begins with %s and has no content-encoding", async (encoding, hex) => {
    const encoded = await encode(body, encoding);
    expect(encoded.bytes.toString("hex").startsWith(hex)).toBe(true);
    expect(encoded.contentEncoding).toBeNull();
  });

  it("writes every character in UTF-16 and UTF-32", async () => {
    const decode = async (encoding: "utf-16le" | "utf-16be" | "utf-32le" | "utf-32be"): Promise<string> => {
      const { bytes } = await encode(body, encoding);
      if (encoding === "utf-16le") return bytes.toString("utf16le");
      if (encoding === "utf-16be") return Buffer.from(bytes).swap16().toString("utf16le");
      const points: number[] = [];
      for (let at = 0; at < bytes.length; at += 4) points.push(encoding === "utf-32le" ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at));
      return String.fromCodePoint(...points);
    };
    for (const encoding of ["utf-16le", "utf-16be", "utf-32le", "utf-32be"] as const) expect(await decode(encoding)).toBe(body.toString("utf8"));
  });

  it("cuts a chunked body into three pieces, none empty, and ends it with a trailer where asked", async () => {
    const chunked = await encode(body, "chunked");
    expect(chunked.chunks).toHaveLength(3);
    expect(Buffer.concat(chunked.chunks ?? [])).toEqual(body);
    expect(chunked.trailers).toEqual([]);
    expect((await encode(body, "chunked-trailers")).trailers).toEqual([["x-checksum", "1"]]);
    expect(thirds(Buffer.from("ab"))).toEqual([Buffer.from("ab")]);
    expect(thirds(Buffer.from("abcd")).map(String)).toEqual(["a", "b", "cd"]);
  });

  it("knows every encoding", async () => {
    for (const encoding of ENCODINGS) expect((await encode(body, encoding)).bytes.length).toBeGreaterThan(0);
  });
});

describe("pad_to", () => {
  it("lengthens the longest string value by its own characters, to the byte", () => {
    const padded = padTo(Buffer.from('{"a":"xy","text":"abc","n":1}'), 40);
    expect(padded).toHaveLength(40);
    expect((JSON.parse(padded.toString()) as { text: string }).text).toBe("abcabcabcabcab");
  });

  it("repeats what follows a data URL's last comma, and leaves the rest as it is", () => {
    const padded = padTo(Buffer.from('{"url":"data:image/png;base64,QUJD"}'), 1000);
    expect(padded).toHaveLength(1000);
    expect((JSON.parse(padded.toString()) as { url: string }).url).toMatch(/^data:image\/png;base64,(QUJD)+(Q|QU|QUJ)?$/);
  });

  it("takes no member name for the longest string, and does not cut a character or an escape", () => {
    const text = '{"a_very_long_member_name":"é\\n\\ud83d\\ude00x"}';
    for (let size = Buffer.byteLength(text); size < 160; size++) {
      const padded = padTo(Buffer.from(text), size);
      expect(padded).toHaveLength(size);
      const value = (JSON.parse(padded.toString()) as { a_very_long_member_name: string }).a_very_long_member_name;
      expect(value.startsWith("é\n😀x")).toBe(true);
      expect(Buffer.from(value).toString()).toBe(value);
      expect(/^[é\n😀x]+$/u.test(value)).toBe(true);
    }
  });

  it("leaves the body for 0 and for its own size", () => {
    const text = Buffer.from('{"a":"b"}');
    expect(padTo(text, 0)).toBe(text);
    expect(padTo(text, text.length)).toEqual(text);
  });

  it.each([
    ['{"a":"b"}', 5, "has 9 bytes already"],
    ['{"a":1}', 50, "no string"],
    ['{"a":""}', 50, "no string"],
    ['{"a":"é"}', 11, "cannot fill the last 1 bytes"],
    ['{"a":"data:,"}', 50, "no characters to repeat"],
    ["{", 50, "ends early"],
  ])("refuses %s at %i", (text, size, message) => {
    expect(() => padTo(Buffer.from(text), size)).toThrow(message);
  });

  it("pads to 64 MiB and one byte", () => {
    expect(padTo(Buffer.from('{"a":"data:image/png;base64,QUJD"}'), 67_108_865)).toHaveLength(67_108_865);
  });
});
