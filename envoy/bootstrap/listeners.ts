import type { HostPort } from "../address.js";
import { protoDuration } from "../duration.js";
import type { Json, JsonObject } from "../json.js";
import type { GatewayOptions } from "../options.js";
import type { Settings } from "../settings.js";
import { fileSource, type FilterName, WASM_TYPE } from "../xds.js";
import { note } from "../yaml.js";
import { accessLog } from "./access-log.js";
import { decompressionFilters } from "./decompression.js";
import { http2Windows } from "./http2.js";
import { localReplies } from "./local-replies.js";
import { routeTable } from "./routes.js";
import { strippingFilter } from "./stripping.js";

const HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";

/**
 * What Envoy reads from a connection in one go. It is not the body's limit: it bounds how much one piece of a compressed body can grow to before the limit is looked at (a
 * gzip bomb opens to 1,032 times its size), and how much of an answer waits for a client that does not read.
 */
const CONNECTION_BUFFER_BYTES = 64 * 1024;

/** An address that nobody connects from. */
const NOBODY = { address_prefix: "0.0.0.0", prefix_len: 32 };

export function socketAddress({ host, port }: HostPort): JsonObject {
  return { socket_address: { address: host, port_value: port } };
}

/** A filter that ECDS brings. Until it has, Envoy answers; nothing passes. */
function discoveredFilter(name: FilterName, file: string, settings: Settings): JsonObject {
  return { name, config_discovery: { config_source: fileSource(settings, file), type_urls: [WASM_TYPE] } };
}

function router(): JsonObject {
  return {
    name: "router",
    typed_config: { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router", suppress_envoy_headers: true },
  };
}

function connectionManager(options: JsonObject): JsonObject {
  return { filter_chains: [{ filters: [{ name: "http", typed_config: { "@type": HCM, ...options } }] }] };
}

function clientListener(settings: Settings, options: GatewayOptions): JsonObject {
  const manager: JsonObject = note(
    {
      stat_prefix: "clients",
      use_remote_address: true,
      internal_address_config: { cidr_ranges: [NOBODY] },
      normalize_path: true,
      merge_slashes: true,
      path_with_escaped_slashes_action: "UNESCAPE_AND_FORWARD",
      generate_request_id: true,
      preserve_external_request_id: true,
      always_set_request_id_in_response: true,
      request_id_extension: {
        typed_config: { "@type": "type.googleapis.com/envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig", pack_trace_reason: false },
      },
      request_headers_timeout: protoDuration(settings.requestHeadersTimeoutMs),
      request_timeout: protoDuration(settings.requestTimeoutMs),
      stream_idle_timeout: protoDuration(settings.streamIdleTimeoutMs),
      common_http_protocol_options: { idle_timeout: "900s", headers_with_underscores_action: "ALLOW" },
      http2_protocol_options: http2Windows(options.bodyLimitBytes),
      access_log: [accessLog(settings.accessLog)],
      local_reply_config: localReplies(options.bodyLimitBytes),
      route_config: routeTable(settings, options),
      http_filters: [strippingFilter(), ...decompressionFilters(), discoveredFilter("crosspoint", "ecds.json", settings), router()] as Json[],
    },
    {
      internal_address_config: "Nobody is trusted for where they connect from. (An empty list would mean every private address.)",
      normalize_path: "What is matched is what is forwarded: `%2e`, `..`, `//`, `%2f` and backslashes are resolved first.",
      generate_request_id: "A client's x-request-id is kept as it is; otherwise one is made. Either way it is in the answer. (With\npack_trace_reason Envoy would write into ids that look like UUIDs.)",
      request_headers_timeout: "Slow senders.",
      local_reply_config: "Envoy's own answers, in the shape of OpenAI's errors.",
    },
  );
  return note(
    { name: "clients", address: socketAddress(settings.listen), per_connection_buffer_limit_bytes: CONNECTION_BUFFER_BYTES, ...connectionManager(manager) },
    { per_connection_buffer_limit_bytes: "Not the body's limit, but what is read in one go: it bounds what a compressed bomb opens to before the limit is looked at." },
  );
}

function stateListener(settings: Settings): JsonObject {
  return {
    name: "state",
    address: socketAddress(settings.state),
    // Never in the way of the clients' connections, nor kept from an operator by them.
    ignore_global_conn_limit: true,
    ...connectionManager({
      stat_prefix: "state",
      request_headers_timeout: protoDuration(settings.requestHeadersTimeoutMs),
      local_reply_config: localReplies(CONNECTION_BUFFER_BYTES),
      route_config: { name: "state", virtual_hosts: [{ name: "all", domains: ["*"], routes: [{ match: { prefix: "/" }, direct_response: { status: 404 } }] }] },
      http_filters: [discoveredFilter("crosspoint_state", "ecds-state.json", settings), router()],
    }),
  };
}

export function listeners(settings: Settings, options: GatewayOptions): JsonObject[] {
  return [clientListener(settings, options), note(stateListener(settings), { "": "The filter's state, for operators: loopback only." })];
}
