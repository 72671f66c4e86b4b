/** Free ports of loopback, from the system. */
import { createServer, type Server } from "node:net";

/** Ports that this process has given out: the system may offer one again before its user listens. */
const given = new Set<number>();

/** Listens on a free port of the host and gives the server back. */
export function listenAnywhere(server: Server, host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host, port: 0 }, () => {
      server.removeListener("error", reject);
      const address = server.address();
      if (address === null || typeof address === "string") reject(new Error("the listener has no port"));
      else resolve(address.port);
    });
  });
}

/**
 * A port that was free a moment ago, for a program that has to be told one. Another process may take it before that program listens: starters try again.
 */
export async function freePort(host = "127.0.0.1"): Promise<number> {
  for (;;) {
    const server = createServer();
    const port = await listenAnywhere(server, host);
    await new Promise<void>((resolve) => server.close(() => { resolve(); }));
    if (given.has(port)) continue;
    given.add(port);
    return port;
  }
}

/** The machine has `::1`. */
export async function hasIpv6(): Promise<boolean> {
  const server = createServer();
  try {
    await listenAnywhere(server, "::1");
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}

/** Whether something listens there, or the port cannot be had for another reason. */
export function portTaken(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => { resolve(true); });
    server.listen({ host, port }, () => server.close(() => { resolve(false); }));
  });
}
