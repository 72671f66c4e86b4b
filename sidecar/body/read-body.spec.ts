import { once } from "node:events";
import { PassThrough, Readable } from "node:stream";
import { brotliCompressSync, constants, deflateRawSync, deflateSync, gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { contentCodings, type ContentCoding } from "./encodings.js";
import { makeScanner } from "./make-scanner.js";
import { readBody, type ReadOutcome } from "./read-body.js";

const LIMIT = 1000;

function read(chunks: readonly Buffer[], codings: readonly ContentCoding[] = [], limitBytes = LIMIT): Promise<ReadOutcome> {
  return readBody(Readable.from(chunks, { objectMode: false }), { codings, limitBytes, scanner: makeScanner("chat") });
}

function text(outcome: ReadOutcome): string {
  if (outcome.kind !== "read") throw new Error(outcome.kind);
  return outcome.body.join(0, outcome.body.length).toString();
}

const BODY = Buffer.from('{"model":"m","prompt":"hello"}');

describe("readBody", () => {
  it("keeps the pieces as they came and scans them", async () => {
    const chunks = [BODY.subarray(0, 5), BODY.subarray(5)];
    const outcome = await read(chunks);
    expect(text(outcome)).toBe(BODY.toString());
    if (outcome.kind === "read") {
      expect(outcome.body.list.map((piece) => piece.length)).toEqual([5, BODY.length - 5]);
      expect(outcome.view?.members.map(({ name }) => name)).toEqual(["model", "prompt"]);
    }
  });

  it.each([
    ["gzip", gzipSync(BODY)],
    ["deflate", deflateSync(BODY)],
    ["deflate", deflateRawSync(BODY)],
    ["br", brotliCompressSync(BODY)],
  ] as const)("opens %s at any cut", async (coding, packed) => {
    for (let cut = 0; cut <= packed.length; cut++) {
      const chunks = [packed.subarray(0, cut), packed.subarray(cut)].filter((piece) => piece.length > 0);
      expect(text(await read(chunks, [coding]))).toBe(BODY.toString());
    }
  });

  it("gathers tiny pieces, and keeps large ones as they lie", async () => {
    const bytes = Array.from(Buffer.from(`"${"x".repeat(50_000)}"`), (byte) => Buffer.from([byte]));
    const large = Buffer.alloc(5000, 0x20);
    const outcome = await read([...bytes, large, Buffer.from(" ")], [], 100_000);
    expect(text(outcome)).toBe(`"${"x".repeat(50_000)}"${" ".repeat(5001)}`);
    if (outcome.kind !== "read") return;
    expect(outcome.body.list.length).toBeLessThan(15);
    expect(outcome.body.list.map((piece) => piece.length)).toContain(5000);
  });

  it("tells a fault of the scanner instead of waiting for ever", async () => {
    const scanner = makeScanner("chat");
    const fault = new Error("trap");
    const broken = { feed: () => { throw fault; }, end: () => scanner.end(), dispose: () => { scanner.dispose(); } };
    expect(await readBody(Readable.from([BODY]), { codings: [], limitBytes: LIMIT, scanner: broken })).toEqual({ kind: "failed", error: fault });
    const late = { feed: () => undefined, end: () => { throw fault; }, dispose: () => undefined };
    expect(await readBody(Readable.from([BODY]), { codings: [], limitBytes: LIMIT, scanner: late })).toEqual({ kind: "failed", error: fault });
  });

  it("opens two layers, the last named first", async () => {
    expect(text(await read([brotliCompressSync(gzipSync(BODY))], ["gzip", "br"]))).toBe(BODY.toString());
  });

  it("refuses what does not open and what is cut", async () => {
    for (const packed of [Buffer.from("no gzip at all"), gzipSync(BODY).subarray(0, 20)]) {
      expect(await read([packed], ["gzip"])).toMatchObject({ kind: "refused", reason: "bad_encoding", error: { status: 400 } });
    }
    expect(await read([brotliCompressSync(BODY).subarray(0, 5)], ["br"])).toMatchObject({ kind: "refused", reason: "bad_encoding" });
  });

  it("stops at the limit, before and after opening", async () => {
    expect((await read([Buffer.alloc(LIMIT, 0x20)])).kind).toBe("read");
    expect(await read([Buffer.alloc(LIMIT, 0x20), Buffer.from(" ")])).toMatchObject({ kind: "refused", reason: "too_large", error: { status: 413 } });
    const bomb = gzipSync(Buffer.alloc(50_000_000, 0x20));
    const before = process.memoryUsage().rss;
    expect(await read([bomb], ["gzip"], 1_000_000)).toMatchObject({ kind: "refused", reason: "too_large" });
    expect(process.memoryUsage().rss - before).toBeLessThan(40_000_000);
  });

  describe("codings in codings", () => {
    /** Millions of empty gzip members in a few bytes: no byte ever comes out at the end. */
    const members = Buffer.alloc(24_000_000, gzipSync(""));
    const packed = brotliCompressSync(members, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } });

    it("bounds what stands between two of them by what was sent", async () => {
      expect(packed.length).toBeLessThan(100);
      const before = process.cpuUsage();
      expect(await read([packed], ["gzip", "br"], 64 << 20)).toMatchObject({ kind: "refused", reason: "too_large", error: { status: 413, param: "content-encoding" } });
      expect(process.cpuUsage(before).user).toBeLessThan(200_000);
      // Not more than the limit either, however much was sent.
      expect(await read([gzipSync(members.subarray(0, 60_000), { level: 0 })], ["gzip", "gzip"], 50_000)).toMatchObject({ kind: "refused", reason: "too_large" });
    });

    it("opens many members, empty ones among them, to what they hold", async () => {
      const parts = Array.from({ length: 50 }, (_, index) => gzipSync(index === 25 ? BODY : ""));
      expect(text(await read([Buffer.concat(parts)], ["gzip"], 10_000))).toBe(BODY.toString());
    });

    it("ends after a time", async () => {
      const slow = gzipSync(Buffer.alloc(50_000_000, 0x20));
      const outcome = await readBody(Readable.from([slow]), { codings: ["gzip"], limitBytes: 64 << 20, openingTimeoutMs: 1, scanner: makeScanner("chat") });
      expect(outcome).toMatchObject({ kind: "refused", reason: "slow_opening", error: { status: 413 } });
    });

    it("ends when the client leaves after its body's last byte", async () => {
      const gone = new AbortController();
      const source = Readable.from([gzipSync(Buffer.alloc(50_000_000, 0x20))]);
      const outcome = readBody(source, { codings: ["gzip"], limitBytes: 64 << 20, gone: gone.signal, scanner: makeScanner("chat") });
      await once(source, "end");
      gone.abort();
      expect(await outcome).toEqual({ kind: "gone" });
      expect(await readBody(Readable.from([BODY]), { codings: [], limitBytes: LIMIT, gone: gone.signal, scanner: makeScanner("chat") })).toEqual({ kind: "gone" });
    });
  });

  it("sees a client that goes away", async () => {
    const request = new PassThrough();
    const outcome = readBody(request, { codings: [], limitBytes: LIMIT, scanner: makeScanner("chat") });
    request.write("{");
    request.destroy();
    expect(await outcome).toEqual({ kind: "gone" });
  });

  it("reads an empty body", async () => {
    expect(await read([])).toMatchObject({ kind: "read", body: { length: 0 }, view: { error: "empty" } });
    expect(await read([], ["gzip"])).toMatchObject({ kind: "read", body: { length: 0 } });
  });
});

describe("contentCodings", () => {
  it("reads lines and lists", () => {
    expect(contentCodings([])).toEqual([]);
    expect(contentCodings(["Content-Encoding", "GZIP"])).toEqual(["gzip"]);
    expect(contentCodings(["content-encoding", "identity, x-gzip", "content-encoding", "br"])).toEqual(["gzip", "br"]);
  });

  it.each(["zstd", "x-opaque", "gzip, zstd", "gzip, gzip, gzip", "compress", "gzip;q=1", "constructor", "tostring", "__proto__"])("cannot open %s", (value) => {
    expect(contentCodings(["content-encoding", value])).toBeNull();
  });
});
