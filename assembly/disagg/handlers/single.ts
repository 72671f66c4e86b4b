// `single-profile-handler`: one profile, no stages beside decode.
import { Build, noParameters } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin } from "../../scheduling/plugin";
import { ProfileHandler } from "./handler";

export class SingleProfileHandler extends ProfileHandler {
  static read(parameters: Node, build: Build): Plugin {
    noParameters(parameters);
    const handler = new SingleProfileHandler();
    handler.single = true;
    return handler;
  }
}
