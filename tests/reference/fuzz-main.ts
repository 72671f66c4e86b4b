/**
 * The scanner's fuzz as a program, a thread for each core:
 *
 *   node build/js/tests/reference/fuzz-main.js [--inputs N] [--seed S] [--threads N] [--wrong RULE]
 *   node build/js/tests/reference/fuzz-main.js --seed S --batch B      one batch again
 *
 * The last line says how many inputs there were; a fault is told before it, and makes the exit status 1.
 */
import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import { type Fault, Fuzz } from "./fuzz.js";
import type { FuzzResult, FuzzThread } from "./fuzz-worker.js";
import { WRONG_RULES, type WrongRule } from "./request-view.js";

/** A generated body may be nested as deep as the scanner reads, and the plain reader goes down with it. */
const STACK_MIB = 64;

export function faultText({ seed, batch, index, what, body, cuts, options }: Fault): string {
  const { shape, blockTokens, maxBlocks, spans, strict, estimate } = options;
  return [
    what,
    `  input   ${JSON.stringify(Buffer.from(body).toString("latin1"))} (each character a byte)`,
    `  cuts    ${cuts.join(",") || "none"}`,
    `  options ${JSON.stringify({ shape, blockTokens, maxBlocks, spans, strict, estimate })}`,
    `  replay  node build/js/tests/reference/fuzz-main.js --seed ${String(seed)} --batch ${String(batch)}   (input ${String(index)} of it)`,
  ].join("\n");
}

function whole(name: string, text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(value)) throw new Error(`--${name}: has to be a whole number`);
  return value;
}

function ruleOf(text: string | undefined): WrongRule | null {
  if (text === undefined) return null;
  const rule = WRONG_RULES.find((name) => name === text);
  if (rule === undefined) throw new Error(`--wrong: ${text} is none of ${WRONG_RULES.join(", ")}`);
  return rule;
}

function thread(workerData: FuzzThread): Promise<FuzzResult> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL("./fuzz-worker.js", import.meta.url), { workerData, resourceLimits: { stackSizeMb: STACK_MIB } });
    worker.once("message", resolve);
    worker.once("error", reject);
    worker.once("exit", (code) => {
      reject(new Error(`a thread ended with ${String(code)}`));
    });
  });
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: { inputs: { type: "string", default: "1000000" }, seed: { type: "string", default: "1" }, threads: { type: "string" }, batch: { type: "string" }, wrong: { type: "string" } },
  });
  const seed = whole("seed", values.seed);
  const wrong = ruleOf(values.wrong);
  const startedAt = performance.now();
  let results: FuzzResult[];
  if (values.batch !== undefined) {
    const fuzz = new Fuzz(seed, wrong);
    const fault = fuzz.batch(whole("batch", values.batch));
    results = [{ inputs: fuzz.inputs, valid: fuzz.valid, memoryBytes: fuzz.memoryBytes, fault }];
  } else {
    const threads = values.threads === undefined ? Math.min(2, availableParallelism()) : Math.max(1, whole("threads", values.threads));
    const inputs = Math.ceil(whole("inputs", values.inputs) / threads);
    results = await Promise.all(Array.from({ length: threads }, (_, first) => thread({ seed, first, step: threads, inputs, wrong })));
  }
  const faults = results.flatMap(({ fault }) => (fault === null ? [] : [fault]));
  for (const fault of faults) process.stdout.write(`${faultText(fault)}\n`);
  const sum = (of: (result: FuzzResult) => number): number => results.reduce((total, result) => total + of(result), 0);
  const seconds = (performance.now() - startedAt) / 1000;
  process.stdout.write(`${String(sum(({ inputs }) => inputs))} inputs, ${String(sum(({ valid }) => valid))} of them read to their end, ${String(faults.length)} faults, ${seconds.toFixed(1)} s, seed ${String(seed)}\n`);
  return faults.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`fuzz: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 2;
}
