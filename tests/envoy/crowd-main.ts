/**
 * Many endpoints in one process: a server that listens on every loopback address, so that 127.0.0.2, 127.0.0.3, … are as many pods. It answers /metrics with a page of a given
 * size, /health with nothing, every other path with a word, and /crowd with what it has counted.
 *
 *     node build/js/tests/envoy/crowd-main.js --bytes 200000 [--delay-ms 50]
 *
 * The first line that it prints is its port. Addresses are told apart as 10 · third byte + fourth byte of theirs do: see {@link addressOf} in crowd.ts.
 */
import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { metricsPage } from "../bench/metrics-page.js";

const { values } = parseArgs({ options: { bytes: { type: "string", default: "1000" }, "delay-ms": { type: "string", default: "0" } } });
const page = Buffer.from(metricsPage(Number(values.bytes)));
const delayMs = Number(values["delay-ms"]);

const scrapes = new Map<string, number>();
let inFlight = 0;
let mostInFlight = 0;
let requests = 0;

const server = createServer((request, response) => {
  const scraping = request.url === "/metrics" || request.url === "/health";
  if (request.url === "/crowd") {
    response.end(JSON.stringify({ mostInFlight, requests, scrapes: Object.fromEntries(scrapes) }));
    return;
  }
  request.resume();
  request.on("end", () => {
    if (!scraping) {
      requests++;
      response.end("served");
      return;
    }
    // Envoy's own health checks are not the filter's calls.
    if (request.headers["user-agent"] === "Envoy/HC") {
      response.end();
      return;
    }
    inFlight++;
    mostInFlight = Math.max(mostInFlight, inFlight);
    // At the last byte handed over, not when it was read: rather counted too long than too short by us.
    response.on("close", () => inFlight--);
    if (request.url === "/metrics") {
      const address = request.socket.localAddress ?? "";
      scrapes.set(address, (scrapes.get(address) ?? 0) + 1);
    }
    setTimeout(() => response.end(request.url === "/metrics" ? page : ""), delayMs);
  });
});
server.keepAliveTimeout = 65_000;
server.listen(0, "0.0.0.0", 4096, () => {
  const address = server.address();
  process.stdout.write(`${typeof address === "object" && address !== null ? String(address.port) : ""}\n`);
});
process.on("SIGTERM", () => process.exit(0));
