// `session-id-producer` (scheduler §2.5): where a request's session id stands, for the session plugins that name this instance as an attribute.
import { Build } from "../../config/build";
import { Node } from "../../config/node";
import { Plugin, PluginKind } from "../plugin";

export class SessionIdProducer extends Plugin {
  constructor(
    /** Place of the id in `RequestFacts.headers`. */
    public readonly header: i32,
  ) {
    super(PluginKind.Producer);
  }

  static read(parameters: Node, build: Build): Plugin {
    parameters.fields(["headerName", "cookieName"]);
    const header = parameters.get("headerName");
    const cookie = parameters.get("cookieName");
    if (header.present == cookie.present) {
      parameters.error("must have exactly one of headerName and cookieName");
      return new SessionIdProducer(0);
    }
    if (cookie.present && !cookie.isString) {
      cookie.text("");
      return new SessionIdProducer(0);
    }
    return new SessionIdProducer(header.present ? build.header(header, "") : build.header(cookie, "", cookie.text("")));
  }
}
