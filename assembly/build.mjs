// Builds build/filter.wasm and build/scanner.wasm: asc, wasm-opt, and the filter's own name for itself (assembly/version.ts) in place of its marks.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { pack } from "./pack.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const out = join(root, "build");
const bin = (name) => join(root, "node_modules", ".bin", name);
const OPTIMIZE = [
  "-O4",
  "--converge",
  "--strip-debug",
  "--strip-producers",
  "--enable-simd",
  "--enable-bulk-memory",
  "--enable-nontrapping-float-to-int",
  "--enable-sign-ext",
  "--enable-mutable-globals",
];
/** Envoy compiles the module once per process and keeps it per worker. */
const LIMIT = 200 * 1024;

function run(command, args, cwd) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] });
    let text = "";
    child.stdout.on("data", (data) => (text += data));
    child.stderr.on("data", (data) => (text += data));
    child.on("error", reject);
    child.on("close", (code) => (code === 0 ? resolve() : reject(new Error(`${command} ${args.join(" ")} ended with ${code}\n${text}`))));
  });
}

/** Puts `version+hash` in place of the marks: UTF-16, as the compiler lays strings out, and exactly as long. */
export function stamp(module, label) {
  const marks = Buffer.from("@".repeat(32), "utf16le");
  const at = module.indexOf(marks);
  if (at < 0 || module.indexOf(marks, at + 1) >= 0) throw new Error("the module does not hold the marks of assembly/version.ts exactly once");
  const stamped = Buffer.from(module);
  Buffer.from(label.slice(0, 32).padEnd(32), "utf16le").copy(stamped, at);
  return stamped;
}

async function build(entry, target) {
  // In assembly/, because json-as takes a source that is called assembly/index for its own library.
  await run(bin("asc"), [`${entry}.ts`, "--config", "../asconfig.json", "--target", target], here);
  const optimized = join(out, `${target}.opt.wasm`);
  await run(bin("wasm-opt"), [join(out, `${target}.raw.wasm`), ...OPTIMIZE, "-o", optimized], root);
  let module = readFileSync(optimized);
  if (target === "filter") {
    const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    module = stamp(module, `${version}+${createHash("sha256").update(module).digest("hex").slice(0, 12)}`);
    module = pack(module);
    if (module.length > LIMIT) throw new Error(`build/filter.wasm has ${module.length} bytes; the limit is ${LIMIT}`);
  }
  writeFileSync(join(out, `${target}.wasm.new`), module);
  renameSync(join(out, `${target}.wasm.new`), join(out, `${target}.wasm`));
  rmSync(optimized);
  rmSync(join(out, `${target}.raw.wasm`));
  console.log(`build/${target}.wasm: ${(module.length / 1024).toFixed(1)} KiB`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  mkdirSync(out, { recursive: true });
  try {
    await Promise.all([build("index", "filter"), build("bindings", "scanner")]);
  } catch (error) {
    console.error(error.message);
    process.exit(1);
  }
}
