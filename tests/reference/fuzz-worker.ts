/** A thread of the fuzz: every so many-th batch, as long as it is asked for more. */
import { parentPort, workerData } from "node:worker_threads";
import { type Fault, Fuzz } from "./fuzz.js";
import type { WrongRule } from "./request-view.js";

export interface FuzzThread {
  seed: number;
  first: number;
  step: number;
  inputs: number;
  wrong: WrongRule | null;
}

export interface FuzzResult {
  inputs: number;
  valid: number;
  memoryBytes: number;
  fault: Fault | null;
}

// Every third body is at fault, which the plain reader tells by throwing: where from does not matter (a batch that runs again by itself says it).
Error.stackTraceLimit = 0;

const { seed, first, step, inputs, wrong } = workerData as FuzzThread;
const fuzz = new Fuzz(seed, wrong);
let fault: Fault | null = null;
for (let batch = first; fuzz.inputs < inputs && fault === null; batch += step) fault = fuzz.batch(batch);
parentPort?.postMessage({ inputs: fuzz.inputs, valid: fuzz.valid, memoryBytes: fuzz.memoryBytes, fault } satisfies FuzzResult);
