// `data-parallel-profile-handler` (scheduler §3.7): one profile; requests go to the picked pod's primary port, the picked rank stands in a header.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin } from "../../scheduling/plugin";
import { ProfileHandler } from "./handler";

export class DataParallelProfileHandler extends ProfileHandler {
  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["primaryPort"]);
    const handler = new DataParallelProfileHandler();
    handler.single = true;
    // 0 is an unset field, as in the reference.
    const port = parameters.intOf("primaryPort", 8000, 0, 65535);
    handler.primaryPort = port == 0 ? 8000 : port;
    return handler;
  }
}
