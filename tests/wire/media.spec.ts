import { crc32, inflateSync } from "node:zlib";
import { expect, it } from "vitest";
import { pictureUrl } from "./media.js";

it("a picture is a PNG: signature, checksums, and as many pixels as it says", () => {
  const file = Buffer.from(pictureUrl(1, 2, 3, 4).replace("data:image/png;base64,", ""), "base64");
  expect(file.subarray(0, 8).toString("latin1")).toBe("\u0089PNG\r\n\u001a\n");
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at < file.length; ) {
    const size = file.readUInt32BE(at);
    expect(file.readUInt32BE(at + 8 + size)).toBe(crc32(file.subarray(at + 4, at + 8 + size)));
    chunks.set(file.toString("latin1", at + 4, at + 8), file.subarray(at + 8, at + 8 + size));
    at += 12 + size;
  }
  expect([...chunks.keys()]).toEqual(["IHDR", "IDAT", "IEND"]);
  expect([chunks.get("IHDR")?.readUInt32BE(0), chunks.get("IHDR")?.readUInt32BE(4)]).toEqual([4, 4]);
  const rows = inflateSync(chunks.get("IDAT") ?? Buffer.alloc(0));
  expect(rows.length).toBe(4 * (1 + 4 * 3));
  expect([...rows.subarray(0, 7)]).toEqual([0, 1, 2, 3, 1, 2, 3]);
});
