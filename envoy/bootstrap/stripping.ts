import type { Json } from "../json.js";
import { note } from "../yaml.js";

/**
 * What a client may not say: where its request goes (DESIGN, decision 5; case 36), and how Envoy's router treats it (`x-envoy-retry-on: 5xx` would run prefill twice,
 * `x-envoy-upstream-rq-timeout-ms` would end a long answer). Our own reason header is among them, so that no upstream takes a client's word for a decision.
 */
export const STRIPPED_HEADERS = [
  "x-prefiller-host-port",
  "x-encoder-hosts-ports",
  "x-kv-cache-source-host-port",
  "x-data-parallel-host-port",
  "x-data-parallel-rank",
  "x-prefiller-url",
  "x-gateway-destination-endpoint",
  "x-gateway-destination-endpoint-subset",
  "x-crosspoint-decision",
] as const;

/** `x-envoy-original-dst-host` is one of these. */
export const STRIPPED_PREFIX = "x-envoy-";

export function strippingFilter(): Json {
  const removals: Json[] = [...STRIPPED_HEADERS.map((name) => ({ remove: name })), { remove_on_match: { key_matcher: { prefix: STRIPPED_PREFIX } } }];
  return note(
    {
      name: "strip",
      typed_config: {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        mutations: { request_mutations: removals, request_trailers_mutations: removals },
      },
    },
    { "": "Trust ends here: no client says where its request goes. Stays in force while the filter's VM is down." },
  );
}
