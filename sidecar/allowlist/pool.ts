/** API groups of InferencePool: the first is generally available, the second its alpha (sidecar §6). */
export const POOL_VERSIONS: Readonly<Record<string, string>> = {
  "inference.networking.k8s.io": "v1",
  "inference.networking.x-k8s.io": "v1alpha2",
};

const GA = "inference.networking.k8s.io";

export interface PoolSpec {
  /** Labels that a pod of the pool has. One at least. */
  readonly labels: Readonly<Record<string, string>>;
  /** Ports that the pool's pods are called on. */
  readonly ports: ReadonlySet<number>;
}

/** An InferencePool that cannot be understood: nothing is allowed then. */
export class PoolError extends Error {}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Reads an InferencePool: of the GA group labels at `spec.selector.matchLabels` and ports at `spec.targetPorts[].number`, of the alpha group a flat `spec.selector` and
 * `spec.targetPortNumber` (SR-04).
 *
 * @throws PoolError naming the field
 */
export function readPool(object: unknown, group: string): PoolSpec {
  const spec = isRecord(object) ? object["spec"] : undefined;
  if (!isRecord(spec)) throw new PoolError("spec: is missing");
  const ga = group === GA;
  const selector = spec["selector"];
  if (!isRecord(selector)) throw new PoolError("spec.selector: is missing");
  const path = ga ? "spec.selector.matchLabels" : "spec.selector";
  const labels = ga ? selector["matchLabels"] : selector;
  if (!isRecord(labels)) throw new PoolError(`${path}: is missing`);
  const entries = Object.entries(labels);
  // To Kubernetes no label at all is every pod of the namespace: nobody means that.
  if (entries.length === 0) throw new PoolError(`${path}: names no label`);
  for (const [name, value] of entries) if (typeof value !== "string") throw new PoolError(`${path}.${name}: is not a string`);
  return { labels: labels as Record<string, string>, ports: ga ? targetPorts(spec["targetPorts"]) : new Set([portIn(spec["targetPortNumber"], "spec.targetPortNumber")]) };
}

function targetPorts(value: unknown): ReadonlySet<number> {
  if (!Array.isArray(value) || value.length === 0) throw new PoolError("spec.targetPorts: names no port");
  return new Set(value.map((entry: unknown, index) => portIn(isRecord(entry) ? entry["number"] : undefined, `spec.targetPorts[${String(index)}].number`)));
}

function portIn(value: unknown, path: string): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1 || value > 65_535) throw new PoolError(`${path}: is not a port`);
  return value;
}

/** As the API takes it: `a=b,c=d`. */
export function labelSelector({ labels }: Pick<PoolSpec, "labels">): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(",");
}
