import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * A file that ./scripts/build makes, looked for from this file upwards: in `build/` of a checkout, or beside the folder of an installation.
 *
 * @returns its path; where it would stand in a checkout when there is none, for the message of whoever opens it
 */
export function builtFile(name: string): string {
  let dir = dirname(fileURLToPath(import.meta.url));
  const inCheckout = join(dir, "..", "build", name);
  for (; ; dir = dirname(dir)) {
    for (const candidate of [join(dir, "build", name), join(dir, name)]) if (existsSync(candidate)) return candidate;
    if (dirname(dir) === dir) return inCheckout;
  }
}
