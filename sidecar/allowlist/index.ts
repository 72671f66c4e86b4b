import type { Logger } from "../log.js";
import type { Metrics } from "../metrics.js";
import { OptionsError, type SidecarOptions } from "../options.js";
import { ALLOW_ALL, type Allowlist, allowlistOf, type AllowSource } from "./allowlist.js";

export { ALLOW_ALL, type Allowlist } from "./allowlist.js";

/**
 * The allowlist that the options ask for: from an InferencePool (`--enable-ssrf-protection`, `--inference-pool`), from a file (`--allow-endpoints`), from both, or none.
 *
 * @throws OptionsError when the file cannot be read, or no cluster is configured
 */
export async function startAllowlist(options: SidecarOptions, log: Logger, metrics: Metrics): Promise<Allowlist> {
  const { enableSsrfProtection, inferencePool, allowEndpoints, allowPorts, poolGroup } = options;
  const sources: AllowSource[] = [];
  if (allowEndpoints !== "") {
    const { EndpointsFile } = await import("./endpoints-file.js");
    sources.push(new EndpointsFile(allowEndpoints, { log, metrics }));
  }
  if (enableSsrfProtection && inferencePool !== null) {
    try {
      sources.push(await poolSource(inferencePool, poolGroup, log, metrics));
    } catch (error) {
      for (const source of sources) source.close();
      throw new OptionsError(`--enable-ssrf-protection: ${error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error)}`);
    }
  }
  if (sources.length === 0) return ALLOW_ALL;
  const allowlist = allowlistOf(sources, allowPorts);
  metrics.observeAllowlist(allowlist);
  return allowlist;
}

async function poolSource(pool: { readonly namespace: string; readonly name: string }, group: string, log: Logger, metrics: Metrics): Promise<AllowSource> {
  const [{ kubeConfig, podListWatch, poolListWatch }, { PoolSource }, { clusterDomain }] = await Promise.all([import("./kube-api.js"), import("./pool-source.js"), import("./pod-names.js")]);
  const config = kubeConfig();
  return new PoolSource({
    group,
    pool: `${pool.namespace}/${pool.name}`,
    clusterDomain: clusterDomain(),
    pools: poolListWatch(config, { group, ...pool }),
    pods: (selector) => podListWatch(config, pool.namespace, selector),
    log,
    metrics,
  });
}
