// `topology-affinity-filter` (scheduler §2.1): keeps what is close enough to the endpoint that the stage before has picked.
import { Build, TOPOLOGY_EXTRACTOR } from "../../config/build";
import { Node } from "../../config/node";
import { EndpointTable } from "../../endpoints/table";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";
import { AFFINITY_WORDS, Topology } from "../topology";

export class TopologyAffinityFilter extends Plugin {
  private readonly topology: Topology = new Topology();

  constructor(
    private readonly build: Build,
    private readonly minAffinity: i32,
  ) {
    super(PluginKind.Filter);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["minAffinity", "topologyProducerName"]);
    const minAffinity = AFFINITY_WORDS.indexOf(parameters.get("minAffinity").oneOf(AFFINITY_WORDS));
    build.producer(parameters, "topologyProducerName", TOPOLOGY_EXTRACTOR);
    return new TopologyAffinityFilter(build, minAffinity);
  }

  prepare(table: EndpointTable): void {
    this.topology.prepare(table, this.build.topologyLabels);
  }

  /** Without a peer, and when nothing is close enough, all candidates stay: closeness is a wish, not a condition. */
  keep(pass: Pass): void {
    const peer = pass.peer;
    if (peer < 0 || !this.topology.knows(peer)) return;
    const candidates = pass.candidates;
    const n = pass.count;
    let close = 0;
    for (let i = 0; i < n; i++) if (this.topology.compare(peer, unchecked(candidates[i])) <= this.minAffinity) close++;
    if (close == 0) return;
    let kept = 0;
    for (let i = 0; i < n; i++) {
      const endpoint = unchecked(candidates[i]);
      if (this.topology.compare(peer, endpoint) <= this.minAffinity) unchecked((candidates[kept++] = endpoint));
    }
    pass.count = kept;
  }
}
