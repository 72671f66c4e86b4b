import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, it } from "vitest";
import type { Sidecar } from "./server.js";
import { startTestSidecar } from "./testkit/harness.js";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

const MIB = 1024 * 1024;

/** What buffers take now, garbage aside; half a second may pass until all of it is seen. */
async function bufferBytes(): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let turn = 0; turn < 5; turn++) {
    await sleep(50);
    collectGarbage();
    least = Math.min(least, process.memoryUsage().arrayBuffers);
  }
  return least;
}

describe("memory", () => {
  let sidecar: Sidecar | null = null;
  const servers: ReturnType<typeof createServer>[] = [];

  afterEach(async () => {
    await sidecar?.close();
    sidecar = null;
    await Promise.all(
      servers.splice(0).map((server) => {
        server.closeAllConnections();
        return new Promise((resolve) => server.close(resolve));
      }),
    );
  });

  /** An engine that keeps nothing of what it reads. */
  async function serve(answer: (message: IncomingMessage, response: ServerResponse) => void): Promise<number> {
    const server = createServer((message, response) => {
      message.resume().once("end", () => {
        answer(message, response);
      });
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return (server.address() as AddressInfo).port;
  }

  it.each([false, true])("an open stream does not hold its request's body (P/D %s)", async (split) => {
    const engine = await serve((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    });
    const prefiller = await serve((_, response) => {
      response.writeHead(200, { "content-type": "application/json" }).end('{"kv_transfer_params":{"remote_request_id":"r"}}');
    });
    sidecar = await startTestSidecar(engine);
    const { port } = sidecar;
    const body = Buffer.from(`{"messages":[{"role":"user","content":"${"a".repeat(MIB)}"}],"stream":true}`);
    const headers = { "content-type": "application/json", "content-length": body.length, ...(split ? { "x-prefiller-host-port": `127.0.0.1:${String(prefiller)}` } : {}) };
    const before = await bufferBytes();
    const requests = Array.from({ length: 16 }, () => {
      const request = httpRequest({ host: "127.0.0.1", port, agent: false, method: "POST", path: "/v1/chat/completions", headers });
      const streaming = new Promise<void>((resolve, reject) => {
        request.once("error", reject).once("response", (response) => {
          response.once("data", () => {
            resolve();
          });
        });
      });
      request.end(body);
      return { request, streaming };
    });
    for (const { streaming } of requests) await streaming;
    expect((await bufferBytes()) - before).toBeLessThan(3 * MIB);
    for (const { request } of requests) request.on("error", () => undefined).destroy();
  });

  it("a body that comes one byte at a time takes no more than its bytes", async () => {
    sidecar = await startTestSidecar(9);
    collectGarbage();
    const before = process.memoryUsage().heapUsed;
    const socket = connect(sidecar.port, "127.0.0.1");
    socket.on("error", () => undefined).resume();
    socket.write('POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{"\r\n');
    const chunks = Buffer.from("1\r\na\r\n".repeat(20_000));
    for (let turn = 0; turn < 15; turn++) if (!socket.write(chunks)) await new Promise((resolve) => socket.once("drain", resolve));
    await sleep(300);
    collectGarbage();
    // 300,000 buffers would take 50 MB.
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(15 * MIB);
    socket.destroy();
  });
});
