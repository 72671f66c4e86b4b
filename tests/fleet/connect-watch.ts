/**
 * Loaded into a sidecar before its own code (`node --import`): tells each connection that was refused, by a line `atMs host port` on file descriptor 3. No
 * engine can count the connections that its closed port refuses, and the kernel counts those of all processes together.
 *
 * It only listens: an error without a handler stays one.
 */
import { subscribe } from "node:diagnostics_channel";
import { errorMonitor, type EventEmitter } from "node:events";
import { writeSync } from "node:fs";
import { clockMs } from "./http.js";

interface ConnectError extends Error {
  code?: string;
  address?: string;
  port?: number;
  errors?: ConnectError[];
}

function tell(error: ConnectError): void {
  // A name with several addresses fails with one error for each.
  for (const inner of error.errors ?? []) tell(inner);
  if (error.code === "ECONNREFUSED" && error.address !== undefined && error.port !== undefined) {
    writeSync(3, `${clockMs().toString()} ${error.address} ${error.port.toString()}\n`);
  }
}

subscribe("net.client.socket", (message) => {
  (message as { socket: EventEmitter }).socket.once(errorMonitor, tell);
});
