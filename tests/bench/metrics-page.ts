/** What engines show at /metrics. */

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
