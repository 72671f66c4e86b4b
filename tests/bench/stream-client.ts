/** Many open streams whose events are timed. A program of its own, see helper.ts. */
import { connect, type Socket } from "node:net";
import { chatRequest, nonce } from "./bodies.js";
import { monotonicMs } from "./clock.js";
import { EventReader, type Lateness, LatenessBook } from "./events.js";
import { answerQuestions } from "./helper.js";
import { MessageReader, statusOf } from "./wire.js";

export interface StreamJob {
  host: string;
  port: number;
  streams: number;
  /** Events that each stream has. */
  events: number;
  /** Further header lines. */
  headers: readonly string[];
  /** For all of it. */
  timeoutMs: number;
}

const BODY_BYTES = 1024;

function stream(job: StreamJob, number: number, book: LatenessBook): Promise<Socket> {
  const { bytes, nonceAt } = chatRequest({ kind: "text", bytes: BODY_BYTES, stream: true, headers: job.headers });
  bytes.write(nonce(monotonicMs(), number), nonceAt, "latin1");
  const events = new EventReader(book);
  return new Promise((resolve, reject) => {
    const socket = connect({ host: job.host, port: job.port, noDelay: true });
    const timer = setTimeout(() => {
      reject(new Error(`a stream has not ended after ${job.timeoutMs.toString()} ms, with ${events.seen.toString()} of ${job.events.toString()} events`));
      socket.destroy();
    }, job.timeoutMs);
    let ended = false;
    const end = (whole: boolean): void => {
      if (ended) return;
      ended = true;
      clearTimeout(timer);
      book.addLost(Math.max(0, job.events - events.seen));
      if (!whole) book.addCut();
      resolve(socket);
    };
    const reader = new MessageReader({
      head: (head) => {
        const status = statusOf(head);
        if (status !== 200) reject(new Error(`a stream was answered with ${status.toString()}`));
      },
      body: (piece, from, to) => {
        events.feed(piece.toString("latin1", from, to), monotonicMs());
      },
      end: () => {
        end(true);
      },
    });
    socket.on("connect", () => socket.write(bytes));
    socket.on("data", (piece) => {
      reader.feed(piece);
    });
    // Before its first event a stream that fails is a fault of the bench's set-up; later it is something to tell.
    socket.on("error", (error) => {
      if (events.seen === 0) reject(error);
      else end(false);
    });
    socket.on("close", () => {
      if (events.seen === 0) reject(new Error("a stream was cut off before its first event"));
      else end(false);
    });
  });
}

answerQuestions<StreamJob, Lateness>(async (job) => {
  const book = new LatenessBook();
  const sockets = await Promise.all(Array.from({ length: job.streams }, (_none, number) => stream(job, number, book)));
  for (const socket of sockets) socket.destroy();
  return book.result();
});
