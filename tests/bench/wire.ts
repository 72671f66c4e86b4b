/**
 * HTTP/1.1 messages as they come from a socket, one behind the other, with as little work per message as will do: load generator and engines must cost less than what
 * they measure.
 */

export interface MessageHandler {
  /** Start line and header lines of a message, without the empty line. */
  head(text: string): void;
  /** Some of its body: `bytes[from, to)`, only good during the call. */
  body(bytes: Buffer, from: number, to: number): void;
  /** The message is complete. */
  end(): void;
}

type State = "head" | "length" | "size" | "chunk" | "chunk end" | "trailers";

const MAX_HEAD_BYTES = 64 * 1024;
const CR = 13;
const LF = 10;

/** Reads messages that tell their length (content-length or chunked); one that tells none has no body. Throws an Error for what is no HTTP. */
export class MessageReader {
  private state: State = "head";
  /** Bytes of the body or chunk that are still to come. */
  private left = 0;
  /** What has come of a head, size or trailer line. */
  private pending = "";

  constructor(private readonly handler: MessageHandler) {}

  /** A message has begun and has not ended. */
  get within(): boolean {
    return this.state !== "head" || this.pending !== "";
  }

  feed(bytes: Buffer, size = bytes.length): void {
    let at = 0;
    while (at < size) {
      switch (this.state) {
        case "head":
          at = this.readHead(bytes, at, size);
          break;
        case "length":
        case "chunk": {
          const to = Math.min(size, at + this.left);
          this.left -= to - at;
          this.handler.body(bytes, at, to);
          at = to;
          if (this.left > 0) break;
          if (this.state === "length") this.finish();
          else {
            this.state = "chunk end";
            this.left = 2;
          }
          break;
        }
        case "chunk end": {
          const to = Math.min(size, at + this.left);
          this.left -= to - at;
          at = to;
          if (this.left === 0) this.state = "size";
          break;
        }
        case "size":
          at = this.readLine(bytes, at, size, (line) => {
            const length = /^[0-9a-fA-F]+/.exec(line);
            if (length === null) throw new Error(`no chunk size: ${line.slice(0, 40)}`);
            this.left = parseInt(length[0], 16);
            this.state = this.left === 0 ? "trailers" : "chunk";
          });
          break;
        case "trailers":
          at = this.readLine(bytes, at, size, (line) => {
            if (line === "") this.finish();
          });
          break;
      }
    }
  }

  private finish(): void {
    this.state = "head";
    this.handler.end();
  }

  private readHead(bytes: Buffer, at: number, size: number): number {
    // The usual case: the whole head in one piece.
    let end = this.pending === "" ? bytes.indexOf("\r\n\r\n", at, "latin1") : -1;
    if (end >= 0 && end + 4 <= size) {
      this.begin(bytes.toString("latin1", at, end));
      return end + 4;
    }
    const before = this.pending.length;
    this.pending += bytes.toString("latin1", at, size);
    end = this.pending.indexOf("\r\n\r\n");
    if (end < 0) {
      if (this.pending.length > MAX_HEAD_BYTES) throw new Error("a head without an end");
      return size;
    }
    const head = this.pending.slice(0, end);
    this.pending = "";
    this.begin(head);
    return at + end + 4 - before;
  }

  private begin(head: string): void {
    const length = /\r\ncontent-length: *(\d+)/i.exec(head);
    this.handler.head(head);
    if (length !== null) {
      this.left = Number(length[1]);
      this.state = "length";
      if (this.left === 0) this.finish();
    } else if (/\r\ntransfer-encoding: *chunked/i.test(head)) this.state = "size";
    else this.finish();
  }

  private readLine(bytes: Buffer, at: number, size: number, read: (line: string) => void): number {
    let to = at;
    while (to < size && bytes[to] !== LF) to++;
    this.pending += bytes.toString("latin1", at, to);
    if (to === size) return size;
    const line = this.pending.charCodeAt(this.pending.length - 1) === CR ? this.pending.slice(0, -1) : this.pending;
    this.pending = "";
    read(line);
    return to + 1;
  }
}

/** The status of an answer's head; 0 when it is none. */
export function statusOf(head: string): number {
  return head.startsWith("HTTP/1.1 ") ? Number(head.slice(9, 12)) : 0;
}
