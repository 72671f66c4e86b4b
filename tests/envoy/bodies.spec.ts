import { readFileSync } from "node:fs";
import { connect, type ClientHttp2Session } from "node:http2";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { headerLines } from "../fleet/http.js";
import { errorOf, Gateway, json } from "./gateway.js";
import { type Echo, Pod } from "./pod.js";

const MIB = 1024 * 1024;
const LIMIT = 64 * MIB;

let pod: Pod;
let gateway: Gateway;

beforeAll(async () => {
  pod = await Pod.start({ name: "d0" });
  gateway = await Gateway.start({ endpoints: [pod] });
});
afterAll(async () => {
  await gateway.stop();
  await pod.close();
});

function body(bytes: number): Buffer {
  return Buffer.alloc(bytes, '{"model":"m","prompt":"the harbour office keeps a ledger of every vessel"} ');
}

describe("over HTTP/1.1", () => {
  it.each([63 * MIB, LIMIT])("a body of %i bytes arrives whole", async (bytes) => {
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", body: body(bytes) });
    expect(answer.status).toBe(200);
    expect((json(answer) as Echo).bytes).toBe(bytes);
  });

  it.each([LIMIT + 1, 65 * MIB, 100 * MIB])("a body of %i bytes is answered 413, as JSON that the client reads whole, and the connection is closed", async (bytes) => {
    const before = pod.requests.length;
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", body: body(bytes) });
    expect(answer.status).toBe(413);
    expect(errorOf(answer)).toMatchObject({ type: "PayloadTooLargeError", code: 413, message: expect.stringContaining(String(LIMIT)) });
    expect(answer.end).toBe("clean");
    expect(headerLines(answer.headers, "connection")).toEqual(["close"]);
    expect(pod.requests.length).toBe(before);
  });

  it("a client that sends all before it reads gets the 413 too", async () => {
    // What node's own client does: it writes on whatever comes back.
    const whole = body(65 * MIB);
    const response = await fetch(`http://${gateway.settings.listen.host}:${String(gateway.settings.listen.port)}/v1/completions`, { method: "POST", body: whole });
    expect(response.status).toBe(413);
    expect(((await response.json()) as { error: { code: number } }).error.code).toBe(413);
  });

  it("chunked, with and without trailers", async () => {
    const third = body(MIB);
    for (const trailers of [[], [["x-checksum", "1"]]] as [string, string][][]) {
      const answer = await gateway.send({ method: "POST", path: "/v1/completions", chunks: [third, third, third], trailers });
      expect((json(answer) as Echo).bytes).toBe(3 * MIB);
    }
    const over = await gateway.send({ method: "POST", path: "/v1/completions", chunks: Array.from({ length: 65 }, () => third) });
    expect(over.status).toBe(413);
  });

  it("Expect: 100-continue is answered by Envoy", async () => {
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers: [["Expect", "100-continue"]], body: body(2 * MIB) });
    expect(answer.status).toBe(200);
    expect((json(answer) as Echo).bytes).toBe(2 * MIB);
  });
});

interface H2Answer {
  status: number;
  body: string;
  ended: boolean;
}

function post(session: ClientHttp2Session, whole: Buffer, headers: Record<string, string> = {}): Promise<H2Answer> {
  return new Promise((resolve) => {
    const stream = session.request({ ":method": "POST", ":path": "/v1/completions", ...headers });
    const answer: H2Answer = { status: 0, body: "", ended: false };
    stream.on("response", (received) => (answer.status = received[":status"] ?? 0));
    stream.on("data", (piece: Buffer) => (answer.body += piece.toString()));
    stream.on("end", () => (answer.ended = true));
    stream.on("error", () => undefined);
    stream.on("close", () => { resolve(answer); });
    stream.end(whole);
  });
}

async function overHttp2<T>(use: (session: ClientHttp2Session, gone: () => boolean) => Promise<T>): Promise<T> {
  const session = connect(`http://${gateway.settings.listen.host}:${String(gateway.settings.listen.port)}`);
  let gone = false;
  session.on("error", () => (gone = true));
  session.on("goaway", () => (gone = true));
  session.on("close", () => (gone = true));
  try {
    return await use(session, () => gone);
  } finally {
    session.close();
  }
}

describe("over HTTP/2", () => {
  it.each([63 * MIB, LIMIT])("a body of %i bytes arrives whole", (bytes) =>
    overHttp2(async (session) => {
      const answer = await post(session, body(bytes));
      expect(answer.status).toBe(200);
      expect((JSON.parse(answer.body) as Echo).bytes).toBe(bytes);
    }));

  it.each([LIMIT + 1, 65 * MIB, 100 * MIB])("a body of %i bytes is answered 413 as JSON, and the connection serves the next request", (bytes) =>
    overHttp2(async (session, gone) => {
      const before = pod.requests.length;
      const answer = await post(session, body(bytes));
      expect(answer.status).toBe(413);
      expect(answer.ended).toBe(true);
      expect(JSON.parse(answer.body)).toMatchObject({ error: { code: 413, type: "PayloadTooLargeError", param: null } });
      expect(pod.requests.length).toBe(before);
      const next = await post(session, body(1000));
      expect(next.status).toBe(200);
      expect(gone()).toBe(false);
    }));

  it("four bodies of 30 MiB at once on one connection", () =>
    overHttp2(async (session) => {
      const whole = body(30 * MIB);
      const answers = await Promise.all([1, 2, 3, 4].map(() => post(session, whole)));
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
      expect(answers.map((answer) => (JSON.parse(answer.body) as Echo).bytes)).toEqual([1, 2, 3, 4].map(() => 30 * MIB));
    }));
});

/** A zstd frame of raw blocks. */
function zstdRaw(plain: Buffer): Buffer {
  const pieces: Buffer[] = [Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58])];
  for (let at = 0; at < plain.length || at === 0; at += 100_000) {
    const block = plain.subarray(at, at + 100_000);
    const head = (block.length << 3) | (at + 100_000 >= plain.length ? 1 : 0);
    pieces.push(Buffer.from([head & 255, (head >> 8) & 255, head >> 16]), block);
  }
  return Buffer.concat(pieces);
}

describe("compressed", () => {
  function send(encoding: string, packed: Buffer): ReturnType<Gateway["send"]> {
    return gateway.send({ method: "POST", path: "/v1/completions", headers: [["Content-Encoding", encoding]], body: packed });
  }
  const names = (echo: Echo): string[] => echo.rawHeaders.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());

  it.each([
    ["gzip", gzipSync],
    ["GZIP", gzipSync],
    ["br", brotliCompressSync],
    ["zstd", zstdRaw],
  ] as const)("%s is opened: the pod gets the plain body", async (encoding, pack) => {
    const plain = body(300_001);
    // Not repetitive: brotli's decompressor stops at a ratio of 100.
    for (let at = 0; at < plain.length; at += 97) plain[at] = 97 + ((at * 7919) % 26);
    const answer = await send(encoding, pack(plain));
    expect(answer.status).toBe(200);
    const echo = json(answer) as Echo;
    expect(echo.bytes).toBe(plain.length);
    expect(echo.head).toBe(plain.toString("latin1", 0, 256));
    expect(names(echo)).not.toContain("content-encoding");
    expect(names(echo).filter((name) => name === "content-length" || name === "transfer-encoding")).toHaveLength(1);
  });

  it("a repetitive gzip body of 1 MiB arrives whole", async () => {
    const packed = gzipSync(Buffer.alloc(MIB, "a"), { level: 9 });
    expect(MIB / packed.length).toBeGreaterThan(300);
    expect((json(await send("gzip", packed)) as Echo).bytes).toBe(MIB);
  });

  it.each([65, 100])("a gzip bomb that opens to %i MiB is answered 413", async (mib) => {
    const before = pod.requests.length;
    const answer = await send("gzip", gzipSync(Buffer.alloc(mib * MIB, "a"), { level: 9 }));
    expect(answer.status).toBe(413);
    expect(errorOf(answer).code).toBe(413);
    expect(pod.requests.length).toBe(before);
  });

  it("a bomb does not take much more memory than a body of the limit", async () => {
    const fresh = await Gateway.start({ endpoints: [pod] });
    try {
      // The most that the process ever held, KiB.
      const peak = (): number => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${String(fresh.running.child.pid)}/status`, "utf8"))?.[1]);
      const before = peak();
      const answer = await fresh.send({ method: "POST", path: "/v1/completions", headers: [["Content-Encoding", "gzip"]], body: gzipSync(Buffer.alloc(400 * MIB, "a"), { level: 9 }) });
      expect(answer.status).toBe(413);
      // With a connection buffer of the body's limit this is 430 MiB and more, with the 64 KiB of the bootstrap about 145 MiB.
      expect((peak() - before) / 1024).toBeLessThan(256);
    } finally {
      await fresh.stop();
    }
  });

  it.each(["deflate", "x-opaque", "x-gzip", "gzip, x-opaque"])("%s is not Envoy's to open: the bytes and what is unknown of the encoding go on", async (encoding) => {
    const packed = Buffer.from("not to be opened");
    const answer = await send(encoding, packed);
    expect(answer.status).toBe(200);
    const echo = json(answer) as Echo;
    if (!encoding.startsWith("gzip")) expect(echo.head).toBe("not to be opened");
    expect(names(echo)).toContain("content-encoding");
  });

  it("answers are not opened", async () => {
    const answer = await gateway.send({ path: "/v1/models", headers: [["Accept-Encoding", "gzip, zstd"]] });
    const echo = json(answer) as Echo;
    const at = echo.rawHeaders.findIndex((name) => name.toLowerCase() === "accept-encoding");
    expect(echo.rawHeaders[at + 1]).toBe("gzip, zstd");
  });
});

describe("another limit", () => {
  it("is FilterOptions' bodyLimitBytes, for both protocols", async () => {
    const small = await Gateway.start({ endpoints: [pod], options: { bodyLimitBytes: MIB } });
    try {
      const first = await small.send({ method: "POST", path: "/v1/completions", body: body(MIB) });
      expect(first.status).toBe(200);
      const second = await small.send({ method: "POST", path: "/v1/completions", body: body(MIB + 1) });
      expect(second.status).toBe(413);
      expect(errorOf(second).message).toContain("1048576");
      const session = connect(`http://${small.settings.listen.host}:${String(small.settings.listen.port)}`);
      expect((await post(session, body(MIB))).status).toBe(200);
      expect((await post(session, body(MIB + 1))).status).toBe(413);
      session.close();
    } finally {
      await small.stop();
    }
  });
});
