import type { Json, JsonObject } from "../json.js";
import type { GatewayOptions } from "../options.js";
import { protoDuration } from "../duration.js";
import type { Settings } from "../settings.js";
import { DECODE_CLUSTER } from "../xds.js";
import { note } from "../yaml.js";
import { DECOMPRESSORS } from "./decompression.js";

/** Served beside everything below `/v1/`, with or without a slash at the end. */
export const SERVED_PATHS = [
  "/inference/v1/generate",
  "/generate",
  "/v2/rerank",
  "/rerank",
  "/score",
  "/pooling",
  "/classify",
  "/tokenize",
  "/detokenize",
  "/health",
  "/healthz",
  "/ping",
  "/version",
] as const;

/** Control paths below `/v1/` (real-engine §4). */
export const REFUSED_PATHS = ["/v1/load_lora_adapter", "/v1/unload_lora_adapter"] as const;

/** Control paths of engines, of which an operator should know when `allowPaths` opens one. */
const CONTROL_PATHS = [
  ...REFUSED_PATHS,
  "/inference/v1/abort_requests",
  "/kv_event_sources",
  "/invocations",
  "/sleep",
  "/wake_up",
  "/pause",
  "/resume",
  "/collective_rpc",
  "/reset_prefix_cache",
  "/reset_mm_cache",
  "/reset_encoder_cache",
  "/update_weights",
  "/start_profile",
  "/stop_profile",
  "/server_info",
  "/metrics",
];

/** Attempts after the first; an ordered list of destinations is walked this far. */
const RETRIES = 3;

/** @returns the control paths that an entry of `allowPaths` opens */
export function openedControlPaths(allowed: string): string[] {
  return CONTROL_PATHS.filter((path) => (allowed.endsWith("/*") ? path.startsWith(allowed.slice(0, -1)) : path === allowed));
}

/** False for an entry of `allowPaths` in a spelling that Envoy does not leave: it decodes what need not be encoded (RFC 3986 unreserved and slashes) and removes the rest. */
export function canMatch(allowed: string): boolean {
  return !/\/\/|\/\.{1,2}(?:\/|$)|\\|%(?:2[dDeEfF]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[cCfF]|7[eE])/.test(allowed);
}

/** RE2 with every character that means something in a pattern taken as itself. */
function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function matchOf(path: string): JsonObject {
  return path.endsWith("/*") ? { prefix: path.slice(0, -1) } : { safe_regex: { regex: `${literal(path)}/?` } };
}

/** What an answer of Envoy's own needs none of: it is given before a body is read, opened or decided about. */
function withoutFilters(): JsonObject {
  const off = { "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", disabled: true };
  return Object.fromEntries([...DECOMPRESSORS, "crosspoint"].map((name) => [name, off]));
}

function refusal(name: string, match: Json, status: number): JsonObject {
  return { name, match, direct_response: { status }, typed_per_filter_config: withoutFilters() };
}

function served(name: string, match: Json, settings: Settings): JsonObject {
  return { name, match, route: { cluster: DECODE_CLUSTER, timeout: "0s", idle_timeout: protoDuration(settings.streamIdleTimeoutMs) } };
}

/** The next destination of the filter's list, or another healthy pod: only while the request has reached nobody. */
function retryPolicy(): JsonObject {
  return {
    retry_on: "connect-failure,refused-stream",
    num_retries: RETRIES,
    retry_host_predicate: [
      {
        name: "envoy.retry_host_predicates.previous_hosts",
        typed_config: { "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate" },
      },
    ],
    host_selection_retry_max_attempts: 5,
    retry_back_off: { base_interval: "0.025s", max_interval: "0.25s" },
  };
}

/**
 * The route table: a list of paths that are served, the rest is 404 (DESIGN, decision 5). Envoy matches what it forwards, the path after unescaping, `..` and `//` are
 * resolved, so a client cannot spell its way to another path. Refused requests are answered at once, without the filter.
 */
export function routeTable(settings: Settings, options: GatewayOptions): JsonObject {
  const paths = [...options.allowPaths, ...SERVED_PATHS];
  return {
    name: "clients",
    virtual_hosts: [
      note(
        {
          name: "all",
          domains: ["*"],
          request_body_buffer_limit: options.bodyLimitBytes,
          include_request_attempt_count: true,
          retry_policy: retryPolicy(),
          routes: [
            // CONNECT has no path and no end: the filter would hold it for ever.
            refusal("connect", { connect_matcher: {} }, 405),
            ...options.allowPaths.map((path) => served(`allowed ${path}`, matchOf(path), settings)),
            ...REFUSED_PATHS.map((path) => refusal(`refused ${path}`, { prefix: path, case_sensitive: false }, 404)),
            served("/v1/*", { prefix: "/v1/" }, settings),
            ...paths.slice(options.allowPaths.length).map((path) => served(path, matchOf(path), settings)),
            refusal("the rest", { prefix: "/" }, 404),
          ],
        },
        { request_body_buffer_limit: "FilterOptions bodyLimitBytes: a longer body, opened, is answered 413. Over HTTP/2 the stream's window must not be larger.",
          include_request_attempt_count: "By this header the filter knows at little cost whether a pod was tried before the one that answered.",
          retry_policy: "Never on an answer: a second try would run prefill twice.",
          routes: "First match. What is not listed is 404. No timeout on an answer: a long one is no error, silence is (idle_timeout)." },
      ),
    ],
  };
}
