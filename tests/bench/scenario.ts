/** Which requests meet which fleets, and under which configuration. */
import { endpointEntry, type EndpointEntry, pickerDocument } from "../fleet/picker.js";
import type { BodySpec } from "./bodies.js";

export type BodyName = "1k" | "32k" | "1m" | "4m-image" | "128k-tokens";
export type Prompt = "cold" | "warm";

/** Tokens of a prompt are counted as four bytes each. */
const TOKEN_BYTES = 4;
const LONG_TOKENS = 131_072;

interface BodyPlan {
  spec: Omit<BodySpec, "headers" | "stream">;
  /** Connections of the busy part. */
  connections: number;
  /** Prompts that take turns when they are to be warm. */
  prompts: number;
}

export const BODIES: Readonly<Record<BodyName, BodyPlan>> = {
  "1k": { spec: { kind: "text", bytes: 1 << 10 }, connections: 16, prompts: 16 },
  "32k": { spec: { kind: "text", bytes: 32 << 10 }, connections: 16, prompts: 16 },
  "1m": { spec: { kind: "text", bytes: 1 << 20 }, connections: 16, prompts: 4 },
  "4m-image": { spec: { kind: "image", bytes: 4 << 20 }, connections: 16, prompts: 4 },
  // All of it but some thirty tokens is the prompt.
  "128k-tokens": { spec: { kind: "text", bytes: LONG_TOKENS * TOKEN_BYTES }, connections: 16, prompts: 4 },
};

/** One configuration of the filter. */
export interface Tuning {
  blockTokens: number;
  /** Blocks of a prompt that are looked at. */
  maxBlocks: number;
}

/** The bodies that a tuning is for: the long prompt is looked at whole, the others as far as the seed's configuration does. */
export function tuningsOf(body: BodyName, blocks: readonly number[], maxBlocks: number): Tuning[] {
  return body === "128k-tokens" ? [{ blockTokens: 64, maxBlocks: LONG_TOKENS / 64 }] : blocks.map((blockTokens) => ({ blockTokens, maxBlocks }));
}

export function tuningName({ blockTokens, maxBlocks }: Tuning): string {
  return `ours-${blockTokens.toString()}x${maxBlocks.toString()}`;
}

/** The seed's P/D configuration, with blocks of another size. Metrics are scraped only when that is to be measured. */
export function pdPicker({ blockTokens, maxBlocks }: Tuning, scrape: boolean): unknown {
  const pods = (role: string): unknown => ({ type: "label-selector-filter", name: `${role}-pods`, parameters: { matchExpressions: [{ key: "role", operator: "In", values: [role] }] } });
  const profile = (role: string): unknown => ({
    name: role,
    plugins: [{ pluginRef: `${role}-pods` }, { pluginRef: "max-score-picker" }, { pluginRef: "prefix-cache-scorer" }],
  });
  return {
    apiVersion: "llm-d.ai/v1alpha1",
    kind: "EndpointPickerConfig",
    plugins: [
      pods("prefill"),
      pods("decode"),
      { type: "prefix-cache-scorer", parameters: { autoTune: false, blockSizeTokens: blockTokens, maxPrefixBlocksToMatch: maxBlocks, lruCapacityPerServer: 31250 } },
      { type: "max-score-picker" },
      { type: "prefix-based-pd-decider", parameters: { nonCachedTokens: 8, promptTokens: 0 } },
      { type: "disagg-profile-handler", parameters: { profiles: { prefill: "prefill", decode: "decode" }, deciders: { prefill: "prefix-based-pd-decider" } } },
    ],
    schedulingProfiles: [profile("prefill"), profile("decode")],
    ...(scrape ? {} : { dataLayer: { injectDefaults: false } }),
  };
}

/**
 * Half of the endpoints decode and are there, half prefill. Nobody ever speaks to a prefill endpoint of the filter's bench, unless its metrics are scraped: then it is
 * there too.
 *
 * @param ports of the pods that are there
 */
export function pdEndpoints(count: number, ports: readonly number[]): EndpointEntry[] {
  const decode = Math.floor(count / 2);
  return Array.from({ length: count }, (_none, at) => {
    const prefill = at - decode;
    if (prefill < 0) return endpointEntry(`d${at.toString()}`, "decode", "127.0.0.1", portAt(ports, at));
    const port = ports[at];
    if (port !== undefined) return endpointEntry(`p${prefill.toString()}`, "prefill", "127.0.0.1", port);
    return endpointEntry(`p${prefill.toString()}`, "prefill", `127.77.${(prefill >> 8).toString()}.${(prefill & 255).toString()}`, 8000);
  });
}

function portAt(ports: readonly number[], at: number): number {
  const port = ports[at];
  if (port === undefined) throw new Error(`there is no pod number ${at.toString()}`);
  return port;
}

/**
 * All three stages, for the sidecar's bench: a known prompt is decoded where it is, a new one is prefilled first, pictures are encoded. Every prompt is looked at whole.
 */
export function epdPicker(): unknown {
  return { ...pickerDocument({ prefill: true, encode: true, blockSizeTokens: 64, maxPrefixBlocksToMatch: 32_768 }), dataLayer: { injectDefaults: false } };
}
