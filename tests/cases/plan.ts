/** From a case to its runs: every combination of its repeated keys, less what this build lacks. */
import type { Case } from "./format.js";
import { featureOfConnector, featureOfPolicy, type Connector, type EcConnector, type Feature, type Policy } from "./features.js";
import { hasChunks } from "./scripts.js";

export interface RunPlan {
  case: Case;
  /** The values of the keys that repeat, for messages; empty for a case with one run. */
  label: string[];
  padTo: number;
  connector: Connector;
  ecConnector: EcConnector;
  policy: Policy;
  /** Scripted `chunks` are cut at every byte. */
  everyByte: boolean;
}

export interface Pending {
  /** The value of a repeated key that is missing; null: the whole case is. */
  value: string | null;
  missing: string[];
}

export interface Plan {
  runs: RunPlan[];
  pending: Pending[];
}

/**
 * @param built the features of this build
 * @param ipv6 the machine has `::1`
 */
export function planCase(subject: Case, built: ReadonlySet<Feature>, ipv6: boolean): Plan {
  const { given } = subject;
  const missing: string[] = given.needs.filter((feature) => !built.has(feature));
  if (given.topology === "ipv6" && !ipv6) missing.push("ipv6");
  if (missing.length > 0) return { runs: [], pending: [{ value: null, missing }] };

  const lacks = (feature: Feature | null): feature is Feature => feature !== null && !built.has(feature);
  const pending: Pending[] = [];
  const connectors = given.connectors.filter((connector) => {
    const feature = featureOfConnector(connector);
    if (lacks(feature)) pending.push({ value: connector, missing: [feature] });
    return !lacks(feature);
  });
  const policies = given.policies.filter((policy) => {
    const feature = featureOfPolicy(policy);
    if (lacks(feature)) pending.push({ value: policy, missing: [feature] });
    return !lacks(feature);
  });

  const cuts = hasChunks(subject.scripts) ? [false, true] : [false];
  const runs: RunPlan[] = [];
  for (const connector of connectors) {
    for (const ecConnector of given.ecConnectors) {
      for (const padTo of given.padTo) {
        for (const policy of policies) {
          for (const everyByte of cuts) {
            const label: string[] = [];
            if (given.connectors.length > 1) label.push(connector);
            if (given.ecConnectors.length > 1) label.push(ecConnector);
            if (given.padTo.length > 1) label.push(padTo.toString());
            if (given.policies.length > 1) label.push(policy);
            if (everyByte) label.push("every byte");
            runs.push({ case: subject, label, padTo, connector, ecConnector, policy, everyByte });
          }
        }
      }
    }
  }
  return { runs, pending };
}
