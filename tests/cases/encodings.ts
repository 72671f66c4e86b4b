/** `encoding`: how a body goes on the wire. The file itself is always UTF-8. */
import { gzip } from "node:zlib";
import { promisify } from "node:util";

const gzipAsync = promisify(gzip);

export const ENCODINGS = [
  "gzip",
  "zstd",
  "opaque",
  "utf-16le",
  "utf-16be",
  "utf-32le",
  "utf-32be",
  "utf-16le-bom",
  "utf-16be-bom",
  "utf-32le-bom",
  "utf-32be-bom",
  "utf-8-bom",
  "chunked",
  "chunked-trailers",
] as const;
export type Encoding = (typeof ENCODINGS)[number];

export interface EncodedBody {
  bytes: Buffer;
  /** The content-encoding to send; null for none. */
  contentEncoding: string | null;
  /** null: with a content-length. Otherwise the pieces of a chunked body, none of them empty. */
  chunks: Buffer[] | null;
  trailers: [name: string, value: string][];
}

const ZSTD_MAGIC = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);
/** RFC 8878 §3.1.1.2.3: a raw block holds at most min(window, 128 KiB). */
const ZSTD_BLOCK_BYTES = 128 * 1024;

/**
 * A zstd frame (RFC 8878) of raw blocks, so that no compressor is needed: frame header with a 4-byte content size and a window of 1 MiB, no dictionary,
 * no checksum.
 */
export function zstdRaw(content: Buffer): Buffer {
  const header = Buffer.alloc(6);
  // Frame_Header_Descriptor: Frame_Content_Size_flag 2 (four bytes), no single segment, no checksum, no dictionary id.
  header[0] = 0x80;
  // Window_Descriptor: exponent 10 over 2^10 = 1 MiB.
  header[1] = 10 << 3;
  header.writeUInt32LE(content.length, 2);
  const parts: Buffer[] = [ZSTD_MAGIC, header];
  for (let at = 0; at === 0 || at < content.length; at += ZSTD_BLOCK_BYTES) {
    const block = content.subarray(at, at + ZSTD_BLOCK_BYTES);
    const last = at + ZSTD_BLOCK_BYTES >= content.length;
    // Block_Header: last block (1 bit), type raw = 0 (2 bits), size (21 bits), little endian.
    const blockHeader = Buffer.alloc(3);
    blockHeader.writeUIntLE((block.length << 3) | (last ? 1 : 0), 0, 3);
    parts.push(blockHeader, block);
  }
  return Buffer.concat(parts);
}

function utf16(text: string, bigEndian: boolean): Buffer {
  const bytes = Buffer.from(text, "utf16le");
  return bigEndian ? bytes.swap16() : bytes;
}

function utf32(text: string, bigEndian: boolean): Buffer {
  const points = Array.from(text, (character) => character.codePointAt(0) ?? 0);
  const bytes = Buffer.alloc(points.length * 4);
  for (const [at, point] of points.entries()) {
    if (bigEndian) bytes.writeUInt32BE(point, at * 4);
    else bytes.writeUInt32LE(point, at * 4);
  }
  return bytes;
}

/** Three pieces, or fewer where the body has fewer bytes: an empty piece would end it. */
export function thirds(body: Buffer): Buffer[] {
  const third = Math.floor(body.length / 3);
  return [body.subarray(0, third), body.subarray(third, 2 * third), body.subarray(2 * third)].filter((piece) => piece.length > 0);
}

/** The body as `encoding` puts it on the wire; undefined: as it is, with a content-length. */
export async function encode(body: Buffer, encoding: Encoding | undefined): Promise<EncodedBody> {
  const plain = (bytes: Buffer): EncodedBody => ({ bytes, contentEncoding: null, chunks: null, trailers: [] });
  switch (encoding) {
    case undefined:
      return plain(body);
    case "gzip":
      return { ...plain(await gzipAsync(body)), contentEncoding: "gzip" };
    case "zstd":
      return { ...plain(zstdRaw(body)), contentEncoding: "zstd" };
    case "opaque":
      return { ...plain(Buffer.from(body.map((byte) => byte ^ 0x5a))), contentEncoding: "x-opaque" };
    case "utf-8-bom":
      return plain(Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), body]));
    case "utf-16le":
    case "utf-16be":
    case "utf-16le-bom":
    case "utf-16be-bom":
      return plain(utf16((encoding.endsWith("-bom") ? "\ufeff" : "") + body.toString("utf8"), encoding.startsWith("utf-16be")));
    case "utf-32le":
    case "utf-32be":
    case "utf-32le-bom":
    case "utf-32be-bom":
      return plain(utf32((encoding.endsWith("-bom") ? "\ufeff" : "") + body.toString("utf8"), encoding.startsWith("utf-32be")));
    case "chunked":
      return { ...plain(body), chunks: thirds(body) };
    case "chunked-trailers":
      return { ...plain(body), chunks: thirds(body), trailers: [["x-checksum", "1"]] };
  }
}
