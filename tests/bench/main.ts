/** The bench behind ./scripts/bench. */
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { dirname, resolve } from "node:path";
import { Command, InvalidArgumentError, Option } from "commander";
import { endOnSignals } from "../fleet/processes.js";
import { built, inRoot } from "../fleet/root.js";
import { benchFilter, modulesOf } from "./filter-bench.js";
import { filterReport } from "./filter-report.js";
import { benchHostCalls } from "./host-calls.js";
import { benchParts, benchRequests, callReport, type MicroOptions, partReport, profileRequests, requestReport } from "./micro.js";
import { BODIES, type BodyName, type Prompt } from "./scenario.js";
import { benchSidecar, type Size, SIZES, type Stages, STAGES } from "./sidecar-bench.js";
import { sidecarReport } from "./sidecar-report.js";
import { table } from "./table.js";

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

function show(lines: readonly string[]): void {
  process.stdout.write(`${lines.join("\n")}\n`);
}

function number(least: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() === "" || !Number.isFinite(value) || value < least) throw new InvalidArgumentError(`has to be a number from ${least.toString()} on`);
    return value;
  };
}

function whole(least: number): (text: string) => number {
  return (text) => {
    const value = number(least)(text);
    if (!Number.isInteger(value)) throw new InvalidArgumentError("has to be a whole number");
    return value;
  };
}

/** A list with commas between. */
function list<T>(read: (text: string) => T): (text: string) => T[] {
  return (text) => text.split(",").map((item) => read(item.trim()));
}

function oneOf<T extends string>(names: readonly T[]): (text: string) => T {
  return (text) => {
    const found = names.find((name) => name === text);
    if (found === undefined) throw new InvalidArgumentError(`'${text}' is none of ${names.join(", ")}`);
    return found;
  };
}

/** What a report's figures were taken on. */
function machine(): Record<string, unknown> {
  return { at: new Date().toISOString(), cpus: cpus().length, cpu: cpus()[0]?.model ?? "", loadAverage: loadavg().map((value) => Math.round(value * 100) / 100), node: process.version };
}

function writeReport(file: string, report: object): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(report, null, 1)}\n`);
  say(`written: ${file}`);
}

interface FilterFlags {
  rounds?: number;
  seconds?: number;
  bodies?: BodyName[];
  endpoints?: number[];
  prompt?: Prompt[];
  blocks?: number[];
  maxBlocks: number;
  connections?: number;
  concurrency: number;
  scrape?: number;
  also: string[];
  quick?: boolean;
  minutes?: number;
  json: string;
}

function filterCommand(): Command {
  const bodies = Object.keys(BODIES) as BodyName[];
  return new Command("filter")
    .description("what the filter adds to Envoy, beside plain Envoy and the floor filter")
    .option("--quick", "a first impression in a minute and a half: fewer rounds, cold prompts, blocks of 64 tokens")
    .option("--rounds <number>", "rounds in which all targets take turns (5; quick 3)", whole(1))
    .option("--seconds <number>", "length of one measurement (0.35; quick 0.25)", number(0.05))
    .option("--bodies <list>", `some of ${bodies.join(",")}`, list(oneOf(bodies)))
    .option("--endpoints <list>", "sizes of the fleet (8,1000)", list(whole(2)))
    .option("--prompt <list>", "cold, warm or both (cold,warm; quick cold)", list(oneOf<Prompt>(["cold", "warm"])))
    .option("--blocks <list>", "tokens per block (64,16,5; quick 64)", list(whole(1)))
    .option("--max-blocks <number>", "blocks of a prompt that are looked at (not for 128k-tokens, which is looked at whole)", whole(1), 256)
    .option("--connections <number>", "connections of the busy part, instead of each body's own number", whole(1))
    .option("--concurrency <number>", "Envoy's worker threads", whole(1), 2)
    .option("--scrape <KiB>", "have the filter scrape pages of this size, once a second from every endpoint (off)", number(1))
    .addOption(new Option("--also <module>", "a further build of the filter to measure beside build/filter.wasm; may be repeated").default([], "none").argParser((text: string, before: string[]) => [...before, resolve(text)]))
    .option("--minutes <number>", "no round begins that would end later (9.5; quick 1.4)", number(0.1))
    .addOption(new Option("--json <file>", "where the rows go").default(inRoot("build", "bench", "filter.json"), "build/bench/filter.json"))
    .action(async (flags: FilterFlags) => {
      const quick = flags.quick === true;
      const result = await benchFilter({
        rounds: flags.rounds ?? (quick ? 3 : 5),
        seconds: flags.seconds ?? (quick ? 0.25 : 0.35),
        bodies: flags.bodies ?? bodies,
        endpoints: flags.endpoints ?? [8, 1000],
        prompts: flags.prompt ?? (quick ? ["cold"] : ["cold", "warm"]),
        blocks: flags.blocks ?? (quick ? [64] : [64, 16, 5]),
        maxBlocks: flags.maxBlocks,
        concurrency: flags.concurrency,
        connections: flags.connections ?? null,
        scrapeBytes: flags.scrape === undefined ? null : Math.round(flags.scrape * 1024),
        modules: modulesOf(flags.also),
        budgetMs: (flags.minutes ?? (quick ? 1.4 : 9.5)) * 60_000,
        say,
      });
      show(filterReport(result));
      writeReport(flags.json, { machine: machine(), ...result });
    });
}

interface SidecarFlags {
  rounds?: number;
  seconds?: number;
  stages?: Stages[];
  bodies?: Size[];
  streams: number;
  events: number;
  streamSeconds?: number;
  quick?: boolean;
  json: string;
}

function sidecarCommand(): Command {
  const sizes = Object.keys(SIZES) as Size[];
  return new Command("sidecar")
    .description("what the sidecar adds to an engine that answers at once, and how late events come through it")
    .option("--quick", "a first impression in a minute")
    .option("--rounds <number>", "rounds in which all targets take turns; 0: streams only (5; quick 3)", whole(0))
    .option("--seconds <number>", "length of one measurement (0.5; quick 0.2)", number(0.05))
    .option("--stages <list>", `some of ${STAGES.join(",")}`, list(oneOf(STAGES)))
    .option("--bodies <list>", `some of ${sizes.join(",")}`, list(oneOf(sizes)))
    .option("--streams <number>", "streams that are open at once", whole(1), 200)
    .option("--events <number>", "events per second of each stream", number(1), 50)
    .option("--stream-seconds <number>", "how long each stream lasts; 0: no streams (10; quick 4)", number(0))
    .addOption(new Option("--json <file>", "where the rows go").default(inRoot("build", "bench", "sidecar.json"), "build/bench/sidecar.json"))
    .addHelpText("after", "\nREFERENCE_SIDECAR names another sidecar's program, which is then measured beside ours with the same flags.")
    .action(async (flags: SidecarFlags) => {
      const quick = flags.quick === true;
      const reference = process.env.REFERENCE_SIDECAR ?? "";
      const result = await benchSidecar({
        rounds: flags.rounds ?? (quick ? 3 : 5),
        seconds: flags.seconds ?? (quick ? 0.2 : 0.5),
        stages: flags.stages ?? STAGES,
        sizes: flags.bodies ?? sizes,
        reference: reference === "" ? null : resolve(reference),
        streams: flags.streams,
        eventsPerSecond: flags.events,
        streamSeconds: flags.streamSeconds ?? (quick ? 4 : 10),
        say,
      });
      show(sidecarReport(result));
      writeReport(flags.json, { machine: machine(), ...result });
    });
}

interface MicroFlags {
  bodies?: BodyName[];
  endpoints?: number[];
  prompt?: Prompt[];
  blocks?: number[];
  maxBlocks: number;
  ms: number;
  filter?: string;
  only?: "requests" | "parts";
  calls?: boolean;
  profile?: boolean;
  json: string;
}

function microCommand(): Command {
  const bodies = Object.keys(BODIES) as BodyName[];
  return new Command("micro")
    .description("the filter in this process, in seconds: host calls and time of a request, scanner, index and scheduler by themselves")
    .option("--only <part>", "requests or parts", oneOf(["requests", "parts"]))
    .option("--calls", "list the host calls of each request by kind", false)
    .option("--profile", "own times of the filter's functions, for the first body, fleet and prompt that are named", false)
    .option("--bodies <list>", `some of ${bodies.join(",")}`, list(oneOf(bodies)))
    .option("--endpoints <list>", "sizes of the fleet (8,1000)", list(whole(2)))
    .option("--prompt <list>", "cold, warm or both", list(oneOf<Prompt>(["cold", "warm"])))
    .option("--blocks <list>", "tokens per block (64)", list(whole(1)))
    .option("--max-blocks <number>", "blocks of a prompt that are looked at (not for 128k-tokens)", whole(1), 256)
    .option("--ms <number>", "about how long each figure is measured", number(1), 200)
    .option("--filter <module>", "instead of build/filter.wasm")
    .addOption(new Option("--json <file>", "where the figures go").default(inRoot("build", "bench", "micro.json"), "build/bench/micro.json"))
    .action(async (flags: MicroFlags) => {
      const options: MicroOptions = {
        bodies: flags.bodies ?? bodies,
        endpoints: flags.endpoints ?? [8, 1000],
        prompts: flags.prompt ?? ["cold", "warm"],
        blocks: flags.blocks ?? [64],
        maxBlocks: flags.maxBlocks,
        module: flags.filter === undefined ? built("filter.wasm") : resolve(flags.filter),
        ms: flags.ms,
      };
      if (flags.profile === true) {
        const times = await profileRequests(options);
        show(table(["function", "µs per request"], times.filter(({ us }) => us >= 0.02).map(({ name, us }) => [name, us.toFixed(2)]), 1));
        return;
      }
      const requests = flags.only === "parts" ? [] : benchRequests(options);
      if (requests.length > 0) show([...requestReport(requests), ""]);
      if (flags.calls === true) for (const one of requests) show([...callReport(one), ""]);
      const parts = flags.only === "requests" ? null : await benchParts(flags.ms);
      if (parts !== null) show(partReport(parts));
      writeReport(flags.json, { machine: machine(), requests, ...parts });
    });
}

function hostCommand(): Command {
  return new Command("host")
    .description("what each host call costs in Envoy, ns")
    .option("--measurements <number>", "the best of so many is told", whole(1), 12)
    .addOption(new Option("--json <file>", "where the figures go").default(inRoot("build", "bench", "host.json"), "build/bench/host.json"))
    .action(async (flags: { measurements: number; json: string }) => {
      const calls = await benchHostCalls(flags.measurements);
      show(table(["call", "ns"], Object.entries(calls).map(([name, ns]) => [name, ns.toString()]), 1));
      writeReport(flags.json, { machine: machine(), nsPerCall: calls });
    });
}

endOnSignals(() => Promise.resolve());
try {
  await new Command("bench").description("measures Crosspoint on this machine").addCommand(filterCommand()).addCommand(sidecarCommand()).addCommand(microCommand()).addCommand(hostCommand()).parseAsync();
} catch (error) {
  process.stderr.write(`bench: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
