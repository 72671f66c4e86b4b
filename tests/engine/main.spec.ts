import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import { build } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

import { at, chatBody, chatText, PATIENT, prefillLeg, send } from "./testing.js";

const here = fileURLToPath(new URL(".", import.meta.url));
let folder = "";
const children: ChildProcess[] = [];

beforeAll(async () => {
  // Inside the repository, so that the bundle finds node_modules.
  const builds = join(here, "../../build");
  mkdirSync(builds, { recursive: true });
  folder = mkdtempSync(join(builds, "engine-spec-"));
  await build({ configFile: false, logLevel: "silent", root: here, build: { ssr: join(here, "main.ts"), outDir: folder, emptyOutDir: false, target: "node20", rollupOptions: { output: { entryFileNames: "main.mjs" } } } });
});
afterAll(() => {
  for (const child of children) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
});

interface Started {
  child: ChildProcess;
  info: Record<string, unknown>;
}

async function start(...flags: string[]): Promise<Started> {
  const child = spawn(process.execPath, [join(folder, "main.mjs"), ...flags], { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  if (child.stdout === null) throw new Error("no output");
  const [line] = (await once(createInterface(child.stdout), "line")) as [string];
  return { child, info: JSON.parse(line) as Record<string, unknown> };
}

async function failure(...flags: string[]): Promise<{ code: number | null; text: string }> {
  const child = spawn(process.execPath, [join(folder, "main.mjs"), ...flags], { stdio: ["ignore", "ignore", "pipe"] });
  children.push(child);
  let text = "";
  child.stderr?.on("data", (piece: Buffer) => {
    text += piece.toString();
  });
  const [code] = (await once(child, "close")) as [number | null];
  return { code, text };
}

describe("the program", () => {
  it("says where it listens, hands KV over between processes, and ends cleanly", async () => {
    const [p, d] = await Promise.all([start("--role", "prefill", "--name", "p0"), start("--role", "decode", "--port", "0", "--model", "a,b", "--model", "c", "--block-size", "32")]);
    expect(p.info).toMatchObject({ role: "prefill", name: "p0", pid: p.child.pid, host: "127.0.0.1" });
    expect(p.info["url"]).toBe(`http://127.0.0.1:${String(p.info["port"])}`);
    const body = chatBody("processes", 100);
    const first = await send(String(p.info["url"]), "/v1/chat/completions", { body: prefillLeg(body) });
    const reply = await send(String(d.info["url"]), "/v1/chat/completions", { body: { ...body, kv_transfer_params: first.json["kv_transfer_params"] } });
    expect(chatText(reply).length).toBeGreaterThan(8);
    const records = JSON.parse((await send(`http://127.0.0.1:${String(d.info["controlPort"])}`, "/_sim/requests")).text) as unknown[];
    expect(at(records[0], "handoff")).toMatchObject({ found: true, verbatim: true });
    expect((await send(String(d.info["url"]), "/v1/models")).json["data"]).toHaveLength(3);
    for (const [{ child }, signal] of [[p, "SIGTERM"], [d, "SIGINT"]] as const) {
      child.kill(signal);
      expect(await once(child, "exit")).toEqual([0, null]);
    }
  });

  it("ends with an open stream too", async () => {
    const d = await start("--role", "decode", "--ms-per-decode-token", "50");
    const reply = send(String(d.info["url"]), "/v1/chat/completions", { body: chatBody("open", 20, { stream: true, max_tokens: 200, min_tokens: 200 }) });
    await expect.poll(async () => at((await send(String(d.info["url"]), "/_sim/state")).json, "running"), PATIENT).toBe(1);
    d.child.kill("SIGTERM");
    expect(await once(d.child, "exit")).toEqual([0, null]);
    expect((await reply).broken).toBe(true);
  });

  it.each<[string[], string]>([
    [[], "--role"],
    [["--role", "owl"], "role"],
    [["--role", "decode", "--port", "x"], "--port"],
    [["--role", "decode", "--owl"], "--owl"],
    [["--role", "decode", "--host", "0.0.0.0"], "host"],
    [["--role", "decode", "--tls-cert", "x.pem"], "--tls-key"],
  ])("ends with an error for %j and names the flag", async (flags, name) => {
    const { code, text } = await failure(...flags);
    expect(code).not.toBe(0);
    expect(text).toContain(name);
  });
});
