// `session-affinity-filter` (scheduler §2.1): only the endpoint that the session is bound to, as long as it is a candidate.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";
import { SessionAffinity } from "../session";

export class SessionAffinityFilter extends SessionAffinity {
  static read(parameters: Node, build: Build): Plugin {
    return new SessionAffinityFilter(PluginKind.Filter, parameters, build);
  }

  keep(pass: Pass): void {
    const at = this.find(pass);
    if (at < 0) return;
    pass.candidates[0] = pass.candidates[at];
    pass.count = 1;
  }
}
