// `topology-affinity-scorer` (scheduler §2.2): the closer to the endpoint of the stage before, the better.
import { Build, TOPOLOGY_EXTRACTOR } from "../../config/build";
import { Node } from "../../config/node";
import { EndpointTable } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";
import { Topology } from "../topology";

/** For host, rack, zone, region, none. */
const SCORES: StaticArray<f64> = [1.0, 0.2, 0.05, 0.02, 0];

export class TopologyAffinityScorer extends Plugin {
  private readonly topology: Topology = new Topology();

  constructor(private readonly build: Build) {
    super(PluginKind.Scorer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["topologyProducerName"]);
    build.producer(parameters, "topologyProducerName", TOPOLOGY_EXTRACTOR);
    return new TopologyAffinityScorer(build);
  }

  prepare(table: EndpointTable): void {
    this.topology.prepare(table, this.build.topologyLabels);
  }

  score(pass: Pass): void {
    for (let i = 0, n = pass.count; i < n; i++) {
      unchecked((pass.raw[i] = pass.peer < 0 ? 0 : SCORES[this.topology.compare(pass.peer, pass.candidates[i])]));
    }
  }
}
