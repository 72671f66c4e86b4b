// What plugin readers share while one configuration is built: where to report, and which other instances they rely on.
import { TopologyLabels } from "../scheduling/topology";
import { Node } from "./node";
import { Problems } from "./problems";

/** A consumer's mention of a producer instance, checked when all plugins are made (scheduler §1.4, data keys). */
export class ProducerReference {
  constructor(
    public readonly node: Node,
    public readonly name: string,
    /** Type the instance must have; also the name that is always good, since a missing default producer is made. */
    public readonly type: string,
  ) {}
}

export class Build {
  readonly producerReferences: Array<ProducerReference> = [];

  /** Shared by all topology plugins; `topology-extractor` may rename the labels. */
  readonly topologyLabels: TopologyLabels = new TopologyLabels();

  constructor(public readonly problems: Problems) {}

  /** Reads the parameter `field`, a producer's name; absent and "" mean the default instance. */
  producer(parameters: Node, field: string, type: string): void {
    const node = parameters.get(field);
    const name = node.text("");
    if (name.length > 0) this.producerReferences.push(new ProducerReference(node, name, type));
  }
}

export const APPROX_PREFIX_CACHE_PRODUCER: string = "approx-prefix-cache-producer";
export const INFLIGHT_LOAD_PRODUCER: string = "inflight-load-producer";
export const TOKEN_PRODUCER: string = "token-producer";
export const TOPOLOGY_EXTRACTOR: string = "topology-extractor";

export const NOT_POSITIVE: string = "must be greater than 0: the default is used";

/** Begins every refusal of something that the reference has and we have not. */
export const NOT_IN_LINE: string = "known, not supported in-line: ";

/** For plugins without parameters. The reference's factories ignore what stands there, so files with such a block exist. */
export function noParameters(parameters: Node): void {
  if (parameters.present) parameters.warn("the plugin takes no parameters: ignored");
}
