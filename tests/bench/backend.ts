/** The pods behind Envoy: any number of listening ports that answer every request at once with the same few bytes. A program of its own, see helper.ts. */
import { createServer, type Server, type Socket } from "node:net";
import { listenAnywhere } from "../fleet/ports.js";
import { answerQuestions } from "./helper.js";
import { metricsPage } from "./metrics-page.js";
import { MessageReader } from "./wire.js";

export interface BackendJob {
  /** Ports to open. */
  ports: number;
  /** Size of the page at /metrics; 0: there is none. */
  metricsBytes: number;
}

const BODY = JSON.stringify({
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1_700_000_000,
  model: "bench-model",
  choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "At once." } }],
  usage: { prompt_tokens: 256, completion_tokens: 2, total_tokens: 258 },
});

function answer(status: string, type: string, body: string): Buffer {
  return Buffer.from(`HTTP/1.1 ${status}\r\ncontent-type: ${type}\r\ncontent-length: ${body.length.toString()}\r\n\r\n${body}`, "latin1");
}

const COMPLETION = answer("200 OK", "application/json", BODY);
const HEALTHY = answer("200 OK", "text/plain", "");
const NOTHING = answer("404 Not Found", "text/plain", "");
let metrics = NOTHING;

function serve(socket: Socket): void {
  socket.setNoDelay(true);
  let reply = NOTHING;
  const reader = new MessageReader({
    head: (head) => {
      reply = head.startsWith("POST ") ? COMPLETION : head.startsWith("GET /health ") ? HEALTHY : head.startsWith("GET /metrics ") ? metrics : NOTHING;
    },
    body: () => undefined,
    end: () => {
      socket.write(reply);
    },
  });
  socket.on("data", (bytes) => {
    reader.feed(bytes);
  });
  // Envoy closes what it does not need.
  socket.on("error", () => socket.destroy());
}

const servers: Server[] = [];

answerQuestions<BackendJob, number[]>(async (job) => {
  if (job.metricsBytes > 0) metrics = answer("200 OK", "text/plain; version=0.0.4", metricsPage(job.metricsBytes));
  return Promise.all(
    Array.from({ length: job.ports }, () => {
      const server = createServer(serve);
      servers.push(server);
      return listenAnywhere(server, "127.0.0.1");
    }),
  );
});
