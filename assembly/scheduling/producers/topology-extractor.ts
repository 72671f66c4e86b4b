// `topology-extractor` (scheduler §2.9): which labels say where an endpoint stands.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

const FIELDS: StaticArray<string> = ["hostname", "rack", "zone", "region"];

export class TopologyExtractor extends Plugin {
  constructor() {
    super(PluginKind.Extractor | PluginKind.Producer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(FIELDS);
    for (let level = 0; level < FIELDS.length; level++) {
      const key = parameters.get(FIELDS[level]).text("");
      if (key.length > 0) build.topologyLabels.keys[level] = key;
    }
    return new TopologyExtractor();
  }
}
