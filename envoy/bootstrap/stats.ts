import type { Json } from "../json.js";

/**
 * Labels in the names of the filter's metrics. Envoy puts `wasmcustom.` before every metric of a module and takes it off again for Prometheus, so that
 * `crosspoint.reasons.stage.prefill.reason.run_uncached` is `crosspoint_reasons{stage="prefill",reason="run_uncached"}` there.
 */
export const STATS_TAGS = ["stage", "reason", "decision_type", "role", "result"] as const;

export function statsTags(): Json {
  return STATS_TAGS.map((tag) => ({ tag_name: tag, regex: `^wasmcustom\\.crosspoint\\..*?(\\.${tag}\\.([^.]+))` }));
}
