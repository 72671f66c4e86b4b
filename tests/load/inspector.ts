/** What a Node process says of its heap, over its own inspector. */
import { WebSocket } from "undici";

export class Inspector {
  readonly #socket: WebSocket;
  readonly #waiting = new Map<number, (result: Record<string, unknown>) => void>();
  #next = 1;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.addEventListener("message", ({ data }) => {
      const { id, result } = JSON.parse(String(data)) as { id?: number; result?: Record<string, unknown> };
      if (id !== undefined) this.#waiting.get(id)?.(result ?? {});
    });
  }

  /** @param output of a process that was started with `--inspect`: it says where it listens */
  static async connect(output: string): Promise<Inspector> {
    const url = /Debugger listening on (ws:\S+)/.exec(output)?.[1];
    if (url === undefined) throw new Error("the process does not say where its inspector listens");
    const socket = new WebSocket(url);
    await new Promise<void>((resolve, reject) => {
      socket.addEventListener("open", () => {
        resolve();
      });
      socket.addEventListener("error", () => {
        reject(new Error("the inspector cannot be reached"));
      });
    });
    return new Inspector(socket);
  }

  /** Bytes in use once garbage is gone. */
  async heapBytes(): Promise<number> {
    await this.#call("HeapProfiler.collectGarbage");
    return Number((await this.#call("Runtime.getHeapUsage"))["usedSize"]);
  }

  #call(method: string): Promise<Record<string, unknown>> {
    const id = this.#next++;
    return new Promise((resolve) => {
      this.#waiting.set(id, (result) => {
        this.#waiting.delete(id);
        resolve(result);
      });
      this.#socket.send(JSON.stringify({ id, method }));
    });
  }

  close(): void {
    this.#socket.close();
  }
}
