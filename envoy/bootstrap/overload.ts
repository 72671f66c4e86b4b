import type { JsonObject } from "../json.js";
import type { Settings } from "../settings.js";
import { note } from "../yaml.js";

const HEAP = "envoy.resource_monitors.fixed_heap";
/** Streams that hold less than 1 MiB are never reset for their memory. */
const TRACKED_POWER_OF_TWO = 20;

function above(heapShare: number): JsonObject {
  return { name: HEAP, threshold: { value: heapShare } };
}

function action(name: string, trigger: JsonObject): JsonObject {
  return { name: `envoy.overload_actions.${name}`, triggers: [trigger] };
}

/** Every body that is being read is held whole, so memory is what runs out first. */
export function overloadManager(settings: Settings): JsonObject {
  return {
    refresh_interval: "0.25s",
    resource_monitors: [
      {
        name: HEAP,
        typed_config: {
          "@type": "type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig",
          max_heap_size_bytes: settings.maxHeapBytes,
        },
      },
      {
        name: "envoy.resource_monitors.global_downstream_max_connections",
        typed_config: {
          "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
          max_active_downstream_connections: settings.maxConnections,
        },
      },
    ],
    buffer_factory_config: { minimum_account_to_track_power_of_two: TRACKED_POWER_OF_TWO },
    actions: [
      action("shrink_heap", above(0.8)),
      note(action("disable_http_keepalive", above(0.9)), { "": "Clients come back over new connections, of which others may take their share." }),
      note(action("stop_accepting_requests", above(0.95)), { "": "503; streams that are open go on." }),
      note(action("reset_high_memory_stream", { name: HEAP, scaled: { scaling_threshold: 0.97, saturation_threshold: 1 } }), {
        "": "Bodies that were let in before may still grow. Over HTTP/2 the largest are reset; Envoy keeps no such account over HTTP/1.1,\nwhere what is still being sent is cut off (503). Answers that are streaming go on.",
      }),
    ],
    loadshed_points: [{ name: "envoy.load_shed_points.http1_server_abort_dispatch", triggers: [above(0.99)] }],
  };
}
