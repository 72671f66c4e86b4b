import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type Candidate, parseCandidate } from "../candidates.js";
import { Metrics } from "../metrics.js";
import { TestUpstream, until } from "../testkit/upstream.js";
import { Upstream } from "../upstream/pools.js";
import { MooncakeRanks } from "./mooncake-ranks.js";

function prefiller(host: string): Candidate {
  const parsed = parseCandidate(`${host}:8000`);
  if (parsed === null) throw new Error(host);
  return parsed;
}

describe("MooncakeRanks", () => {
  const nobodyLeaves = new AbortController().signal;
  const metrics = new Metrics();
  let server: TestUpstream;
  let upstream: Upstream;

  beforeEach(async () => {
    server = await TestUpstream.start((_, response, call) => void response.end(`{"0":{"engine_id":"e${String(call)}","worker_addr":{}},"1":{"engine_id":"f\\u0031"},"x":{"engine_id":"n"},"2":{"engine_id":3}}`));
    upstream = new Upstream(server.authority, null, 10);
  });
  afterEach(async () => {
    await Promise.all([upstream.destroy(), server.close()]);
  });

  it("reads ranks with engine ids that are text, as they came, and draws uniformly", async () => {
    const draws = [0, 0.49, 0.5, 0.999];
    const ranks = new MooncakeRanks(1000, () => 0, () => draws.shift() ?? 0);
    const found = await ranks.get(prefiller("h"), upstream, metrics, nobodyLeaves);
    if (found.kind === "failed") throw new Error(found.reason);
    expect(found.ranks).toEqual([
      { rank: "0", engineId: '"e0"' },
      { rank: "1", engineId: '"f\\u0031"' },
    ]);
    expect([1, 2, 3, 4].map(() => found.pick().rank)).toEqual(["0", "0", "1", "1"]);
    expect([server.received[0]?.method, server.received[0]?.target, server.received[0]?.rawHeaders.filter((_, index) => index % 2 === 0)]).toEqual(["GET", "/query", ["host", "connection"]]);
  });

  it("remembers for its time, by prefiller, until one is dropped", async () => {
    let now = 0;
    const ranks = new MooncakeRanks(1000, () => now);
    const ask = (host: string): Promise<unknown> => ranks.get(prefiller(host), upstream, metrics, nobodyLeaves);
    await ask("a");
    now = 999;
    await ask("a");
    expect(server.received.length).toBe(1);
    await ask("b");
    expect(server.received.length).toBe(2);
    now = 1000;
    await ask("a");
    expect(server.received.length).toBe(3);
    ranks.drop(prefiller("a"));
    await ask("a");
    await ask("b");
    expect(server.received.length).toBe(4);
  });

  it("keeps 1024 prefillers, and forgets the one that was asked for least recently", async () => {
    const ranks = new MooncakeRanks(1e9);
    const ask = (index: number): Promise<unknown> => ranks.get(prefiller(`h${String(index)}`), upstream, metrics, nobodyLeaves);
    for (let index = 0; index < 1024; index++) await ask(index);
    await ask(0);
    await ask(1024);
    expect(server.received.length).toBe(1025);
    await ask(0);
    expect(server.received.length).toBe(1025);
    await ask(1);
    expect(server.received.length).toBe(1026);
  });

  it("shares one query among all who ask at once, also when one of them leaves, and remembers no failure", async () => {
    const answers: (() => void)[] = [];
    server.handler = (_, response) => void answers.push(() => void response.end('{"0":{"engine_id":"e"}}'));
    const ranks = new MooncakeRanks();
    const leaving = new AbortController();
    const left = ranks.get(prefiller("h"), upstream, metrics, leaving.signal);
    const stayed = [1, 2].map(() => ranks.get(prefiller("h"), upstream, metrics, nobodyLeaves));
    await until(() => answers.length === 1);
    leaving.abort();
    expect(await left).toMatchObject({ kind: "failed", reason: "aborted" });
    answers[0]?.();
    expect((await Promise.all(stayed)).map(({ kind }) => kind)).toEqual(["ranks", "ranks"]);
    expect(server.received.length).toBe(1);
    ranks.drop(prefiller("h"));
    server.handler = (_, response) => void response.writeHead(503).end();
    expect(await ranks.get(prefiller("h"), upstream, metrics, nobodyLeaves)).toMatchObject({ kind: "failed", reason: "status_503" });
    expect(await ranks.get(prefiller("h"), upstream, metrics, nobodyLeaves)).toMatchObject({ kind: "failed", reason: "status_503" });
    expect(server.received.length).toBe(3);
  });
});
