import { writeFileSync } from "node:fs";
import { connect, createSecureServer } from "node:http2";
import { connect as connectTcp, type Socket } from "node:net";
import { join } from "node:path";
import { generate } from "selfsigned";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { listenAnywhere } from "../fleet/ports.js";
import { errorOf, Gateway, json, until, WITH_STAND_IN } from "./gateway.js";
import { type Echo, Pod } from "./pod.js";

interface Pems {
  cert: string;
  key: string;
}
let own: Pems;
let other: Pems;
const closers: (() => Promise<void>)[] = [];

beforeAll(async () => {
  const make = async (name: string): Promise<Pems> => {
    const pems = await generate([{ name: "commonName", value: name }], { keySize: 2048, algorithm: "sha256" });
    return { cert: pems.cert, key: pems.private };
  };
  own = await make("sidecar");
  other = await make("somebody else");
});
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function gatewayTo(options: Parameters<typeof Gateway.start>[0]): Promise<Gateway> {
  const gateway = await Gateway.start(options);
  closers.push(() => gateway.stop());
  return gateway;
}
async function tlsPod(pems: Pems): Promise<Pod> {
  const pod = await Pod.start({ name: "d0", tls: pems });
  closers.push(() => pod.close());
  return pod;
}

describe("tls.decode", () => {
  it("speaks TLS to decode pods, health checks included, and takes a self-signed certificate", async () => {
    const pod = await tlsPod(own);
    const gateway = await gatewayTo({ endpoints: [pod], options: { tls: { decode: true } } });
    await until("a healthy pod", async () => (await gateway.stat("cluster.decode.membership_healthy")) === 1);
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", body: Buffer.alloc(5 << 20, "a") });
    expect(json(answer)).toMatchObject({ pod: "d0", bytes: 5 << 20 });
    expect(await gateway.stat("cluster.decode.ssl.handshake")).toBeGreaterThan(0);
  });

  it("with tls.verify takes a certificate of the CA file, and no other", async () => {
    for (const [pems, works] of [[own, true], [other, false]] as const) {
      const pod = await tlsPod(pems);
      const rendered = await Gateway.render({ endpoints: [pod] });
      closers.push(() => rendered.stop());
      const ca = join(rendered.folder, "ca.pem");
      writeFileSync(ca, own.cert);
      const gateway = await gatewayTo({ endpoints: [pod], options: { tls: { decode: true, verify: true } }, settings: { tlsCaFile: ca } });
      const answer = await gateway.send({ path: "/v1/models" });
      expect(answer.status).toBe(works ? 200 : 503);
      if (!works) errorOf(answer);
      expect(pod.requests.length).toBe(works ? 1 : 0);
    }
  });

  it("with tls.verify and no CA file is refused", async () => {
    const pod = await tlsPod(own);
    await expect(Gateway.render({ endpoints: [pod], options: { tls: { decode: true, verify: true } }, settings: { tlsCaFile: "/nowhere/ca.pem" } })).rejects.toThrow(
      /options\.tls\.verify.*\/nowhere\/ca\.pem does not exist/,
    );
  });

  it("speaks HTTP/2 where ALPN gives it, with bodies of the limit", { timeout: 40_000 }, async () => {
    const server = createSecureServer({ cert: own.cert, key: own.key, allowHTTP1: true }, (request, response) => {
      let bytes = 0;
      request.on("data", (piece: Buffer) => (bytes += piece.length));
      request.on("end", () => response.end(JSON.stringify({ version: request.httpVersion, bytes, trailers: request.trailers })));
    });
    const port = await listenAnywhere(server as never, "127.0.0.1");
    const sockets = new Set<Socket>();
    server.on("connection", (socket: Socket) => sockets.add(socket));
    closers.push(async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => { server.close(() => { resolve(); }); });
    });
    const gateway = await gatewayTo({ endpoints: [{ name: "d0", host: "127.0.0.1", port }], options: { tls: { decode: true } } });
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", body: Buffer.alloc(64 << 20, "a") });
    expect(json(answer)).toMatchObject({ version: "2.0", bytes: 64 << 20 });
    // Here trailers go all the way, but for those that no client may send.
    const session = connect(`http://127.0.0.1:${String(gateway.settings.listen.port)}`);
    const text = await new Promise<string>((resolve, reject) => {
      const stream = session.request({ ":method": "POST", ":path": "/v1/completions" }, { waitForTrailers: true } as object);
      stream.on("wantTrailers", () => { stream.sendTrailers({ "x-checksum": "1", "x-prefiller-host-port": "10.9.9.9:80", "x-envoy-retry-on": "5xx" }); });
      let got = "";
      stream.on("data", (piece: Buffer) => (got += piece.toString()));
      stream.on("end", () => { resolve(got); });
      stream.on("error", reject);
      stream.end("{}");
    });
    session.close();
    expect(JSON.parse(text)).toEqual({ version: "2.0", bytes: 2, trailers: { "x-checksum": "1" } });
  });

  it("holds a pod back over HTTP/2 when the client does not read", { timeout: 40_000 }, async () => {
    let sent = 0;
    const server = createSecureServer({ cert: own.cert, key: own.key, allowHTTP1: true }, (request, response) => {
      if (request.url === "/health" || request.url === "/metrics") {
        response.end();
        return;
      }
      const piece = Buffer.alloc(65_536, "x");
      const go = (): void => {
        while (sent < 200 << 20) {
          sent += piece.length;
          if (!response.write(piece)) {
            response.once("drain", go);
            return;
          }
        }
        response.end();
      };
      go();
    });
    const port = await listenAnywhere(server as never, "127.0.0.1");
    const sockets = new Set<Socket>();
    server.on("connection", (socket: Socket) => sockets.add(socket));
    closers.push(async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((resolve) => { server.close(() => { resolve(); }); });
    });
    const gateway = await gatewayTo({ endpoints: [{ name: "d0", host: "127.0.0.1", port }], options: { tls: { decode: true } } });
    sent = 0;
    const socket = connectTcp(gateway.settings.listen.port, gateway.settings.listen.host);
    socket.pause();
    socket.write("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}");
    let last = -1;
    await until("the pod being held back", async () => {
      await new Promise((resolve) => setTimeout(resolve, 400));
      const held = sent === last && last > 0;
      last = sent;
      return held;
    });
    expect(sent).toBeLessThan(8 << 20);
    socket.destroy();
  });

  it("off, a pod that speaks TLS is not reached", async () => {
    const pod = await tlsPod(own);
    const gateway = await gatewayTo({ endpoints: [pod] });
    expect((await gateway.send({ path: "/v1/models" })).status).not.toBe(200);
    expect(pod.requests).toEqual([]);
  });
});

describe("the filter's own calls", () => {
  it.runIf(WITH_STAND_IN).each([["crosspoint_scrape", false], ["crosspoint_scrape_tls", true]] as const)("%s goes where its header says, TLS %s", async (cluster, tls) => {
    const pod = tls ? await tlsPod(own) : await Pod.start({ name: "scraped" });
    if (!tls) closers.push(() => pod.close());
    const decode = await Pod.start({ name: "d0" });
    closers.push(() => decode.close());
    const gateway = await gatewayTo({ endpoints: [decode] });
    // The stand-in calls for the request: /call of the cluster, at the address.
    const answer = await gateway.send({ path: "/v1/models", headers: [["x-test-call", `${cluster} ${pod.address}`]] });
    expect(answer.status).toBe(200);
    const echo = await until("the call", () => pod.requests[0]);
    expect(echo).toMatchObject<Partial<Echo>>({ method: "GET", url: "/called" });
    expect(decode.requests.filter(({ url }) => url === "/called")).toEqual([]);
  });
});
