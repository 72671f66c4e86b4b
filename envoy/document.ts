import { canonicalAddress, formatHostPort } from "./address.js";
import { isObject, type Json } from "./json.js";

/** An endpoint as the plugin document holds it. */
export interface Endpoint {
  readonly name: string;
  readonly namespace: string;
  /** In {@link canonicalAddress}'s spelling. */
  readonly address: string;
  readonly port: number;
  readonly labels: Readonly<Record<string, string>>;
}

/** What Envoy hands to the filter as its configuration, as one JSON text. */
export interface PluginDocument {
  /** Only grows: a filter never goes back behind one that it has seen. */
  readonly revision: number;
  readonly picker: Json;
  /** FilterOptions; absent when there is no such document. */
  readonly options?: Json;
  readonly endpoints: readonly Endpoint[];
}

export function endpointId(endpoint: Pick<Endpoint, "name" | "namespace">): string {
  return `${endpoint.namespace}/${endpoint.name}`;
}

/**
 * Brings an entry of the endpoints file (scheduler §8.1: port as text or number, namespace optional, unknown members tolerated) into the document's form.
 *
 * @param entry one that the validator accepted
 * @throws Error when it is not such an entry
 */
export function toEndpoint(entry: Json): Endpoint {
  const fields = isObject(entry) ? entry : {};
  const address = typeof fields.address === "string" ? canonicalAddress(fields.address) : null;
  const port = Number(fields.port);
  if (address === null || !Number.isInteger(port)) throw new Error(`not an endpoint: ${JSON.stringify(entry)}`);
  const text = (value: Json | undefined): string => (typeof value === "string" ? value : "");
  const labels = isObject(fields.labels) ? Object.entries(fields.labels).map(([name, value]) => [name, text(value)]) : [];
  return {
    name: text(fields.name) || formatHostPort({ host: address, port }),
    namespace: text(fields.namespace) || "default",
    address,
    port,
    labels: Object.fromEntries(labels) as Record<string, string>,
  };
}

/** `namespace/name` of an entry that need not be sound in other respects; null when it has no name. */
export function idOfEntry(entry: Json): string | null {
  if (!isObject(entry) || typeof entry.name !== "string" || entry.name === "") return null;
  const namespace = typeof entry.namespace === "string" && entry.namespace !== "" ? entry.namespace : "default";
  return endpointId({ name: entry.name, namespace });
}
