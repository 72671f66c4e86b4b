import { afterAll, beforeAll, expect, it } from "vitest";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { errorOf, Gateway, until } from "./gateway.js";
import { Pod } from "./pod.js";

const MIB = 1024 * 1024;

let pod: Pod;
let gateway: Gateway;

beforeAll(async () => {
  pod = await Pod.start({ name: "d0" });
  gateway = await Gateway.start({ endpoints: [pod], settings: { maxHeapBytes: 256 * MIB } });
});
afterAll(async () => {
  await gateway.stop();
  await pod.close();
});

/** Begins a body of so many bytes, of which none is sent yet. */
function begin(bytes: number): { socket: Socket; answer: () => string; ended: () => boolean } {
  const socket = connect(gateway.settings.listen.port, gateway.settings.listen.host);
  let text = "";
  let ended = false;
  socket.on("error", () => (ended = true));
  socket.on("close", () => (ended = true));
  socket.on("data", (data: Buffer) => (text += data.toString()));
  socket.write(`POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: ${String(bytes)}\r\n\r\n`);
  return { socket, answer: () => text, ended: () => ended };
}

async function allocatedMib(): Promise<number> {
  return Number((JSON.parse((await gateway.running.admin.get("/memory")).body) as { allocated: string }).allocated) / MIB;
}

async function served(): Promise<void> {
  await until("room", async () => (await gateway.send({ path: "/v1/models" })).status === 200, 30_000);
}

it("near the heap's limit requests are answered 503 as JSON, and are served again once there is room", { timeout: 60_000 }, async () => {
  await served();
  const held = Array.from({ length: 4 }, () => begin(62 * MIB));
  for (const { socket } of held) await new Promise<void>((resolve) => socket.write(Buffer.alloc(61 * MIB, "a"), () => { resolve(); }));
  const refused = await until("a refusal", async () => {
    const answer = await gateway.send({ path: "/v1/models" });
    return answer.status === 503 && answer;
  });
  expect(errorOf(refused)).toMatchObject({ type: "ServiceUnavailable", code: 503 });
  for (const { socket } of held) socket.destroy();
  await served();
});

it("bodies that grow beyond the limit are cut off with 503, answers that are streaming are not", { timeout: 60_000 }, async () => {
  await served();
  let pieces = "";
  const stream = connect(gateway.settings.listen.port, gateway.settings.listen.host);
  stream.on("data", (data: Buffer) => (pieces += data.toString()));
  stream.write("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nx-pod-stream: 0\r\n\r\n{}");
  await until("the stream's first piece", () => pieces.includes("xxxxxxxx"));
  const growing = Array.from({ length: 8 }, () => begin(62 * MIB));
  const piece = Buffer.alloc(6 * MIB, "a");
  let most = 0;
  for (let round = 0; round < 10; round++) {
    for (const { socket } of growing) if (!socket.destroyed) socket.write(piece);
    await new Promise((resolve) => setTimeout(resolve, 400));
    most = Math.max(most, await allocatedMib());
  }
  // All together would be 480 MiB; a round is 48.
  expect(most).toBeLessThan(256 + 2 * 48);
  const cut = growing.filter(({ answer }) => answer().startsWith("HTTP/1.1 503"));
  expect(cut.length).toBeGreaterThan(0);
  expect(cut[0]?.answer()).toContain('"type":"ServiceUnavailable"');
  for (const { socket } of growing) socket.destroy();
  pod.finish();
  await until("the stream's end", () => pieces.includes("end"));
  stream.destroy();
  await served();
});

it("over HTTP/2 the largest streams are reset, the others of the connection go on", { timeout: 60_000 }, async () => {
  await served();
  const session = connectHttp2(`http://${gateway.settings.listen.host}:${String(gateway.settings.listen.port)}`);
  let pieces = "";
  const stream = session.request({ ":method": "POST", ":path": "/v1/completions", "x-pod-stream": "0" });
  stream.on("data", (data: Buffer) => (pieces += data.toString()));
  stream.end("{}");
  await until("the stream's first piece", () => pieces === "xxxxxxxx");
  let reset = 0;
  const growing = Array.from({ length: 8 }, () => {
    const one = session.request({ ":method": "POST", ":path": "/v1/completions" });
    one.on("error", () => undefined);
    one.on("close", () => reset++);
    return one;
  });
  const piece = Buffer.alloc(6 * MIB, "a");
  let most = 0;
  for (let round = 0; round < 10; round++) {
    for (const one of growing) if (!one.destroyed) one.write(piece);
    await new Promise((resolve) => setTimeout(resolve, 400));
    most = Math.max(most, await allocatedMib());
  }
  expect(most).toBeLessThan(256 + 2 * 48);
  expect(reset).toBeGreaterThan(0);
  for (const one of growing) one.close();
  pod.finish();
  await until("the stream's end", () => pieces === "xxxxxxxxend");
  session.close();
  await served();
});
