#!/usr/bin/env node
/** The command line of the renderer: `node build/js/envoy/render.js --config epp.yaml --endpoints endpoints.yaml --out DIR`. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Command, InvalidArgumentError, Option } from "commander";
import { parseHostPort } from "./address.js";
import { parseDurationMs } from "./duration.js";
import { formatProblem } from "./problems.js";
import { type RenderJob, renderOnce, type RenderResult } from "./renderer.js";
import { builtFile } from "./built.js";
import { DEFAULT_SETTINGS, type Settings } from "./settings.js";
import { loadValidator, type Validator } from "./validate.js";
import { stampsOf, watchFiles } from "./watch.js";

/** A parser of commander's that turns an Error into a usage error. */
function reading<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
    }
  };
}

function parseCount(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value) || value < 1) throw new Error(`'${text}' is not a whole number above 0`);
  return value;
}

interface Flags extends Pick<Settings, "listen" | "admin" | "state" | "accessLog" | "maxHeapBytes" | "maxConnections"> {
  config: string;
  options?: string;
  endpoints: string;
  out: string;
  wasm: string;
  scanner: string;
  watch?: boolean;
  mount?: string;
  tlsCa: string;
  streamIdleTimeout: number;
  requestTimeout: number;
  requestHeadersTimeout: number;
  connectTimeout: number;
}

function command(): Command {
  const hostPort = reading(parseHostPort);
  const duration = reading(parseDurationMs);
  const count = reading(parseCount);
  const d = DEFAULT_SETTINGS;
  return new Command("render")
    .description("Writes what Envoy loads from an EndpointPickerConfig, FilterOptions and an endpoints file; run again, it updates a running Envoy.")
    .requiredOption("--config <file>", "EndpointPickerConfig (YAML or JSON); a FilterOptions document may stand in the same file")
    .option("--options <file>", "FilterOptions in a file of their own")
    .requiredOption("--endpoints <file>", "endpoints file")
    .requiredOption("--out <folder>", "where the rendered files go")
    .option("--wasm <file>", "the filter's module", builtFile("filter.wasm"))
    .option("--scanner <file>", "the module that holds the validator", process.env["CROSSPOINT_SCANNER"] ?? builtFile("scanner.wasm"))
    .option("--watch", "stay, and render again when an input changes")
    .addOption(new Option("--listen <host:port>", "where clients connect").argParser(hostPort).default(d.listen, "0.0.0.0:8080"))
    .addOption(new Option("--admin <host:port>", "Envoy's admin interface, loopback only").argParser(hostPort).default(d.admin, "127.0.0.1:9901"))
    .addOption(new Option("--state <host:port>", "the filter's state as JSON, loopback only").argParser(hostPort).default(d.state, "127.0.0.1:9902"))
    .option("--access-log <file>", "access log as JSON lines", d.accessLog)
    .option("--mount <folder>", "where Envoy finds the rendered files, if not where they are written")
    .option("--max-heap-bytes <bytes>", "heap at which Envoy refuses requests", count, d.maxHeapBytes)
    .option("--max-connections <number>", "client connections at once", count, d.maxConnections)
    .addOption(new Option("--stream-idle-timeout <duration>", "longest silence on an open stream").argParser(duration).default(d.streamIdleTimeoutMs, "15m"))
    .addOption(new Option("--request-timeout <duration>", "longest time for a request to arrive").argParser(duration).default(d.requestTimeoutMs, "5m"))
    .addOption(new Option("--request-headers-timeout <duration>", "longest time for its headers").argParser(duration).default(d.requestHeadersTimeoutMs, "15s"))
    .addOption(new Option("--connect-timeout <duration>", "longest time to connect to a pod").argParser(duration).default(d.connectTimeoutMs, "2s"))
    .option("--tls-ca <file>", "CA certificates for FilterOptions tls.verify", d.tlsCaFile);
}

function toJob(flags: Flags): RenderJob {
  return {
    config: flags.config,
    options: flags.options ?? "",
    endpoints: flags.endpoints,
    out: flags.out,
    wasm: flags.wasm,
    settings: {
      listen: flags.listen,
      admin: flags.admin,
      state: flags.state,
      accessLog: flags.accessLog,
      mount: flags.mount ?? "",
      maxHeapBytes: flags.maxHeapBytes,
      maxConnections: flags.maxConnections,
      streamIdleTimeoutMs: flags.streamIdleTimeout,
      requestTimeoutMs: flags.requestTimeout,
      requestHeadersTimeoutMs: flags.requestHeadersTimeout,
      connectTimeoutMs: flags.connectTimeout,
      tlsCaFile: flags.tlsCa,
    },
  };
}

function report(job: RenderJob, result: RenderResult): void {
  for (const problem of result.problems) process.stderr.write(`${formatProblem(problem)}\n`);
  const { publication } = result;
  if (publication === null) {
    const errors = result.problems.filter(({ severity }) => severity === "error").length;
    process.stderr.write(`nothing written: ${String(errors)} error${errors === 1 ? "" : "s"}\n`);
    return;
  }
  const bootstrap = join(job.out, "bootstrap.yaml");
  process.stdout.write(
    publication.written.length === 0
      ? `${job.out}: nothing changed (revision ${String(publication.revision)})\n`
      : `${job.out}: revision ${String(publication.revision)}, wrote ${[...new Set(publication.written)].join(", ")}\n`,
  );
  if (publication.restartNeeded) process.stderr.write(`${bootstrap} has changed: restart Envoy for it\n`);
}

async function main(): Promise<number> {
  const flags = command().parse().opts<Flags>();
  const job = toJob(flags);
  let validate: Validator;
  try {
    validate = await loadValidator(flags.scanner);
  } catch (error) {
    process.stderr.write(`${flags.scanner}: ${error instanceof Error ? error.message : String(error)}\n`);
    return 1;
  }
  const render = async (): Promise<boolean> => {
    const result = await renderOnce(job, validate);
    report(job, result);
    return result.publication !== null;
  };
  const inputs = [job.config, job.options, job.endpoints, job.wasm].filter((file) => file !== "");
  // From before the first reading, so that what is written meanwhile counts as a change.
  const seen = stampsOf(inputs);
  const done = await render();
  if (flags.watch !== true) return done ? 0 : 1;
  const stop = watchFiles(inputs, async () => {
    const gone = inputs.filter((file) => !existsSync(file));
    // Its coming back is a change of its own.
    if (gone.length > 0) process.stderr.write(`${gone.join(", ")}: not there; what was rendered goes on\n`);
    else await render();
  }, seen);
  await new Promise<void>((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => { resolve(); });
  });
  stop();
  return 0;
}

process.exitCode = await main();
