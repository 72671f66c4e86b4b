// `core-metrics-extractor` (scheduler §5.1): what an engine calls its load. The scrape that uses it is endpoints/.
import { Build, NOT_IN_LINE } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

/** Metric names of one engine, each `name` or `name{label=value,…}`; "" where the engine has none. */
export class EngineMetrics {
  waiting: string = "";
  running: string = "";
  kvUsage: string = "";
  lora: string = "";
  /** A metric whose labels {@link blockSizeLabel} and {@link numBlocksLabel} hold the cache's geometry. */
  cacheInfo: string = "";
  blockSizeLabel: string = "block_size";
  numBlocksLabel: string = "num_gpu_blocks";
  /** Metrics whose values are the cache's geometry. */
  blockSize: string = "";
  numBlocks: string = "";

  constructor(public readonly name: string) {}
}

export class ExtractorParams {
  /** Label that names an endpoint's engine; the reference's older key is read as well. */
  engineLabelKey: string = "llm-d.ai/engine-type";
  defaultEngine: string = "vllm";
  engines: Array<EngineMetrics> = [];
}

export class CoreMetricsExtractor extends Plugin {
  constructor(public readonly params: ExtractorParams) {
    super(PluginKind.Extractor);
  }

  static read(parameters: Node, build: Build): Plugin {
    const params = new ExtractorParams();
    parameters.fields(["engineLabelKey", "defaultEngine", "engineConfigs"]);
    const key = parameters.textOf("engineLabelKey", "");
    if (key.length > 0) params.engineLabelKey = key;
    const list = parameters.get("engineConfigs");
    const items = list.elements();
    for (let i = 0; i < items.length; i++) readEngine(items[i], params);
    addDefaults(params);
    const defaultNode = parameters.get("defaultEngine");
    const chosen = defaultNode.text("");
    if (chosen.length > 0) {
      params.defaultEngine = chosen;
      if (find(params, chosen) === null) defaultNode.error("defaultEngine '" + chosen + "' not found in engineConfigs");
    }
    return new CoreMetricsExtractor(params);
  }
}

function find(params: ExtractorParams, name: string): EngineMetrics | null {
  for (let i = 0; i < params.engines.length; i++) if (params.engines[i].name == name) return params.engines[i];
  return null;
}

function readEngine(node: Node, params: ExtractorParams): void {
  const known = node.fields([
    "name",
    "queuedRequestsSpec",
    "runningRequestsSpec",
    "kvUsageSpec",
    "loraSpec",
    "cacheInfoSpec",
    "cacheBlockSizeLabelName",
    "cacheNumBlocksLabelName",
    "cacheBlockSizeSpec",
    "cacheNumBlocksSpec",
    "customMetrics",
  ]);
  if (!known) return;
  const nameNode = node.get("name");
  const name = nameNode.text("");
  if (name.length == 0 && (nameNode.isString || !nameNode.present)) nameNode.error("is required");
  else if (name == "default") nameNode.error("is reserved");
  else if (find(params, name) !== null) nameNode.error("given more than once");
  const engine = new EngineMetrics(name);
  engine.waiting = spec(node.get("queuedRequestsSpec"));
  engine.running = spec(node.get("runningRequestsSpec"));
  engine.kvUsage = spec(node.get("kvUsageSpec"));
  engine.lora = spec(node.get("loraSpec"));
  engine.cacheInfo = spec(node.get("cacheInfoSpec"));
  engine.blockSize = spec(node.get("cacheBlockSizeSpec"));
  engine.numBlocks = spec(node.get("cacheNumBlocksSpec"));
  const blockLabel = node.textOf("cacheBlockSizeLabelName", "");
  if (blockLabel.length > 0) engine.blockSizeLabel = blockLabel;
  const blocksLabel = node.textOf("cacheNumBlocksLabelName", "");
  if (blocksLabel.length > 0) engine.numBlocksLabel = blocksLabel;
  const custom = node.get("customMetrics");
  if (custom.array() && custom.length > 0) custom.error(NOT_IN_LINE + "only attribute plugins read custom metrics");
  params.engines.push(engine);
}

/** Reads `name` or `name{label=value,…}` and reports what is neither. */
function spec(node: Node): string {
  const text = node.text("");
  if (text.length == 0) return text;
  const open = text.indexOf("{");
  const name = open < 0 ? text : text.substring(0, open);
  let good = isMetricName(name);
  if (open >= 0) {
    good = good && text.endsWith("}");
    if (good) {
      const pairs = text.substring(open + 1, text.length - 1).split(",");
      for (let i = 0; i < pairs.length; i++) {
        const equals = pairs[i].indexOf("=");
        if (equals < 1 || !isMetricName(pairs[i].substring(0, equals).trim())) good = false;
      }
    }
  }
  if (!good) node.error("must be a metric name, or name{label=value,...}" + node.got());
  return text;
}

function isMetricName(text: string): bool {
  if (text.length == 0) return false;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    const letter = (c >= 0x61 && c <= 0x7a) || (c >= 0x41 && c <= 0x5a) || c == 0x5f || c == 0x3a;
    if (!letter && (i == 0 || c < 0x30 || c > 0x39)) return false;
  }
  return true;
}

function addDefault(params: ExtractorParams, name: string, waiting: string, running: string, kvUsage: string): EngineMetrics {
  const engine = new EngineMetrics(name);
  engine.waiting = waiting;
  engine.running = running;
  engine.kvUsage = kvUsage;
  if (find(params, name) === null) params.engines.push(engine);
  return engine;
}

/** The engines that are known without being configured, unless a file describes one of the same name. */
function addDefaults(params: ExtractorParams): void {
  const vllm = addDefault(params, "vllm", "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc");
  vllm.lora = "vllm:lora_requests_info";
  vllm.cacheInfo = "vllm:cache_config_info";
  const sglang = addDefault(params, "sglang", "sglang:num_queue_reqs", "sglang:num_running_reqs", "sglang:token_usage");
  sglang.cacheInfo = "sglang:cache_config_info";
  sglang.blockSizeLabel = "page_size";
  sglang.numBlocksLabel = "num_pages";
  const trtllm = addDefault(params, "trtllm-serve", "trtllm_num_requests_waiting", "trtllm_num_requests_running", "trtllm_kv_cache_utilization");
  trtllm.blockSize = "trtllm_kv_cache_tokens_per_block";
  trtllm.numBlocks = "trtllm_kv_cache_max_blocks";
  const requests = "nv_trt_llm_request_metrics{request_type=";
  const blocks = "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=";
  const tritonLlm = addDefault(params, "triton-tensorrt-llm", requests + "waiting}", requests + "scheduled}", blocks + "fraction}");
  tritonLlm.blockSize = blocks + "tokens_per}";
  tritonLlm.numBlocks = blocks + "max}";
  addDefault(params, "triton", "nv_inference_pending_request_count", "nv_inference_exec_count", "");
}
