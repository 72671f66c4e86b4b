/**
 * The simulated engine as a program:
 *
 *     node build/js/tests/engine/main.js --role decode --port 0
 *
 * It prints one JSON line `{"url", "port", "controlPort", …}` when it listens, and ends cleanly on SIGTERM and SIGINT.
 */

import { readFileSync } from "node:fs";

import { Command, InvalidArgumentError } from "commander";

import { startEngine } from "./engine.js";
import type { EngineOptions } from "./types.js";

function number(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("a number is wanted");
  return value;
}

function list(text: string, before: string[] | undefined): string[] {
  return [...(before ?? []), ...text.split(",").map((item) => item.trim()).filter((item) => item !== "")];
}

/** Flags that carry a number, with the option that each one sets. */
const NUMBERS = {
  port: "service port, 0 for a free one",
  controlPort: "control port and side channel, 0 for a free one",
  msPerPrefillToken: "milliseconds per prompt token that is computed here",
  msPerDecodeToken: "milliseconds per generated token",
  msPerMediaItem: "milliseconds per media item that is encoded here",
  blockSize: "tokens per KV block (16)",
  numBlocks: "KV blocks (4096)",
  maxNumSeqs: "requests that run at once (256)",
  maxModelLen: "longest prompt plus answer in tokens, 0 for no limit",
  leaseMs: "how long a prefiller keeps blocks for a decoder (30000)",
  handshakeTimeoutMs: "how long a decoder tries to reach a prefiller (5000)",
  rendezvousTimeoutMs: "how long a decoder waits for its prefiller: sglang, mooncake, offloading (30000)",
  dataParallelSize: "ranks of the mooncake bootstrap server (1)",
  bootstrapPort: "port of the bootstrap or p2p server, 0 for a free one",
  keepAliveMs: "how long an idle connection is kept (5000)",
  embeddingDimensions: "dimensions of an embedding (64)",
  maxRecords: "records kept (20000)",
  maxRecordedBytes: "bytes of bodies kept in records (512 MiB)",
} as const;
const TEXTS = {
  host: "loopback address (127.0.0.1)",
  name: "name in records",
  kvLoadFailurePolicy: "fail or recompute",
  kvConnector: "nixl, shared-storage, sglang, mooncake, offloading or none",
  ecConnector: "any, ec-nixl or ec-example",
  strictness: "strict or real",
  kvParamsDialect: "seed, v2 or any",
  engineType: "vllm or sglang",
  requireApiKey: "key that /v1 requests must bring",
} as const;
const LISTS = {
  model: "served model, repeatable",
  loraAdapters: "adapter, repeatable",
  encoders: "control address of an encoder whose store is shared, repeatable",
  kvStores: "control address of an engine whose KV store is shared, repeatable",
} as const;
const SWITCHES = {
  strictModels: "404 for an unknown model",
  responsesStore: "keep responses for previous_response_id",
} as const;

function flag(option: string): string {
  return option.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function parse(argv: readonly string[]): EngineOptions {
  const command = new Command("engine").description("A simulated vLLM-shaped engine on loopback.").exitOverride();
  command.requiredOption("--role <role>", "prefill, decode, encode, prefill-decode or encode-prefill-decode");
  for (const [name, help] of Object.entries(NUMBERS)) command.option(`--${flag(name)} <number>`, help, number);
  for (const [name, help] of Object.entries(TEXTS)) command.option(`--${flag(name)} <text>`, help);
  for (const [name, help] of Object.entries(LISTS)) command.option(`--${flag(name)} <items>`, help, list);
  for (const [name, help] of Object.entries(SWITCHES)) command.option(`--${flag(name)}`, help);
  command.option("--no-prompt-tokens-details", "leave usage.prompt_tokens_details out");
  command.option("--no-scale-out", "answer 403 on /inference/v1/generate");
  command.option("--tls-cert <file>", "PEM file: the service port speaks TLS");
  command.option("--tls-key <file>", "PEM file of the key");
  command.parse([...argv], { from: "user" });
  const { tlsCert, tlsKey, ...options } = command.opts<EngineOptions & { tlsCert?: string; tlsKey?: string }>();
  if ((tlsCert === undefined) !== (tlsKey === undefined)) throw new Error("--tls-cert and --tls-key belong together");
  if (tlsCert === undefined || tlsKey === undefined) return options;
  return { ...options, tls: { cert: readFileSync(tlsCert, "utf8"), key: readFileSync(tlsKey, "utf8") } };
}

async function main(): Promise<void> {
  const engine = await startEngine(parse(process.argv.slice(2)));
  const { url, host, port, controlPort, bootstrapPort, engineId, name, role } = engine;
  process.stdout.write(`${JSON.stringify({ url, host, port, controlPort, bootstrapPort, engineId, name, role, pid: process.pid })}\n`);
  const stop = (): void => {
    engine.close().then(
      () => process.exit(0),
      () => process.exit(1),
    );
  };
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
}

main().catch((error: unknown) => {
  const code = error instanceof Error && "exitCode" in error ? Number(error.exitCode) : 2;
  // commander has already said what is wrong.
  if (!(error instanceof Error && "exitCode" in error)) process.stderr.write(`engine: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(code);
});
