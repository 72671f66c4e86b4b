import type { HostPort } from "./address.js";
import type { Json, JsonObject } from "./json.js";
import type { Settings } from "./settings.js";
import { protoDuration } from "./duration.js";

export const WASM_TYPE = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
/** Shared data belongs to the vm_id: it stays the same for ever, so that a new module finds what the old one knew (ENVOY.md, Shared data). */
export const VM_ID = "crosspoint";
/** The filter of the clients' listener, and the one that answers on the state listener. The names are root ids, filter names and ECDS resources at once. */
export const FILTERS = ["crosspoint", "crosspoint_state"] as const;
export type FilterName = (typeof FILTERS)[number];
export const DECODE_CLUSTER = "decode";

/** How long a worker whose VM trapped answers 503 before it makes a new one. */
const RELOAD_BACKOFF_MS = 200;

function discoveryResponse(revision: number, resource: JsonObject): JsonObject {
  return { version_info: String(revision), resources: [resource] };
}

/**
 * The ECDS file of one filter. Each filter has a file of its own: a subscription takes every resource of its file, and refuses the file when one of them has another name.
 *
 * @param modulePath the module as Envoy sees it
 * @param document the plugin document's text
 */
export function ecdsFile(name: FilterName, revision: number, modulePath: string, document: string): JsonObject {
  return discoveryResponse(revision, {
    "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
    name,
    typed_config: {
      "@type": WASM_TYPE,
      config: {
        name,
        root_id: name,
        vm_config: { vm_id: VM_ID, runtime: "envoy.wasm.runtime.v8", code: { local: { filename: modulePath } } },
        // A trap fails its own request and makes the VM anew; without it the worker would refuse everything until Envoy's restart.
        failure_policy: "FAIL_RELOAD",
        reload_config: { backoff: { base_interval: protoDuration(RELOAD_BACKOFF_MS), max_interval: protoDuration(RELOAD_BACKOFF_MS) } },
        // Without it the filter's StopIteration at the headers also stops the body, and every POST hangs.
        allow_on_headers_stop_iteration: true,
        configuration: { "@type": "type.googleapis.com/google.protobuf.StringValue", value: document },
      },
    },
  });
}

/** The EDS file of the decode cluster: every pod that may decode, and no other, since Envoy's own fallback may send to any of them. */
export function edsFile(revision: number, hosts: readonly HostPort[]): JsonObject {
  return discoveryResponse(revision, {
    "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    cluster_name: DECODE_CLUSTER,
    endpoints: [{ lb_endpoints: hosts.map(({ host, port }) => ({ endpoint: { address: { socket_address: { address: host, port_value: port } } } })) }],
  });
}

/** A `ConfigSource` that reads a file again when it, or the folder that it is mounted from, is replaced by a rename. */
export function fileSource(settings: Settings, file: string): Json {
  return {
    resource_api_version: "V3",
    path_config_source: { path: `${settings.mount}/${file}`, watched_directory: { path: settings.mount } },
  };
}
