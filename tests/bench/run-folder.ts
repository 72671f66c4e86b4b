/** A folder for the files of one run. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { inRoot } from "../fleet/root.js";

/** Below build/bench; gone when `remove` is called, and when the process ends in whatever way. */
export function runFolder(): { folder: string; remove: () => void } {
  const parent = inRoot("build", "bench");
  mkdirSync(parent, { recursive: true });
  const folder = mkdtempSync(join(parent, "run-"));
  const remove = (): void => {
    rmSync(folder, { recursive: true, force: true });
  };
  process.once("exit", remove);
  return {
    folder,
    remove: () => {
      process.removeListener("exit", remove);
      remove();
    },
  };
}
