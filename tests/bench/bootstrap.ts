/** The rendered bootstrap, made fit for measuring. */
import { parse } from "yaml";

type Node = Record<string, unknown>;

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Every object of a document, the outer ones first. */
function* nodesOf(value: unknown): Generator<Node> {
  if (Array.isArray(value)) for (const item of value) yield* nodesOf(item);
  if (!isNode(value)) return;
  yield value;
  for (const member of Object.values(value)) yield* nodesOf(member);
}

const FILTER = /^crosspoint/;

/**
 * @param text what the renderer wrote
 * @param filtered false: the same proxy without our filter, and without the listener that only the filter answers on
 * @returns the document as JSON, which Envoy reads like YAML: active health checks are gone, since five hundred pods that are asked every two seconds would be a load of
 * their own
 */
export function benchBootstrap(text: string, filtered: boolean): string {
  const document = parse(text) as unknown;
  for (const node of nodesOf(document)) {
    delete node.health_checks;
    if (filtered) continue;
    for (const list of ["http_filters", "listeners"] as const) {
      const items = node[list];
      if (Array.isArray(items)) node[list] = items.filter((item) => !isNode(item) || !(FILTER.test(String(item.name)) || (list === "listeners" && item.name === "state")));
    }
    const perRoute = node.typed_per_filter_config;
    if (isNode(perRoute)) for (const name of Object.keys(perRoute)) if (FILTER.test(name)) Reflect.deleteProperty(perRoute, name);
  }
  return JSON.stringify(document);
}
