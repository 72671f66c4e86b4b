/** The EndpointPickerConfig of the fleets: the seed's E/P/D configuration, with the deciders and numbers that a test asks for. */

export interface PickerOptions {
  prefill: boolean;
  encode: boolean;
  /** Entries that the encode pick may return, default 1. */
  encoders?: number;
  nonCachedTokens?: number;
  promptTokens?: number;
  blockSizeTokens?: number;
  maxPrefixBlocksToMatch?: number;
}

interface PluginRef {
  pluginRef: string;
}

export interface PickerDocument {
  apiVersion: string;
  kind: string;
  plugins: { type: string; name?: string; parameters?: Record<string, unknown> }[];
  schedulingProfiles: { name: string; plugins: PluginRef[] }[];
}

const STAGES = ["encode", "prefill", "decode"] as const;

export function pickerDocument(options: PickerOptions): PickerDocument {
  const deciders: Record<string, string> = {};
  if (options.encode) deciders.encode = "always-disagg-multimodal-decider";
  if (options.prefill) deciders.prefill = "prefix-based-pd-decider";
  const encoders = options.encoders ?? 1;
  const scored = (pods: string): PluginRef[] => [{ pluginRef: pods }, { pluginRef: "max-score-picker" }, { pluginRef: "prefix-cache-scorer" }];
  return {
    apiVersion: "llm-d.ai/v1alpha1",
    kind: "EndpointPickerConfig",
    plugins: [
      ...STAGES.map((stage) => ({
        type: "label-selector-filter",
        name: `${stage}-pods`,
        parameters: { matchExpressions: [{ key: "role", operator: "In", values: [stage] }] },
      })),
      {
        type: "prefix-cache-scorer",
        parameters: {
          autoTune: false,
          blockSizeTokens: options.blockSizeTokens ?? 5,
          maxPrefixBlocksToMatch: options.maxPrefixBlocksToMatch ?? 256,
          lruCapacityPerServer: 31250,
        },
      },
      { type: "max-score-picker" },
      ...(encoders > 1 ? [{ type: "max-score-picker", name: "encode-picker", parameters: { maxNumOfEndpoints: encoders } }] : []),
      { type: "always-disagg-multimodal-decider" },
      { type: "prefix-based-pd-decider", parameters: { nonCachedTokens: options.nonCachedTokens ?? 8, promptTokens: options.promptTokens ?? 0 } },
      { type: "disagg-profile-handler", parameters: { profiles: { encode: "encode", prefill: "prefill", decode: "decode" }, deciders } },
    ],
    schedulingProfiles: [
      { name: "encode", plugins: [{ pluginRef: "encode-pods" }, ...(encoders > 1 ? [{ pluginRef: "encode-picker" }] : [])] },
      { name: "prefill", plugins: scored("prefill-pods") },
      { name: "decode", plugins: scored("decode-pods") },
    ],
  };
}

export interface EndpointEntry {
  name: string;
  namespace: string;
  address: string;
  port: string;
  labels: Record<string, string>;
}

/** An entry of the endpoints file (scheduler §8.1) with the role under the seed's custom key and under the usual one. */
export function endpointEntry(name: string, role: string, host: string, port: number): EndpointEntry {
  return { name, namespace: "default", address: host, port: port.toString(), labels: { role, "llm-d.ai/role": role } };
}
