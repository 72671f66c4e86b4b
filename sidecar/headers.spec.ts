import { describe, expect, it } from "vitest";
import { answerHeaders, legHeaders, requestIdOf, ROUTING_HEADERS, valuesOf, withoutHeader } from "./headers.js";

function leg(...rawHeaders: string[]): string[] {
  return legHeaders({ rawHeaders, peerAddress: "10.0.0.9", requestId: "r-1", bodyOpened: false });
}

describe("legHeaders", () => {
  it("C-HDR-06: routing headers are on no leg, however they are spelt", () => {
    const headers = leg("Host", "h", ...ROUTING_HEADERS.flatMap((name) => [name, "1", name.toUpperCase(), "2"]));
    for (const name of ROUTING_HEADERS) expect(valuesOf(headers, name)).toEqual([]);
  });

  it("C-HDR-10: hop-by-hop headers and those that Connection names are dropped, the peer is appended to X-Forwarded-For", () => {
    const headers = leg("Host", "h", "Connection", "x-foo, keep-alive", "X-Foo", "1", "Keep-Alive", "t", "TE", "trailers", "Trailer", "x", "Transfer-Encoding", "chunked", "Upgrade", "h2c", "Proxy-Authorization", "p", "Expect", "100-continue", "X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "2.2.2.2", "X-Bar", "1", "x-bar", "2");
    expect(headers).toEqual(["X-Bar", "1", "x-bar", "2", "host", "h", "x-forwarded-for", "1.1.1.1, 2.2.2.2, 10.0.0.9", "x-request-id", "r-1"]);
  });

  it("C-HDR-09: there is exactly one x-request-id", () => {
    expect(valuesOf(leg("x-request-id", "a", "X-Request-Id", "b"), "x-request-id")).toEqual(["r-1"]);
    expect(requestIdOf(["x-request-id", "", "X-Request-Id", "b", "x-request-id", "c"])).toBe("b");
    expect(requestIdOf([])).toMatch(/^[0-9a-f-]{36}$/);
    expect(requestIdOf([])).not.toBe(requestIdOf([]));
  });

  it("keeps the client's Host, from HTTP/2 too, and leaves pseudo headers out", () => {
    expect(leg(":method", "POST", ":path", "/", ":authority", "a.test", "x", "1")).toEqual(["x", "1", "host", "a.test", "x-forwarded-for", "10.0.0.9", "x-request-id", "r-1"]);
  });

  it("joins the crumbs of a cookie", () => {
    expect(leg("cookie", "a=1", "Cookie", "b=2; c=3")).toEqual(["x-forwarded-for", "10.0.0.9", "cookie", "a=1; b=2; c=3", "x-request-id", "r-1"]);
  });

  it("drops the content encoding of a body that was opened, and the length always", () => {
    const headers = legHeaders({ rawHeaders: ["content-encoding", "gzip", "content-length", "5"], peerAddress: "", requestId: "r", bodyOpened: true });
    expect(headers).toEqual(["x-request-id", "r"]);
  });
});

describe("answerHeaders", () => {
  it("keeps repeats and drops what belongs to the engine's connection", () => {
    const raw = ["Set-Cookie", "a", "Set-Cookie", "b", "Connection", "close, x-hop", "X-Hop", "1", "Transfer-Encoding", "chunked", "content-length", "5"];
    expect(answerHeaders(raw, false)).toEqual(["Set-Cookie", "a", "Set-Cookie", "b", "content-length", "5"]);
    expect(answerHeaders(raw, true)).toEqual(["Set-Cookie", "a", "Set-Cookie", "b"]);
  });
});

it("withoutHeader takes every line out", () => {
  expect(withoutHeader(["Accept-Encoding", "gzip", "a", "1", "accept-encoding", "br"], "accept-encoding")).toEqual(["a", "1"]);
});
