/**
 * The process of one copy of the sidecar: starts it once for each set of flags, all in this process, and says on which ports.
 *
 *     node host.js FOLDER '[["fail","--flag=value",…],…]'      prints {"fail":PORT,…}, one line
 *
 * FOLDER holds the compiled sidecar. Each inner list is a door's name and its flags. Ports are the system's choice.
 */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type * as Options from "../../sidecar/options.js";
import type * as Server from "../../sidecar/server.js";

const [folder = "", doors = "[]"] = process.argv.slice(2);
const load = async <T>(file: string): Promise<T> => (await import(pathToFileURL(join(folder, file)).href)) as T;
const { parseOptions } = await load<typeof Options>("options.js");
const { startSidecar } = await load<typeof Server>("server.js");

// As in main.ts: one request's fault does not end the others.
for (const event of ["uncaughtException", "unhandledRejection"] as const) {
  process.on(event, (error: unknown) => {
    process.stderr.write(`${event}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  });
}

const ports: Record<string, number> = {};
for (const [name = "", ...flags] of JSON.parse(doors) as string[][]) {
  const { options } = parseOptions(flags, {});
  ports[name] = (await startSidecar({ ...options, port: 0 })).port;
}
process.stdout.write(`${JSON.stringify(ports)}\n`);
