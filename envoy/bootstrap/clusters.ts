import { protoDuration } from "../duration.js";
import type { JsonObject } from "../json.js";
import type { GatewayOptions } from "../options.js";
import type { Settings } from "../settings.js";
import { DECODE_CLUSTER, fileSource } from "../xds.js";
import { note } from "../yaml.js";
import { upstreamHttp2Windows } from "./http2.js";

/** Clusters for the filter's own calls: to any address, as its header says. */
export const SCRAPE_CLUSTER = "crosspoint_scrape";
export const SCRAPE_TLS_CLUSTER = "crosspoint_scrape_tls";
/** Says to {@link SCRAPE_CLUSTER} where to go, `ip:port`. Clients' copies are stripped. */
const ORIGINAL_DST_HEADER = "x-envoy-original-dst-host";
/** What the filter sets: one `ip:port`, or several in order of preference. */
const DESTINATION_HEADER = "x-gateway-destination-endpoint";

const FAR_UP = 1_000_000;

/** Envoy's own limits are for services that answer in milliseconds; the limits here are the overload manager's. */
function circuitBreakers(): JsonObject {
  const high = { max_connections: FAR_UP, max_pending_requests: FAR_UP, max_requests: FAR_UP, max_retries: FAR_UP };
  return { thresholds: [{ priority: "DEFAULT", ...high }, { priority: "HIGH", ...high }] };
}

function tlsSocket(settings: Settings, options: GatewayOptions): JsonObject {
  const trust = options.tlsVerify ? { validation_context: { trusted_ca: { filename: settings.tlsCaFile } } } : {};
  return {
    name: "tls",
    typed_config: { "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext", common_tls_context: trust },
  };
}

/** HTTP/1.1 to plain pods; over TLS what ALPN gives. */
function httpOptions(tls: boolean): JsonObject {
  const own = tls
    ? { auto_config: { http_protocol_options: {}, http2_protocol_options: upstreamHttp2Windows() } }
    : { explicit_http_config: { http_protocol_options: {} } };
  return {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": note(
      {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        common_http_protocol_options: { idle_timeout: "30s" },
        ...own,
      },
      { common_http_protocol_options: "Shorter than the sidecar keeps an idle connection, so that none is closed under a request." },
    ),
  };
}

function decodeCluster(settings: Settings, options: GatewayOptions): JsonObject {
  return note(
    {
      name: DECODE_CLUSTER,
      type: "EDS",
      eds_cluster_config: { eds_config: fileSource(settings, "eds.json"), service_name: DECODE_CLUSTER },
      connect_timeout: protoDuration(settings.connectTimeoutMs),
      load_balancing_policy: {
        policies: [
          {
            typed_extension_config: {
              name: "envoy.load_balancing_policies.override_host",
              typed_config: note(
                {
                  "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
                  override_host_sources: [{ header: DESTINATION_HEADER }],
                  fallback_policy: {
                    policies: [
                      {
                        typed_extension_config: {
                          name: "envoy.load_balancing_policies.least_request",
                          typed_config: { "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest" },
                        },
                      },
                    ],
                  },
                },
                {
                  override_host_sources: "The filter's choice is taken whatever these health checks say of it; the filter knows its endpoints' health itself.",
                  fallback_policy: "For undecided requests, and for retries past the end of the list: any healthy pod of this cluster.",
                },
              ),
            },
          },
        ],
      },
      common_lb_config: note({ healthy_panic_threshold: { value: 1 } }, { healthy_panic_threshold: "Unhealthy pods are tried only when no pod is healthy." }),
      health_checks: [
        note(
          {
            timeout: "1s",
            interval: "2s",
            interval_jitter: "0.5s",
            unhealthy_threshold: 2,
            healthy_threshold: 1,
            no_traffic_interval: "2s",
            no_traffic_healthy_interval: "2s",
            http_health_check: { path: "/health", host: "crosspoint" },
          },
          { no_traffic_interval: "Envoy's default would look at an idle fleet once a minute." },
        ),
      ],
      outlier_detection: note(
        {
          split_external_local_origin_errors: true,
          consecutive_local_origin_failure: 2,
          enforcing_consecutive_local_origin_failure: 100,
          enforcing_consecutive_5xx: 0,
          enforcing_consecutive_gateway_failure: 0,
          enforcing_success_rate: 0,
          enforcing_local_origin_success_rate: 0,
          interval: "1s",
          base_ejection_time: "5s",
          max_ejection_time: "60s",
          max_ejection_percent: 100,
        },
        { split_external_local_origin_errors: "Connections that fail count; answers do not, or a client could eject a pod with requests that make engines answer 500." },
      ),
      ignore_health_on_host_removal: true,
      circuit_breakers: circuitBreakers(),
      upstream_connection_options: { tcp_keepalive: { keepalive_time: 60, keepalive_interval: 15, keepalive_probes: 4 } },
      typed_extension_protocol_options: httpOptions(options.tlsDecode),
      ...(options.tlsDecode ? { transport_socket: tlsSocket(settings, options) } : {}),
    },
    { ignore_health_on_host_removal: "A pod that leaves the file leaves the cluster at once; its open streams go on." },
  );
}

function scrapeCluster(name: string, settings: Settings, options: GatewayOptions, tls: boolean): JsonObject {
  return {
    name,
    type: "ORIGINAL_DST",
    lb_policy: "CLUSTER_PROVIDED",
    original_dst_lb_config: { use_http_header: true, http_header_name: ORIGINAL_DST_HEADER },
    connect_timeout: protoDuration(settings.connectTimeoutMs),
    cleanup_interval: "60s",
    circuit_breakers: circuitBreakers(),
    typed_extension_protocol_options: httpOptions(tls),
    ...(tls ? { transport_socket: tlsSocket(settings, options) } : {}),
  };
}

export function clusters(settings: Settings, options: GatewayOptions): JsonObject[] {
  return [
    note(decodeCluster(settings, options), { "": "Pods that may decode, and no others." }),
    note(scrapeCluster(SCRAPE_CLUSTER, settings, options, false), { "": "The filter's own calls, to the address that it names." }),
    scrapeCluster(SCRAPE_TLS_CLUSTER, settings, options, true),
  ];
}
