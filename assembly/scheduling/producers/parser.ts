// Parsers (scheduler §2.7): plugins without parameters that say which API shapes are read. The readers themselves are request/.
import { Build, noParameters } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

export class Parser extends Plugin {
  constructor() {
    super(PluginKind.Parser);
  }

  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    return new Parser();
  }
}
