import { connect } from "node:http2";
import { connect as connectTcp } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { errorOf, Gateway, json, until, WITH_STAND_IN } from "./gateway.js";
import { type Echo, Pod, refusingPort } from "./pod.js";

const pods: Pod[] = [];
const gateways: Gateway[] = [];

async function pod(name: string): Promise<Pod> {
  const made = await Pod.start({ name });
  pods.push(made);
  return made;
}
async function start(options: Parameters<typeof Gateway.start>[0]): Promise<Gateway> {
  const made = await Gateway.start(options);
  gateways.push(made);
  return made;
}
afterEach(async () => {
  await Promise.all(gateways.splice(0).map((gateway) => gateway.stop()));
  await Promise.all(pods.splice(0).map((one) => one.close()));
});

/** Waits until Envoy's health checks have that many pods for healthy. */
function healthy(gateway: Gateway, count: number): Promise<boolean> {
  return until(`${String(count)} healthy pods`, async () => (await gateway.stat("cluster.decode.membership_healthy")) === count, 15_000);
}

describe("long answers", () => {
  it("an answer after 20 s arrives", { timeout: 40_000 }, async () => {
    const d0 = await pod("d0");
    const gateway = await start({ endpoints: [d0] });
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers: [["x-pod-delay-ms", "20000"]], body: Buffer.from("{}") });
    expect(answer.status).toBe(200);
    expect(answer.endedAtMs - answer.startedAtMs).toBeGreaterThan(19_900);
  });

  it("2,000 streams are open at once, on one HTTP/2 connection", { timeout: 60_000 }, async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1], concurrency: 2 });
    await healthy(gateway, 2);
    const session = connect(`http://${gateway.settings.listen.host}:${String(gateway.settings.listen.port)}`);
    await new Promise<void>((resolve, reject) => {
      session.on("error", reject);
      // What Envoy allows on one connection is known once its settings are here.
      session.once("remoteSettings", () => { resolve(); });
    });
    let first = 0;
    let whole = 0;
    let failed = 0;
    for (let i = 0; i < 2000; i++) {
      const stream = session.request({ ":method": "POST", ":path": "/v1/completions", "x-pod-stream": "0" });
      let text = "";
      stream.on("response", (headers) => { if (headers[":status"] !== 200) failed++; });
      stream.on("data", (piece: Buffer) => {
        if (text === "") first++;
        text += piece.toString();
      });
      stream.on("end", () => { if (text === "xxxxxxxxend") whole++; });
      stream.on("error", () => failed++);
      stream.end("{}");
    }
    await until("2,000 first pieces", () => first === 2000 || failed > 0, 40_000);
    expect(failed).toBe(0);
    expect(d0.open + d1.open).toBe(2000);
    expect(await gateway.stat("cluster.decode.upstream_rq_pending_overflow")).toBe(0);
    d0.finish();
    d1.finish();
    await until("2,000 ends", () => whole === 2000 || failed > 0, 20_000);
    expect(failed).toBe(0);
    session.close();
  });

  it("2,000 streams are open at once, each on a connection of its own", { timeout: 60_000 }, async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1], concurrency: 2 });
    await healthy(gateway, 2);
    let first = 0;
    const answers = Array.from({ length: 2000 }, () => {
      let started = false;
      return gateway.send({
        method: "POST",
        path: "/v1/completions",
        headers: [["x-pod-stream", "0"]],
        body: Buffer.from("{}"),
        onBody: () => {
          if (!started) first++;
          started = true;
        },
      });
    });
    await until("2,000 first pieces", () => first === 2000, 40_000);
    expect(d0.open + d1.open).toBe(2000);
    d0.finish();
    d1.finish();
    const ended = await Promise.all(answers);
    expect(ended.filter((answer) => answer.status !== 200 || answer.end !== "clean" || answer.body.toString() !== "xxxxxxxxend")).toEqual([]);
  });

  it("silence longer than the idle timeout ends in 504 as JSON", async () => {
    const d0 = await pod("d0");
    const gateway = await start({ endpoints: [d0], settings: { streamIdleTimeoutMs: 1_000 } });
    const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers: [["x-pod-silent", "1"]], body: Buffer.from("{}") });
    expect(answer.status).toBe(504);
    expect(errorOf(answer)).toMatchObject({ type: "GatewayTimeout", code: 504 });
  });

  it("a client that does not read holds the pod back, not Envoy's memory", async () => {
    const d0 = await pod("d0");
    const gateway = await start({ endpoints: [d0] });
    await healthy(gateway, 1);
    const allocated = async (): Promise<number> => (JSON.parse((await gateway.running.admin.get("/memory")).body) as { allocated: string }).allocated as unknown as number;
    const before = Number(await allocated());
    const socket = connectTcp(gateway.settings.listen.port, gateway.settings.listen.host);
    socket.pause();
    socket.write("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nx-pod-stream: 2000\r\nx-pod-piece: 65536\r\n\r\n{}");
    let last = -1;
    await until("the pod being held back", async () => {
      await new Promise((resolve) => setTimeout(resolve, 300));
      const held = d0.sent === last && last > 0;
      last = d0.sent;
      return held;
    });
    expect(d0.sent).toBeLessThan(2000 * 65_536);
    expect(Number(await allocated()) - before).toBeLessThan(8 << 20);
    socket.destroy();
  });
});

describe("which pod", () => {
  it.runIf(WITH_STAND_IN)("the filter's choice, and the next of its list where the first refuses", async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const dead = { name: "dead", host: "127.0.0.1", port: await refusingPort() };
    const gateway = await start({ endpoints: [d0, d1, dead] });
    const to = async (destination: string): Promise<string> => {
      const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers: [["x-test-destination", destination]], body: Buffer.from("{}") });
      expect(answer.status).toBe(200);
      return (json(answer) as Echo).pod;
    };
    for (let i = 0; i < 5; i++) {
      expect(await to(d0.address)).toBe("d0");
      expect(await to(d1.address)).toBe("d1");
      expect(await to(`127.0.0.1:${String(dead.port)},${d1.address}`)).toBe("d1");
      expect(await to(`127.0.0.1:${String(dead.port)}, ${d0.address}`)).toBe("d0");
    }
  });

  it.runIf(WITH_STAND_IN)("a refused connection is tried on another decode pod, with the whole body", async () => {
    const d0 = await pod("d0");
    const prefill = await pod("p0");
    const dead = { name: "dead", host: "127.0.0.1", port: await refusingPort() };
    const gateway = await start({ endpoints: [d0, dead, { name: "p0", host: prefill.host, port: prefill.port, role: "prefill" }] });
    const whole = Buffer.alloc(30 << 20, "a");
    for (let i = 0; i < 5; i++) {
      const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers: [["x-test-destination", `127.0.0.1:${String(dead.port)}`]], body: whole });
      expect(answer.status).toBe(200);
      expect(json(answer)).toMatchObject({ pod: "d0", bytes: whole.length });
    }
    expect(prefill.requests).toEqual([]);
  });

  it("only pods that may decode are in the cluster: a foreign destination and no destination fall back to them", async () => {
    const d0 = await pod("d0");
    const others = await Promise.all([pod("p0"), pod("e0")]);
    const gateway = await start({
      endpoints: [d0, { name: "p0", host: "127.0.0.1", port: others[0].port, role: "prefill" }, { name: "e0", host: "127.0.0.1", port: others[1].port, role: "encode" }],
    });
    const clusters = JSON.parse((await gateway.running.admin.get("/clusters?format=json")).body) as {
      cluster_statuses: { name: string; host_statuses?: { address: { socket_address: { port_value: number } } }[] }[];
    };
    const decode = clusters.cluster_statuses.find(({ name }) => name === "decode");
    expect(decode?.host_statuses?.map(({ address }) => address.socket_address.port_value)).toEqual([d0.port]);
    for (const destination of [others[0].address, others[1].address, "10.9.9.9:80", "nonsense", ""]) {
      const headers: [string, string][] = destination === "" ? [] : [["x-test-destination", destination]];
      const answer = await gateway.send({ path: "/v1/models", headers });
      expect((json(answer) as Echo).pod).toBe("d0");
    }
    expect(others.flatMap((other) => other.requests)).toEqual([]);
  });

  it("an answer of a pod is never tried again, and a reset is not either", async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1] });
    await healthy(gateway, 2);
    for (const [header, status] of [["x-pod-status", 503], ["x-pod-reset", 503], ["x-pod-status", 500]] as const) {
      const before = d0.requests.length + d1.requests.length;
      const answer = await gateway.send({ method: "POST", path: "/v1/completions", headers: [[header, String(status)]], body: Buffer.from("{}") });
      expect(answer.status).toBe(status);
      expect(d0.requests.length + d1.requests.length).toBe(before + 1);
      if (header === "x-pod-reset") expect(errorOf(answer).type).toBe("ServiceUnavailable");
    }
  });

  it("the fallback leaves out a pod whose /health answers 503, and takes it back", { timeout: 40_000 }, async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1] });
    await healthy(gateway, 2);
    d0.healthStatus = 503;
    await healthy(gateway, 1);
    for (let i = 0; i < 20; i++) expect((json(await gateway.send({ path: "/version" })) as Echo).pod).toBe("d1");
    d0.healthStatus = 200;
    await healthy(gateway, 2);
  });

  it.runIf(WITH_STAND_IN)("the filter's choice is taken whatever the health checks say of it", { timeout: 40_000 }, async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1] });
    await healthy(gateway, 2);
    d0.healthStatus = 503;
    await healthy(gateway, 1);
    const answer = await gateway.send({ path: "/version", headers: [["x-test-destination", d0.address]] });
    expect((json(answer) as Echo).pod).toBe("d0");
  });

  it("when no pod is healthy the fallback still tries one", { timeout: 40_000 }, async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1] });
    await healthy(gateway, 2);
    d0.healthStatus = d1.healthStatus = 503;
    await healthy(gateway, 0);
    expect((await gateway.send({ path: "/version" })).status).toBe(200);
  });

  it("a pod that has gone is ejected after two failed connections, before the health checks know, and no client notices", { timeout: 40_000 }, async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1] });
    await healthy(gateway, 2);
    await d0.close();
    for (let i = 0; i < 20; i++) {
      const answer = await gateway.send({ method: "POST", path: "/v1/completions", body: Buffer.from("{}"), headers: WITH_STAND_IN ? [["x-test-destination", d0.address]] : [] });
      expect(json(answer)).toMatchObject({ pod: "d1" });
    }
    expect(await gateway.stat("cluster.decode.outlier_detection.ejections_enforced_consecutive_local_origin_failure")).toBe(1);
    // An ejected pod that the filter names is tried all the same: that it does not is the filter's business.
    if (WITH_STAND_IN) expect(await gateway.stat("cluster.decode.upstream_cx_connect_fail")).toBeGreaterThanOrEqual(20);
  });

  it("answers of 500 eject nobody: a client could take a pod away with them", async () => {
    const [d0, d1] = [await pod("d0"), await pod("d1")];
    const gateway = await start({ endpoints: [d0, d1] });
    await healthy(gateway, 2);
    for (let i = 0; i < 30; i++) {
      const headers: [string, string][] = [["x-pod-status", i < 15 ? "500" : "503"], ...(WITH_STAND_IN ? [["x-test-destination", d0.address] as [string, string]] : [])];
      expect((await gateway.send({ path: "/v1/models", headers })).status).toBeGreaterThanOrEqual(500);
    }
    expect(await gateway.stat("cluster.decode.outlier_detection.ejections_enforced_total")).toBe(0);
    expect(await gateway.stat("cluster.decode.membership_healthy")).toBe(2);
  });

  it("without any reachable pod the answer is 503 as JSON, with Retry-After", async () => {
    const gateway = await start({ endpoints: [{ name: "dead", host: "127.0.0.1", port: await refusingPort() }] });
    const answer = await gateway.send({ path: "/v1/models" });
    expect(answer.status).toBe(503);
    expect(errorOf(answer)).toMatchObject({ type: "ServiceUnavailable", code: 503 });
    expect(answer.headers.find(([name]) => name.toLowerCase() === "retry-after")?.[1]).toMatch(/^\d+$/);
  });
});

describe("IPv6", () => {
  let six: Pod | null = null;
  beforeAll(async () => {
    try {
      six = await Pod.start({ name: "six", host: "::1" });
    } catch {
      six = null;
    }
  });
  afterAll(() => six?.close());

  it("pods and listener, in whatever spelling the file has", async (context) => {
    if (six === null) {
      context.skip("this machine has no ::1");
      return;
    }
    const gateway = await start({ endpoints: [{ name: "six", host: "0:0:0:0:0:0:0:1", port: six.port }], settings: { listen: { host: "::1", port: (await refusingPort("::1")) } } });
    const answer = await gateway.send({ path: "/v1/models", headers: [["x-test-destination", six.address]] });
    expect(json(answer)).toMatchObject({ pod: "six" });
    expect((await gateway.logged(answer.headers.find(([name]) => name.toLowerCase() === "x-request-id")?.[1] ?? "")).upstream).toBe(six.address);
  });
});
