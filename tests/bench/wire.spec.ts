import { describe, expect, it } from "vitest";
import { MessageReader, statusOf } from "./wire.js";

interface Read {
  head: string;
  body: string;
}

/** All messages of a text that comes in pieces of `cut` bytes. */
function read(text: string, cut: number): Read[] {
  const messages: Read[] = [];
  let head = "";
  let body = "";
  const reader = new MessageReader({
    head: (found) => (head = found),
    body: (bytes, from, to) => (body += bytes.toString("latin1", from, to)),
    end: () => {
      messages.push({ head, body });
      head = body = "";
    },
  });
  const bytes = Buffer.from(text, "latin1");
  for (let at = 0; at < bytes.length; at += cut) reader.feed(bytes.subarray(at, at + cut));
  expect(reader.within).toBe(false);
  return messages;
}

const LENGTH = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const EMPTY = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const CHUNKED = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx: y\r\n\r\n5\r\nhello\r\nA;ext=1\r\n worldwide\r\n0\r\ntrailer: z\r\n\r\n";
const BARE = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n";

describe("MessageReader", () => {
  it.each([1, 2, 3, 7, 64, 10_000])("reads messages back to back in pieces of %i", (cut) => {
    const found = read(LENGTH + CHUNKED + EMPTY + BARE + LENGTH, cut);
    expect(found.map(({ body }) => body)).toEqual(["hello", "hello worldwide", "", "", "hello"]);
    expect(found[3]?.head).toBe("GET /health HTTP/1.1\r\nhost: x");
  });
  it("reads no further than it was told", () => {
    const bytes = Buffer.from(`${LENGTH}junk`, "latin1");
    let ended = 0;
    const reader = new MessageReader({ head: () => undefined, body: () => undefined, end: () => ended++ });
    reader.feed(bytes, LENGTH.length);
    expect(ended).toBe(1);
    expect(reader.within).toBe(false);
  });
  it("does not take the end of a head from behind what it was told", () => {
    const bytes = Buffer.from(BARE, "latin1");
    let ended = 0;
    const reader = new MessageReader({ head: () => undefined, body: () => undefined, end: () => ended++ });
    reader.feed(bytes, BARE.length - 2);
    expect(ended).toBe(0);
    expect(reader.within).toBe(true);
  });
  it("refuses a chunk without a size", () => {
    expect(() => read("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", 100)).toThrow("no chunk size");
  });
});

describe("statusOf", () => {
  it("reads the status", () => {
    expect(statusOf("HTTP/1.1 503 Service Unavailable\r\nx: y")).toBe(503);
    expect(statusOf("nonsense")).toBe(0);
  });
});
