import type { JsonObject } from "../json.js";

/** Least window that HTTP/2 knows, bytes. */
export const MIN_WINDOW_BYTES = 65_535;

/** Streams of one client's connection: a gateway in front of this one sends all of its requests over few connections. */
const MAX_STREAMS = 10_000;

/**
 * A stream's window is what Envoy lets a stream hold, so over HTTP/2 the larger of it and `request_body_buffer_limit` is the body's limit: with a window of its size the
 * limit is exact, and what a client is still sending when its 413 comes has room, so that clients that send first and read then get to read.
 *
 * A request that is no HTTP ends its own stream: by default Envoy ends the connection, and with it the streams of everybody whose gateway shares it.
 */
export function http2Windows(bodyLimitBytes: number): JsonObject {
  const window = Math.max(MIN_WINDOW_BYTES, bodyLimitBytes);
  return { max_concurrent_streams: MAX_STREAMS, initial_stream_window_size: window, initial_connection_window_size: window, override_stream_error_on_invalid_http_message: true };
}

/**
 * Towards pods the windows are for answers. What a pod may send and a client does not read is held by Envoy, so a stream's window is small; the connection's is large, or the
 * streams that are held back would hold back the others.
 */
export function upstreamHttp2Windows(): JsonObject {
  return { initial_stream_window_size: 1024 * 1024, initial_connection_window_size: 256 * 1024 * 1024 };
}
