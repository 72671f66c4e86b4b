/** A listener that nobody should reach: it counts who does. */
import { createServer, type Server } from "node:net";
import { listenAnywhere } from "./ports.js";

export class CountingListener {
  readonly host: string;
  readonly port: number;
  private readonly server: Server;
  private count = 0;

  private constructor(server: Server, host: string, port: number) {
    this.server = server;
    this.host = host;
    this.port = port;
  }

  static async start(host = "127.0.0.1"): Promise<CountingListener> {
    const server = createServer();
    const port = await listenAnywhere(server, host);
    const listener = new CountingListener(server, host, port);
    server.on("connection", (socket) => {
      listener.count += 1;
      socket.on("error", () => undefined);
      socket.destroy();
    });
    return listener;
  }

  /** Connections so far. */
  get connections(): number {
    return this.count;
  }

  async close(): Promise<void> {
    await new Promise<void>((resolve) => this.server.close(() => { resolve(); }));
  }
}
