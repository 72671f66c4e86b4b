/** Where an engine took its prompts' tokens from: the proof that disaggregation took place. */
import { setTimeout as sleep } from "node:timers/promises";
import type { RealEngine } from "./engine.js";

export interface Sources {
  /** Requests that ended well. */
  readonly served: number;
  /** Prompt tokens in all. */
  readonly prompt: number;
  readonly computed: number;
  /** From its own prefix cache. */
  readonly cached: number;
  /** From another engine. */
  readonly external: number;
}

const BY_SOURCE = "vllm:prompt_tokens_by_source_total";

export async function sourcesOf(engine: RealEngine): Promise<Sources> {
  const samples = await engine.metrics();
  const sum = (name: string, label = "", value = ""): number =>
    samples.filter((sample) => sample.name === name && (label === "" || sample.labels[label] === value)).reduce((total, sample) => total + sample.value, 0);
  return {
    served: sum("vllm:request_success_total", "finished_reason", "stop") + sum("vllm:request_success_total", "finished_reason", "length"),
    prompt: sum("vllm:prompt_tokens_total"),
    computed: sum(BY_SOURCE, "source", "local_compute"),
    cached: sum(BY_SOURCE, "source", "local_cache_hit"),
    external: sum(BY_SOURCE, "source", "external_kv_transfer"),
  };
}

/** Engines write their counters a moment after the answer. */
const COUNTED_WITHIN_MS = 5000;

/** What has been added since `before`, once so many requests are counted. */
export async function sourcesSince(engine: RealEngine, before: Sources, served = 1): Promise<Sources> {
  const until = performance.now() + COUNTED_WITHIN_MS;
  for (;;) {
    const now = await sourcesOf(engine);
    if (now.served - before.served >= served || performance.now() > until) {
      return { served: now.served - before.served, prompt: now.prompt - before.prompt, computed: now.computed - before.computed, cached: now.cached - before.cached, external: now.external - before.external };
    }
    await sleep(20);
  }
}
