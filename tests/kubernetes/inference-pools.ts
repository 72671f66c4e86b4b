/** InferencePool as far as the sidecar reads it, in both API groups: without a definition the API server has no such object. */
export const GA = "inference.networking.k8s.io";
export const ALPHA = "inference.networking.x-k8s.io";
export const VERSIONS: Readonly<Record<string, string>> = { [GA]: "v1", [ALPHA]: "v1alpha2" };

type Schema = Record<string, unknown>;

const STRINGS: Schema = { type: "object", additionalProperties: { type: "string" } };
const PORT: Schema = { type: "integer", minimum: 1, maximum: 65535 };
/** Who picks: required by both versions, of no meaning to us. */
const REF: Schema = { type: "object", properties: { name: { type: "string" } }, "x-kubernetes-preserve-unknown-fields": true };

const SPECS: Readonly<Record<string, Schema>> = {
  [GA]: {
    type: "object",
    required: ["selector", "targetPorts"],
    properties: {
      selector: { type: "object", properties: { matchLabels: STRINGS } },
      targetPorts: { type: "array", items: { type: "object", required: ["number"], properties: { number: PORT } } },
      endpointPickerRef: REF,
    },
  },
  [ALPHA]: { type: "object", required: ["selector", "targetPortNumber"], properties: { selector: STRINGS, targetPortNumber: PORT, extensionRef: REF } },
};

export function poolDefinition(group: string): { apiVersion: string; kind: string; metadata: { name: string; annotations: Record<string, string> } } & Schema {
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    // Groups of *.k8s.io are taken with a note only.
    metadata: { name: `inferencepools.${group}`, annotations: { "api-approved.kubernetes.io": "unapproved, for tests" } },
    spec: {
      group,
      scope: "Namespaced",
      names: { kind: "InferencePool", listKind: "InferencePoolList", plural: "inferencepools", singular: "inferencepool" },
      versions: [{ name: VERSIONS[group], served: true, storage: true, schema: { openAPIV3Schema: { type: "object", properties: { spec: SPECS[group] } } } }],
    },
  };
}
