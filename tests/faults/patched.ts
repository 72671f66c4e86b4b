/** Sidecars made from the repository's sources with one edit each, compiled alone into build/faults. */
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";
import { inRoot } from "../fleet/root.js";

/** One edit of one file. */
export interface Patch {
  readonly name: string;
  /** Under sidecar/. */
  readonly file: string;
  /** Must stand in the file exactly once. */
  readonly find: string;
  readonly put: string;
}

const FOLDER = inRoot("build", "faults");
const ORIGINAL = "unpatched";

function sources(): string[] {
  return readdirSync(inRoot("sidecar"), { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts") && !file.endsWith(".spec.ts") && !file.startsWith("testkit"));
}

/** @throws Error with the place, when the text is no TypeScript */
export function compile(text: string, fileName: string): string {
  const { outputText, diagnostics = [] } = ts.transpileModule(text, {
    fileName,
    reportDiagnostics: true,
    compilerOptions: { target: ts.ScriptTarget.ES2023, module: ts.ModuleKind.ESNext, verbatimModuleSyntax: true },
  });
  const [first] = diagnostics;
  if (first !== undefined) throw new Error(`${fileName}: ${ts.flattenDiagnosticMessageText(first.messageText, " ")} at ${String(first.start)}`);
  return outputText;
}

/** @throws Error when the text to replace is not there exactly once, or the edit changes nothing */
export function patch(text: string, { name, file, find, put }: Patch): string {
  const places = text.split(find).length - 1;
  if (find === "" || places !== 1) throw new Error(`fault ${name}: its text stands ${String(places)} times in sidecar/${file}, once is wanted: ${find}`);
  const patched = text.replace(find, () => put);
  if (patched === text) throw new Error(`fault ${name}: its edit changes nothing`);
  return patched;
}

/** Compiles the sidecar as it is, and the program that runs copies of it. Returns that copy's folder. */
export function compileOriginal(): string {
  rmSync(FOLDER, { recursive: true, force: true });
  const folder = join(FOLDER, ORIGINAL);
  for (const file of sources()) {
    const target = join(folder, file.replace(/\.ts$/, ".js"));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, compile(readFileSync(inRoot("sidecar", file), "utf8"), file));
  }
  writeFileSync(join(FOLDER, "host.js"), compile(readFileSync(inRoot("tests", "faults", "host.ts"), "utf8"), "host.ts"));
  return folder;
}

/** The program that runs a copy ({@link compileOriginal} has made it). */
export const HOST = join(FOLDER, "host.js");

/** A copy of the compiled sidecar with the edit in it. Returns its folder. */
export function compilePatched(edit: Patch): string {
  const folder = join(FOLDER, edit.name);
  const text = patch(readFileSync(inRoot("sidecar", edit.file), "utf8"), edit);
  cpSync(join(FOLDER, ORIGINAL), folder, { recursive: true });
  writeFileSync(join(folder, edit.file.replace(/\.ts$/, ".js")), compile(text, `${edit.name}/${edit.file}`));
  return folder;
}
