import type { JsonObject } from "../json.js";
import { note } from "../yaml.js";

/**
 * One JSON line for each request. The path goes without its query, which may hold a key; `decision` is the filter's record as a line of words, null where the filter was not
 * asked.
 */
export function accessLog(path: string): JsonObject {
  return {
    name: "requests",
    typed_config: {
      "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
      path,
      log_format: note(
        {
          json_format: {
            time: "%START_TIME%",
            request_id: "%REQ(X-REQUEST-ID)%",
            method: "%REQ(:METHOD)%",
            path: "%PATH(NQ)%",
            status: "%RESPONSE_CODE%",
            flags: "%RESPONSE_FLAGS%",
            details: "%RESPONSE_CODE_DETAILS%",
            upstream: "%UPSTREAM_HOST%",
            decision: "%FILTER_STATE(wasm.crosspoint_decision:PLAIN)%",
            bytes_in: "%BYTES_RECEIVED%",
            bytes_out: "%BYTES_SENT%",
            duration_ms: "%DURATION%",
          },
        },
        {},
      ),
    },
  };
}
