import type { Transform } from "node:stream";
import { constants, createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from "node:zlib";
import { type FlatHeaders, valuesOf } from "../headers.js";

/** Encodings that can be opened. `deflate` stands for zlib's format and, as some senders have it, for the raw one. */
export type ContentCoding = "gzip" | "deflate" | "br";

const NAMES: ReadonlyMap<string, ContentCoding | "identity"> = new Map([
  ["gzip", "gzip"],
  ["x-gzip", "gzip"],
  ["deflate", "deflate"],
  ["br", "br"],
  ["identity", "identity"],
]);

/** More than one layer is nothing that a client needs, and each costs a decompressor. */
const MAX_CODINGS = 2;

/** The content codings of a body, outermost last; null when one of them cannot be opened. */
export function contentCodings(headers: FlatHeaders): readonly ContentCoding[] | null {
  const codings: ContentCoding[] = [];
  for (const line of valuesOf(headers, "content-encoding")) {
    for (const token of line.split(",")) {
      const name = token.trim().toLowerCase();
      if (name === "") continue;
      const coding = NAMES.get(name);
      if (coding === undefined) return null;
      if (coding !== "identity") codings.push(coding);
    }
  }
  return codings.length > MAX_CODINGS ? null : codings;
}

/** A decompressor. `firstByte`: of its input, which tells the two formats of `deflate` apart. */
export function decompressor(coding: ContentCoding, firstByte: number): Transform {
  switch (coding) {
    case "gzip":
      return createGunzip();
    case "br":
      return createBrotliDecompress({ params: { [constants.BROTLI_DECODER_PARAM_LARGE_WINDOW]: 0 } });
    case "deflate":
      // RFC 1950: the low four bits of a zlib stream's first byte are its method, 8.
      return (firstByte & 0x0f) === 8 ? createInflate() : createInflateRaw();
  }
}
