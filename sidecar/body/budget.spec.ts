import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Sidecar } from "../server.js";
import { ask, errorOf, header, metric, startTestSidecar } from "../testkit/harness.js";
import { TestUpstream, until } from "../testkit/upstream.js";
import { BodyBudget } from "./budget.js";

describe("BodyBudget", () => {
  it("gives out no more than there is, and takes each share back once", () => {
    const budget = new BodyBudget(10);
    const [one, other] = [budget.open(), budget.open()];
    expect([one.take(6), other.take(5), other.take(4), budget.held]).toEqual([true, false, true, 10]);
    one.giveBack();
    one.giveBack();
    expect([budget.held, other.take(6)]).toEqual([4, true]);
  });
});

describe("bodies held at once", () => {
  let engine: TestUpstream;
  let sidecar: Sidecar | null = null;
  const body = `{"messages":[],"a":"${"x".repeat(3000)}"}`;

  beforeEach(async () => {
    engine = await TestUpstream.start();
  });
  afterEach(async () => {
    await sidecar?.close();
    await engine.close();
  });

  it("503 with Retry-After where they would be more than --max-buffered-bytes; what a client that leaves or an answer lets go is free again", async () => {
    sidecar = await startTestSidecar(engine, ["--body-limit=4000", "--max-buffered-bytes=5000"]);
    const { url, port } = sidecar;
    const slow = connect(port, "127.0.0.1").on("error", () => undefined);
    slow.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 3500\r\n\r\n${body}`);
    const held = async (): Promise<number> => metric(sidecar ?? (await startTestSidecar(engine)), "buffered_body_bytes");
    for (let turn = 0; turn < 100 && (await held()) === 0; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(await held()).toBe(body.length);

    for (const what of [{ body }, { body: [body.slice(0, 1000), body.slice(1000)] }, { body: gzipSync(body), headers: ["content-encoding", "gzip"] }, { target: "/v1/embeddings", body }]) {
      const answered = await ask(url, what);
      expect([answered.status, errorOf(answered).type, header(answered, "retry-after")]).toEqual([503, "ServiceUnavailable", ["5"]]);
    }
    expect([engine.received.length, await held(), await metric(sidecar, "bodies_refused_total", { reason: "no_room" })]).toEqual([0, body.length, 4]);
    // There is room for small ones.
    expect((await ask(url, { body: "{}" })).status).toBe(200);

    slow.destroy();
    for (let turn = 0; turn < 100 && (await held()) > 0; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
    expect((await ask(url, { body })).status).toBe(200);
    for (const what of [{ body: "broken" }, { body }, { target: "/v1/embeddings", body }, { target: "/v1/embeddings", body: "broken" }]) await ask(url, what);
    for (let turn = 0; turn < 100 && (await held()) > 0; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(await held()).toBe(0);
  });

  it("a stream that has begun holds nothing", async () => {
    let finish: (() => void) | null = null;
    engine.handler = (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("data: 1\n\n");
      finish = () => void response.end();
    };
    sidecar = await startTestSidecar(engine, ["--body-limit=4000", "--max-buffered-bytes=4000"]);
    const first = ask(sidecar.url, { body });
    await until(() => finish !== null);
    const end = finish as (() => void) | null;
    engine.handler = (_, response) => void response.end("{}");
    for (let turn = 0; turn < 100 && (await metric(sidecar, "buffered_body_bytes")) > 0; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
    expect((await ask(sidecar.url, { body })).status).toBe(200);
    end?.();
    expect((await first).status).toBe(200);
  });
});
