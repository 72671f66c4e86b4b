/**
 * Engines that answer at once, on plain sockets: decode, prefill and encode, each on ports of its own. They look at what a leg says and do nothing else, so that what is
 * measured in front of them is all there is. A program of its own, see helper.ts.
 */
import { createServer, type Server, type Socket } from "node:net";
import { listenAnywhere } from "../fleet/ports.js";
import { monotonicMs } from "./clock.js";
import { eventText, type Pace } from "./events.js";
import { answerQuestions } from "./helper.js";
import { MessageReader } from "./wire.js";

export type EngineAsk = "listen" | { pace: Pace | null };

export interface EnginePorts {
  decode: number;
  prefill: number;
  encode: number;
}

/** What a request's first and last bytes say; what stands between is a prompt. */
const LOOKED_AT_BYTES = 2048;
/** Events of a streamed answer that is not paced. */
const EVENTS = 8;

let pace: Pace | null = null;

function message(type: string, body: string): Buffer {
  return Buffer.from(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${body.length.toString()}\r\n\r\n${body}`, "latin1");
}

function chunk(text: string): string {
  return `${text.length.toString(16)}\r\n${text}\r\n`;
}

const COMPLETION = {
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1_700_000_000,
  model: "bench-model",
  choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "At once." } }],
  usage: { prompt_tokens: 256, completion_tokens: 1, total_tokens: 257 },
};
const PLAIN = message("application/json", JSON.stringify(COMPLETION));
const HANDED_OVER = message(
  "application/json",
  JSON.stringify({
    ...COMPLETION,
    kv_transfer_params: { do_remote_prefill: true, do_remote_decode: false, remote_block_ids: [1, 2, 3], remote_engine_id: "engine-1", remote_host: "127.0.0.1", remote_port: 5600 },
  }),
);
const HEALTHY = message("text/plain", "");
const STREAM_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const STREAM_END = `${chunk("data: [DONE]\n\n")}0\r\n\r\n`;

/** Streams that are being written. */
interface PacedStream {
  socket: Socket;
  number: number;
  dueMs: number;
}
const paced = new Set<PacedStream>();
let timer: NodeJS.Timeout | null = null;

function writeDue(): void {
  const now = monotonicMs();
  for (const stream of paced) {
    if (pace === null || stream.socket.destroyed) {
      paced.delete(stream);
      continue;
    }
    if (stream.dueMs > now) continue;
    stream.socket.write(chunk(eventText(stream.number++, monotonicMs())));
    stream.dueMs += 1000 / pace.perSecond;
    if (stream.number < pace.events) continue;
    stream.socket.write(STREAM_END);
    paced.delete(stream);
  }
  timer = paced.size > 0 ? setTimeout(writeDue, 1) : null;
}

function stream(socket: Socket): void {
  if (pace === null) {
    let text = STREAM_HEAD;
    for (let i = 0; i < EVENTS; i++) text += chunk(eventText(i, 0));
    socket.write(text + STREAM_END);
    return;
  }
  socket.write(STREAM_HEAD);
  // Streams do not beat in step: each begins somewhere within its interval.
  paced.add({ socket, number: 0, dueMs: monotonicMs() + (Math.random() * 1000) / pace.perSecond });
  timer ??= setTimeout(writeDue, 1);
}

function serve(role: keyof EnginePorts): (socket: Socket) => void {
  return (socket) => {
    socket.setNoDelay(true);
    let method = "";
    let front = "";
    let back = Buffer.alloc(0);
    const reader = new MessageReader({
      head: (head) => {
        method = head.slice(0, head.indexOf(" "));
        front = "";
        back = Buffer.alloc(0);
      },
      body: (bytes, from, to) => {
        if (front.length < LOOKED_AT_BYTES) front += bytes.toString("latin1", from, Math.min(to, from + LOOKED_AT_BYTES - front.length));
        // Copied: the bytes are gone when the call has ended.
        if (to - from >= LOOKED_AT_BYTES) back = Buffer.from(bytes.subarray(to - LOOKED_AT_BYTES, to));
        else back = Buffer.concat([back, bytes.subarray(from, to)]).subarray(-LOOKED_AT_BYTES);
      },
      end: () => {
        if (method !== "POST") {
          socket.write(HEALTHY);
          return;
        }
        const said = front + back.toString("latin1");
        if (role === "prefill") socket.write(said.includes('"do_remote_decode":true') ? HANDED_OVER : PLAIN);
        else if (role === "decode" && /"stream": ?true/.test(said)) stream(socket);
        else socket.write(PLAIN);
      },
    });
    socket.on("data", (bytes) => {
      reader.feed(bytes);
    });
    socket.on("error", () => socket.destroy());
  };
}

const servers: Server[] = [];
async function listen(role: keyof EnginePorts): Promise<number> {
  const server = createServer(serve(role));
  servers.push(server);
  return listenAnywhere(server, "127.0.0.1");
}

answerQuestions<EngineAsk, EnginePorts | null>(async (ask) => {
  if (ask === "listen") return { decode: await listen("decode"), prefill: await listen("prefill"), encode: await listen("encode") };
  ({ pace } = ask);
  return null;
});
