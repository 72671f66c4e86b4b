import type { Readable, Transform } from "node:stream";
import { ApiError } from "../errors.js";
import type { BodyShare } from "./budget.js";
import { type ContentCoding, decompressor } from "./encodings.js";
import { PieceCollector, type Pieces } from "./pieces.js";
import type { BodyScanner, BodyView } from "./types.js";

type BodyRefusal = "too_large" | "bad_encoding" | "no_room" | "slow" | "slow_opening";

/**
 * What stands between two codings is the opened body, compressed once: a coding around it makes it hardly smaller. Only bodies that are made to cost grow much there (a
 * few bytes that open to millions of empty gzip members), so that what opening costs stays in proportion to what was sent.
 */
const BETWEEN_GROWTH = 16;
const BETWEEN_FLOOR_BYTES = 64 * 1024;
/** From the body's last byte, when a few pieces at most wait in the decompressors. */
const OPENING_TIMEOUT_MS = 10_000;

export type ReadOutcome =
  | { readonly kind: "read"; readonly body: Pieces; readonly view: BodyView | null }
  | { readonly kind: "refused"; readonly error: ApiError; readonly reason: BodyRefusal }
  /** The client went away in the middle of its body. */
  | { readonly kind: "gone" }
  /** A fault of ours: the scanner threw. */
  | { readonly kind: "failed"; readonly error: unknown };

export interface ReadSettings {
  /** Outermost last; empty: as it comes. */
  readonly codings: readonly ContentCoding[];
  /** Bytes, of the body as it comes, of what it opens to and of what stands between two codings. */
  readonly limitBytes: number;
  /** From now to the body's end, in milliseconds; 0: it may take as long as it takes. */
  readonly timeoutMs?: number;
  /** From the body's end until it is opened, in milliseconds. */
  readonly openingTimeoutMs?: number;
  /** Takes what is kept. It is given back here unless the body is read; then it is the reader's to do so. */
  readonly share?: BodyShare;
  /** Aborted when nobody waits for the answer any more: a request that has come whole does not tell that its connection broke. */
  readonly gone?: AbortSignal;
  /** Fed with the opened body as it arrives; null: not scanned. */
  readonly scanner: BodyScanner | null;
}

/** Reads a request's body to its end, opening and scanning it on the way. Never rejects. */
export function readBody(request: Readable, { codings, limitBytes, timeoutMs = 0, openingTimeoutMs = OPENING_TIMEOUT_MS, share, gone, scanner }: ReadSettings): Promise<ReadOutcome> {
  return new Promise((resolve) => {
    const pieces = new PieceCollector();
    const chain: Transform[] = [];
    let received = 0;
    let opened = 0;
    let done = false;
    let openingTimer: NodeJS.Timeout | null = null;

    const finish = (outcome: ReadOutcome): void => {
      if (done) return;
      done = true;
      if (timer !== null) clearTimeout(timer);
      if (openingTimer !== null) clearTimeout(openingTimer);
      gone?.removeEventListener("abort", onGone);
      request.off("data", onData).off("end", onEnd).off("close", onClose);
      for (const stage of chain) stage.destroy();
      resolve(outcome);
      if (outcome.kind === "read") return;
      share?.giveBack();
      scanner?.dispose();
    };
    /** An exception in a listener would reach nobody, and the request would wait for ever. */
    const guarded = (step: () => void): void => {
      try {
        step();
      } catch (error) {
        finish({ kind: "failed", error });
      }
    };
    const refuse = (reason: BodyRefusal, error: ApiError): void => {
      finish({ kind: "refused", reason, error });
    };
    const timer =
      timeoutMs === 0
        ? null
        : setTimeout(() => {
            refuse("slow", new ApiError(408, `the request body took longer than ${String(timeoutMs)} ms`));
          }, timeoutMs);
    const tooLarge = (where = ""): void => {
      refuse("too_large", new ApiError(413, where === "" ? `the request body is larger than ${String(limitBytes)} bytes` : `the request body grows too large ${where}`, where === "" ? null : "content-encoding"));
    };
    const keep = (piece: Buffer): void => {
      if (done) return;
      opened += piece.length;
      if (opened > limitBytes) {
        tooLarge();
        return;
      }
      if (share?.take(piece.length) === false) {
        refuse("no_room", new ApiError(503, "too many request bodies are held at the moment: try again"));
        return;
      }
      pieces.push(piece);
      guarded(() => {
        scanner?.feed(piece);
      });
    };
    const complete = (): void => {
      guarded(() => {
        if (!done) finish({ kind: "read", body: pieces.take(), view: scanner === null ? null : scanner.end() });
      });
    };

    /** Builds the decompressors on the first byte, innermost first in the chain's end. */
    const openChain = (firstByte: number): void => {
      for (const coding of codings.toReversed()) {
        const stage = decompressor(coding, chain.length === 0 ? firstByte : 0x78);
        stage.on("error", () => {
          refuse("bad_encoding", new ApiError(400, "the request body does not open with its content-encoding", "content-encoding"));
        });
        const outer = chain.at(-1);
        if (outer !== undefined) {
          let between = 0;
          outer.on("data", (piece: Buffer) => {
            between += piece.length;
            if (between > Math.min(limitBytes, BETWEEN_FLOOR_BYTES + BETWEEN_GROWTH * received)) tooLarge("between its content-encodings");
          });
          outer.pipe(stage);
        }
        chain.push(stage);
      }
      chain.at(-1)?.on("data", keep).on("end", complete);
      chain[0]?.on("drain", () => {
        request.resume();
      });
    };

    function onData(piece: Buffer): void {
      received += piece.length;
      if (received > limitBytes) {
        tooLarge();
        return;
      }
      if (codings.length === 0) {
        keep(piece);
        return;
      }
      if (chain.length === 0) openChain(piece[0] ?? 0);
      if (chain[0]?.write(piece) === false) request.pause();
    }
    function onEnd(): void {
      if (chain.length === 0) {
        complete();
        return;
      }
      chain[0]?.end();
      openingTimer = setTimeout(() => {
        refuse("slow_opening", new ApiError(413, `the request body took longer than ${String(openingTimeoutMs)} ms to open`, "content-encoding"));
      }, openingTimeoutMs);
    }
    function onClose(): void {
      // Without an end before it: the connection broke. After the end the decompressors may still be at work, and `gone` tells.
      if (!request.readableEnded) finish({ kind: "gone" });
    }
    function onGone(): void {
      finish({ kind: "gone" });
    }
    if (gone?.aborted === true) onGone();
    else gone?.addEventListener("abort", onGone);
    request.on("data", onData).on("end", onEnd).on("close", onClose).on("error", onClose);
  });
}
