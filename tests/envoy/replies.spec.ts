/** What Envoy answers by itself: JSON in OpenAI's shape, always. */
import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { AnswerReader } from "../fleet/http.js";
import { errorOf, Gateway, json, until, WITH_STAND_IN } from "./gateway.js";
import { Pod } from "./pod.js";

let pod: Pod;
let gateway: Gateway;

beforeAll(async () => {
  pod = await Pod.start({ name: "d0" });
  gateway = await Gateway.start({
    endpoints: [pod],
    settings: { requestHeadersTimeoutMs: 700, requestTimeoutMs: 1_500, maxConnections: 40 },
  });
});
afterAll(async () => {
  await gateway.stop();
  await pod.close();
});

interface RawAnswer {
  status: number | null;
  headers: [string, string][];
  body: Buffer;
  /** When the answer began, ms after the connection was made. */
  beganMs: number;
}

/** Writes the pieces as they are, with a pause before each but the first, and reads what comes back until the connection is closed or `waitMs` are over. */
function raw(pieces: readonly string[], pauseMs = 0, waitMs = 6_000): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const reader = new AnswerReader("POST");
    const socket = connect(gateway.settings.listen.port, gateway.settings.listen.host);
    const startedAt = performance.now();
    let beganMs = Number.NaN;
    let over = false;
    const end = (): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      socket.destroy();
      resolve({ status: reader.status, headers: reader.headers, body: Buffer.concat(reader.pieces), beganMs });
    };
    const timer = setTimeout(end, waitMs);
    socket.on("error", (error) => { if (reader.status === null) reject(error); else end(); });
    socket.on("data", (data: Buffer) => {
      if (Number.isNaN(beganMs)) beganMs = performance.now() - startedAt;
      reader.push(data);
    });
    socket.on("close", end);
    void (async () => {
      for (const [i, piece] of pieces.entries()) {
        if (i > 0) await new Promise((next) => setTimeout(next, pauseMs));
        if (over) return;
        socket.write(piece);
      }
    })();
  });
}

function check(answer: RawAnswer, status: number): void {
  expect(answer.status).toBe(status);
  expect(errorOf({ ...answer, trailers: [] } as never)).toMatchObject({ code: status });
}

describe("broken requests", () => {
  it.each([
    { status: 400, what: "no HTTP", text: "nonsense\r\n\r\n" },
    { status: 400, what: "no host", text: "GET /v1/models HTTP/1.1\r\n\r\n" },
    { status: 400, what: "a line that is no header", text: "GET /v1/models HTTP/1.1\r\nhost: x\r\nbroken header\r\n\r\n" },
    { status: 400, what: "a length and chunks", text: "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" },
    { status: 400, what: "two lengths", text: "POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd" },
    { status: 400, what: "a chunk of no size", text: "POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n" },
    { status: 426, what: "HTTP/1.0", text: "GET /v1/models HTTP/1.0\r\n\r\n" },
    { status: 431, what: "a header of 70,000 bytes", text: `GET /v1/models HTTP/1.1\r\nhost: x\r\nlong: ${"a".repeat(70_000)}\r\n\r\n` },
    { status: 431, what: "150 headers", text: `GET /v1/models HTTP/1.1\r\nhost: x\r\n${Array.from({ length: 150 }, (_, i) => `h${String(i)}: a\r\n`).join("")}\r\n` },
  ])("$status: $what", async ({ status, text }) => {
    check(await raw([text]), status);
  });
});

describe("slow senders", () => {
  it("408 when the headers do not come", async () => {
    const answer = await raw(["POST /v1/completions HTTP/1.1\r\nhost: x\r\n", "x: y\r\n", "x: y\r\n"], 500);
    check(answer, 408);
    // Before the time for the whole request is over.
    expect(answer.beganMs).toBeLessThan(1_300);
  });

  it("408 when the body does not end, however steadily it drips", async () => {
    const drops = Array.from({ length: 40 }, () => "a");
    check(await raw(["POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n", ...drops], 100), 408);
  });

  it("a slow answer is no slow sender", async () => {
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers: [["x-pod-delay-ms", "2500"]], body: Buffer.from("{}") });
    expect(answer.status).toBe(200);
  });
});

describe("the filter's own answers", () => {
  it.runIf(WITH_STAND_IN).each([400, 412, 413, 429, 503])("%i keeps the body that the filter gave it", async (status) => {
    const answer = await gateway.send({ path: "/v1/models", headers: [["x-test-reply", String(status)]] });
    expect(answer.status).toBe(status);
    expect(errorOf(answer).message).toBe("of the filter");
    expect(json(answer)).toEqual({ error: { message: "of the filter", type: "t", param: null, code: "c" } });
  });

  it.runIf(WITH_STAND_IN)("a trap is 503 of Envoy's", async () => {
    const answer = await gateway.send({ path: "/v1/models", headers: [["x-test-trap", "1"]] });
    expect(answer.status).toBe(503);
    expect(errorOf(answer).type).toBe("ServiceUnavailable");
    await until("the VM's return", async () => (await gateway.send({ path: "/v1/models" })).status === 200);
  });

  it("answers of pods are not touched, errors included", async () => {
    for (const status of [404, 413, 500, 503, 504]) {
      const answer = await gateway.send({ path: "/v1/models", headers: [["x-pod-status", String(status)]] });
      expect(answer.status).toBe(status);
      expect(json(answer)).toMatchObject({ pod: "d0" });
    }
  });
});

describe("the connection limit", () => {
  it("closes what is over it, and takes new connections when others have gone", async () => {
    const sockets = await Promise.all(
      Array.from({ length: 60 }, async () => {
        const socket = connect(gateway.settings.listen.port, gateway.settings.listen.host);
        socket.on("error", () => undefined);
        await new Promise((resolve) => socket.once("connect", resolve));
        return socket;
      }),
    );
    await until("closed connections", () => sockets.filter((socket) => socket.closed || socket.readableEnded || !socket.readable).length >= 20);
    expect(sockets.filter((socket) => socket.readable).length).toBeLessThanOrEqual(40);
    // An operator gets to the state all the same.
    const { state } = gateway.settings;
    expect((await fetch(`http://${state.host}:${String(state.port)}/`)).status).toBe(200);
    for (const socket of sockets) socket.destroy();
    await until("a new connection", async () => (await gateway.send({ path: "/v1/models" })).status === 200);
  });
});

describe("the state listener", () => {
  it("answers with JSON", async () => {
    const { state } = gateway.settings;
    const response = await fetch(`http://${state.host}:${String(state.port)}/`);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(typeof (await response.json())).toBe("object");
  });
});
