/** Clients that people use, through the whole path: the openai packages of npm and PyPI, and a load generator. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import OpenAI from "openai";
import { expect, it } from "vitest";
import type { DecisionRecord } from "../fleet/access-log.js";
import { Child } from "../fleet/processes.js";
import { inRoot } from "../fleet/root.js";
import { freshText } from "../wire/shapes.js";
import { installation, MODEL } from "./engine.js";
import { PATIENCE_MS, type Stack } from "./stack.js";

const LOAD_SECONDS = 60;
/** Requests of the load generator that are open at the same time. */
const LOAD_CONCURRENCY = 4;

interface Call {
  readonly call: string;
  readonly text: string;
  readonly usage: { readonly prompt_tokens?: number; readonly completion_tokens?: number; readonly input_tokens?: number; readonly output_tokens?: number } | null;
  readonly decision: DecisionRecord | null;
}

/** Runs a program of the installed virtual environments to its end. */
async function runProgram(name: string, command: string, args: readonly string[], timeoutMs: number, cwd?: string): Promise<string> {
  // Nothing is fetched: the tokenizer is a folder. Told to be offline, aiperf would look for it in the hub's cache alone.
  const env = Object.fromEntries(Object.entries(process.env).filter(([variable]) => variable !== "HF_HUB_OFFLINE" && variable !== "TRANSFORMERS_OFFLINE"));
  const child = new Child({ name, command, args, env: { ...env, DO_NOT_TRACK: "1", PYTHONNOUSERSITE: "1" }, ...(cwd === undefined ? {} : { cwd }) });
  const timer = setTimeout(() => { child.killNow(); }, timeoutMs);
  const how = await child.ended;
  clearTimeout(timer);
  if (how !== "exit code 0") throw new Error(`${name} ended with ${how}:\n${child.lastLines(30)}`);
  return child.output;
}

export function clientTests(stack: () => Stack): void {
  const baseURL = (): string => `http://${stack().envoy.listen.host}:${stack().envoy.listen.port.toString()}/v1`;

  it("openai from npm: chat, completions and responses, streamed and not", async () => {
    const client = new OpenAI({ baseURL: baseURL(), apiKey: "none", maxRetries: 0, timeout: PATIENCE_MS });
    const decided = (response: Response): string => (JSON.parse(response.headers.get("x-crosspoint-decision") ?? "{}") as Partial<DecisionRecord>).decision ?? "";
    const settings = { model: MODEL, temperature: 0 };

    const chat = await client.chat.completions.create({ ...settings, max_tokens: 8, messages: [{ role: "user", content: freshText() }] }).withResponse();
    expect(decided(chat.response)).toBe("prefill-decode");
    expect(chat.data.usage?.completion_tokens).toBe(8);
    expect(chat.data.choices[0]?.message.content).not.toBe("");

    const streamed = await client.chat.completions.create({ ...settings, max_completion_tokens: 8, messages: [{ role: "user", content: freshText() }], stream: true, stream_options: { include_usage: true } }).withResponse();
    expect(decided(streamed.response)).toBe("prefill-decode");
    let [text, tokens] = ["", 0];
    for await (const chunk of streamed.data) {
      text += chunk.choices[0]?.delta.content ?? "";
      tokens = chunk.usage?.completion_tokens ?? tokens;
    }
    expect(text).not.toBe("");
    expect(tokens).toBe(8);

    const completion = await client.completions.create({ ...settings, max_tokens: 8, prompt: freshText() }).withResponse();
    expect(decided(completion.response)).toBe("prefill-decode");
    expect(completion.data.choices[0]?.text).not.toBe("");

    const response = await client.responses.create({ ...settings, max_output_tokens: 16, input: freshText() }).withResponse();
    expect(decided(response.response)).toBe("prefill-decode");
    expect(response.data.output_text).not.toBe("");

    const final = await client.responses.stream({ ...settings, max_output_tokens: 16, input: freshText() }).finalResponse();
    expect(final.output_text).not.toBe("");
    expect(final.usage?.output_tokens).toBe(16);

    // An error of the engine is the package's own kind of error.
    const refused = await client.chat.completions.create({ ...settings, max_tokens: -1, messages: [{ role: "user", content: freshText() }] }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(OpenAI.BadRequestError);
  });

  it("openai from PyPI: chat, completions and responses, streamed and not", async () => {
    const output = await runProgram("openai from PyPI", join(installation(), "venv", "bin", "python"), [inRoot("tests", "real-engine", "client.py"), baseURL(), MODEL], 3 * PATIENCE_MS);
    const calls = output.split("\n").filter((line) => line.startsWith("{")).map((line) => JSON.parse(line) as Call);
    expect(calls.map(({ call }) => call)).toEqual(["chat", "chat, streamed", "completions", "responses", "responses, streamed", "models"]);
    for (const { call, text, decision } of calls) {
      expect(text, call).not.toBe("");
      if (["chat", "chat, streamed", "completions", "responses"].includes(call)) expect(decision?.decision, call).toBe("prefill-decode");
    }
    for (const { call, usage } of calls.slice(0, 5)) expect(usage?.completion_tokens ?? usage?.output_tokens, call).toBeGreaterThanOrEqual(8);
    expect(calls.at(-1)?.text).toBe(MODEL);
  });

  it(`aiperf from PyPI, for ${LOAD_SECONDS.toString()} seconds: no error`, { timeout: 420_000 }, async () => {
    const home = installation();
    const folder = inRoot("build", "real-engine", "aiperf");
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    const { host, port } = stack().envoy.listen;
    const before = await decisions(stack());
    await runProgram(
      "aiperf",
      join(home, "load", "bin", "aiperf"),
      [
        ...["profile", "--model", MODEL, "--url", `http://${host}:${port.toString()}`, "--endpoint-type", "chat", "--streaming"],
        ...["--tokenizer", join(home, "models", "text"), "--concurrency", LOAD_CONCURRENCY.toString(), "--workers-max", "1"],
        ...["--benchmark-duration", LOAD_SECONDS.toString(), "--benchmark-grace-period", "120", "--request-timeout-seconds", "120"],
        // Half of a prompt is a system prompt that others have too: some of it is in the prefix index.
        ...["--isl", "200", "--osl", "16", "--num-prefix-prompts", "4", "--prefix-prompt-length", "100", "--extra-inputs", "ignore_eos:true", "--extra-inputs", "min_tokens:16"],
        ...["--random-seed", "20", "--ui", "none", "--output-artifact-dir", folder],
      ],
      360_000,
      folder,
    );
    const report = join(folder, "profile_export_aiperf.json");
    expect(existsSync(report)).toBe(true);
    const { request_count: requests, error_request_count: errors, error_summary: summary } = JSON.parse(readFileSync(report, "utf8")) as { request_count?: { avg?: number }; error_request_count?: { avg?: number }; error_summary?: unknown[] };
    expect(summary ?? []).toEqual([]);
    expect(errors?.avg ?? 0).toBe(0);
    expect(requests?.avg).toBeGreaterThanOrEqual(10);
    const after = await decisions(stack());
    const made = (after.get("prefill-decode") ?? 0) - (before.get("prefill-decode") ?? 0);
    expect(made).toBeGreaterThan(0);
    expect(await stack().fallen()).toEqual([]);
    const keep = process.env["CROSSPOINT_KEEP_REPORT"] ?? "";
    if (keep !== "") for (const name of ["profile_export_aiperf.json", "profile_export_aiperf.csv"]) if (existsSync(join(folder, name))) writeFileSync(join(keep, name), portable(readFileSync(join(folder, name), "utf8")));
  });
}

/** A report without the paths of the machine that made it. */
function portable(report: string): string {
  return report.replaceAll(installation(), ".cache/vllm").replaceAll(`${inRoot()}/`, "");
}

/** The filter's decisions so far, by type. */
async function decisions({ envoy }: Stack): Promise<ReadonlyMap<string, number>> {
  const answer = await fetch(`http://${envoy.state.host}:${envoy.state.port.toString()}/state`);
  const { decisions: counts } = (await answer.json()) as { decisions: Record<string, number> };
  return new Map(Object.entries(counts));
}
