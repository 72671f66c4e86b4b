/** The load generator: requests that were made up before, on plain sockets. A program of its own, see helper.ts. */
import { connect, type Socket } from "node:net";
import { chatRequest, nonce, type RequestBytes } from "./bodies.js";
import { answerQuestions } from "./helper.js";
import type { LoadAnswer, LoadAsk, LoadJob, LoadResult } from "./load.js";
import { latencies, Samples } from "./numbers.js";
import { MessageReader, statusOf } from "./wire.js";

const MAX_COMPLAINTS = 5;

/** Prompts that were sent by this process, so that no run repeats another one's. */
let sent = 0;
const OWN_SALT = (process.pid * 2_654_435_761 + Date.now()) >>> 0;
const WARM_SALT = 0x5eed0001;

const templates = new Map<string, RequestBytes>();
function template(job: LoadJob): RequestBytes {
  const key = JSON.stringify(job.body);
  let made = templates.get(key);
  if (made === undefined) {
    made = chatRequest(job.body);
    // Large ones only: a run needs one, and a bench goes through many.
    if (templates.size > 8) templates.clear();
    templates.set(key, made);
  }
  return made;
}

const times = new Samples();
const firstBytes = new Samples();
/** All connections read into the same memory: what is read is looked at at once. */
const shared = Buffer.alloc(64 * 1024);

class Run {
  private readonly lanes: Lane[];
  private closing = false;
  errors = 0;
  readonly complaints: string[] = [];
  measuring = false;
  until = 0;
  startedAt = 0;
  endedAt = 0;

  constructor(readonly job: LoadJob) {
    const { bytes, nonceAt } = template(job);
    times.clear();
    firstBytes.clear();
    // A request that is being written must not change: each connection has its own copy.
    this.lanes = Array.from({ length: job.connections }, (_none, at) => new Lane(this, Buffer.from(bytes), nonceAt, at));
  }

  complain(what: string): void {
    if (this.closing) return;
    this.errors++;
    if (this.complaints.length < MAX_COMPLAINTS) this.complaints.push(what);
  }

  async prepare(): Promise<void> {
    await Promise.all(this.lanes.map((lane) => lane.open()));
    const { warmup, prompts } = this.job;
    // Each prompt that comes again has come once before the time begins.
    const each = Math.max(warmup, Math.ceil(prompts / this.lanes.length));
    await Promise.all(this.lanes.map((lane) => lane.send(each, null)));
  }

  async go(): Promise<LoadResult> {
    this.measuring = true;
    this.startedAt = performance.now();
    this.until = this.startedAt + this.job.durationMs;
    await Promise.all(this.lanes.map((lane) => lane.send(Number.POSITIVE_INFINITY, this.until)));
    this.closing = true;
    for (const lane of this.lanes) lane.close();
    return {
      requests: times.length,
      elapsedMs: this.endedAt - this.startedAt,
      latency: latencies(times.all()),
      firstByte: latencies(firstBytes.all()),
      errors: this.errors,
      complaints: this.complaints,
    };
  }
}

class Lane {
  private socket: Socket | null = null;
  private readonly reader: MessageReader;
  private startedAt = 0;
  private status = 0;
  private gotByte = false;
  /** Called when the answer is complete, or never will be. */
  private answered: ((good: boolean) => void) | null = null;
  private timer: NodeJS.Timeout | null = null;
  private broken = false;

  constructor(
    private readonly run: Run,
    private readonly bytes: Buffer,
    private readonly nonceAt: number,
    /** Of the prompts that take turns, the one that is next. */
    private number: number,
  ) {
    this.reader = new MessageReader({
      head: (head) => (this.status = statusOf(head)),
      body: () => {
        if (this.gotByte) return;
        this.gotByte = true;
        if (this.run.measuring) firstBytes.add(performance.now() - this.startedAt);
      },
      end: () => {
        const now = performance.now();
        this.run.endedAt = now;
        const good = this.status === 200;
        if (!good) this.run.complain(`status ${this.status.toString()}`);
        else if (this.run.measuring) times.add(now - this.startedAt);
        this.answered?.(true);
      },
    });
  }

  open(): Promise<void> {
    const { host, port } = this.run.job;
    return new Promise((resolve, reject) => {
      const socket = connect({
        host,
        port,
        noDelay: true,
        onread: {
          buffer: shared,
          callback: (size, bytes) => {
            try {
              this.reader.feed(bytes as Buffer, size);
            } catch (error) {
              this.fail(error instanceof Error ? error.message : String(error));
            }
            return true;
          },
        },
      });
      socket.once("connect", () => { resolve(); });
      socket.on("error", (error) => {
        reject(error);
        this.fail(error.message);
      });
      socket.on("close", () => { this.fail("the connection was closed"); });
      this.socket = socket;
    });
  }

  private fail(what: string): void {
    if (this.broken) return;
    this.broken = true;
    this.run.complain(what);
    this.answered?.(false);
    this.socket?.destroy();
  }

  /** Sends one request behind the other: so many, or until a time. */
  send(total: number, until: number | null): Promise<void> {
    if (total === 0 || this.broken) return Promise.resolve();
    return new Promise((resolve) => {
      let done = 0;
      this.answered = (good) => {
        done++;
        if (good && done < total && (until === null || performance.now() < until)) {
          this.sendOne();
          return;
        }
        if (this.timer !== null) clearTimeout(this.timer);
        this.timer = null;
        this.answered = null;
        resolve();
      };
      this.watch();
      this.sendOne();
    });
  }

  private sendOne(): void {
    const { prompts, connections } = this.run.job;
    const text = prompts > 0 ? nonce(WARM_SALT, this.number % prompts) : nonce(OWN_SALT, sent++);
    this.number += connections;
    this.bytes.write(text, this.nonceAt, "latin1");
    this.gotByte = false;
    this.startedAt = performance.now();
    this.socket?.write(this.bytes);
  }

  /** One timer a lane and run, not one a request. */
  private watch(): void {
    const { timeoutMs } = this.run.job;
    this.timer = setTimeout(() => {
      if (performance.now() - this.startedAt >= timeoutMs) this.fail(`no answer within ${timeoutMs.toString()} ms`);
      else this.watch();
    }, timeoutMs);
  }

  close(): void {
    this.broken = true;
    this.socket?.destroy();
  }
}

let run: Run | null = null;

answerQuestions<LoadAsk, LoadAnswer>(async (ask) => {
  if (ask !== "go") {
    run = new Run(ask.prepare);
    await run.prepare();
    return null;
  }
  if (run === null) throw new Error("nothing was prepared");
  const result = await run.go();
  run = null;
  return result;
});
