/**
 * The case runner: `node build/js/tests/cases/main.js DIR` runs every case of a folder through the whole stack, each run on a cold fleet, and prints one line
 * per case. It knows no case by its number.
 */
import { existsSync, statSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { endOnSignals } from "../fleet/processes.js";
import { hasIpv6 } from "../fleet/ports.js";
import { inRoot } from "../fleet/root.js";
import { BUILT } from "./features.js";
import { caseNames, readCase } from "./format.js";
import { planCase, type RunPlan } from "./plan.js";
import { caseLines, countsLine, type CaseResult, type RunResult } from "./report.js";
import { run } from "./run.js";
import { needsMachine } from "./scripts.js";
import { Slots } from "./slots.js";

/** Bodies of other cases that the folder at hand does not have. */
const SHARED = inRoot("tests", "cases", "data");
/** Runs that go on side by side: more than the cores would disturb what is timed. */
const JOBS = 2;

interface Flags {
  jobs: number;
  only?: string;
  json?: string;
}

function whole(text: string): number {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1) throw new InvalidArgumentError("has to be an integer of at least 1");
  return number;
}

async function runPlan(plan: RunPlan): Promise<RunResult> {
  try {
    return { label: plan.label, wrong: await run(plan, SHARED) };
  } catch (error) {
    return { label: plan.label, wrong: [error instanceof Error ? error.message : String(error)] };
  }
}

async function runCase(folder: string, name: string, ipv6: boolean, slots: Slots): Promise<CaseResult> {
  try {
    const plan = planCase(readCase(folder, name), BUILT, ipv6);
    const runs = await Promise.all(plan.runs.map((one) => slots.run(() => runPlan(one), needsMachine(one.case.scripts))));
    return { name, runs, pending: plan.pending, error: null };
  } catch (error) {
    return { name, runs: [], pending: [], error: error instanceof Error ? error.message : String(error) };
  }
}

async function main(): Promise<number> {
  const command = new Command("cases")
    .description("runs every case of a folder through Envoy, filter, sidecar and simulated engines")
    .argument("<folder>", "folder with NN-name.json and NN-name.md files")
    .option("--jobs <n>", "runs side by side", whole, JOBS)
    .option("--only <name>", "only cases whose name starts so")
    .option("--json <file>", "write the results there too")
    .parse();
  const [folderArgument = ""] = command.args;
  const flags = command.opts<Flags>();
  const folder = resolve(folderArgument);
  if (!existsSync(folder) || !statSync(folder).isDirectory()) {
    process.stderr.write(`cases: ${folderArgument} is no folder\n`);
    return 2;
  }
  const names = caseNames(folder).filter((name) => name.startsWith(flags.only ?? ""));
  if (names.length === 0) {
    process.stderr.write(`cases: there is no case in ${folderArgument}\n`);
    return 2;
  }
  // Children are killed on the way out.
  endOnSignals(() => Promise.resolve());
  const ipv6 = await hasIpv6();
  const slots = new Slots(flags.jobs);
  const results: CaseResult[] = [];
  const running = names.map((name) => runCase(folder, name, ipv6, slots));
  for (const result of running) {
    const done = await result;
    results.push(done);
    for (const line of caseLines(done)) process.stdout.write(`${line}\n`);
  }
  if (flags.json !== undefined) writeFileSync(flags.json, `${JSON.stringify(results, null, 1)}\n`);
  const { line, failed } = countsLine(results);
  process.stdout.write(`${line}\n`);
  return failed === 0 ? 0 : 1;
}

process.exitCode = await main();
