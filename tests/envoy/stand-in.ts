import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { main } from "assemblyscript/asc";
import { inRoot } from "../fleet/root.js";

const SOURCE = fileURLToPath(new URL("fixtures/stand-in.as", import.meta.url));
const ENTRY = "stand-in.ts";
/** A word of the source that {@link compileStandIn} replaces, so that two modules differ in their bytes. */
const MARK = '{\\"state\\":\\"stand-in\\"}';

async function compile(source: string): Promise<Buffer> {
  let binary: Uint8Array | null = null;
  const { error, stderr } = await main([ENTRY, "--outFile", "out.wasm", "--use", `abort=${ENTRY.replace(".ts", "")}/abort_`, "-O", "--runtime", "stub"], {
    readFile: (name, baseDir) => {
      if (name === ENTRY) return source;
      try {
        return readFileSync(baseDir && !name.startsWith("/") ? `${baseDir}/${name}` : name, "utf8");
      } catch {
        return null;
      }
    },
    writeFile: (_name, contents) => {
      if (typeof contents !== "string") binary = contents;
    },
    listFiles: () => [],
  });
  if (error !== null || binary === null) throw new Error(`the stand-in filter does not compile: ${stderr.toString()}`);
  return Buffer.from(binary);
}

/**
 * The stand-in filter (tests/envoy/fixtures/stand-in.as), compiled; what was compiled before is kept under build/.
 *
 * @param version goes into what the module's state listener answers, so that modules of two versions have other bytes
 * @returns the module's bytes
 * @throws Error with the compiler's messages
 */
export async function compileStandIn(version = "stand-in"): Promise<Buffer> {
  const text = readFileSync(SOURCE, "utf8");
  const source = text.replace(MARK, MARK.replace("stand-in", version));
  if (version !== "stand-in" && source === text) throw new Error(`${SOURCE} has lost the mark that versions are written at`);
  const folder = inRoot("build", "stand-in");
  const file = `${folder}/${createHash("sha256").update(source).digest("hex")}.wasm`;
  try {
    return readFileSync(file);
  } catch {
    const binary = await compile(source);
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${file}.${String(process.pid)}`, binary);
    renameSync(`${file}.${String(process.pid)}`, file);
    return binary;
  }
}
