import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { built } from "../fleet/root.js";
import { BodyWriter } from "../reference/body-writer.js";
import { Random } from "../reference/random.js";
import { type Answer, EmulatedHost, type HostRequest } from "./host.js";
import { pluginDocument } from "./micro.js";

const FAST = process.env["CROSSPOINT_FAST"] === "1";
const REQUESTS = FAST ? 50_000 : 1_000_000;
/** Until then slots, tables and spare objects come into being; what the test is about is the rest. */
const WARM_UP = FAST ? 30_000 : 200_000;
/** As many streams as are open at once. */
const OPEN = 24;
/** About 250 ms of a busy worker. */
const REQUESTS_PER_TICK = 200;
const TICK_MS = 250;
const TIME_MS = 600_000;
const PODS = 16;
/** Records of the index: of 4 KiB each, and as many for runs that many pods hold. */
const INDEX_BYTES = 1 << 20;
const SLOTS = INDEX_BYTES / 4096;
/** Records of responses that engines keep. */
const BINDINGS = 1024;
/** Ids, lease, load, in-flight and the like. */
const SINGLE_RECORDS = 16;

const PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/inference/v1/generate", "/v1/embeddings", "/v1/chat/completions/render", "/v1/other"];

interface OpenStream {
  id: number;
  request: HostRequest;
  decode: string;
}

/** Bodies as clients send them and as attackers do: known prompts and new ones, broken ones, pictures; some very long. */
class Client {
  private readonly writer: BodyWriter;
  private readonly known: Buffer[] = [];
  private number = 0;

  constructor(private readonly random: Random) {
    this.writer = new BodyWriter(random);
    for (let count = 0; count < 400; count++) this.known.push(Buffer.from(this.writer.body(random.pick(["chat", "completions", "messages", "responses", "generate", "embeddings"]))));
  }

  next(): HostRequest {
    const { random } = this;
    const headers = new Map([
      [":path", random.pick(PATHS)],
      ["x-request-id", `r-${(this.number++).toString(16)}`],
    ]);
    if (random.oneIn(50)) headers.set("content-encoding", "gzip");
    if (random.oneIn(50)) headers.set("prefer", "if-available");
    return { headers, body: this.body(), pieceBytes: random.pick([200, 1000, 65_536]) };
  }

  private body(): Buffer {
    const { random } = this;
    const conversation = random.below(5_000);
    switch (random.below(8)) {
      case 0:
        return random.pick(this.known);
      case 1: {
        const body = random.pick(this.known);
        return body.subarray(0, random.below(body.length + 1));
      }
      case 2:
        return random.oneIn(200) ? Buffer.from(JSON.stringify({ model: "m", messages: [{ role: "user", content: `${String(this.number)} ${"long ".repeat(20_000)}` }] })) : Buffer.alloc(0);
      default: {
        // A conversation's next turn: what it has in common with the last one is known.
        const turns = 1 + random.below(6);
        const messages = Array.from({ length: turns }, (_, turn) => ({ role: turn % 2 === 0 ? "user" : "assistant", content: `${String(conversation)} turn ${String(turn)} ${"word ".repeat(conversation % 60)}` }));
        return Buffer.from(JSON.stringify({ model: `m${String(conversation % 3)}`, messages, stream: true, ...(random.oneIn(20) ? { n: 2 } : {}) }));
      }
    }
  }

  /** Null: the client or the pod is gone. */
  answer(decode: string): Answer | null {
    const { random } = this;
    if (random.oneIn(30)) return null;
    const status = random.pick(["200", "200", "200", "200", "200", "200", "400", "500", "503"]);
    const headers = new Map([[":status", status]]);
    if (random.oneIn(2)) headers.set("x-crosspoint-response-id", `resp_${String(random.below(100_000))}`);
    if (random.oneIn(8)) headers.set("x-crosspoint-prefilled-by", random.pick(["local", "127.77.0.1:8000"]));
    const other = random.oneIn(40);
    return { headers, upstream: other ? "127.0.0.1:20001" : decode, attempts: other ? 2 : 1 };
  }
}

describe(`the filter's memory over ${REQUESTS.toLocaleString("en")} requests`, () => {
  it("is flat once it has served some, and so is shared data", { timeout: TIME_MS }, () => {
    // Few slots, so that the index is full long before the end and goes on by evicting.
    const document = JSON.parse(Buffer.from(pluginDocument({ blockTokens: 16, maxBlocks: 256 }, PODS)).toString()) as { options?: Record<string, unknown> };
    document.options = { ...document.options, indexBytes: INDEX_BYTES, reasonHeader: true };
    const host = new EmulatedHost(readFileSync(built("filter.wasm")), Buffer.from(JSON.stringify(document)));
    const random = new Random(11);
    const client = new Client(random);
    const open: OpenStream[] = [];
    let own = 0;

    const end = (): void => {
      const [stream] = open.splice(random.below(open.length), 1);
      if (stream === undefined) return;
      const answer = client.answer(stream.decode);
      if (answer !== null) host.answered(stream.id, stream.request, answer);
      host.ended(stream.id, stream.request, answer);
    };
    const serve = (count: number): void => {
      for (let number = 1; number <= count; number++) {
        const request = client.next();
        const id = host.begun(request);
        if (id === null) own++;
        else open.push({ id, request, decode: host.set.get("x-gateway-destination-endpoint") ?? "" });
        if (open.length > OPEN) end();
        if (number % REQUESTS_PER_TICK !== 0) continue;
        host.nowMs += TICK_MS;
        host.tick();
        host.logs.length = 0;
      }
    };

    serve(WARM_UP);
    const before = { memory: host.memoryBytes, ...host.shared };
    serve(REQUESTS - WARM_UP);
    while (open.length > 0) end();
    host.nowMs += TICK_MS;
    host.tick();
    const after = { memory: host.memoryBytes, ...host.shared };

    expect(after.memory).toBe(before.memory);
    // A slot that nothing had been hashed to before may still be found; no more keys than there are slots, bindings, pods and single records.
    expect(after.keys - before.keys).toBeLessThanOrEqual(FAST ? 8 : 2);
    expect(after.keys).toBeLessThanOrEqual(2 * SLOTS + BINDINGS + PODS + SINGLE_RECORDS);
    // Slots hold at most what they may; which of them are full goes up and down.
    expect(after.bytes).toBeLessThan(2 * INDEX_BYTES);
    // The decider and strict bodies aside, nearly all were routed.
    expect(own / REQUESTS).toBeLessThan(0.1);
    expect(host.inFlight).toEqual({ requests: 0, tokens: 0 });
  });
});
