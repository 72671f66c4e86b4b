/**
 * Child processes that end with us: on a normal end, on an error, on Ctrl-C. Each is ended by its own pid.
 */
import { spawn, type ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

/** How much of a child's output is kept for messages. */
const KEPT_OUTPUT_BYTES = 64 * 1024;
/** From SIGTERM to SIGKILL. */
const GRACE_MS = 3_000;

const living = new Set<Child>();
let hooked = false;

/** The last resort: whatever still lives when this process ends is killed. */
function hook(): void {
  if (hooked) return;
  hooked = true;
  process.on("exit", () => {
    for (const child of living) child.killNow();
  });
}

export interface ChildOptions {
  /** In messages. */
  name: string;
  command: string;
  args: readonly string[];
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  /** Called with each line that the child writes to its file descriptor 3. */
  onNote?: (line: string) => void;
  /** Its standard input stays open as long as this process lives, so that the child can tell, however this one ends. */
  tied?: boolean;
  /** Called with everything that it writes. */
  onOutput?: (piece: Buffer) => void;
}

export class Child {
  readonly name: string;
  readonly pid: number;
  /** Resolves when the process has ended, with how. */
  readonly ended: Promise<string>;
  private readonly process: ChildProcess;
  private text = "";
  private how: string | null = null;
  private wanted = false;

  constructor(options: ChildOptions) {
    hook();
    this.name = options.name;
    this.process = spawn(options.command, [...options.args], { env: options.env ?? process.env, cwd: options.cwd, stdio: [options.tied === true ? "pipe" : "ignore", "pipe", "pipe", ...(options.onNote === undefined ? [] : ["pipe" as const])] });
    this.pid = this.process.pid ?? -1;
    living.add(this);
    const keep = (piece: Buffer): void => {
      this.text = (this.text + piece.toString("utf8")).slice(-KEPT_OUTPUT_BYTES);
      options.onOutput?.(piece);
    };
    this.process.stdout?.on("data", keep);
    this.process.stderr?.on("data", keep);
    const notes = this.process.stdio[3] as Readable | undefined;
    if (notes !== undefined && options.onNote !== undefined) createInterface({ input: notes }).on("line", options.onNote);
    this.ended = new Promise((resolve) => {
      const end = (how: string): void => {
        this.how ??= how;
        living.delete(this);
        resolve(this.how);
      };
      this.process.once("error", (error) => { end(error.message); });
      this.process.once("close", (code, signal) => { end(signal === null ? `exit code ${String(code)}` : `signal ${signal}`); });
      this.process.once("exit", () => living.delete(this));
    });
  }

  get alive(): boolean {
    return this.how === null && this.process.exitCode === null && this.process.signalCode === null && this.pid > 0;
  }

  /** It has ended although nobody asked it to. */
  get died(): boolean {
    return !this.alive && !this.wanted;
  }

  /** The last of what it wrote. */
  get output(): string {
    return this.text;
  }

  /** The last lines of what it wrote, for a message. */
  lastLines(count: number): string {
    return this.text.trimEnd().split("\n").slice(-count).join("\n");
  }

  signal(signal: NodeJS.Signals): void {
    this.process.kill(signal);
  }

  killNow(): void {
    this.wanted = true;
    this.process.kill("SIGKILL");
  }

  /** SIGTERM, then SIGKILL after `graceMs`; resolves when the process has ended. */
  async stop(graceMs = GRACE_MS): Promise<void> {
    this.wanted = true;
    if (!this.alive) return;
    this.process.kill("SIGTERM");
    const timer = setTimeout(() => this.process.kill("SIGKILL"), graceMs);
    await this.ended;
    clearTimeout(timer);
  }

  /**
   * Waits until `check` says yes. Throws an Error that holds the last lines of output when the process ends before or `timeoutMs` pass.
   */
  async until(what: string, check: () => Promise<boolean>, timeoutMs: number): Promise<void> {
    const stopAt = performance.now() + timeoutMs;
    let ended: string | null = null;
    void this.ended.then((how) => (ended = how));
    for (let pauseMs = 5; ; pauseMs = Math.min(pauseMs * 1.5, 50)) {
      if (await check()) return;
      if (ended !== null || !this.alive) throw new Error(`${this.name} ended (${await this.ended}) before ${what}:\n${this.lastLines(8)}`);
      if (performance.now() > stopAt) throw new Error(`${this.name}: no ${what} within ${Math.round(timeoutMs / 1000).toString()} s:\n${this.lastLines(8)}`);
      await sleep(pauseMs);
    }
  }
}

/** Ends every child that still lives, those of a fleet that was only starting too, and waits for them. */
async function endLiving(): Promise<void> {
  await Promise.all([...living].map((child) => child.stop(500)));
}

/**
 * For programs: on Ctrl-C, SIGTERM and SIGHUP `end` runs, every child ends, then the process exits with 128 and the signal's number. A second signal exits at once; what still
 * lives is killed on the way out.
 *
 * @returns whether a signal has come: what fails from then on fails because everything is being ended
 */
export function endOnSignals(end: () => Promise<void>): { readonly ending: boolean } {
  const numbers = { SIGINT: 2, SIGTERM: 15, SIGHUP: 1 } as const;
  const state = { ending: false };
  for (const [name, number] of Object.entries(numbers)) {
    process.on(name, () => {
      if (state.ending) process.exit(128 + number);
      state.ending = true;
      void end()
        .catch(() => undefined)
        .then(endLiving)
        .finally(() => process.exit(128 + number));
    });
  }
  return state;
}
