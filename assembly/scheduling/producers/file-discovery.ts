// `file-discovery` (scheduler §8.1). The endpoints reach the filter inside its configuration; the renderer reads the file.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

export class FileDiscovery extends Plugin {
  constructor(
    public readonly file: string,
    public readonly watchFile: bool,
  ) {
    super(PluginKind.Discovery);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["path", "watchFile"]);
    const pathNode = parameters.get("path");
    const path = pathNode.text("");
    if (path.length == 0 && (pathNode.isString || !pathNode.present)) pathNode.error("is required");
    return new FileDiscovery(path, parameters.boolOf("watchFile", false));
  }
}
