/** The pods behind Envoy: any number of listening ports that answer every request at once with the same few bytes. A program of its own, see helper.ts. */
import { createServer, type Server, type Socket } from "node:net";
import { listenAnywhere } from "../fleet/ports.js";
import { answerQuestions } from "./helper.js";
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

/** A page as vLLM's, made as long as asked for by series that nobody reads. */
export function metricsPage(bytes: number): string {
  const lines = [
    "# TYPE vllm:num_requests_running gauge",
    'vllm:num_requests_running{model_name="bench-model"} 1.0',
    "# TYPE vllm:num_requests_waiting gauge",
    'vllm:num_requests_waiting{model_name="bench-model"} 0.0',
    "# TYPE vllm:kv_cache_usage_perc gauge",
    'vllm:kv_cache_usage_perc{model_name="bench-model"} 0.25',
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="10000"} 1.0',
    "# TYPE vllm:e2e_request_latency_seconds histogram",
  ];
  let size = lines.reduce((sum, line) => sum + line.length + 1, 0);
  for (let i = 0; size < bytes; i++) {
    const line = `vllm:e2e_request_latency_seconds_bucket{le="${i.toString()}.5",model_name="bench-model"} ${(i * 3).toString()}.0`;
    lines.push(line);
    size += line.length + 1;
  }
  return `${lines.join("\n")}\n`;
}

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
