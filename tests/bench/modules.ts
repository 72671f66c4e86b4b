/** The WebAssembly modules that only the bench needs, compiled into build/bench when their sources have changed. */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { inRoot } from "../fleet/root.js";

const OUT = inRoot("build", "bench");

function run(command: string, args: readonly string[], cwd: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(inRoot("node_modules", ".bin", command), args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    child.stdout.on("data", (piece: Buffer) => (text += piece.toString("utf8")));
    child.stderr.on("data", (piece: Buffer) => (text += piece.toString("utf8")));
    child.on("error", reject);
    child.on("close", (code) => {
      if (code === 0) resolve();
      else reject(new Error(`${command} ended with ${String(code)}: ${text.slice(-4000)}`));
    });
  });
}

/** One number for all that a module is made of. */
function digest(paths: readonly string[], more: string): string {
  const hash = createHash("sha256").update(more);
  const add = (path: string): void => {
    if (statSync(path).isDirectory()) for (const name of readdirSync(path).sort()) add(join(path, name));
    else hash.update(path).update(readFileSync(path));
  };
  for (const path of paths) add(path);
  return hash.digest("hex");
}

/** Runs `make` unless `target` was made of the same. */
async function made(target: string, content: string, make: () => Promise<void>): Promise<string> {
  const stamp = `${target}.stamp`;
  if (existsSync(target) && existsSync(stamp) && readFileSync(stamp, "utf8") === content) return target;
  await make();
  writeFileSync(stamp, content);
  return target;
}

const FLOOR_FLAGS = ["-O3", "--runtime", "incremental", "--exportRuntime", "--enable", "simd"];

/** Compiles a filter that stands in one file. The compiler takes .ts only; the sources are called otherwise because TypeScript's own compiler and linter must not. */
async function single(name: string): Promise<string> {
  mkdirSync(OUT, { recursive: true });
  const source = inRoot("tests", "bench", `${name}.as`);
  const target = join(OUT, `${name}.wasm`);
  const flags = ["--use", `abort=${name}/abort_`, ...FLOOR_FLAGS];
  return made(target, digest([source], flags.join(" ")), async () => {
    writeFileSync(join(OUT, `${name}.ts`), readFileSync(source));
    await run("asc", [`${name}.ts`, "-o", `${name}.wasm`, ...flags], OUT);
  });
}

/**
 * The floor filter (floor.as), with the flags that its figures were taken with; it is not post-processed.
 *
 * @returns build/bench/floor.wasm
 */
export function floorModule(): Promise<string> {
  return single("floor");
}

/** build/bench/host-calls.wasm: a filter that measures host calls (host-calls.as). */
export function hostCallsModule(): Promise<string> {
  return single("host-calls");
}

const OPTIMIZE = ["-O4", "--converge", "--enable-simd", "--enable-bulk-memory", "--enable-nontrapping-float-to-int", "--enable-sign-ext", "--enable-mutable-globals"];

/** Compiles an entry that imports from assembly/, as assembly/build.mjs does, but for the names of functions, which a profile needs: they stay. */
async function compile(entry: string, target: string, use: string, sources: readonly string[]): Promise<string> {
  mkdirSync(OUT, { recursive: true });
  const out = join(OUT, `${target}.wasm`);
  const raw = join(OUT, `${target}.raw.wasm`);
  const flags = ["--optimizeLevel", "2", "--shrinkLevel", "1", "--runtime", "minimal", "--exportStart", "_initialize", "--enable", "simd", "--transform", "json-as/transform", "--use", use, "--debug"];
  return made(out, digest([inRoot("assembly"), ...sources], flags.join(" ")), async () => {
    // In assembly/, because json-as takes a source that is called assembly/index for its own library.
    await run("asc", [entry, "-o", raw, ...flags], inRoot("assembly"));
    await run("wasm-opt", [raw, ...OPTIMIZE, "-g", "-o", out], OUT);
  });
}

/** build/bench/filter.named.wasm: the filter, with the names of its functions. */
export function namedFilter(): Promise<string> {
  return compile("index.ts", "filter.named", "abort=index/abort_", []);
}

/** build/bench/micro.wasm: scanner, index and scheduler on shared data in their own memory (micro.as). */
export function microModule(): Promise<string> {
  const source = inRoot("tests", "bench", "micro.as");
  mkdirSync(OUT, { recursive: true });
  writeFileSync(join(OUT, "micro.ts"), readFileSync(source));
  return compile("../build/bench/micro.ts", "micro", "abort=../build/bench/micro/abort_", [source]);
}
