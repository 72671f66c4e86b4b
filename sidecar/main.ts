import { describeOptions, HelpRequested, namesConfiguration, OptionsError, parseOptions, type ParsedOptions } from "./options.js";
import { makeLog } from "./log.js";
import { startSidecar } from "./server.js";

/** Refused options end the process with 2, what the machine refuses with 1 (CFG-22; the reference ends with 0, D9). */
const EXIT_BAD_OPTION = 2;

async function parse(): Promise<ParsedOptions> {
  try {
    const argv = process.argv.slice(2);
    const readYaml = namesConfiguration(argv) ? (await import("./options-yaml.js")).readYaml : undefined;
    const parsed = parseOptions(argv, process.env, readYaml);
    return parsed;
  } catch (error) {
    if (error instanceof HelpRequested) {
      process.stdout.write(error.text);
      process.exit(0);
    }
    endWith(error, EXIT_BAD_OPTION);
  }
}

function endWith(error: unknown, code: number): never {
  process.stderr.write(`crosspoint-sidecar: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exit(error instanceof OptionsError ? EXIT_BAD_OPTION : code);
}

async function main(): Promise<void> {
  const { options, warnings, printConfig } = await parse();
  for (const warning of warnings) process.stderr.write(`crosspoint-sidecar: ${warning}\n`);
  if (printConfig) {
    process.stdout.write(`${JSON.stringify(describeOptions(options), null, 1)}\n`);
    return;
  }
  const log = makeLog(options.logLevel);
  const sidecar = await startSidecar(options, { log, processMetrics: true });
  log.info({ config: describeOptions(options), pid: process.pid, node: process.version }, "listening");

  // A fault of ours in one request is no reason to cut the streams of all others (D1). Nothing is known to end here.
  const survive = (error: unknown): void => {
    log.fatal({ err: error }, "uncaught: going on");
  };
  process.on("uncaughtException", survive);
  process.on("unhandledRejection", survive);

  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    if (stopping) process.exit(1);
    stopping = true;
    log.info({ signal }, "draining");
    sidecar.drain().then(
      () => {
        log.info("stopped");
        process.exit(0);
      },
      (error: unknown) => {
        endWith(error, 1);
      },
    );
  };
  process.on("SIGTERM", stop);
  process.on("SIGINT", stop);
}

main().catch((error: unknown) => {
  endWith(error, 1);
});
