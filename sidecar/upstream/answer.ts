import { constants, gunzip, inflate, brotliDecompress } from "node:zlib";
import { type FlatHeaders, valuesOf } from "../headers.js";
import type { Metrics } from "../metrics.js";
import { Leg, type LegRequest } from "./leg.js";
import { LegError } from "./leg-error.js";

/** Larger than any answer to one token, and far below what would hurt. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export interface Answer {
  readonly status: number;
  readonly headers: FlatHeaders;
  readonly body: Buffer;
}

export type AnswerOutcome = { readonly kind: "answer"; readonly answer: Answer } | { readonly kind: "failed"; readonly error: LegError; readonly leg: Leg };

/**
 * Starts a leg whose answer is read whole. Never rejects.
 *
 * @param watch sees the body of a 2xx answer pass, which is not kept then (`body` is empty); may end the leg with an error of its own
 */
export function callForAnswer(request: LegRequest, metrics: Metrics, watch?: (chunk: Buffer, headers: FlatHeaders) => LegError | null): { readonly leg: Leg; readonly outcome: Promise<AnswerOutcome> } {
  let leg: Leg | null = null;
  const outcome = new Promise<AnswerOutcome>((resolve) => {
    let status = 0;
    let headers: FlatHeaders = [];
    let bytes = 0;
    const chunks: Buffer[] = [];
    leg = new Leg(
      request,
      {
        onHead: (headStatus, headHeaders) => {
          status = headStatus;
          headers = headHeaders;
        },
        onData: (chunk) => {
          if (watch !== undefined && status >= 200 && status < 300) {
            const problem = watch(chunk, headers);
            if (problem !== null) leg?.fail(problem);
            return;
          }
          bytes += chunk.length;
          if (bytes > MAX_ANSWER_BYTES) leg?.fail(new LegError("too_large", `more than ${String(MAX_ANSWER_BYTES)} bytes`));
          else chunks.push(chunk);
        },
        onEnd: () => {
          resolve({ kind: "answer", answer: { status, headers, body: Buffer.concat(chunks) } });
        },
        onError: (error) => {
          if (leg !== null) resolve({ kind: "failed", error, leg });
        },
      },
      metrics,
    );
  });
  if (leg === null) throw new Error("a promise's executor runs at once");
  const started: Leg = leg;
  started.start();
  return { leg: started, outcome };
}

/** An answer's body as the engine meant it: opened when it came compressed although nobody asked for that. Null when it does not open. */
export async function openedBody({ headers, body }: Answer): Promise<Buffer | null> {
  const coding = valuesOf(headers, "content-encoding").join(",").trim().toLowerCase();
  const limit = { maxOutputLength: MAX_ANSWER_BYTES };
  switch (coding) {
    case "":
    case "identity":
      return body;
    case "gzip":
    case "x-gzip":
      return unpack((done) => {
        gunzip(body, limit, done);
      });
    case "deflate":
      return unpack((done) => {
        inflate(body, limit, done);
      });
    case "br":
      return unpack((done) => {
        brotliDecompress(body, { ...limit, params: { [constants.BROTLI_DECODER_PARAM_LARGE_WINDOW]: 0 } }, done);
      });
    default:
      return null;
  }
}

function unpack(start: (done: (error: Error | null, result: Buffer) => void) => void): Promise<Buffer | null> {
  return new Promise((resolve) => {
    start((error, result) => {
      resolve(error === null ? result : null);
    });
  });
}
