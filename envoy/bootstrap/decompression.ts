import type { JsonObject } from "../json.js";
import { note } from "../yaml.js";

/**
 * Opens compressed request bodies ahead of the filter. Envoy has no decompressor for `deflate`; such a body stays closed, is routed by load and is the sidecar's to open or
 * refuse.
 *
 * `max_inflate_ratio` 1032 is gzip's own limit: at Envoy's default of 100 the rest of a repetitive body is dropped and the request goes on. Brotli and zstd have that limit of
 * 100 built in, per piece received: a body that is more repetitive arrives cut, and is then refused as truncated JSON.
 */
const LIBRARIES = [
  { name: "gzip", type: "envoy.extensions.compression.gzip.decompressor.v3.Gzip", settings: { max_inflate_ratio: 1032 } },
  { name: "brotli", type: "envoy.extensions.compression.brotli.decompressor.v3.Brotli", settings: {} },
  { name: "zstd", type: "envoy.extensions.compression.zstd.decompressor.v3.Zstd", settings: {} },
] as const;

export const DECOMPRESSORS: readonly string[] = LIBRARIES.map(({ name }) => name);

export function decompressionFilters(): JsonObject[] {
  return LIBRARIES.map(({ name, type, settings }) =>
    note(
      {
        name,
        typed_config: {
          "@type": "type.googleapis.com/envoy.extensions.filters.http.decompressor.v3.Decompressor",
          decompressor_library: { name, typed_config: { "@type": `type.googleapis.com/${type}`, ...settings } },
          // On, it would add accept-encoding upstream and work on every answer.
          response_direction_config: { common_config: { enabled: { default_value: false, runtime_key: "crosspoint.decompress_responses" } } },
        },
      },
      name === "gzip" ? { "": "The filter reads plain bodies; the upstream gets them plain. Answers are not touched." } : {},
    ),
  );
}
