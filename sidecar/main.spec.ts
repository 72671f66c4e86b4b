import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ask, header } from "./testkit/harness.js";
import { TestUpstream, until } from "./testkit/upstream.js";

const ROOT = join(import.meta.dirname, "..");
const PROGRAM = join(ROOT, "build", "test", "sidecar", "main.js");

/** The program as one file, so that this spec needs no earlier build. */
async function bundle(): Promise<void> {
  // vite brings esbuild along.
  const path = createRequire(import.meta.resolve("vite")).resolve("esbuild");
  const esbuild = (await import(pathToFileURL(path).href)) as { build(options: Record<string, unknown>): Promise<unknown> };
  mkdirSync(join(ROOT, "build", "test", "sidecar"), { recursive: true });
  await esbuild.build({ entryPoints: [join(ROOT, "sidecar", "main.ts")], bundle: true, platform: "node", format: "esm", packages: "external", outfile: PROGRAM, logLevel: "error" });
}

interface Run {
  readonly child: ChildProcess;
  stdout: string;
  stderr: string;
  readonly exit: Promise<number | null>;
}

describe("main", () => {
  const children: ChildProcess[] = [];
  let engine: TestUpstream;

  beforeAll(bundle);
  beforeEach(async () => {
    engine = await TestUpstream.start();
  });
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill("SIGKILL");
    await engine.close();
  });

  function run(...argv: string[]): Run {
    const child = spawn(process.execPath, [PROGRAM, ...argv], { stdio: ["ignore", "pipe", "pipe"], env: { PATH: process.env["PATH"] ?? "" } });
    children.push(child);
    const started: Run = {
      child,
      stdout: "",
      stderr: "",
      exit: new Promise((resolve) => {
        child.once("close", (code) => {
          resolve(code);
        });
      }),
    };
    child.stdout.on("data", (chunk: Buffer) => (started.stdout += chunk.toString()));
    child.stderr.on("data", (chunk: Buffer) => (started.stderr += chunk.toString()));
    return started;
  }

  async function serve(...flags: string[]): Promise<Run & { url: string }> {
    const port = await TestUpstream.refusedPort();
    const started = run(`--port=${String(port)}`, "--secure-proxy=false", "--listen-address=127.0.0.1", "--decoder-host=127.0.0.1", `--model-server-port=${String(engine.port)}`, ...flags);
    await until(() => started.stdout.includes('"listening"') || started.stderr !== "", 20_000);
    return Object.assign(started, { url: `http://127.0.0.1:${String(port)}` });
  }

  it("C-CFG-22: a refused option ends with 2 and one line that names it", async () => {
    for (const [flag, name] of [
      ["--connector=nixlv2", "--connector"],
      ["--port=abc", "--port"],
      ["--kv-connector=lmcache", "--kv-connector"],
      ["--cert-path=/nonexistent", "--cert-path"],
    ] as const) {
      const started = run(flag);
      expect(await started.exit).toBe(2);
      expect(started.stderr.trim().split("\n")).toHaveLength(1);
      expect(started.stderr).toContain(name);
    }
    const named = run("--port=abc");
    await named.exit;
    expect(named.stderr).toBe('crosspoint-sidecar: --port: "abc" is not an integer\n');
  });

  it("a taken port ends with 1 and one line", async () => {
    const started = run(`--port=${String(engine.port)}`, "--listen-address=127.0.0.1", "--secure-proxy=false");
    expect(await started.exit).toBe(1);
    expect(started.stderr.trim().split("\n")).toHaveLength(1);
    expect(started.stderr).toMatch(new RegExp(`^crosspoint-sidecar: --port: cannot listen on 127\\.0\\.0\\.1 ${String(engine.port)}, which is taken .*EADDRINUSE`));
    const metrics = run(`--port=${String(await TestUpstream.refusedPort())}`, `--metrics-port=${String(engine.port)}`, "--listen-address=127.0.0.1", "--secure-proxy=false");
    expect(await metrics.exit).toBe(1);
    expect(metrics.stderr).toMatch(/^crosspoint-sidecar: --metrics-port: .*EADDRINUSE/);
  });

  it("prints help and the effective configuration", async () => {
    const help = run("--help");
    expect([await help.exit, help.stdout.includes("--on-stage-failure")]).toEqual([0, true]);
    const config = run("--print-config", "--kv-connector=nixlv2", "--configuration", "prefill-max-retries: 2");
    expect([await config.exit, JSON.parse(config.stdout)]).toMatchObject([0, { "prefill-max-retries": 2, port: 8000 }]);
  });

  it("logs the whole configuration once, as one JSON line", async () => {
    const started = await serve("--prefill-max-retries=3");
    const lines = started.stdout.trim().split("\n").map((line) => JSON.parse(line) as { msg: string; config?: Record<string, unknown> });
    expect(lines.filter(({ config }) => config !== undefined)).toHaveLength(1);
    expect(lines[0]).toMatchObject({ msg: "listening", config: { "prefill-max-retries": 3, "on-stage-failure": "fail" } });
  });

  it("C-ST-01: TERM with an open stream: the stream ends whole, then the process with 0", async () => {
    let finish: (() => void) | null = null;
    engine.handler = (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write("data: 1\n\n");
      finish = () => void response.end("data: [DONE]\n\n");
    };
    const started = await serve();
    const stream = ask(started.url, { body: "{}" });
    await until(() => finish !== null);
    started.child.kill("SIGTERM");
    await until(() => started.stdout.includes("draining"));
    const health = await ask(started.url, { method: "GET", target: "/health" });
    (finish as (() => void) | null)?.();
    expect([health.status, (await stream).whole, await started.exit]).toEqual([503, true, 0]);
    expect(header(health, "content-length")).toEqual(["0"]);
  });

  it("a second signal ends at once with 1", async () => {
    engine.handler = () => undefined;
    const started = await serve();
    const stream = ask(started.url, { body: "{}" }).catch(() => "cut");
    await until(() => engine.received.length === 1);
    started.child.kill("SIGTERM");
    await until(() => started.stdout.includes("draining"));
    started.child.kill("SIGTERM");
    expect([await started.exit, await stream]).toEqual([1, "cut"]);
  });
});
