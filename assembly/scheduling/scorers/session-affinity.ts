// `session-affinity-scorer` (scheduler §2.2): 1 for the endpoint that the session is bound to, 0 for the others.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Pass } from "../pass";
import { Plugin, PluginKind } from "../plugin";
import { SessionAffinity } from "../session";

export class SessionAffinityScorer extends SessionAffinity {
  static read(parameters: Node, build: Build): Plugin {
    return new SessionAffinityScorer(PluginKind.Scorer, parameters, build);
  }

  score(pass: Pass): void {
    const at = this.find(pass);
    for (let i = 0; i < pass.count; i++) unchecked((pass.raw[i] = i == at ? 1 : 0));
  }
}
