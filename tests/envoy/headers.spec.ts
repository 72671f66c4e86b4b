import { connect } from "node:http2";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readPrometheus } from "../fleet/admin.js";
import type { HeaderLine } from "../fleet/http.js";
import { headerLines } from "../fleet/http.js";
import { errorOf, Gateway, json, WITH_STAND_IN } from "./gateway.js";
import { type Echo, Pod } from "./pod.js";

const STRIPPED = [
  "x-prefiller-host-port",
  "x-encoder-hosts-ports",
  "x-kv-cache-source-host-port",
  "x-data-parallel-host-port",
  "x-data-parallel-rank",
  "x-prefiller-url",
  "x-gateway-destination-endpoint",
  "x-gateway-destination-endpoint-subset",
  "x-envoy-original-dst-host",
  "x-crosspoint-decision",
  // How Envoy's router would treat the request.
  "x-envoy-retry-on",
  "x-envoy-max-retries",
  "x-envoy-upstream-rq-timeout-ms",
  "x-envoy-upstream-alt-stat-name",
];
/** Nobody listens there, and the value is seen nowhere else. */
const POISON = "10.9.9.9:80";

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

function capitals(name: string): string {
  return name.replace(/(^|-)(.)/g, (_all, dash: string, letter: string) => dash + letter.toUpperCase());
}

/** Each header four times, spelt in four ways. */
function poisoned(): HeaderLine[] {
  return STRIPPED.flatMap((name): HeaderLine[] => [name, name.toUpperCase(), capitals(name), name].map((spelt) => [spelt, POISON]));
}

/** Header names of ours that the pod saw with a client's value. */
function leaked(echo: Echo): string[] {
  const found: string[] = [];
  for (let i = 0; i < echo.rawHeaders.length; i += 2) {
    const name = (echo.rawHeaders[i] ?? "").toLowerCase();
    if ((STRIPPED.includes(name) || name.startsWith("x-envoy-")) && (echo.rawHeaders[i + 1] ?? "").includes(POISON)) found.push(name);
  }
  return found;
}

describe("routing headers of clients", () => {
  it.each([
    ["GET", "/v1/models"],
    ["GET", "/health"],
    ["POST", "/v1/chat/completions"],
    ["POST", "/v1/not-a-path"],
    ["POST", "/tokenize"],
  ])("%s %s: none arrives, however spelt and repeated", async (method, path) => {
    const answer = await gateway.send({ method, path, headers: poisoned(), ...(method === "POST" ? { body: Buffer.from('{"model":"m","messages":[]}') } : {}) });
    expect(answer.status).toBe(200);
    expect(leaked(json(answer) as Echo)).toEqual([]);
  });

  it("nor in the trailers of a chunked body", async () => {
    const answer = await gateway.send({
      method: "POST",
      path: "/v1/chat/completions",
      chunks: [Buffer.from('{"model":"m",'), Buffer.from('"messages":[]}')],
      trailers: [["x-prefiller-host-port", POISON], ["x-checksum", "1"]],
    });
    expect(answer.status).toBe(200);
    const echo = json(answer) as Echo;
    expect(leaked(echo)).toEqual([]);
    expect(echo.rawTrailers.join(" ")).not.toContain(POISON);
    expect(echo.bytes).toBe(27);
  });

  it("nor over HTTP/2, trailers included", async () => {
    const session = connect(`http://${gateway.settings.listen.host}:${String(gateway.settings.listen.port)}`);
    const echo = await new Promise<Echo>((resolve, reject) => {
      session.on("error", reject);
      const names = STRIPPED.map((name): [string, string[]] => [name, [POISON, POISON]]);
      const stream = session.request({ ":method": "POST", ":path": "/v1/chat/completions", ...Object.fromEntries(names) }, { waitForTrailers: true } as object);
      stream.on("wantTrailers", () => { stream.sendTrailers({ "x-prefiller-host-port": POISON }); });
      let text = "";
      stream.on("data", (piece: Buffer) => (text += piece.toString()));
      stream.on("end", () => { resolve(JSON.parse(text) as Echo); });
      stream.on("error", reject);
      stream.end("{}");
    });
    session.close();
    expect(leaked(echo)).toEqual([]);
    expect(echo.rawTrailers.join(" ")).not.toContain(POISON);
  });

  it("nor while the filter's VM is down", async () => {
    if (!WITH_STAND_IN) return;
    const before = pod.requests.length;
    const trapped = await gateway.send({ path: "/v1/models", headers: [["x-test-trap", "1"], ...poisoned()] });
    expect(trapped.status).toBe(503);
    expect(errorOf(trapped).type).toBe("ServiceUnavailable");
    // The VM is gone until the back-off is over: refused, or served by the new one, and in no case with a client's word.
    for (let i = 0; i < 20; i++) {
      const answer = await gateway.send({ path: "/v1/models", headers: poisoned() });
      expect([200, 503]).toContain(answer.status);
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    const after = pod.requests.slice(before);
    expect(after.length).toBeGreaterThan(0);
    expect(after.flatMap(leaked)).toEqual([]);
    // None has come through beside the filter.
    expect(after.filter(({ rawHeaders }) => !rawHeaders.includes("x-stand-in-revision"))).toEqual([]);
  });

  it("a client that asks Envoy for retries gets none", async () => {
    const before = pod.requests.length;
    const headers: HeaderLine[] = [["x-envoy-retry-on", "5xx,gateway-error"], ["x-envoy-max-retries", "5"], ["x-pod-status", "503"]];
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers, body: Buffer.from("{}") });
    expect(answer.status).toBe(503);
    expect(pod.requests.length).toBe(before + 1);
  });

  it("the filter's own choice arrives", async () => {
    if (!WITH_STAND_IN) return;
    const answer = await gateway.send({ path: "/v1/models", headers: [["x-test-destination", pod.address], ["x-gateway-destination-endpoint", POISON]] });
    const echo = json(answer) as Echo;
    const at = echo.rawHeaders.indexOf("x-gateway-destination-endpoint");
    expect(echo.rawHeaders[at + 1]).toBe(pod.address);
  });
});

describe("x-request-id", () => {
  async function ids(headers: HeaderLine[], path = "/v1/models"): Promise<{ answer: string[]; pod: string[] }> {
    const answer = await gateway.send({ path, headers });
    const echo = answer.status === 200 ? (json(answer) as Echo) : null;
    const seen: string[] = [];
    for (let i = 0; i < (echo?.rawHeaders.length ?? 0); i += 2) {
      if (echo?.rawHeaders[i]?.toLowerCase() === "x-request-id") seen.push(echo.rawHeaders[i + 1] ?? "");
    }
    return { answer: headerLines(answer.headers, "x-request-id"), pod: seen };
  }

  it.each(["req-1", "00000000-0000-4000-8000-000000000000", "a1b2c3d4-e5f6-9abc-8def-0123456789ab", "not a uuid; with=anything"])("of the client is kept as it is: %s", async (id) => {
    expect(await ids([["X-Request-Id", id]])).toEqual({ answer: [id], pod: [id] });
  });

  it("is made where there is none, and another one each time", async () => {
    const first = await ids([]);
    const second = await ids([]);
    expect(first.answer[0]).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    expect(first.pod).toEqual(first.answer);
    expect(second.answer).not.toEqual(first.answer);
  });

  it("sent twice is one line on the way to the pod", async () => {
    const { pod: seen } = await ids([["x-request-id", "a"], ["X-Request-ID", "b"]]);
    expect(seen).toHaveLength(1);
  });

  it("is in the answers that Envoy gives itself, and in the access log", async () => {
    expect((await ids([["x-request-id", "lost-way"]], "/nowhere")).answer).toEqual(["lost-way"]);
    const line = await gateway.logged("lost-way");
    expect(line).toMatchObject({ method: "GET", path: "/nowhere", status: 404, upstream: null, decision: null });
  });
});

describe("the access log", () => {
  it("holds a line of JSON for each request, the path without its query", async () => {
    const answer = await gateway.send({ method: "POST", path: "/v1/completions?api_key=secret", headers: [["x-request-id", "log-1"]], body: Buffer.from("{}") });
    expect(answer.status).toBe(200);
    const line = await gateway.logged("log-1");
    expect(line).toMatchObject({ method: "POST", path: "/v1/completions", status: 200, upstream: pod.address, flags: "", details: "via_upstream" });
    expect(line.decision?.decision).toBe("decode-only");
    expect(line.durationMs).toBeGreaterThanOrEqual(0);
  });
});

describe("the filter's counters", () => {
  it("have labels for Prometheus", async () => {
    await gateway.send({ method: "POST", path: "/v1/completions", body: Buffer.from("{}") });
    const samples = readPrometheus((await gateway.running.admin.get("/stats/prometheus")).body);
    const decided = samples.find(({ name, labels }) => name === "crosspoint_decisions" && labels["decision_type"] === "decode-only");
    expect(decided?.value).toBeGreaterThan(0);
    // Every part of a name that should be a label is one.
    const names = samples.filter(({ name }) => /^crosspoint_.*_(stage|reason|decision_type|role|result)(_|$)/.test(name)).map(({ name }) => name);
    expect(names).toEqual([]);
  });
});

describe("nothing of Envoy's own goes to the pod", () => {
  it("no x-envoy-* header but how often the request was tried, no accept-encoding that the client did not send", async () => {
    const answer = await gateway.send({ path: "/v1/models" });
    const names = (json(answer) as Echo).rawHeaders.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase());
    expect(names.filter((name) => name.startsWith("x-envoy-") || name === "accept-encoding")).toEqual(["x-envoy-attempt-count"]);
    expect(answer.headers.filter(([name]) => name.toLowerCase().startsWith("x-envoy-"))).toEqual([]);
  });
});

it("a request that is no HTTP ends its own HTTP/2 stream, not those of the others on its connection", async () => {
  const session = connect(`http://${gateway.settings.listen.host}:${String(gateway.settings.listen.port)}`);
  let dead = "";
  session.on("error", (error: Error) => (dead = error.message));
  session.on("goaway", () => (dead = "GOAWAY"));
  const ask = (headers: Record<string, string>): Promise<string> =>
    new Promise((resolve) => {
      const stream = session.request(headers);
      stream.on("response", (answer) => {
        resolve(String(answer[":status"]));
      });
      stream.on("error", () => {
        resolve("reset");
      });
      stream.resume().end();
    });
  const slow = ask({ ":method": "GET", ":path": "/v1/models", "x-pod-delay-ms": "1500" });
  // Nothing of the kind can be answered, but for what Envoy can read as a request.
  for (const wrong of [{ ":path": "no-slash" }, { ":path": "" }, { ":authority": "a b" }] as Record<string, string>[]) {
    expect(await ask({ ":method": "GET", ":path": "/v1/models", ...wrong })).toMatch(/^(?:reset|400)$/);
  }
  expect(await slow).toBe("200");
  expect(dead).toBe("");
  session.close();
});
