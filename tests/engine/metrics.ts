/** `/metrics` with the families and names of vLLM 0.32 (real-engine §3), or of sglang, moving with the engine's load. */

import { Counter, Gauge, Histogram, Registry } from "prom-client";

import type { FinishReason } from "./answer.js";
import type { ResolvedOptions } from "./options.js";

/** What the gauges show, read when somebody scrapes. */
export interface LoadView {
  running(): number;
  waitingForCapacity(): number;
  deferred(): number;
  kvUsage(): number;
  runningAdapters(): string[];
  waitingAdapters(): string[];
  expiredTransfers(): number;
}

export interface FinishedRequest {
  finish: FinishReason | "abort" | "error";
  promptTokens: number;
  localTokens: number;
  cachedTokens: number;
  externalTokens: number;
  externalSource: "external_kv_transfer" | "external_unspecified";
  completionTokens: number;
  startedAt: number;
}

const SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560];
const KV_BYTES_PER_TOKEN = 512;

export class EngineMetrics {
  private readonly registry = new Registry();
  private readonly startSeconds = Date.now() / 1000;
  readonly timeToFirstToken: Histogram;
  readonly interTokenLatency: Histogram;
  readonly queueTime: Histogram;
  readonly nixlFailedTransfers: Counter;
  readonly preemptions: Counter;
  private readonly latency: Histogram;
  private readonly prefixQueries: Counter;
  private readonly prefixHits: Counter;
  private readonly externalQueries: Counter;
  private readonly externalHits: Counter;
  private readonly promptTokens: Counter;
  private readonly generationTokens: Counter;
  private readonly promptTokensBySource: Counter;
  private readonly cachedBySource: Counter;
  private readonly success: Counter;
  private readonly nixlBytes: Histogram;
  private readonly nixlDescriptors: Histogram;
  private readonly nixlSeconds: Histogram;

  constructor(
    private readonly options: ResolvedOptions,
    load: LoadView,
  ) {
    this.registry.setDefaultLabels({ engine: "0", model_name: options.model[0] ?? "" });
    if (options.engineType === "sglang") this.sglangGauges(load);
    else this.vllmGauges(load);
    const seconds = (name: string, help: string): Histogram => this.histogram(name, help, SECONDS);
    this.timeToFirstToken = seconds("time_to_first_token_seconds", "Time to first token.");
    this.interTokenLatency = seconds("inter_token_latency_seconds", "Time between tokens.");
    this.queueTime = seconds("request_queue_time_seconds", "Time in the waiting queue.");
    this.latency = seconds("e2e_request_latency_seconds", "Time from arrival to the last token.");
    this.prefixQueries = this.counter("prefix_cache_queries_total", "Prompt tokens that the prefix cache was asked for.");
    this.prefixHits = this.counter("prefix_cache_hits_total", "Prompt tokens that the prefix cache had.");
    this.externalQueries = this.counter("external_prefix_cache_queries_total", "Prompt tokens that other engines or stores were asked for.");
    this.externalHits = this.counter("external_prefix_cache_hits_total", "Prompt tokens that other engines or stores had.");
    this.promptTokens = this.counter("prompt_tokens_total", "Prompt tokens.");
    this.generationTokens = this.counter("generation_tokens_total", "Generated tokens.");
    this.promptTokensBySource = this.counter("prompt_tokens_by_source_total", "Prompt tokens by where their KV came from.", ["source"]);
    this.cachedBySource = this.counter("prompt_tokens_cached_by_source_total", "Cached prompt tokens by where they were.", ["source"]);
    this.success = this.counter("request_success_total", "Requests that ended well.", ["finished_reason"]);
    this.preemptions = this.counter("num_preemptions_total", "Preempted requests.");
    this.nixlFailedTransfers = this.counter("nixl_num_failed_transfers_total", "Failed KV transfers.");
    this.nixlBytes = this.histogram("nixl_bytes_transferred", "Bytes per KV transfer.", [1024, 16384, 262144, 4194304, 67108864]);
    this.nixlDescriptors = this.histogram("nixl_num_descriptors", "Blocks per KV transfer.", [1, 4, 16, 64, 256, 1024]);
    this.nixlSeconds = seconds("nixl_xfer_time_seconds", "Time of a KV transfer.");
    for (const source of ["local_compute", "local_cache_hit", "external_kv_transfer"]) this.promptTokensBySource.inc({ source }, 0);
    for (const source of ["device", "host", "p2p", "disk", "external_unspecified"]) this.cachedBySource.inc({ source }, 0);
    for (const finished_reason of ["stop", "length", "abort", "error"]) this.success.inc({ finished_reason }, 0);
  }

  text(): Promise<string> {
    return this.registry.metrics();
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  prefixLookup(tokens: number, hits: number): void {
    this.prefixQueries.inc(tokens);
    this.prefixHits.inc(hits);
  }

  externalLookup(tokens: number, hits: number): void {
    this.externalQueries.inc(tokens);
    this.externalHits.inc(hits);
  }

  nixlTransfer(blocks: number): void {
    if (blocks === 0) return;
    this.nixlDescriptors.observe(blocks);
    this.nixlBytes.observe(blocks * this.options.blockSize * KV_BYTES_PER_TOKEN);
    this.nixlSeconds.observe(0.001);
  }

  requestFinished(request: FinishedRequest): void {
    this.success.inc({ finished_reason: request.finish === "tool_calls" ? "stop" : request.finish });
    if (request.finish === "abort" || request.finish === "error") return;
    this.promptTokens.inc(request.promptTokens);
    this.generationTokens.inc(request.completionTokens);
    this.promptTokensBySource.inc({ source: "local_compute" }, request.localTokens);
    this.promptTokensBySource.inc({ source: "local_cache_hit" }, request.cachedTokens);
    this.cachedBySource.inc({ source: "device" }, request.cachedTokens);
    if (request.externalSource === "external_kv_transfer") {
      this.promptTokensBySource.inc({ source: "external_kv_transfer" }, request.externalTokens);
      this.cachedBySource.inc({ source: "p2p" }, request.externalTokens);
    } else {
      this.cachedBySource.inc({ source: "external_unspecified" }, request.externalTokens);
    }
    this.latency.observe((performance.now() - request.startedAt) / 1000);
  }

  private name(name: string): string {
    return `${this.options.engineType}:${name}`;
  }

  private counter(name: string, help: string, labelNames: string[] = []): Counter {
    return new Counter({ name: this.name(name), help, labelNames, registers: [this.registry] });
  }

  private histogram(name: string, help: string, buckets: number[]): Histogram {
    return new Histogram({ name: this.name(name), help, buckets, registers: [this.registry] });
  }

  private gauge(name: string, help: string, read: () => number): void {
    new Gauge({
      name,
      help,
      registers: [this.registry],
      collect() {
        this.set(read());
      },
    });
  }

  private vllmGauges(load: LoadView): void {
    const { options } = this;
    this.gauge("vllm:num_requests_running", "Requests that run.", () => load.running());
    this.gauge("vllm:num_requests_waiting", "Requests that wait.", () => load.waitingForCapacity() + load.deferred());
    new Gauge({
      name: "vllm:num_requests_waiting_by_reason",
      help: "Requests that wait, by reason.",
      labelNames: ["reason"],
      registers: [this.registry],
      collect() {
        this.set({ reason: "capacity" }, load.waitingForCapacity());
        this.set({ reason: "deferred" }, load.deferred());
      },
    });
    this.gauge("vllm:kv_cache_usage_perc", "KV blocks in use, 1 is all.", () => load.kvUsage());
    this.gauge("vllm:engine_sleep_state", "1 while the engine is awake.", () => 1);
    this.gauge("process_start_time_seconds", "Start of the process since the epoch.", () => this.startSeconds);
    new Gauge({
      name: "vllm:cache_config_info",
      help: "Configuration of the KV cache.",
      labelNames: ["block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization"],
      registers: [this.registry],
    }).set({ block_size: String(options.blockSize), num_gpu_blocks: String(options.numBlocks), cache_dtype: "auto", enable_prefix_caching: "True", gpu_memory_utilization: "0.9" }, 1);
    if (options.loraAdapters.length > 0) this.loraGauge(load);
    new Counter({
      name: "vllm:nixl_num_kv_expired_reqs_total",
      help: "Hand-offs whose lease ran out.",
      registers: [this.registry],
      collect() {
        this.reset();
        this.inc(load.expiredTransfers());
      },
    });
  }

  private loraGauge(load: LoadView): void {
    const most = String(this.options.loraAdapters.length);
    new Gauge({
      name: "vllm:lora_requests_info",
      help: "Adapters of running and waiting requests; the newest series counts.",
      labelNames: ["running_lora_adapters", "waiting_lora_adapters", "max_lora"],
      registers: [this.registry],
      collect() {
        this.set({ running_lora_adapters: load.runningAdapters().join(","), waiting_lora_adapters: load.waitingAdapters().join(","), max_lora: most }, Date.now() / 1000);
      },
    });
  }

  private sglangGauges(load: LoadView): void {
    const { options } = this;
    this.gauge("sglang:num_running_reqs", "Requests that run.", () => load.running());
    this.gauge("sglang:num_queue_reqs", "Requests that wait.", () => load.waitingForCapacity() + load.deferred());
    this.gauge("sglang:token_usage", "KV tokens in use, 1 is all.", () => load.kvUsage());
    this.gauge("process_start_time_seconds", "Start of the process since the epoch.", () => this.startSeconds);
    new Gauge({ name: "sglang:cache_config_info", help: "Configuration of the KV cache.", labelNames: ["page_size", "num_pages"], registers: [this.registry] }).set(
      { page_size: String(options.blockSize), num_pages: String(options.numBlocks) },
      1,
    );
  }
}
