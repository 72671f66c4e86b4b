import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, rootCertificates } from "node:tls";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { keyPair, type KeyPair } from "./certificate.js";
import type { Sidecar } from "./server.js";
import { ask, errorOf, metric, startTestSidecar } from "./testkit/harness.js";
import { sendJson, TestUpstream, until } from "./testkit/upstream.js";
import { trustedRoots } from "./tls.js";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "sidecar-tls-"));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe("trustedRoots", () => {
  it("are the named file's or the system's, with Node's extra ones", () => {
    writeFileSync(join(folder, "a.pem"), "A");
    writeFileSync(join(folder, "b.pem"), "B");
    const extra = { NODE_EXTRA_CA_CERTS: join(folder, "b.pem") };
    expect(trustedRoots({ SSL_CERT_FILE: join(folder, "a.pem") })).toEqual(["A"]);
    expect(trustedRoots({ SSL_CERT_FILE: join(folder, "a.pem"), ...extra })).toEqual(["A", "B"]);
    const own = trustedRoots({});
    expect(own.length === 1 ? own[0]?.includes("BEGIN CERTIFICATE") : own).toEqual(own.length === 1 ? true : [...rootCertificates]);
    expect(trustedRoots(extra)).toEqual([...own, "B"]);
  });

  it("says which variable names a file that is not there", () => {
    expect(() => trustedRoots({ SSL_CERT_FILE: join(folder, "none.pem") })).toThrow(/^SSL_CERT_FILE: cannot read .*none\.pem \(ENOENT\)$/);
    expect(() => trustedRoots({ NODE_EXTRA_CA_CERTS: join(folder, "none.pem") })).toThrow(/^NODE_EXTRA_CA_CERTS: /);
  });
});

describe("upstream TLS, verified", () => {
  const running: { close(): Promise<void> }[] = [];
  let pair: KeyPair;
  const before = process.env["SSL_CERT_FILE"];

  beforeAll(async () => {
    pair = await keyPair("");
    writeFileSync(join(folder, "ca.pem"), pair.cert);
    process.env["SSL_CERT_FILE"] = join(folder, "ca.pem");
  });
  afterAll(() => {
    if (before === undefined) delete process.env["SSL_CERT_FILE"];
    else process.env["SSL_CERT_FILE"] = before;
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((one) => one.close()));
  });

  async function upstream(tls: KeyPair, body: string): Promise<TestUpstream> {
    const made = await TestUpstream.start((_, response) => {
      sendJson(response, body);
    }, tls);
    running.push(made);
    return made;
  }

  async function sidecar(engine: TestUpstream, ...flags: string[]): Promise<Sidecar> {
    const made = await startTestSidecar(engine, flags);
    running.push(made);
    return made;
  }

  it("takes what the roots vouch for, for the stage's own name and no other", async () => {
    const engine = await upstream(pair, "{}");
    const known = await upstream(pair, '{"kv_transfer_params":{"a":1}}');
    const stranger = await upstream(await keyPair(""), '{"kv_transfer_params":{"a":1}}');
    const { url } = await sidecar(engine, "--enable-tls=prefiller,decoder");
    const through = (prefiller: string): ReturnType<typeof ask> => ask(url, { headers: ["x-prefiller-host-port", prefiller], body: '{"messages":[]}' });
    expect((await through(known.authority)).status).toBe(200);
    expect((await through(`localhost:${String(known.port)}`)).status).toBe(200);
    const refused = await through(stranger.authority);
    expect([refused.status, errorOf(refused).message, stranger.received.length]).toEqual([502, "prefill failed: no secure connection", 0]);
  });

  it("verification is left out for the named stage only", async () => {
    const stranger = await keyPair("");
    const engine = await upstream(stranger, "{}");
    const prefiller = await upstream(stranger, '{"kv_transfer_params":{"a":1}}');
    const { url } = await sidecar(engine, "--enable-tls=prefiller", "--enable-tls=decoder", "--tls-insecure-skip-verify=decoder");
    expect((await ask(url, { body: "{}" })).status).toBe(200);
    expect((await ask(url, { headers: ["x-prefiller-host-port", prefiller.authority], body: "{}" })).status).toBe(502);
    expect(prefiller.received).toHaveLength(0);
  });

  it("a plain stage stays plain, and does not talk to a TLS port", async () => {
    const engine = await upstream(pair, "{}");
    const { url } = await sidecar(engine, "--enable-tls=prefiller");
    expect((await ask(url, { body: "{}" })).status).toBe(502);
  });
});

describe("the listener's TLS", () => {
  let sidecar: Sidecar | null = null;
  let engine: TestUpstream | null = null;
  afterEach(async () => {
    await Promise.all([sidecar?.close(), engine?.close()]);
    sidecar = null;
  });

  const served = (port: number): Promise<string> =>
    new Promise((resolve, reject) => {
      const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false }, () => {
        resolve(socket.getPeerCertificate().fingerprint256);
        socket.destroy();
      });
      socket.on("error", reject);
    });

  it("new connections get a rotated pair, open ones go on, and what is no pair changes nothing", async () => {
    const certs = mkdtempSync(join(folder, "certs-"));
    const write = ({ cert, key }: KeyPair): void => {
      writeFileSync(join(certs, "tls.crt"), cert);
      writeFileSync(join(certs, "tls.key"), key);
    };
    write(await keyPair(""));
    let more: (() => void) | null = null;
    engine = await TestUpstream.start((_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("data: 1\n\n");
      more = () => response.end("data: 2\n\n");
    });
    const lines: string[] = [];
    sidecar = await startTestSidecar(engine, ["--secure-proxy=true", `--cert-path=${certs}`], {}, lines);
    const { port } = sidecar;
    const first = await served(port);
    const streamed = ask(sidecar.url, { body: "{}" });
    await until(() => more !== null);

    write(await keyPair(""));
    await until(() => lines.some((line) => line.includes("was rotated")));
    const second = await served(port);
    expect(second).not.toBe(first);

    writeFileSync(join(certs, "tls.key"), (await keyPair("")).key);
    await until(() => lines.some((line) => line.includes("cannot be used")));
    expect(await served(port)).toBe(second);
    expect([await metric(sidecar, "certificate_reloads_total", { outcome: "taken" }), (await metric(sidecar, "certificate_reloads_total", { outcome: "refused" })) > 0]).toEqual([1, true]);

    (more as (() => void) | null)?.();
    expect(await streamed).toMatchObject({ status: 200, body: "data: 1\n\ndata: 2\n\n", whole: true });
  });
});
