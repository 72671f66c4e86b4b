/** Where the repository is, whether this runs from its sources or from build/js. */
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

function find(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const file = join(folder, "package.json");
    if (existsSync(file) && (JSON.parse(readFileSync(file, "utf8")) as { name?: string }).name === "crosspoint") return folder;
    if (dirname(folder) === folder) throw new Error("the repository's package.json is not above this file");
  }
}

/** The repository's folder. */
export const ROOT = find();

/** A path in the repository. */
export function inRoot(...parts: string[]): string {
  return join(ROOT, ...parts);
}

/** A program that ./scripts/build made. Throws an Error with the remedy when it is not there. */
export function built(...parts: string[]): string {
  const path = inRoot("build", ...parts);
  if (!existsSync(path)) throw new Error(`${join("build", ...parts)} is missing: run ./scripts/build first`);
  return path;
}
