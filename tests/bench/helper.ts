/** Programs of the bench that run beside it: forked, asked over their channel, ended with it. */
import { fork, type ChildProcess } from "node:child_process";
import { fileURLToPath } from "node:url";

interface Question {
  number: number;
  ask: unknown;
}
interface Reply {
  number: number;
  answer?: unknown;
  error?: string;
}

const GRACE_MS = 1_000;
const living = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of living) child.kill("SIGKILL");
});

/** A program that answers questions of type `Ask`, one at a time or many at once. */
export class Helper<Ask, Answer> {
  readonly pid: number;
  private readonly child: ChildProcess;
  private readonly open = new Map<number, { resolve: (answer: Answer) => void; reject: (error: Error) => void }>();
  private next = 1;

  /** @param module the program's file beside this one, without its extension */
  constructor(module: string) {
    this.child = fork(fileURLToPath(new URL(`${module}.js`, import.meta.url)), [], { serialization: "advanced", stdio: ["ignore", "inherit", "inherit", "ipc"] });
    this.pid = this.child.pid ?? -1;
    living.add(this.child);
    this.child.on("message", (message) => {
      const { number, answer, error } = message as Reply;
      const waiting = this.open.get(number);
      this.open.delete(number);
      if (error !== undefined) waiting?.reject(new Error(`${module}: ${error}`));
      else waiting?.resolve(answer as Answer);
    });
    this.child.on("exit", (code, signal) => {
      living.delete(this.child);
      for (const { reject } of this.open.values()) reject(new Error(`${module} ended: ${signal ?? `exit code ${String(code)}`}`));
      this.open.clear();
    });
  }

  /** Rejects with the program's own words, or when it ends. */
  ask(ask: Ask): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (!living.has(this.child)) {
        reject(new Error("the program has ended"));
        return;
      }
      const number = this.next++;
      this.open.set(number, { resolve, reject });
      this.child.send({ number, ask } satisfies Question);
    });
  }

  async stop(): Promise<void> {
    if (!living.has(this.child)) return;
    const ended = new Promise<void>((resolve) => this.child.once("exit", () => { resolve(); }));
    this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), GRACE_MS);
    await ended;
    clearTimeout(timer);
  }
}

/** In the program itself: answers questions until the bench goes away. */
export function answerQuestions<Ask, Answer>(answer: (ask: Ask) => Promise<Answer> | Answer): void {
  process.on("message", (message) => {
    const { number, ask } = message as Question;
    void (async () => {
      let reply: Reply;
      try {
        reply = { number, answer: await answer(ask as Ask) };
      } catch (error) {
        reply = { number, error: error instanceof Error ? error.message : String(error) };
      }
      process.send?.(reply);
    })();
  });
  process.on("disconnect", () => process.exit(0));
  // Ctrl-C reaches the whole group; the bench ends its programs itself.
  process.on("SIGINT", () => undefined);
}
