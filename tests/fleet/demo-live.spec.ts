/** The demo as ./scripts/run starts it, on a real Envoy. */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CountingListener } from "./counter.js";
import type { DemoResult } from "./demo-report.js";
import { freePort } from "./ports.js";
import { built } from "./root.js";

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

function demo(args: readonly string[], onOutput: (text: string, kill: (signal: NodeJS.Signals) => void) => void = () => undefined): Promise<Ended> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [built("js", "tests", "fleet", "demo.js"), ...args], { stdio: ["ignore", "pipe", "pipe"] });
    const ended: Ended = { code: null, stdout: "", stderr: "" };
    child.stdout.on("data", (data: Buffer) => {
      ended.stdout += data.toString();
      onOutput(ended.stdout, (signal) => child.kill(signal));
    });
    child.stderr.on("data", (data: Buffer) => (ended.stderr += data.toString()));
    child.on("close", (code) => { resolve({ ...ended, code }); });
  });
}

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "demo-"));
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

describe("the demo", { timeout: 90_000 }, () => {
  it("--once --json shows each topology with its reasons, and the legs that the engines saw, in order", async () => {
    const file = join(folder, "demo.json");
    const ended = await demo(["--once", "--json", file, "--port", (await freePort()).toString()]);
    expect(ended).toMatchObject({ code: 0, stderr: "" });
    const results = JSON.parse(readFileSync(file, "utf8")) as DemoResult[];

    expect(results.map((result) => [result.name, result.decision, result.reasons.prefill, result.reasons.encode, result.legs.map((leg) => leg.stage).join(" ")])).toEqual([
      ["short text", "decode-only", "skip_short_prompt", "skip_text_only", "decode"],
      ["long cold text", "prefill-decode", "run_uncached", "skip_text_only", "prefill decode"],
      ["the same long text again", "decode-only", "skip_cached", "skip_text_only", "decode"],
      ["an image", "encode-decode", "skip_short_prompt", "run_multimodal", "encode decode"],
      ["long text, image and audio", "encode-prefill-decode", "run_uncached", "run_multimodal", "encode encode prefill decode"],
      ["streamed", "prefill-decode", "run_uncached", "skip_text_only", "prefill decode"],
    ]);
    expect(results[2]?.endpoints.decode).toBe(results[1]?.endpoints.decode);
    for (const result of results) {
      expect(Object.keys(result)).toEqual(["name", "decision", "reasons", "endpoints", "legs", "status", "ms"]);
      expect(result.status).toBe(200);
      expect(result.reasons.decode).toBe("picked");
      for (const leg of result.legs) {
        expect(Object.keys(leg)).toEqual(["stage", "endpoint", "status", "ms"]);
        expect(leg.status).toBe(200);
        const chosen = leg.stage === "encode" ? result.endpoints.encode : [result.endpoints[leg.stage]];
        expect(chosen).toContain(leg.endpoint);
      }
      expect(ended.stdout).toContain(result.name);
    }
    expect(ended.stdout).not.toContain("curl ");
  });

  it("stays up with a curl line and the admin address until Ctrl-C, and leaves nothing behind", async () => {
    const port = await freePort();
    let asked = false;
    const ended = await demo(["--port", port.toString()], (text, kill) => {
      if (asked || !text.includes("Ctrl-C")) return;
      asked = true;
      kill("SIGINT");
    });
    expect(ended).toMatchObject({ code: 130, stderr: "" });
    expect(ended.stdout).toContain(`curl http://127.0.0.1:${port.toString()}/v1/chat/completions`);
    const admin = Number(/admin address: http:\/\/127\.0\.0\.1:(\d+)/.exec(ended.stdout)?.[1]);
    // What was listening does so no more.
    for (const gone of [port, admin]) {
      await expect(fetch(`http://127.0.0.1:${gone.toString()}/`)).rejects.toThrow();
    }
  });

  it("says in one line that its port is taken", async () => {
    const taken = await CountingListener.start();
    const ended = await demo(["--once", "--port", taken.port.toString()]);
    await taken.close();
    expect(ended.code).toBe(1);
    expect(ended.stderr).toBe(`run: port ${taken.port.toString()} is taken: end what listens there, or choose another one with --port\n`);
  });

  it.each(["0", "70000", "http"])("refuses --port %s", async (text) => {
    const ended = await demo(["--port", text]);
    expect(ended.code).not.toBe(0);
    expect(ended.stderr).toContain("has to be a port");
  });
});
